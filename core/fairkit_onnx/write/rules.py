"""Decision rules by group: from a score and a group to the chance of the favorable decision."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import DataError, ModelError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.write.encode import MISSING_TEXT, as_float32, text_codes
from fairkit_onnx.write.trees import Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Groups
    from fairkit_onnx.write.graph import GraphBuilder
    from fairkit_onnx.write.trees import Tree


UNKNOWN = 0
"""The code of a cell that names no group: unseen at fit time, or missing."""
MAX_CELLS = 4_000_000
"""The largest table from combinations of values to groups."""


class Piece(NamedTuple):
    """weight · clip((score - threshold)/width, 0, 1); with width 0 a step that is 1 from the threshold on."""

    threshold: float
    width: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumn:
    """One raw column of a split: how its cells are numbered, the same in numpy and in a graph.

    `name`: the column; `keys`: the values that have a number, from 1: all text or all float; empty with `edges`;
    `edges`: increasing bin edges; bin i, from 1, holds what is at least edge i - 1 and below edge i; `missing`: whether
    missing cells have a number too (the last), or are unknown.
    """

    name: str
    keys: tuple[str, ...] | tuple[float, ...] = ()
    edges: tuple[float, ...] | None = None
    missing: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the graph's input is text."""
        return self.edges is None and bool(self.keys) and isinstance(self.keys[0], str)

    @property
    def size(self) -> int:
        """How many numbers there are, besides `UNKNOWN`."""
        values = len(self.keys) if self.edges is None else len(self.edges) + 1
        return values + int(self.missing)

    def codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the numbers of raw cells, shape [n]; numeric ones are compared as float32, as in the graph."""
        if self.is_text:
            return self._text_codes(values)
        numbers = as_float32(values, self.name)
        nan = np.isnan(numbers)
        if self.edges is not None:
            codes = np.digitize(numbers, np.asarray(self.edges, dtype=np.float32)) + 1
        else:
            keys = np.asarray(self.keys, dtype=np.float32)
            keys = np.append(keys, np.float32(np.inf))
            places = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
            codes = np.where(keys[places] == numbers, places + 1, UNKNOWN)
        return np.where(nan, self.size if self.missing else UNKNOWN, codes).astype(np.int64)

    def _text_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        keys = [str(key) for key in self.keys] + ([MISSING_TEXT] if self.missing else [])
        return text_codes(values, keys) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKeys:
    """Which combination of cells is which group.

    `columns`: the raw columns of the split; `names`: the groups' names, K of them; `cells`: for each group the numbers
    of its cells, one per column; None for a group without rows at fit time.
    """

    columns: tuple[GroupColumn, ...]
    names: tuple[str, ...]
    cells: tuple[tuple[int, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of each column, `UNKNOWN` included."""
        return tuple(column.size + 1 for column in self.columns)

    def lookup(self) -> NDArray[np.int64]:
        """Return the group of every combination, flat; K (the pooled rule) for those that are no group."""
        cells = math.prod(self.shape)
        if cells > MAX_CELLS:
            raise ModelError(
                f"the sensitive columns {', '.join(c.name for c in self.columns)} have {cells} combinations "
                f"of values, more than {MAX_CELLS}; bin them (column:edge:edge) or use fewer"
            )
        table = np.full(cells, len(self.names), dtype=np.int64)
        for group, cell in enumerate(self.cells):
            if cell is not None:
                table[int(np.ravel_multi_index(cell, self.shape))] = group
        return table

    def keep(self, wanted: Sequence[bool]) -> Self:
        """Return the keys of some of the groups; the others become values without a group."""
        places = [index for index, keep in enumerate(wanted) if keep]
        return replace(self, names=tuple(self.names[i] for i in places), cells=tuple(self.cells[i] for i in places))

    def codes(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Return each row's group, shape [n]; K for unseen and missing values."""
        for column in self.columns:
            if column.name not in columns:
                raise DataError(f"the rule needs the sensitive column {column.name!r}, which is not given")
        if not self.columns:  # one rule for everybody
            return np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
        numbered = [column.codes(columns[column.name]) for column in self.columns]
        return self.lookup()[np.ravel_multi_index(numbered, self.shape)]


def learn_keys(columns: Mapping[str, NDArray[Any]], groups: Groups) -> GroupKeys:
    """Learn which cells make which group from rows that have both.

    `columns`: raw columns, each of shape [n]; `groups`: the split, with each row's group; returns its `codes` of the
    same columns equal `groups.codes`.
    """
    if groups.split is None:
        raise DataError(
            "the groups were given without the columns that they come from, so that a model cannot compute "
            "them; name the sensitive columns of the table, as in fairkit.mitigate(method, fairkit.load_data(table, "
            "label='y', sensitive=['sex']))"
        )
    learned = tuple(
        _learn_column(name, columns[name], edges)
        for name, edges in zip(groups.split.columns, groups.split.edges, strict=True)
    )
    numbered = [column.codes(columns[column.name]) for column in learned]
    first = np.full(len(groups.names), -1, dtype=np.int64)
    first[groups.codes[::-1]] = np.arange(len(groups.codes))[::-1]
    cells = tuple(None if row < 0 else tuple(int(codes[row]) for codes in numbered) for row in first)
    keys = GroupKeys(columns=learned, names=groups.names, cells=cells)
    if not np.array_equal(keys.lookup()[np.ravel_multi_index(numbered, keys.shape)], groups.codes):
        raise DataError(
            f"the groups of {groups.split.name!r} do not follow from its columns' values; "
            "a numeric column with many values needs its bins spelled out (column:edge:edge)"
        )
    return keys


def _learn_column(name: str, values: NDArray[Any], edges: tuple[float, ...] | None) -> GroupColumn:
    cells = set(values.tolist()) if values.dtype.kind in "OUS" else set()
    texts = {cell for cell in cells if isinstance(cell, str)}
    if texts:
        return GroupColumn(name=name, keys=tuple(sorted(texts)), missing=len(texts) < len(cells))
    numbers = as_float32(values, name)
    missing = bool(np.isnan(numbers).any())
    if edges is not None:
        return GroupColumn(name=name, edges=edges, missing=missing)
    distinct = np.unique(numbers[~np.isnan(numbers)])
    return GroupColumn(name=name, keys=tuple(float(value) for value in distinct), missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRule:
    """A chance of the favorable decision for every score in [0, 1] and group.

    `keys`: how raw columns become one of K groups; `pieces`: K + 1 tuples, the last for the pooled population: the
    chance is the sum of the pieces, in [0, 1]; `odds`: K + 1 factors by which the odds of the score are multiplied
    first; None leaves the score as it is.
    """

    keys: GroupKeys
    pieces: tuple[tuple[Piece, ...], ...]
    odds: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        wanted = len(self.keys.names) + 1
        if len(self.pieces) != wanted or (self.odds is not None and len(self.odds) != wanted):
            raise ModelError(f"a rule for {wanted - 1} groups has {wanted} rows: the last is the pooled rule")

    @property
    def is_deterministic(self) -> bool:
        """Whether the chance is 0 or 1 for every score and group, so that no draw decides."""
        return all(map(_is_certain, self.pieces))

    def tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return thresholds, widths and weights, each of shape [K + 1, J]; unused places weigh 0."""
        most = max(1, *(len(row) for row in self.pieces))
        padded = [[*row, *[Piece(math.inf, 0.0, 0.0)] * (most - len(row))] for row in self.pieces]
        table = np.array(padded, dtype=np.float64).reshape(len(self.pieces), most, 3)
        return table[..., 0], table[..., 1], table[..., 2]

    def adjust(self, score: NDArray[np.floating], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the score that the rule decides by: o s / (o s + 1 - s), shape [n], in [0, 1]."""
        scores = np.asarray(score, dtype=np.float64)
        if self.odds is None:
            return scores
        scaled = np.asarray(self.odds)[codes] * scores
        return np.asarray(scaled / (scaled + (1.0 - scores)))

    def probability(self, score: NDArray[np.floating], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return h, the chance of the favorable decision.

        `score`: the adjusted score, shape [n], in [0, 1]; `codes`: the group of each row, shape [n]; K stands for the
        pooled rule; returns shape [n], in [0, 1]; NaN where the score is.
        """
        scores = np.asarray(score, dtype=np.float64)
        thresholds, widths, weights = self.tables()
        chance = np.zeros(len(scores))
        for index in range(thresholds.shape[1]):
            above = scores - thresholds[codes, index]
            width = widths[codes, index]
            sloped = np.clip(above / np.where(width > 0, width, 1.0), 0.0, 1.0)
            chance += weights[codes, index] * np.where(width > 0, sloped, above >= 0)
        return np.clip(chance, 0.0, 1.0) + 0.0 * scores

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as plain JSON values, for a model's metadata and for people."""
        if not self.keys.columns:
            everybody = {"group": "(everybody)", "pieces": [_piece_dict(piece) for piece in self.pieces[-1]]}
            return {"columns": [], "groups": [everybody]}
        names = [*self.keys.names, "(any other value)"]
        rows = []
        for index, (name, pieces) in enumerate(zip(names, self.pieces, strict=True)):
            row: dict[str, Any] = {"group": name, "pieces": [_piece_dict(piece) for piece in pieces]}
            if self.odds is not None:
                row["odds"] = self.odds[index]
            rows.append(row)
        return {
            "columns": [column.name for column in self.keys.columns],
            "groups": rows,
            "unseen": "values not seen at fit time, and missing ones, get the rule of the pooled population",
        }


def _is_certain(pieces: Sequence[Piece]) -> bool:
    """Return whether steps add up to at most 0 or at least 1 after each of them."""
    if any(piece.width > 0 and piece.weight != 0 for piece in pieces):
        return False
    total = 0.0
    for _, same in groupby(sorted(pieces), key=lambda piece: piece.threshold):
        total += sum(piece.weight for piece in same)
        if 0 < total < 1:
            return False
    return True


def _piece_dict(piece: Piece) -> dict[str, Any]:
    threshold = piece.threshold if math.isfinite(piece.threshold) else value_text(piece.threshold)
    return {"threshold": threshold, "width": piece.width, "weight": piece.weight}


# The group of a row as a number, computed from its raw columns alike in numpy and in a graph.


_INT64, _FLOAT = 7, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCodes:
    """Each row's group as a number: its place among `names`, and len(names) for values that are no group.

    Attributes
    ----------
    keys
        How raw columns become one of the groups.
    """

    keys: GroupKeys

    @classmethod
    def learn(cls, columns: Mapping[str, NDArray[Any]], groups: Groups) -> GroupCodes:
        """Learn from rows that have both; see `fairkit_onnx.write.rules.learn_keys` for what it raises."""
        return cls(keys=learn_keys(columns, groups))

    @property
    def names(self) -> tuple[str, ...]:
        """The groups."""
        return self.keys.names

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        """Return the groups' numbers, shape [n]."""
        return self.keys.codes(columns)

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the numbers into a graph, as int64 of shape [rows, 1]."""
        strides = np.cumprod([1, *reversed(self.keys.shape[1:])])[::-1]
        total = ""
        for column, stride in zip(self.keys.columns, strides.tolist(), strict=True):
            codes = _text_codes(graph, column) if column.is_text else _number_codes(graph, column)
            scaled = graph.node("Mul", [codes, graph.constant([[stride]], np.int64)])
            total = graph.node("Add", [total, scaled]) if total else scaled
        return graph.node("Gather", [graph.constant(self.keys.lookup(), np.int64), total], axis=0)


def _text_codes(graph: GraphBuilder, column: GroupColumn) -> str:
    keys = [str(key) for key in column.keys] + ([MISSING_TEXT] if column.missing else [])
    return graph.node(
        "LabelEncoder",
        [graph.input(column.name, "string")],
        domain="ai.onnx.ml",
        keys_strings=keys,
        values_int64s=list(range(1, len(keys) + 1)),
        default_int64=0,
    )


def _number_codes(graph: GraphBuilder, column: GroupColumn) -> str:
    """Equal to a key, or past so many edges."""
    cells = graph.input(column.name, "float")
    if column.edges is None:
        hits = graph.node("Equal", [cells, graph.constant([column.keys])])
        weights, start = np.arange(1.0, len(column.keys) + 1), 0.0
    else:
        hits = graph.node("GreaterOrEqual", [cells, graph.constant([column.edges])])
        weights, start = np.ones(len(column.edges)), 1.0
    counted = graph.node("MatMul", [graph.node("Cast", [hits], to=_FLOAT), graph.constant(weights.reshape(-1, 1))])
    places = graph.node("Add", [counted, start])
    missing = graph.constant([[float(column.size) if column.missing else 0.0]])
    codes = graph.node("Where", [graph.node("IsNaN", [cells]), missing, places])
    return graph.node("Cast", [codes], to=_INT64)


# Step functions of a number, one for each group, as one tree of a graph.


Steps = tuple[Any, Any]
"""Edges, increasing, [k - 1], and values, [k]: ``values[i]`` from ``edges[i - 1]`` on, below ``edges[i]``."""


def step_tree(groups: Sequence[Steps], feature: int) -> Tree:
    """Write the step functions of all groups as one tree: first by group, then by value.

    Parameters
    ----------
    groups
        The steps of group 0, 1, ...: float32 numbers. One alone is for everybody; then no column holds groups.
    feature
        The column of the number; column 0 holds the group.

    Returns
    -------
    list of Node
        For `fairkit_onnx.write.trees.add_ensemble`.
    """
    nodes: list[Node] = []

    def by_value(steps: Steps, low: int, high: int) -> int:
        number = len(nodes)
        nodes.append(Node("LEAF", weights=(float(steps[1][low]),)))
        if high > low:
            middle = (low + high + 1) // 2
            below = by_value(steps, low, middle - 1)
            above = by_value(steps, middle, high)
            nodes[number] = Node("BRANCH_LT", feature, float(steps[0][middle - 1]), below, above)
        return number

    def by_group(low: int, high: int) -> int:
        if low == high:
            return by_value(groups[low], 0, len(groups[low][1]) - 1)
        number = len(nodes)
        nodes.append(Node("LEAF"))
        middle = (low + high + 1) // 2
        below, above = by_group(low, middle - 1), by_group(middle, high)
        nodes[number] = Node("BRANCH_LT", 0, float(middle), below, above)
        return number

    by_group(0, len(groups) - 1)
    return nodes
