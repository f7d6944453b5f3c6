"""The distance by a fair metric that weighs columns together, as one that ignores a sensitive subspace does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit_all_inputs.bounds.nearness import Joint, Moves
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_all_inputs.collect import People
    from fairkit_onnx.structure.domain import Block

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighed:
    """A fair metric over the blocks of a problem; the columns that change, and those the model lacks, do not count."""

    metric: FairMetric  # of these columns alone: others stay as they are
    encoders: Mapping[int, Encoder]
    matrices: Mapping[int, Floats]
    width: int  # how many columns that has


def weighed(metric: FairMetric, problem: AnyProblem, name: str) -> Weighed:
    """Take the parts of a metric that belong to the blocks that stay."""
    owner = {column: place for place, block in enumerate(problem.blocks) for column in block.columns}
    counted = [owner.get(column.name, problem.changing) != problem.changing for column in metric.encoder.columns]
    columns = [column for column, kept in zip(metric.encoder.columns, counted, strict=True) if kept]
    features = [kept for column, kept in zip(metric.encoder.columns, counted, strict=True) for _ in column.features]
    matrix = metric.matrix[np.array(features, dtype=bool)]
    for column in columns:
        if problem.blocks[owner[column.name]].ends is not None and column.kind != "number":
            raise ParameterError(
                f"all-inputs: the fair metric {Path(name).name} takes {column.name!r} for categories, and the model "
                "takes it for numbers; learn a metric from this table"
            )
    small = matrix
    if matrix.shape[1] > matrix.shape[0]:
        small = np.linalg.qr(matrix.T)[1].T
    encoders: dict[int, list[Any]] = {}
    rows: dict[int, list[int]] = {}
    place = 0
    for column in columns:
        block = owner[column.name]
        encoders.setdefault(block, []).append(column)
        rows.setdefault(block, []).extend(range(place, place + len(column.features)))
        place += len(column.features)
    return Weighed(
        metric=FairMetric(encoder=Encoder(columns=tuple(columns)), matrix=matrix),
        encoders={block: Encoder(columns=tuple(some)) for block, some in encoders.items()},
        matrices={block: np.ascontiguousarray(small[some]) for block, some in rows.items()},
        width=small.shape[1],
    )


def joint_near(problem: AnyProblem, people: People, person: int, metric: Weighed) -> Joint:
    """Return the distance from somebody."""
    moves = {}
    for index, encoder in metric.encoders.items():
        block, matrix = problem.blocks[index], metric.matrices[index]
        row = _row(block, people, person)
        if block.ends is not None:
            moves[index] = _number(block, float(row[block.columns[0]][0]), encoder, matrix)
        else:
            own = encoder.encode(row)
            points = (encoder.encode(choices_of(block)) - own) @ matrix
            none = np.zeros(len(points))
            cells = np.array(list(block.members.values()), dtype=np.int64)
            moves[index] = Moves(cells, points, none, none, np.zeros(metric.width))
    return Joint(moves, metric.width)


def _row(block: Block, people: People, person: int) -> dict[str, NDArray[Any]]:
    return {name: numbers(people.columns[name][person : person + 1]) for name in block.columns}


def numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers that are kept as objects as numbers."""
    if values.dtype.kind != "O" or any(isinstance(value, str) for value in values.tolist()):
        return values
    return values.astype(np.float64)


def choices_of(block: Block) -> dict[str, NDArray[Any]]:
    """Return every listed value, by column."""
    return {
        name: numbers(np.array([choice[place] for choice in block.choices], dtype=object))
        for place, name in enumerate(block.columns)
    }


def _number(block: Block, number: float, encoder: Encoder, matrix: Floats) -> Moves:
    """Return the moves of a number: intervals along its axis, and a vector for the missing one."""
    (column,) = encoder.columns
    starts, ends = block.intervals
    missing = matrix[1] if column.missing else np.zeros(matrix.shape[1])
    origin = column.mean if np.isnan(number) else number
    low, high = (starts - origin) / column.scale, (ends - origin) / column.scale
    point = -missing if np.isnan(number) else np.zeros(matrix.shape[1])
    points = np.repeat(point[None, :], len(ends), axis=0)
    if len(ends) < len(block.values[block.columns[0]]):
        gone = missing * 0.0 if np.isnan(number) else missing - (number - column.mean) / column.scale * matrix[0]
        points = np.vstack([points, gone])
        low, high = np.append(low, 0.0), np.append(high, 0.0)
    step = 1.0 / column.scale if block.whole else 0.0
    return Moves(np.arange(len(points)), points, low, high, matrix[0], step)


def placed(
    problem: AnyProblem,
    people: People,
    person: int,
    metric: Weighed,
    point: Sequence[int],
    near: float,
    values: Mapping[str, NDArray[Any]],
) -> dict[str, NDArray[Any]] | None:
    """Return raw values of a point that are near somebody by the metric's own function; None where none are found.

    `values` are the raw values of each cell, by column; those of the point's cells are replaced.
    """
    cells = list(point)
    cells[problem.changing] = 0
    joint = joint_near(problem, people, person, metric)
    placed_values = {name: some.copy() for name, some in values.items()}
    for index, (choice, move) in joint.point(problem.layout, tuple(cells), near).items():
        block, cell = problem.blocks[index], cells[index]
        if choice < 0:
            return None
        if block.ends is None:
            raw = block.choices[choice]
            for name, value in zip(block.columns, raw, strict=True):
                placed_values[name][cell] = value
            continue
        name = block.columns[0]
        starts, ends = block.intervals
        if cell >= len(ends):
            continue  # the missing one
        own = float(_row(block, people, person)[name][0])
        column = metric.encoders[index].columns[0]
        number = (column.mean if np.isnan(own) else own) + move * column.scale
        number = np.rint(number) if block.whole else number
        number = float(np.float32(number)) if block.single else number
        placed_values[name][cell] = min(max(number, starts[cell]), ends[cell])
    cells_raw = {
        name: numbers(placed_values[name][cells[place] : cells[place] + 1])
        for place in metric.encoders for name in problem.blocks[place].columns
    }  # fmt: skip
    own_row = {name: values for place in metric.encoders
               for name, values in _row(problem.blocks[place], people, person).items()}  # fmt: skip
    apart = metric.metric.transform(cells_raw) - metric.metric.transform(own_row)
    return placed_values if float((apart**2).sum()) <= near else None
