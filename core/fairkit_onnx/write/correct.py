"""Corrections appended to a base graph: groups of people get a number added to the logit of their score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.outputs import DECISION, DECISION_PROBABILITY, SCORE
from fairkit_onnx.write.appending import Appender
from fairkit_onnx.write.compose import ScoreHead, clipped, column_codes, favorable_score, refuse_randomized, sigmoid
from fairkit_onnx.write.trees import Node, Tree, add_ensemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.write.rules import GroupColumn

CERTAIN = 1e-6
"""Scores nearer to 0 or 1 than this are moved there before their logit is taken."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A number that is added to the logits of the rows of a group."""

    conditions: tuple[tuple[int, int, int], ...]
    amount: float  # what is added

    def member(self, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Return which rows get it, shape [n]."""
        keep = np.ones(len(codes[0]), dtype=bool)
        for column, first, last in self.conditions:
            keep &= (codes[column] >= first) & (codes[column] <= last)
        return keep

    def tree(self) -> Tree:
        """Return it as a tree on numbers of cells: one test after the other, a row that fails one gets nothing."""
        tests = [
            test
            for column, first, last in self.conditions
            for test in ((column, first - 0.5, False), (column, last + 0.5, True))
        ]
        nodes: Tree = []
        for column, value, below in tests:  # the leaf of those that fail stands beside each test
            leaf, onward = len(nodes) + 1, len(nodes) + 2
            yes, no = (onward, leaf) if below else (leaf, onward)
            nodes += [Node("BRANCH_LEQ", column, value, yes, no), Node("LEAF", weights=(0.0,))]
        return [*nodes, Node("LEAF", weights=(float(np.float32(self.amount)),))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """All corrections of a model."""

    columns: tuple[GroupColumn, ...]  # the raw columns that conditions are about, and how their cells are numbered
    edges: tuple[float, ...]
    corrections: tuple[Correction, ...]  # they add up
    threshold: float = 0.5  # the decision is favorable from this corrected score on

    def codes(self, columns: Mapping[str, NDArray[Any]], base: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Return the numbers of each row's cells, by column; the base score's last."""
        scored = np.searchsorted(np.asarray(self.edges), base, side="right") + 1
        return [*(one.codes(columns[one.name]) for one in self.columns), scored.astype(np.int64)]

    def apply(self, base: NDArray[np.float64], codes: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Return corrected scores, shape [n], rounded as in the graph."""
        moved = logit(base)
        for one in self.corrections:
            moved = moved + np.where(one.member(codes), np.float32(one.amount), 0.0)
        return np.asarray((0.5 * (np.tanh(0.5 * moved) + 1)).astype(np.float32), dtype=np.float64)


def logit(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(p / (1 - p)) of scores in [0, 1]."""
    p = np.clip(score, CERTAIN, 1 - CERTAIN)
    return np.asarray(np.log(p / (1 - p)))


def correct(
    model: onnx.ModelProto, head: ScoreHead, rule: Corrections, *, inputs: Mapping[str, str]
) -> onnx.ModelProto:
    """Append corrections to a model."""
    refuse_randomized(model)
    graph = Appender(model)
    base = graph.cast(graph.cast(favorable_score(graph, head), np.float32), np.float64)
    cells = [column_codes(graph, column, inputs.get(column.name)) for column in rule.columns]
    cells.append(_score_cells(graph, base, rule.edges))
    columns = [graph.reshape(graph.cast(one, np.float32), [-1, 1]) for one in cells]
    matrix = graph.node("Concat", columns, axis=1)
    trees = [one.tree() for one in rule.corrections] or [[Node("LEAF", weights=(0.0,))]]
    added = graph.cast(add_ensemble(graph, matrix, trees), np.float64)
    low, high = graph.constant([[CERTAIN]]), graph.constant([[1 - CERTAIN]])
    p = graph.node("Min", [graph.node("Max", [clipped(graph, base), low]), high])
    odds = graph.node("Div", [p, graph.node("Sub", [1.0, p])])
    moved = graph.node("Add", [graph.node("Log", [odds]), added])
    score = graph.cast(sigmoid(graph, moved), np.float32)
    below = graph.node("Less", [score, graph.constant([[rule.threshold]], np.float32)])
    decided = graph.node("Not", [below])
    graph.output(SCORE, score, np.float32)
    graph.output(DECISION_PROBABILITY, graph.cast(decided, np.float32), np.float32)
    graph.output(DECISION, graph.cast(decided, np.int64), np.int64)
    return graph.finish()


def _score_cells(graph: Appender, base: str, edges: Sequence[float]) -> str:
    """Number the cells of the base score: one more than the edges that it reaches."""
    bounds = graph.constant(np.asarray(edges, dtype=np.float64).reshape(1, -1))
    reached = graph.cast(graph.node("Not", [graph.node("Less", [base, bounds])]), np.float32)
    counted = graph.node("MatMul", [reached, graph.constant(np.ones((len(edges), 1), np.float32), np.float32)])
    return graph.node("Add", [counted, graph.constant([[1.0]], np.float32)])
