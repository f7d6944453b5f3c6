"""Reading a bound ONNX model as a weighted sum of the features that it makes of raw columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.read.graph import ancestors, name_of
from fairkit_onnx.structure.cells import column_of
from fairkit_onnx.structure.encoded import Encoded
from fairkit_onnx.structure.ensemble import ARRANGES, attributes_of
from fairkit_onnx.structure.link import GroupPart, Tail, tail_nodes
from fairkit_onnx.structure.monotone import Condition, check_monotone, constant_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.feeds import Feed
    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.cells import Block

    Columns = Mapping[str, NDArray[Any]]


KINDS = ("LinearClassifier", "LinearRegressor", "Gemm", "MatMul")


@dataclass(frozen=True, eq=False)
class LinearModel(Encoded):
    """A model whose score follows from a weighted sum of features."""

    weights: NDArray[np.float64]  # of each feature in the sum, shape [d]
    base: float  # the sum's constant

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.weights)


def read_linear(scorer: OnnxScorer, *, grouped: bool = False) -> LinearModel | None:
    """Read a bound model whose score is a weighted sum; None where it has no or several such nodes, or others between.

    `grouped` is that of `fairkit_onnx.structure.trees.read_trees`.
    """
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    nodes = [node for node in ancestors(graph, score_of(scorer)) if node.op_type in KINDS]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    read = _of_classifier(node) if node.op_type == KINDS[0] else _of_sum(node, graph)
    if read is None:
        return None
    weights, base = read
    start: dict[str, tuple[int, ...]] = {node.output[0]: (1,)}
    if node.op_type == KINDS[0]:
        start = {node.output[0]: (0,), node.output[1]: (-1, 1)}
    constant = constant_of(graph, node.input[1]) if node.op_type in ("Gemm", "MatMul") else None
    if node.op_type == "MatMul" and _opposite(constant):
        start = {node.output[0]: (-1, 1)}
    groups = group_part(scorer, list(node.output), grouped=grouped)
    check_monotone(graph, tail_nodes(graph, wanted, list(node.output)), start)
    cut: Any = node if node.op_type == KINDS[0] else node.output[0]
    double = constant is not None and constant.dtype == np.float64
    tail = Tail(
        scorer=scorer,
        cut=cut,
        double=double,
        groups=groups,
        columns=2 if node.op_type == "MatMul" and _opposite(constant) else 1,
    )
    return LinearModel(scorer, node.input[0], tail, weights, base)


def _opposite(weights: NDArray[Any] | None) -> TypeGuard[NDArray[Any]]:
    """Tell whether a matrix has two columns, each the other's negative, as skl2onnx writes in double precision."""
    if weights is None or weights.ndim != 2 or weights.shape[1] != 2:
        return False
    return bool((weights[:, 0] == -weights[:, 1]).all())


def _of_classifier(node: onnx.NodeProto) -> tuple[NDArray[np.float64], float] | None:
    attributes = attributes_of(node)
    weights = np.array(attributes["coefficients"], dtype=np.float32).astype(np.float64)
    bias = np.array(attributes.get("intercepts", [0.0]), dtype=np.float32).astype(np.float64)
    if len(bias) != 2 or len(weights) % 2:
        return None
    both = weights.reshape(2, -1)
    if not np.array_equal(both[0], -both[1]) or bias[0] != -bias[1]:
        raise ModelError(f"the node {name_of(node)} has no two opposite rows")
    return both[1], float(bias[1])


def _of_sum(node: onnx.NodeProto, graph: onnx.GraphProto) -> tuple[NDArray[np.float64], float] | None:
    attributes = attributes_of(node)
    if node.op_type == "LinearRegressor":
        if attributes.get("targets", 1) != 1 or attributes.get("post_transform", b"NONE") != b"NONE":
            return None
        bias = attributes.get("intercepts") or [0.0]
        return np.array(attributes["coefficients"], dtype=np.float32).astype(np.float64), float(np.float32(bias[0]))
    weights = constant_of(graph, node.input[1])
    if node.op_type == "MatMul" and _opposite(weights):  # the sum is the difference of both columns
        return 2.0 * weights[:, 1].astype(np.float64), 0.0
    if weights is None or weights.size != max(weights.shape) or attributes.get("transA"):
        return None
    scale, base = 1.0, 0.0
    if node.op_type == "Gemm":
        scale = float(attributes.get("alpha", 1.0))
        bias_of = constant_of(graph, node.input[2]) if len(node.input) > 2 else np.zeros(1)
        if bias_of is None or bias_of.size != 1:
            return None
        base = float(bias_of.reshape(-1)[0]) * float(attributes.get("beta", 1.0))
    return scale * weights.astype(np.float64).reshape(-1), base


# Decisions by group: what follows a sum reads columns besides, as a rule with a threshold for each group does.


MOST_CELLS = 20_000
"""Combinations of cells of the columns that a rule reads."""
MOST_RULES = 256
"""Groups whose thresholds are looked up."""
_COMPARED = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
_FLOATS = (1, 10, 11, 16)


@dataclass(frozen=True, slots=True, eq=False)
class GroupThresholds:
    """From which sum on decisions are favorable, by group."""

    blocks: tuple[int, ...]  # the blocks whose cells say the group, by number
    table: NDArray[np.float64]


def score_of(scorer: OnnxScorer) -> list[str]:
    """Return the output with the score; the decision's where there is none."""
    reading = scorer.reading
    return reading.wanted if reading.score is None else [reading.score.name]


def group_part(scorer: OnnxScorer, cut: Sequence[str], *, grouped: bool) -> GroupPart | None:
    """Return the part of the nodes after some tensors that reads columns besides; None without one."""
    graph, reading = scorer.model.proto.graph, scorer.reading
    feeds = {feed.input.name: feed for feed in scorer.feeds}
    nodes = tail_nodes(graph, reading.wanted, cut)
    used = [feeds[name] for name in dict.fromkeys(n for node in nodes for n in node.input) if name in feeds]
    if not used:
        return None
    names = ", ".join(repr(column) for feed in used for column in feed.columns[:3])
    if not grouped:
        raise ModelError(f"{scorer.info.name}: what follows the sum reads {names} besides, as a rule by group does")
    if any(len(feed.columns) > 1 for feed in used):
        raise ModelError(f"{scorer.info.name}: what follows the sum reads a matrix of columns besides ({names}, ...)")
    if reading.score is not None:
        moving = {name for node in tail_nodes(graph, [reading.score.name], cut) for name in node.input}
        if moving & set(feeds):
            raise ModelError(
                f"{scorer.info.name}: the score itself depends on {names} besides the sum, and not the decision alone"
            )
    return _followed(graph, nodes, cut, tuple(used))


def _followed(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], cut: Sequence[str], feeds: tuple[Feed, ...]
) -> GroupPart:
    """Follow columns to where they meet the sum: by comparisons with constants, or by their list of values."""
    raw = {feed.input.name: feed.columns[0] for feed in feeds}
    settled: set[str] = set()
    summed, listed = set(cut), set()
    conditions: list[Condition] = []
    tensors: list[str] = []
    for node in nodes:
        named = [name for name in node.input if name]
        moving = [name for name in named if name in raw]
        if summed & set(named):
            listed |= {raw[name] for name in moving}
            tensors += [name for name in named if name in raw or name in settled]
            summed |= set(node.output)
            continue
        if not moving and not settled & set(named):
            continue  # constants
        alone = len(moving) == 1 and not settled & set(named)
        if alone and (node.op_type in ARRANGES or (node.op_type == "Cast" and attributes_of(node)["to"] in _FLOATS)):
            raw[node.output[0]] = raw[moving[0]]
            continue
        settled |= set(node.output)
        if not alone and not moving:
            continue
        others = [constant_of(graph, name) for name in named if name not in moving]
        if alone and node.op_type in _COMPARED and len(others) == 1 and others[0] is not None:
            cuts = tuple(np.asarray(others[0], dtype=np.float64).reshape(-1).tolist())
            conditions.append(
                Condition(
                    tensor=moving[0], node=name_of(node),
                    cuts=tuple(cut for cut in cuts if math.isfinite(cut)), columns=(raw[moving[0]],),
                )
            )  # fmt: skip
        elif not (alone and node.op_type == "IsNaN"):
            listed |= {raw[name] for name in moving}
    return GroupPart(
        feeds=feeds, listed=frozenset(listed), conditions=tuple(conditions), tensors=tuple(dict.fromkeys(tensors))
    )


def group_thresholds(
    model: Encoded, blocks: Sequence[Block], low: float, high: float
) -> tuple[int, GroupThresholds | None, bool]:
    """Return the direction in which sums are favorable, the thresholds by group, and whether the score is logistic.

    The thresholds are None where nothing is decided.
    """
    part = model.tail.groups
    assert part is not None  # noqa: S101 -- asked only then
    places = tuple(index for index, block in enumerate(blocks) if set(block.columns) & set(part.columns))
    sizes = [blocks[index].size for index in places]
    if math.prod(sizes) > MOST_CELLS:
        raise ModelError(
            f"{model.scorer.info.name}: the rule after the sum reads {', '.join(part.columns)}, which have "
            f"{math.prod(sizes):,} combinations; {MOST_CELLS:,} are gone through: give a smaller domain"
        )
    cells = list(itertools.product(*map(range, sizes)))
    rows = [_row(blocks, places, cell) for cell in cells]
    code, first = _rules(model, rows)
    if len(first) > MOST_RULES:
        raise ModelError(
            f"{model.scorer.info.name}: the rule after the sum makes {len(first)} groups; {MOST_RULES} are looked up"
        )
    links = model.links(low, high, [{name: rows[at][name] for name in part.columns} for at in first])
    if any(threshold is None for _, threshold, _ in links):
        return links[0][0], None, links[0][2]
    directions = {direction for direction, threshold, _ in links if math.isfinite(threshold or 0.0)}
    direction = directions.pop() if directions else links[0][0]
    if directions or any(link[0] != direction and math.isfinite(link[1] or 0.0) for link in links):
        raise ModelError(f"{model.scorer.info.name}: larger sums are favorable in some groups, and not in others")
    ends = sorted((direction * low, direction * high))
    thresholds = np.array([_inside(threshold, ends) for _, threshold, _ in links])
    return direction, GroupThresholds(places, thresholds[code].reshape(sizes)), links[0][2]


def _inside(threshold: float | None, ends: Sequence[float]) -> float:
    """Return a finite threshold: below or above all sums where the decision never changes."""
    size = 1.0 + abs(ends[0]) + abs(ends[1])
    return float(np.clip(threshold or 0.0, ends[0] - size, ends[1] + size))


def _row(blocks: Sequence[Block], places: Sequence[int], cells: Sequence[int]) -> dict[str, Any]:
    """Return raw values of all columns: those of some cells, and of the first cells of the other blocks."""
    at = dict(zip(places, cells, strict=True))
    result: dict[str, Any] = {}
    for index, block in enumerate(blocks):
        for name, values in block.values.items():
            value = values[at.get(index, 0)]
            result[name] = value.item() if isinstance(value, np.generic) else value
    return result


def _rules(model: Encoded, rows: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.int64], list[int]]:
    """Return which rows meet the sum with the same numbers: each one's number, and the first row of each."""
    part = model.tail.groups
    assert part is not None  # noqa: S101 -- asked only then
    columns = {name: column_of([row[name] for row in rows]) for name in rows[0]}
    made = []
    for tensor in part.tensors:
        feed = next((feed for feed in part.feeds if feed.input.name == tensor), None)
        made.append(model.tensor(tensor)(columns) if feed is None else feed.build(columns).reshape(len(rows), -1))
        if len(made[-1]) != len(rows):
            raise ModelError(f"{model.scorer.info.name}: the rule after the sum makes {tensor!r} of all rows at once")
    seen: dict[tuple[Any, ...], int] = {}
    code = np.zeros(len(rows), dtype=np.int64)
    first: list[int] = []
    for number in range(len(rows)):
        key = tuple(
            str(column[number].tolist()) if column.dtype.kind == "O" else column[number].tobytes() for column in made
        )
        if key not in seen:
            seen[key] = len(first)
            first.append(number)
        code[number] = seen[key]
    return code, first
