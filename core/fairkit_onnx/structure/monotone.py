"""Whether what follows a sum keeps its order: by operator, which way each column goes while the sum rises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.read.graph import name_of
from fairkit_onnx.structure.ensemble import ARRANGES, CHOOSES, COMPARES, POSITIVE, RISES, attributes_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Constant = Callable[[str], NDArray[Any] | None]


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
        if all(way is None for way in inputs):
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
    moving = [way for way in inputs if way is not None]
    labels = {way.label for way in moving}
    label = labels.pop() if len(labels) == 1 else None
    share = _share(node, inputs)
    if share is not None:
        return [share]
    if any(way.columns is None for way in moving):
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
    if any(way is not None and way.wide for way in inputs):
        return True
    if node.op_type not in {*_JOINED, *_AGAINST, "Mul", "Div", "Where"}:
        return False
    others = [constant_of(graph, name) for name, way in zip(named, inputs, strict=True) if way is None]
    return any(constant is None or constant.size != 1 for constant in others)


def _columns(  # noqa: PLR0911 -- one line for each kind of operator
    node: onnx.NodeProto, inputs: Sequence[Way | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    kind = node.op_type
    directions = [None if way is None else way.columns for way in inputs]
    moving = [direction for direction in directions if direction is not None]
    if kind in SAME:
        return directions[0] if len(moving) == 1 else None
    if kind in _TURNED:
        return tuple(-direction for direction in moving[0])
    if kind in ("Gather", "ArrayFeatureExtractor", "Slice"):
        return None if directions[0] is None else _picked(node, directions[0], graph)
    if kind == "Concat":
        return None if len(moving) < len(inputs) else tuple(d for way in moving for d in way)
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
                tuple(d if (index == 0) == (second < 0) else -d for d in direction)
                for index, direction in enumerate(directions)
                if direction is not None
            ]
        )
    return None


def _together(parts: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the direction of columns that are joined one by one; None where two go against each other."""
    width = max(map(len, parts))
    if any(len(part) not in (1, width) for part in parts):
        return None
    columns = []
    for index in range(width):
        ways = {part[index if len(part) > 1 else 0] for part in parts} - {0}
        if len(ways) > 1:
            return None
        columns.append(ways.pop() if ways else 0)
    return tuple(columns)


def _picked(node: onnx.NodeProto, columns: tuple[int, ...], graph: onnx.GraphProto) -> tuple[int, ...] | None:
    """Return the directions of the columns that are taken."""
    if len(set(columns)) == 1:
        return columns[:1]
    attributes = attributes_of(node)
    if node.op_type == "Slice" and len(node.input) > 3 and not node.input[3]:
        return None  # without axes it cuts the rows first
    named = [constant_of(graph, name) for name in node.input[1:] if name]
    numbers = [constant.reshape(-1).astype(np.int64).tolist() for constant in named if constant is not None]
    numbers += [
        attributes[name] for name in ("starts", "ends", "axes") if node.op_type == "Slice" and name in attributes
    ]
    if len(numbers) < max(len(named), 1) or (node.op_type == "Gather" and attributes.get("axis", 0) not in (1, -1)):
        return None
    if node.op_type == "Slice":
        if len(numbers) < 3 or numbers[2] not in ([1], [-1]):
            return None
        step = numbers[3][0] if len(numbers) > 3 else 1
        return columns[slice(numbers[0][0], numbers[1][0], step)] or None
    places = numbers[0]
    fits = all(-len(columns) <= index < len(columns) for index in places)
    return tuple(columns[index] for index in places) if fits and places else None


def _split(node: onnx.NodeProto, way: Way, graph: onnx.GraphProto) -> list[Way] | None:
    """Return the columns of each output, of which each has as many."""
    columns, count = way.columns or (), len(node.output)
    sizes = constant_of(graph, node.input[1]) if len(node.input) > 1 and node.input[1] else None
    sizes_given = attributes_of(node).get("split") if sizes is None else sizes.reshape(-1).tolist()
    if way.wide or attributes_of(node).get("axis", 0) not in (1, -1) or len(columns) % count:
        return None
    each = len(columns) // count
    if sizes_given is not None and list(sizes_given) != [each] * count:
        return None
    return [Way(columns[index * each : (index + 1) * each]) for index in range(count)]


def _scaled(
    node: onnx.NodeProto, directions: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    """A factor of one sign keeps the order or turns it; all factors zero leave a constant."""
    if len(directions) != 2 or sum(direction is None for direction in directions) != 1:
        return None
    index = 0 if directions[0] is None else 1
    columns, factor = directions[1 - index], values_of(graph, node.input[index])
    if columns is None or factor is None or (node.op_type == "Div" and (index == 0 or (factor == 0).any())):
        return None
    sign = _sign(factor)
    return None if sign is None else tuple(sign * column for column in columns)


def _weighted(
    node: onnx.NodeProto, directions: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    """Columns of one direction, added up with weights of one sign."""
    weights = constant_of(graph, node.input[1])
    if directions[0] is None or weights is None:
        return None
    sign, direction = _sign(weights), _together([(way,) for way in directions[0]])
    return None if sign is None or direction is None else (sign * direction[0],)


def _sign(values: NDArray[Any]) -> int | None:
    """Return the sign that finite numbers have, zeros apart; None where they have two."""
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all() or ((numbers > 0).any() and (numbers < 0).any()):
        return None
    return int((numbers > 0).any()) - int((numbers < 0).any())


# Which operators keep the order of a column, and where those that break it may be cut into pieces that keep it.


_STEPS = frozenset({"Neg", "Floor", "Ceil", "Round", "Relu", "Not", "Binarizer", "IsNaN"})
_WITH_CONSTANTS = COMPARES | {"Clip", "Min", "Max", "And", "Or"}
_ARITHMETIC = frozenset({"Scaler", "Add", "Sub", "Mul", "Div"})
_AROUND_ZERO = frozenset({"Abs", "Sqrt"})
_OF_TRUTHS = {"Where": 1, "And": 2, "Or": 2}
"""Operators of truth values, and how many of their inputs are some: no order is needed where each is cut."""
_FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
_WHOLE = {"INT8": 2.0**7, "INT16": 2.0**15, "INT32": 2.0**31, "INT64": 2.0**63}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold of a tensor, on every piece of a column, so that an operator keeps the order there."""

    tensor: str  # of which tensor
    node: str  # for which node
    cuts: tuple[float, ...] = ()  # numbers below, at and above which the column is cut
    finite: bool = False  # whether the tensor must have no infinite number
    nonzero: bool = False  # whether it must not be zero anywhere
    inside: tuple[float, float] | None = None  # between which numbers it must lie
    columns: tuple[str | None, ...] = ()  # the raw column behind each of the tensor's; None for none


def conditions_of(node: onnx.NodeProto, moving: Sequence[str], constant: Constant) -> list[Condition] | None:
    """Return under which conditions a node keeps the order of a column, or turns it round; None where it may not.

    What is rounded correctly keeps an order, as sums, products and square roots are; exponentials, logarithms and their
    like are approximations, whose last digits may not, so their columns are gone through value by value.
    """
    kind, named = node.op_type, name_of(node)
    if kind in ARRANGES | CHOOSES | _STEPS:
        return []
    if kind in _OF_TRUTHS:
        truths = [name for name in node.input[: _OF_TRUTHS[kind]] if name in moving]
        return [Condition(tensor=name, node=named, cuts=(1.0,)) for name in truths]
    if len(moving) != 1 or moving[0] != node.input[0]:
        return _second(node, moving, constant, named)
    tensor, attributes = moving[0], attributes_of(node)
    if kind in _AROUND_ZERO or kind == "Imputer":
        cuts = (0.0,) if kind in _AROUND_ZERO else _replaced(attributes)
        return [Condition(tensor=tensor, node=named, cuts=cuts)]
    if kind == "Cast":
        return _cast(tensor, int(attributes["to"]), named)
    return _with_constants(node, tensor, constant, named)


def _replaced(told: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the numbers that an Imputer takes for missing ones, NaN apart."""
    special = [told.get("replaced_value_float", 0.0)] if "imputed_value_floats" in told else []
    special += [told.get("replaced_value_int64", 0)] if "imputed_value_int64s" in told else []
    return tuple(float(value) for value in special if value == value)  # noqa: PLR0124 -- NaN


def _cast(tensor: str, to: int, named: str) -> list[Condition] | None:
    import onnx

    name = onnx.TensorProto.DataType.Name(to)
    if name in _FLOATS:
        return []
    if name == "BOOL":
        return [Condition(tensor=tensor, node=named, cuts=(0.0,))]
    if name in _WHOLE:  # beyond, what a processor makes of it is its own
        return [Condition(tensor=tensor, node=named, finite=True, inside=(-_WHOLE[name], _WHOLE[name] - 1))]
    return None


def _with_constants(node: onnx.NodeProto, tensor: str, constant: Constant, named: str) -> list[Condition] | None:
    """Operators of a column and constants."""
    kind, attributes = node.op_type, attributes_of(node)
    constants = [constant(name) for name in node.input[1:] if name]
    if any(constant is None for constant in constants):
        return None
    if kind in _WITH_CONSTANTS:
        return []
    numbers = [np.asarray(constant, dtype=np.float64) for constant in constants if constant is not None]
    numbers += [
        np.asarray(attributes.get(name, ()), dtype=np.float64) for name in ("offset", "scale") if kind == "Scaler"
    ]
    if kind not in _ARITHMETIC or not all(np.isfinite(number).all() for number in numbers):
        return None
    if kind == "Div" and (numbers[0] == 0).any():
        return None
    return [Condition(tensor=tensor, node=named, finite=True)]


def _second(node: onnx.NodeProto, moving: Sequence[str], constant: Constant, named: str) -> list[Condition] | None:
    """A constant and a column, in that order: as the other way round, but for a quotient."""
    kind = node.op_type
    if len(node.input) != 2 or list(moving) != [node.input[1]] or kind not in _WITH_CONSTANTS | _ARITHMETIC:
        return None
    tensor = constant(node.input[0])
    if tensor is None or (kind in _ARITHMETIC and not np.isfinite(np.asarray(tensor, dtype=np.float64)).all()):
        return None
    if kind == "Div":
        return [Condition(tensor=moving[0], node=named, cuts=(0.0,), finite=True, nonzero=True)]
    return [Condition(tensor=moving[0], node=named, finite=kind in _ARITHMETIC)]


# Constant tensors of a graph, and tensors whose numbers all come from one.


_ARRANGED = ARRANGES | {"Gather", "Cast", "Expand"}


def constant_of(graph: onnx.GraphProto, name: str) -> NDArray[Any] | None:
    """Return a constant tensor; None for what is none."""
    from onnx import numpy_helper

    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            attributes = attributes_of(node)
            if "value" in attributes:
                return numpy_helper.to_array(attributes["value"])
            return np.asarray(next(iter(attributes.values())))
    return None


def values_of(graph: onnx.GraphProto, name: str) -> NDArray[Any] | None:
    """Return a constant that has all numbers which a tensor may have, such as the table that rows are taken from.

    None where they do not come from one.
    """
    makers = {output: node for node in graph.node for output in node.output}
    for _ in range(len(graph.node) + 1):
        constant = constant_of(graph, name)
        maker = makers.get(name)
        if constant is not None or maker is None or maker.op_type not in _ARRANGED:
            return constant
        name = maker.input[0]
    return None
