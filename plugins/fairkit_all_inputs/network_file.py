"""The file of `save_proof` for a network: what a checker without fairkit needs beside the ONNX file and the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit_all_inputs.bounds.networks.proof import AT_ONCE, boxes_of
from fairkit_all_inputs.bounds.proof_file import domain_record
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.networks.layers import RELU

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.networks.model import NetworkModel
    from fairkit_all_inputs.bounds.networks.problem import NetworkProblem

    Floats = NDArray[np.float64]

SCHEMA = "fairkit.all-inputs-network/1"
READ = ("Gemm", "MatMul", "Add", "Sub", "Mul", "Relu", "Identity", "Cast", "Flatten", "Reshape", "Dropout")
"""The operators that the checker reads between the features and the sum."""
DIGITS = 12
"""Of a multiplier: any number proves a bound, and this one nearly the best."""


def refuse_unreadable(model: NetworkModel, problem: NetworkProblem, near: float | None) -> None:
    """Refuse to write a proof that the checker would not read."""
    graph = model.scorer.model.proto.graph
    before = {name for node in ancestors(graph, [model.matrix]) for name in node.output}
    inner = [node for node in ancestors(graph, [str(model.tail.cut)]) if not before & set(node.output)]
    strange = sorted({str(node.op_type) for node in inner} - {*READ, "Constant"})
    why = None
    if near is not None:
        why = "with near its boxes lie around people"
    elif problem.rule is not None:
        why = "this model decides by a threshold for each group"
    elif strange:
        why = f"this one has {', '.join(strange)}"
    elif any((layer.kind != RELU).any() for layer in problem.layers[:-1]):
        why = "this one has units that are no relu, or hands values on past a layer"
    if why is not None:
        raise ParameterError(
            f"all-inputs: save_proof writes networks that are chains of {', '.join(READ)}, over the whole domain, and "
            f"{why}: its log is in the certificate, and `fairkit verify --recompute` checks it; leave save_proof out"
        )


def network_statement(model: NetworkModel, problem: NetworkProblem) -> dict[str, Any]:
    """Return what a proof is about as plain JSON values, floats in hexadecimal digits; weights stay in the model."""
    cells = problem.cells
    same = np.array_equal(problem.layers[-1].weights, model.layers[-1].weights)
    blocks = [
        {
            "columns": cells.features[place].tolist(),
            "range": not cells.layout.words[place],
            "first": [_hex(cell) for cell in cells.first[place]],
            "last": [_hex(cell) for cell in cells.last[place]],
        }
        for place in range(len(problem.blocks))
    ]
    return {
        "schema": SCHEMA,
        "model_sha256": model.scorer.info.sha256,
        "inputs": [[feed.input.name, feed.input.kind, list(feed.columns)] for feed in model.scorer.feeds],
        "matrix": model.matrix,
        "output": model.tail.cut,
        "changing": problem.changing,
        "domain": [domain_record(block) for block in problem.blocks],
        "features": {"fixed": _hex(cells.fixed), "blocks": blocks},
        "direction": 1 if same else -1,
        "threshold": None if problem.threshold is None else float(problem.threshold).hex(),
        "band": float(problem.band).hex(),
    }


def digest_of_statement(statement: Mapping[str, Any]) -> str:
    """Return the digest that findings have of what their proof is about."""
    return hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()


def with_multipliers(
    problem: NetworkProblem, kind: int, log: Mapping[str, Sequence[Any]], claim: float
) -> dict[str, Any]:
    """Return a log with multipliers that bound each closed box: of both outputs, then of both runs' sums by layer."""
    record = {}
    for pair in problem.pairs:
        splits = log[f"{pair[0]},{pair[1]}"]
        boxes, signs = boxes_of(problem, splits)
        rows = np.zeros((len(boxes), 2 + 2 * problem.units))
        split = signs.any(axis=1)
        for some in (np.flatnonzero(~split), np.flatnonzero(split)):
            for start in range(0, len(some), AT_ONCE):
                mine = some[start : start + AT_ONCE]
                bounds = problem.bound(kind, pair, boxes[mine], signs[mine], claim)[2]
                parts = [bounds.rates[0][:, None], bounds.rates[1][:, None]]
                rows[mine] = np.concatenate([*parts, *(run for layer in bounds.sums for run in layer)], axis=1)
        multipliers = [[float(f"{value:.{DIGITS}g}") for value in row] for row in rows.tolist()]
        record[f"{pair[0]},{pair[1]}"] = {"splits": list(splits), "multipliers": multipliers}
    return record


def _hex(values: Floats) -> list[str]:
    return [float(value).hex() for value in values]
