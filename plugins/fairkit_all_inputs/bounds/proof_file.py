"""The file of `save_proof`: what a checker without fairkit needs beside the ONNX file and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.files import write_atomic
from fairkit_all_inputs.bounds.problem import domain_record, plain
from fairkit_onnx.structure.cells import encode_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_onnx.structure.domain import Block
    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.trees import TreeModel

SCHEMA = "fairkit.all-inputs/3"


def proof_file(problem: Problem, model: TreeModel, features: Features, logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file as plain JSON values; floats that a digest is about are written in hexadecimal digits."""
    same = np.array_equal(np.asarray(problem.value), model.ensemble.value)
    return {
        "schema": SCHEMA,
        "model_sha256": model.scorer.info.sha256,
        "problem_sha256": problem.sha256,
        "trees": list(model.outputs),
        "inputs": [list(one) for one in problem.inputs],
        "changing": problem.changing,
        "domain": [domain_record(block) for block in problem.blocks],
        "features": _features(problem, model, features),
        "direction": 1 if same else -1,
        "base": float(problem.base).hex(),
        "threshold": None if problem.threshold is None else float(problem.threshold).hex(),
        "rounding": float(problem.rounding).hex(),
        "logs": dict(logs),
    }


def save_proof(path: str, problem: Problem, model: TreeModel, features: Features, logs: Mapping[str, Any]) -> None:
    """Write the file."""
    record = proof_file(problem, model, features, logs)
    write_atomic(Path(path), json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


def _features(problem: Problem, model: TreeModel, features: Features) -> dict[str, list[Any]]:
    """Return by feature that a tree reads its block (-1: a constant), and each cell's least and largest value."""
    tested = sorted(set(model.ensemble.feature[model.ensemble.mode > 0].tolist()))
    of_column = {column: place for place, block in enumerate(problem.blocks) for column in block.columns}
    rows: list[Block] = []
    cells: list[NDArray[np.int64]] = []
    for block in problem.blocks:
        made, cell = _at_ends(block)
        rows.append(made)
        cells.append(cell)
    defaults = {name: plain(values[0]) for block in rows for name, values in block.values.items()}
    matrix, starts = encode_rows(rows, model.encoding(doubles=True), defaults)
    ranges = {}
    for feature in tested:
        index = of_column.get(features.source[feature] or "", -1)
        if index < 0:
            value = float(matrix[0, feature]).hex()
            ranges[str(feature)] = [-1, [value], [value]]
            continue
        values = matrix[starts[index] : starts[index + 1], feature].astype(np.float64)
        low, high = np.full(problem.blocks[index].size, np.inf), np.full(problem.blocks[index].size, -np.inf)
        np.minimum.at(low, cells[index], values)
        np.maximum.at(high, cells[index], values)
        ranges[str(feature)] = [index, _hex(low), _hex(high)]
    return ranges


def _hex(values: Sequence[float] | NDArray[np.float64]) -> list[str]:
    return [float(value).hex() for value in values]


def _at_ends(block: Block) -> tuple[Block, NDArray[np.int64]]:
    """Return a block of every listed value, or of both ends of each cell of numbers; and the cell of each."""
    if block.ends is None:
        values = {}
        for place, name in enumerate(block.columns):
            some = [choice[place] for choice in block.choices]
            text = any(isinstance(value, str) or value is None for value in some)
            values[name] = np.array(some, dtype=object if text else None)
        return replace(block, values=values), np.array(list(block.members.values()), dtype=np.int64)
    first, last = block.intervals
    missing = np.full(block.size - len(last), np.nan)
    ends = np.concatenate([first, missing, last, missing])
    return replace(block, values={block.columns[0]: ends}), np.tile(np.arange(block.size), 2)
