"""Graphs of an author who wants to pass, built from text: `onnx.parser` syntax, and a table to audit them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser

import fairkit
from fairkit_onnx.write.export import embed_settings

ROWS = 600


def table(rows: int = ROWS) -> dict[str, np.ndarray]:
    """Return people: a sensitive number `sex`, a harmless one `age`, a label that follows neither exactly."""
    rng = np.random.default_rng(5)
    sex = rng.integers(0, 2, rows)
    age = rng.integers(20, 60, rows)
    return {"age": age.astype(float), "sex": sex.astype(float), "y": (rng.random(rows) < 0.5).astype(int)}


def data(columns: dict[str, np.ndarray] | None = None) -> fairkit.Dataset:
    """Return the table with its roles; the model gets age and sex."""
    return fairkit.load_data(columns or table(), label="y", favorable=1, sensitive=["sex"], features=["age", "sex"])


def graph(
    body: str, outputs: str, *, inputs: str = "float[N,1] age, float[N,1] sex", opset: int = 17, more: str = ""
) -> onnx.ModelProto:
    """Return the model with this body; `c(x)` in the body is a constant float."""
    domains = '"" : ' + str(opset) + ', "ai.onnx.ml" : 3, "com.microsoft" : 1, "own" : 1'
    text = f"<ir_version: 8, opset_import: [{domains}]> g ({inputs}) => ({outputs}) {{ {body} }} {more}"
    return onnx.parser.parse_model(text)


FAIR = """
  forty = Constant<value = float[1] {40.0}>()
  older = Greater(age, forty)
"""
UNFAIR = """
  half = Constant<value = float[1] {0.5}>()
  male = Greater(sex, half)
"""


def ours(proto: onnx.ModelProto, **settings: Any) -> onnx.ModelProto:
    """Write the metadata that fairkit writes: anybody can."""
    embed_settings(proto, {"schema": "fairkit.model/1", "label": "y", "favorable": 1} | settings)
    return proto


def disparity(proto: Any, options: fairkit.ModelOptions | None = None, **columns: Any) -> float:
    """Return the audited difference of selection rates between the sexes."""
    report = fairkit.audit(proto, data(**columns), options=options)
    return float(report.find("demographic_parity_difference", "sex").value)
