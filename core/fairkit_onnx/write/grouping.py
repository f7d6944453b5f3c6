"""The group of a row as a number, computed from its raw columns alike in numpy and in a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.write.cells import MISSING_TEXT
from fairkit_onnx.write.rules import GroupKeys, learn_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.data.table import Groups
    from fairkit_onnx.write.graph import GraphBuilder
    from fairkit_onnx.write.rules import GroupColumn

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
    known = graph.node("Where", [graph.node("IsNaN", [cells]), missing, places])
    return graph.node("Cast", [known], to=_INT64)
