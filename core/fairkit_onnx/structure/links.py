"""Whether what follows a sum keeps its order: by operator, which way each column goes while the sum rises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import name_of
from fairkit_onnx.structure.constants import constant_of, values_of
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.operators import ARRANGES, COMPARES, POSITIVE, RISES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

SAME = ARRANGES | RISES | {"ZipMap"}
"""Operators that keep the order of each column."""
_TURNED = frozenset({"Neg", "Not"})
_JOINED = frozenset({"Add", "Sum", "Max", "Min", "And", "Or", "Mean"})
_AGAINST = {"Sub": -1, "Greater": -1, "GreaterOrEqual": -1, "Less": 1, "LessOrEqual": 1}
"""Operators of two inputs, and which way the second counts; the first the other way."""
_TWO = ((-1, 1), (1, -1))


class Way(NamedTuple):
    """How a tensor follows the sum."""

    columns: tuple[int, ...] | None
    label: str | None = None
    wide: bool = False  # whether the one number stands for several columns
    positive: bool = False  # whether no number of it is below zero
    same: str | None = None  # the tensor that has its numbers, too
    total: str | None = None  # the tensor whose columns it adds up


def check_monotone(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], start: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse a link that might not keep the order of the sum."""
    ways_by_name = {name: Way(None, name) if way == (0,) else Way(way) for name, way in start.items()}
    for node in nodes:
        inputs = [ways_by_name.get(name) for name in node.input if name]
        if all(one is None for one in inputs):
            continue  # made of constants, or of columns
        ways = _ways(node, inputs, graph)
        if ways is None:
            raise ModelError(
                f"the node {name_of(node)} after the sum is not understood: what "
                f"follows a sum must keep its order, as {', '.join(sorted(SAME))}, sums with constants, comparisons, "
                "Max, Min, Concat, Softmax and ArgMax of two columns do"
            )
        ways_by_name |= dict(zip(node.output, ways, strict=False))


def _ways(node: onnx.NodeProto, inputs: Sequence[Way | None], graph: onnx.GraphProto) -> list[Way] | None:
    """Return the way of each output; None where it is not known to keep the order."""
    moving = [one for one in inputs if one is not None]
    labels = {one.label for one in moving}
    label = labels.pop() if len(labels) == 1 else None
    share = _share(node, inputs)
    if share is not None:
        return [share]
    if any(one.columns is None for one in moving):
        columns = None
    elif node.op_type == "Split":
        return _split(node, moving[0], graph)
    else:
        columns = _columns(node, inputs, graph)
    if columns is None and label is None:
        return None
    wide = _wide(node, inputs, graph)
    single = columns is not None and len(columns) == 1 and not wide
    if single and label is None and node.op_type in {*COMPARES, "ArgMax"}:
        label = node.output[0]
    positive = node.op_type in POSITIVE or (node.op_type in SAME and moving[0].positive)
    return [Way(columns, label, wide, positive)] * len(node.output)


def _share(node: onnx.NodeProto, inputs: Sequence[Way | None]) -> Way | None:
    """Two columns that are not negative, each divided by their sum: the one share rises while the other falls."""
    first = inputs[0] if inputs else None
    if first is not None and first.total is not None and node.op_type in SAME:
        return first
    if first is None or not first.positive or first.columns not in _TWO:
        return None
    origin = first.same or node.input[0]
    if node.op_type == "Abs":
        return first._replace(same=origin)
    if node.op_type == "ReduceSum":
        return Way(None, total=origin)
    second = inputs[1] if len(inputs) > 1 else None
    return first if node.op_type == "Div" and second is not None and second.total == origin else None


def _wide(node: onnx.NodeProto, inputs: Sequence[Way | None], graph: onnx.GraphProto) -> bool:
    """Tell whether one direction may stand for several columns."""
    named = [name for name in node.input if name]
    if node.op_type in ("MatMul", "ArgMax"):
        weights = constant_of(graph, named[-1])
        return node.op_type == "MatMul" and (weights is None or weights.ndim < 2 or weights.shape[1] != 1)
    if any(one is not None and one.wide for one in inputs):
        return True
    if node.op_type not in {*_JOINED, *_AGAINST, "Mul", "Div", "Where"}:
        return False
    others = [constant_of(graph, name) for name, one in zip(named, inputs, strict=True) if one is None]
    return any(one is None or one.size != 1 for one in others)


def _columns(  # noqa: PLR0911 -- one line for each kind of operator
    node: onnx.NodeProto, inputs: Sequence[Way | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    kind = node.op_type
    directions = [None if one is None else one.columns for one in inputs]
    moving = [one for one in directions if one is not None]
    if kind in SAME:
        return directions[0] if len(moving) == 1 else None
    if kind in _TURNED:
        return tuple(-one for one in moving[0])
    if kind in ("Gather", "ArrayFeatureExtractor", "Slice"):
        return None if directions[0] is None else _picked(node, directions[0], graph)
    if kind == "Concat":
        return None if len(moving) < len(inputs) else tuple(d for one in moving for d in one)
    if kind in ("Softmax", "Normalizer"):
        return moving[0] if moving[0] in _TWO else None
    if kind == "ArgMax":
        return (moving[0][1],) if moving[0] in _TWO else None
    if kind in ("Mul", "Div"):
        return _scaled(node, directions, graph)
    if kind == "MatMul":
        return _weighted(node, directions, graph)
    if kind == "Where":  # the condition follows from columns alone, or from nothing
        return None if directions[0] is not None else _together(moving)
    if kind in _JOINED:
        return _together(moving)
    if kind in _AGAINST and len(inputs) == 2:
        second = _AGAINST[kind]
        return _together(
            [
                tuple(d if (place == 0) == (second < 0) else -d for d in one)
                for place, one in enumerate(directions)
                if one is not None
            ]
        )
    return None


def _together(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the direction of columns that are joined one by one; None where two go against each other."""
    width = max(map(len, parts))
    if any(len(one) not in (1, width) for one in parts):
        return None
    columns = []
    for place in range(width):
        ways = {one[place if len(one) > 1 else 0] for one in parts} - {0}
        if len(ways) > 1:
            return None
        columns.append(ways.pop() if ways else 0)
    return tuple(columns)


def _picked(node: onnx.NodeProto, columns: tuple[int, ...], graph: onnx.GraphProto) -> tuple[int, ...] | None:
    """Return the directions of the columns that are taken."""
    if len(set(columns)) == 1:
        return columns[:1]
    own = attributes_of(node)
    if node.op_type == "Slice" and len(node.input) > 3 and not node.input[3]:
        return None  # without axes it cuts the rows first
    named = [constant_of(graph, name) for name in node.input[1:] if name]
    numbers = [one.reshape(-1).astype(np.int64).tolist() for one in named if one is not None]
    numbers += [own[name] for name in ("starts", "ends", "axes") if node.op_type == "Slice" and name in own]
    if len(numbers) < max(len(named), 1) or (node.op_type == "Gather" and own.get("axis", 0) not in (1, -1)):
        return None
    if node.op_type == "Slice":
        if len(numbers) < 3 or numbers[2] not in ([1], [-1]):
            return None
        step = numbers[3][0] if len(numbers) > 3 else 1
        return columns[slice(numbers[0][0], numbers[1][0], step)] or None
    places = numbers[0]
    fits = all(-len(columns) <= place < len(columns) for place in places)
    return tuple(columns[place] for place in places) if fits and places else None


def _split(node: onnx.NodeProto, way: Way, graph: onnx.GraphProto) -> list[Way] | None:
    """Return the columns of each output, of which each has as many."""
    columns, count = way.columns or (), len(node.output)
    sizes = constant_of(graph, node.input[1]) if len(node.input) > 1 and node.input[1] else None
    told = attributes_of(node).get("split") if sizes is None else sizes.reshape(-1).tolist()
    if way.wide or attributes_of(node).get("axis", 0) not in (1, -1) or len(columns) % count:
        return None
    each = len(columns) // count
    if told is not None and list(told) != [each] * count:
        return None
    return [Way(columns[place * each : (place + 1) * each]) for place in range(count)]


def _scaled(
    node: onnx.NodeProto, directions: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    """A factor of one sign keeps the order or turns it; all factors zero leave a constant."""
    if len(directions) != 2 or sum(one is None for one in directions) != 1:
        return None
    place = 0 if directions[0] is None else 1
    columns, factor = directions[1 - place], values_of(graph, node.input[place])
    if columns is None or factor is None or (node.op_type == "Div" and (place == 0 or (factor == 0).any())):
        return None
    sign = _sign(factor)
    return None if sign is None else tuple(sign * one for one in columns)


def _weighted(
    node: onnx.NodeProto, directions: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    """Columns of one direction, added up with weights of one sign."""
    weights = constant_of(graph, node.input[1])
    if directions[0] is None or weights is None:
        return None
    sign, one = _sign(weights), _together([(way,) for way in directions[0]])
    return None if sign is None or one is None else (sign * one[0],)


def _sign(values: NDArray[Any]) -> int | None:
    """Return the sign that finite numbers have, zeros apart; None where they have two."""
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all() or ((numbers > 0).any() and (numbers < 0).any()):
        return None
    return int((numbers > 0).any()) - int((numbers < 0).any())
