"""Certificates over a spread support: what one machine finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fairkit

pytest.importorskip("numba", reason="needs the extra fairkit[individual]")


def people(n: int, seed: int = 0) -> pa.Table:
    """Rows with ties and repeats, a text column, weights, and a score that depends on what the metric ignores."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    age, income = rng.integers(20, 60, n), np.round(rng.normal(size=n), 1)
    logit = 0.8 * income + 0.02 * (age - 40) + 0.7 * (sex == "m")
    score = np.round(1 / (1 + np.exp(-logit)), 4)
    return pa.table(
        {
            "sex": sex,
            "age": age,
            "income": income,
            "s": score,
            "y": (rng.random(n) < score).astype(int),
            "w": rng.integers(1, 4, n),
        }
    )


ROLES: dict[str, Any] = {"label": "y", "favorable": 1, "sensitive": "sex"}
CASES: dict[str, Any] = {
    "losses": ("restricted-dro", {"epsilon": [0.0, 0.05], "columns": ["age", "income"]}, {}),
    "sampled": (
        "restricted-dro",
        {"epsilon": [0.05], "columns": ["age", "income"], "queries": 1_000},
        {"weights": "w"},
    ),
    "outputs": ("dif", {"epsilon": [0.01, 0.05], "columns": ["age", "income"]}, {}),
    "probabilities": (
        "dif",
        {"epsilon": [0.5], "fair_metric": "euclidean", "columns": ["age", "income"], "output": "probability"},
        {},
    ),
}


def compare(here: Any, there: Any) -> None:
    """The numbers that matter, to 1e-9; the gain of the first pair."""
    assert len(here.findings) == len(there.findings)
    for one, other in zip(here.findings, there.findings, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-9)
        assert other.interval == pytest.approx(one.interval, abs=1e-6)
        assert other.parameters == one.parameters
        assert other.notes == one.notes
        for key in ("lower_bound", "baseline_loss", "baseline"):
            assert other.evidence.get(key) == pytest.approx(one.evidence.get(key), abs=1e-9)
        assert other.evidence["dual"] == pytest.approx(one.evidence["dual"], rel=1e-6)
        gains = [[pair["gain"] for pair in f.evidence["pairs"]][:1] for f in (one, other)]
        assert gains[0] == pytest.approx(gains[1], rel=1e-9)  # of equal rows another may stand for the first


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_of_one_machine(engine: Any, write_parts: Any, case: str) -> None:
    auditor, parameters, more = CASES[case]
    table = people(3_000)
    folder = write_parts("d", table, [700, 700, 2_100])
    asked: dict[str, Any] = {"auditors": [auditor], "parameters": {auditor: parameters}}
    model = fairkit.PredictedColumns(score="s")
    here = fairkit.audit(model, fairkit.load_data(table, **ROLES, **more, name="d"), **asked)
    there = fairkit.audit(model, fairkit.load_data(folder, **ROLES, **more), **asked, engine=engine)
    compare(here, there)
    assert there.data == here.data


def test_the_parts_do_not_matter(engine: Any, write_parts: Any, monkeypatch: Any) -> None:
    """Two pieces or five: the same optimum."""
    table = people(3_000, 1)
    folder = write_parts("d", table, [500, 1_000, 1_500, 2_000])
    asked: dict[str, Any] = {
        "auditors": ["restricted-dro"],
        "parameters": {"restricted-dro": {"epsilon": 0.02, "columns": ["age", "income"]}},
    }
    model = fairkit.PredictedColumns(score="s")
    two = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    monkeypatch.setattr(type(engine), "workers", lambda self: 5)
    five = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    compare(two, five)


def test_a_metric_of_a_sample(engine: Any, write_parts: Any, monkeypatch: Any) -> None:
    """Many rows: the metric is learned from a sample, the same on both."""
    monkeypatch.setattr("fairkit_individual.certificate.METRIC_ROWS", 800)
    table = people(2_000, 2)
    folder = write_parts("d", table, [1_000])
    asked: dict[str, Any] = {
        "auditors": ["restricted-dro"],
        "parameters": {"restricted-dro": {"epsilon": 0.02, "columns": ["age", "income"]}},
    }
    model = fairkit.PredictedColumns(score="s")
    here = fairkit.audit(model, fairkit.load_data(table, **ROLES, name="d"), **asked)
    there = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    compare(here, there)
    assert "learned from 800 rows" in " ".join(there.findings[0].notes)
