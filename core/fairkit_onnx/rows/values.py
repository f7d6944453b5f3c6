"""Arithmetic on the shapes that a graph computes: whole numbers and multiples of the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fairkit_onnx.rows.types import Count, Dim, MixedRowsError, bounded, volume

if TYPE_CHECKING:
    from fairkit_onnx.rows.call import Call

MOST = 64
"""Entries of larger tensors are not followed."""
_WHOLE = (6, 7)
"""ONNX's numbers of int32 and int64: a cast to a smaller type could wrap around."""
_LONG, _BOOLEAN = 7, 9


def evaluated(call: Call) -> tuple[Dim, ...] | None:
    """Return the entries of an operator's result; None where they are not followed."""
    rule = _RULES.get(call.operator)
    if rule is None or any(each is None or each.values is None for each in call.inputs if each is not None):
        return None
    try:
        found = rule(call)
    except (MixedRowsError, IndexError, KeyError, ValueError, TypeError):
        return None
    return None if found is None or len(found) > MOST else tuple(found)


def _entries(call: Call, place: int) -> np.ndarray:
    """Return an input's entries in its shape."""
    tensor = call.inputs[place]
    if tensor is None or tensor.values is None or tensor.shape is None:
        raise MixedRowsError
    shape = [length for length in tensor.shape if isinstance(length, int)]
    if len(shape) != tensor.rank or prod(shape) != len(tensor.values):
        raise MixedRowsError
    found = np.empty(len(tensor.values), dtype=object)
    found[:] = tensor.values
    return found.reshape(shape)


def _flat(array: np.ndarray) -> list[Dim]:
    return list(np.asarray(array, dtype=object).reshape(-1))


def _same(call: Call) -> list[Dim]:
    return _flat(_entries(call, 0))


def _cast(call: Call) -> list[Dim] | None:
    to = call.whole("to", 0)
    if to in _WHOLE:
        return _same(call) if to == _LONG else [bounded(value) for value in _same(call)]
    if to == _BOOLEAN:
        return [None if value is None else int(isinstance(value, Count) or value != 0) for value in _same(call)]
    return None


def _gather(call: Call) -> list[Dim]:
    data, places = _entries(call, 0), _entries(call, 1)
    if call.whole("axis", 0) != 0 or not all(isinstance(one, int) for one in places.reshape(-1)):
        raise MixedRowsError
    return _flat(data[places.astype(np.int64)])


def _slice(call: Call) -> list[Dim]:
    data = _entries(call, 0)
    starts, ends, axes, steps = call.slices()
    if data.ndim != 1 or axes != [0]:
        raise MixedRowsError
    return _flat(data[starts[0] : ends[0] : steps[0]])


def _concat(call: Call) -> list[Dim]:
    parts = [_entries(call, place) for place in range(len(call.inputs))]
    return _flat(np.concatenate(parts, axis=call.whole("axis", 0)))


def _where(call: Call) -> list[Dim]:
    condition, yes, no = np.broadcast_arrays(*(_entries(call, place) for place in range(3)))
    chosen = zip(_flat(condition), _flat(yes), _flat(no), strict=True)
    return [(a if a == b else None) if c is None else a if c else b for c, a, b in chosen]


def _range(call: Call) -> list[Dim]:
    start, limit, step = (_entries(call, place).reshape(-1)[0] for place in range(3))
    if not all(isinstance(one, int) for one in (start, limit, step)) or abs(limit - start) > MOST * abs(step):
        raise MixedRowsError
    return list(range(start, limit, step))


def _filled(call: Call) -> list[Dim]:
    """Return the entries of a ConstantOfShape."""
    many = volume(_flat(_entries(call, 0)))
    if many is None or many > MOST:
        raise MixedRowsError
    value = call.tensor("value")
    if value is not None and value.values is None:
        raise MixedRowsError
    one: Dim = 0 if value is None or value.values is None else value.values[0]
    return [one] * many


def _total(call: Call) -> list[Dim]:
    found: Dim = 1
    for value in _same(call):
        found = _times(found, value)
    return [found]


def _two(function: Callable[[Dim, Dim], Dim]) -> Callable[[Call], list[Dim]]:
    def rule(call: Call) -> list[Dim]:
        left, right = np.broadcast_arrays(_entries(call, 0), _entries(call, 1))
        return [function(a, b) for a, b in zip(_flat(left), _flat(right), strict=True)]

    return rule


def _times(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Count) and isinstance(b, int) and b > 0:
        return bounded(Count(a.times * b))
    if isinstance(b, Count) and isinstance(a, int) and a > 0:
        return bounded(Count(b.times * a))
    return bounded(a * b) if isinstance(a, int) and isinstance(b, int) else None


def _over(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Count) and isinstance(b, int) and b > 0 and a.times % b == 0:
        return Count(a.times // b)
    if isinstance(a, Count) and isinstance(b, Count) and a.times % b.times == 0:
        return a.times // b.times
    return a // b if isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0 else None


def _plus(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Count) or isinstance(b, Count):
        if isinstance(a, Count) and isinstance(b, Count):
            return bounded(Count(a.times + b.times))
        return a if b == 0 else b if a == 0 else None
    return bounded(a + b) if isinstance(a, int) and isinstance(b, int) else None


def _minus(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Count) or isinstance(b, Count):
        return 0 if a == b else a if b == 0 else None
    return bounded(a - b) if isinstance(a, int) and isinstance(b, int) else None


def _compared(test: Callable[[int, int], bool]) -> Callable[[Dim, Dim], Dim]:
    """Return a comparison; a number of rows compares with no positive number, and is more than 0."""

    def rule(a: Dim, b: Dim) -> Dim:
        if isinstance(a, int) and isinstance(b, int):
            return int(test(a, b))
        if isinstance(a, Count) and isinstance(b, int) and b <= 0:
            return int(test(1, b))
        if isinstance(b, Count) and isinstance(a, int) and a <= 0:
            return int(test(a, 1))
        return None

    return rule


def _both(a: Dim, b: Dim) -> Dim:
    return 0 if 0 in (a, b) else None if None in (a, b) else int(bool(a) and bool(b))


def _either(a: Dim, b: Dim) -> Dim:
    if any(isinstance(one, int) and one for one in (a, b)):
        return 1
    return None if None in (a, b) else 0


_RULES: Mapping[str, Callable[[Call], Sequence[Dim] | None]] = {
    "Identity": _same,
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _same,
    "Squeeze": _same,
    "Reshape": _same,
    "Flatten": _same,
    "Where": _where,
    "Range": _range,
    "ConstantOfShape": _filled,
    "ReduceProd": _total,
    "Add": _two(_plus),
    "Sub": _two(_minus),
    "Mul": _two(_times),
    "Div": _two(_over),
    "Equal": _two(_compared(lambda a, b: a == b)),
    "Less": _two(_compared(lambda a, b: a < b)),
    "LessOrEqual": _two(_compared(lambda a, b: a <= b)),
    "Greater": _two(_compared(lambda a, b: a > b)),
    "GreaterOrEqual": _two(_compared(lambda a, b: a >= b)),
    "And": _two(_both),
    "Or": _two(_either),
    "Not": lambda call: [None if value is None else int(not value) for value in _same(call)],
}
