"""Which operators keep the order of a column, and where those that break it may be cut into pieces that keep it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.nodes import name_of
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.operators import ARRANGES, CHOOSES, COMPARES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Constant = Callable[[str], NDArray[Any] | None]

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

    tensor: str  # of which tensor, and for which node
    node: str  # of which tensor, and for which node
    cuts: tuple[float, ...] = ()  # numbers below, at and above which the column is cut
    finite: bool = False  # whether the tensor must have no infinite number, and not be zero, anywhere
    nonzero: bool = False  # whether the tensor must have no infinite number, and not be zero, anywhere
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
    tensor, told = moving[0], attributes_of(node)
    if kind in _AROUND_ZERO or kind == "Imputer":
        cuts = (0.0,) if kind in _AROUND_ZERO else _replaced(told)
        return [Condition(tensor=tensor, node=named, cuts=cuts)]
    if kind == "Cast":
        return _cast(tensor, int(told["to"]), named)
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
    beside = [constant(name) for name in node.input[1:] if name]
    if any(one is None for one in beside):
        return None
    if kind in _WITH_CONSTANTS:
        return []
    numbers = [np.asarray(one, dtype=np.float64) for one in beside if one is not None]
    numbers += [
        np.asarray(attributes.get(name, ()), dtype=np.float64) for name in ("offset", "scale") if kind == "Scaler"
    ]
    if kind not in _ARITHMETIC or not all(np.isfinite(one).all() for one in numbers):
        return None
    if kind == "Div" and (numbers[0] == 0).any():
        return None
    return [Condition(tensor=tensor, node=named, finite=True)]


def _second(node: onnx.NodeProto, moving: Sequence[str], constant: Constant, named: str) -> list[Condition] | None:
    """A constant and a column, in that order: as the other way round, but for a quotient."""
    kind = node.op_type
    if len(node.input) != 2 or list(moving) != [node.input[1]] or kind not in _WITH_CONSTANTS | _ARITHMETIC:
        return None
    one = constant(node.input[0])
    if one is None or (kind in _ARITHMETIC and not np.isfinite(np.asarray(one, dtype=np.float64)).all()):
        return None
    if kind == "Div":
        return [Condition(tensor=moving[0], node=named, cuts=(0.0,), finite=True, nonzero=True)]
    return [Condition(tensor=moving[0], node=named, finite=kind in _ARITHMETIC)]
