"""Operators that move rows without computing with them: each row must provably stay where it was among the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairkit_onnx.rows.types import Count, Dim, Kind, MixedRowsError, Tensor, constant, moved, rows, times, volume

if TYPE_CHECKING:
    from fairkit_onnx.rows.call import Call

_FULL = 2**31 - 1
"""A Slice that ends here or later takes everything to the end."""


def reshape(call: Call) -> list[Tensor]:
    """Reshape: the target is known, entries or multiples of the number of rows."""
    data, told = call.needed(0), call.given(1)
    target = call.wholes("shape") if told is None else _entries(told)
    if target is None:
        raise MixedRowsError
    zero = not call.whole("allowzero", 0)
    lengths = [data.dims[place] if zero and one == 0 else one for place, one in enumerate(target)]
    return [reshaped(data, lengths)]


def _entries(tensor: Tensor) -> Sequence[Dim]:
    """Return the entries of a constant or a size."""
    if tensor.values is None or tensor.kind in (Kind.ROWS, Kind.MIXED):
        raise MixedRowsError
    return tensor.values


def _place_of_rows(lengths: Sequence[Dim]) -> int | None:
    """Return which of the lengths is a number of rows; None where none is."""
    counts = [place for place, one in enumerate(lengths) if isinstance(one, Count)]
    if len(counts) > 1:
        raise MixedRowsError
    return counts[0] if counts else None


def flatten(call: Call) -> list[Tensor]:
    """Flatten to a matrix."""
    data = call.needed(0)
    axis = call.whole("axis", 1)
    axis += data.rank if axis < 0 else 0
    return [reshaped(data, [_product(data.dims[:axis]), _product(data.dims[axis:])])]


def _product(dims: Sequence[Dim]) -> Dim:
    counts = [one for one in dims if isinstance(one, Count)]
    rest = volume(one for one in dims if not isinstance(one, Count))
    if not counts:
        return rest if rest is not None else -1
    if rest is None or len(counts) > 1:
        raise MixedRowsError
    return Count(counts[0].times * rest)


def reshaped(data: Tensor, target: Sequence[Dim]) -> Tensor:
    """Return rows in another shape; entries are in row-major order, so a row's stay together."""
    if not data.has_rows:
        return data.shaped(_solved(target, volume(data.dims) if data.shape is not None else None))
    if data.axis is None:
        return data.shaped(_solved(target, volume(data.dims)))
    axis = data.axis
    if any(length != 1 for length in data.dims[:axis]):
        return _prefixed(data, target, axis)
    count, inner = times(data), volume(data.dims[axis + 1 :])
    entries = None if inner is None else count * inner
    at = next((place for place, one in enumerate(target) if one != 1), None)
    if at is None:
        raise MixedRowsError
    rest = list(target[at + 1 :])
    if any(isinstance(one, Count) or one == 0 for one in rest):
        raise MixedRowsError
    first = target[at]
    if first == -1:
        part = volume(rest)
        if entries is None or not part or part < 1 or entries % part:
            raise MixedRowsError
        first = Count(entries // part)
    if not isinstance(first, Count):
        raise MixedRowsError
    if entries is None:
        if first.times != count:
            raise MixedRowsError
        return rows([*target[:at], first, *(None if one == -1 else one for one in rest)], at)
    return rows([*target[:at], first, *_fitted(rest, entries, first.times)], at)


def _prefixed(data: Tensor, target: Sequence[Dim], axis: int) -> Tensor:
    """Return rows on a later axis where the target keeps all axes up to it."""
    if len(target) <= axis or list(target[: axis + 1]) != list(data.dims[: axis + 1]):
        raise MixedRowsError
    if None in data.dims[:axis]:
        raise MixedRowsError
    rest, inner = list(target[axis + 1 :]), volume(data.dims[axis + 1 :])
    if any(isinstance(one, Count) or one == 0 for one in rest):
        raise MixedRowsError
    if inner is None:
        return rows([*data.dims[: axis + 1], *(None if one == -1 else one for one in rest)], axis)
    return rows([*data.dims[: axis + 1], *_fitted(rest, inner, 1)], axis)


def _fitted(rest: Sequence[Dim], entries: int, count: int) -> list[Dim]:
    """Return the lengths after the row axis, with -1 solved: together they are a row's entries."""
    if entries % count or None in rest:
        raise MixedRowsError
    found = _solved(rest, entries // count)
    if found is None or volume(found) != entries // count:
        raise MixedRowsError
    return list(found)


def _solved(target: Sequence[Dim], entries: int | None) -> tuple[Dim, ...] | None:
    open_places = [place for place, one in enumerate(target) if one == -1]
    if not open_places:
        return tuple(target)
    rest = volume(one for one in target if one != -1)
    if len(open_places) > 1:
        raise MixedRowsError
    length = None if entries is None or not rest or entries % rest else entries // rest
    return tuple(length if place == open_places[0] else one for place, one in enumerate(target))


def transpose(call: Call) -> list[Tensor]:
    """Transpose."""
    data = call.needed(0)
    order = call.wholes("perm") or list(range(data.rank))[::-1]
    if sorted(order) != list(range(data.rank)):
        raise MixedRowsError
    moved = data.shaped([data.dims[place] for place in order])
    return [moved if data.axis is None else rows(moved.dims, order.index(data.axis))]


def squeeze(call: Call) -> list[Tensor]:
    """Squeeze: named axes, or those of length 1, none of which may hold the rows."""
    data, axes = call.needed(0), call.axes()
    if axes is None and None in data.dims:
        raise MixedRowsError
    gone = (
        [place for place, one in enumerate(data.dims) if one == 1]
        if axes is None
        else [one % data.rank for one in axes]
    )
    if axes is None and data.axis is not None:  # with one row it would go too
        raise MixedRowsError
    if data.axis in gone:
        raise MixedRowsError
    axis = None if data.axis is None else data.axis - sum(one < data.axis for one in gone)
    return [moved(data, [one for place, one in enumerate(data.dims) if place not in gone], axis)]


def unsqueeze(call: Call) -> list[Tensor]:
    """Unsqueeze."""
    data, told = call.needed(0), call.axes()
    if told is None:
        raise MixedRowsError
    rank = data.rank + len(told)
    new = {one % rank for one in told}
    old = iter(range(data.rank))
    order = [None if place in new else next(old) for place in range(rank)]
    axis = None if data.axis is None else order.index(data.axis)
    return [moved(data, [1 if place is None else data.dims[place] for place in order], axis)]


def expand(call: Call) -> list[Tensor]:
    """Expand: of rows along other axes, or of a constant to one row for each row of the batch."""
    data, target = call.needed(0), _entries(call.needed(1))
    rank = max(len(target), data.rank)
    wanted: list[Dim] = [*[1] * (rank - len(target)), *target]
    have: list[Dim] = [*[1] * (rank - data.rank), *data.dims]
    axis = None if data.axis is None else data.axis + rank - data.rank
    return [_stretched(data, have, wanted, axis)]


def _stretched(data: Tensor, have: Sequence[Dim], wanted: Sequence[Dim], axis: int | None) -> Tensor:
    shape: list[Dim] = []
    for position, (old, new) in enumerate(zip(have, wanted, strict=True)):
        if position == axis:
            if new not in (1, old):
                raise MixedRowsError
            shape.append(old)
        elif isinstance(new, Count) and (old != 1 or axis is not None):
            raise MixedRowsError
        else:
            shape.append(new if old == 1 else old)
    at = _place_of_rows(shape)
    if data.has_rows and axis is None and at is not None:
        raise MixedRowsError
    return rows(shape, at) if at is not None and data.kind is Kind.CONSTANT else moved(data, shape, axis)


def constant_of_shape(call: Call) -> list[Tensor]:
    """ConstantOfShape: the same number everywhere, one row for each row of the batch."""
    shape = _entries(call.needed(0))
    at = _place_of_rows(shape)
    return [constant(shape) if at is None else rows(shape, at)]


def tile(call: Call) -> list[Tensor]:
    """Tile: of rows along other axes, or of a constant of one row to one for each row of the batch."""
    data, repeats = call.needed(0), _entries(call.needed(1))
    if len(repeats) != data.rank:
        raise MixedRowsError
    shape = [_repeated(length, by) for length, by in zip(data.dims, repeats, strict=True)]
    if data.has_rows:
        if data.axis is not None and repeats[data.axis] != 1:
            raise MixedRowsError
        return [rows(shape, data.axis)]
    at = _place_of_rows(repeats)
    if at is None:
        return [data.shaped(shape)]
    if data.dims[at] != 1 or data.kind is not Kind.CONSTANT:
        raise MixedRowsError
    shape[at] = repeats[at]
    return [rows(shape, at)]


def _repeated(length: Dim, by: Dim) -> Dim:
    if by == 1:
        return length
    return length * by if isinstance(length, int) and isinstance(by, int) else None


def cut(call: Call) -> list[Tensor]:
    """Slice: along other axes than the rows', or all of it."""
    data = call.needed(0)
    starts, ends, axes, steps = call.slices()
    shape = list(data.dims)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        position = axis % data.rank
        if position == data.axis:
            if start != 0 or end < _FULL or step != 1:
                raise MixedRowsError
            continue
        length = shape[position]
        shape[position] = len(range(*slice(start, end, step).indices(length))) if isinstance(length, int) else None
        if isinstance(length, int) and step < 0:
            shape[position] = None
    return [moved(data, shape, data.axis)]


def split(call: Call) -> list[Tensor]:
    """Split along another axis than the rows'."""
    data, told = call.needed(0), call.given(1)
    axis = call.whole("axis", 0) % data.rank
    if axis == data.axis:
        raise MixedRowsError
    parts = call.wholes("split") if told is None else list(told.known())
    count = len(call.node.output)
    length = data.dims[axis]
    sizes: list[Dim]
    if parts is not None:
        sizes = list(parts)
    elif isinstance(length, int) and length % count == 0:
        sizes = [length // count] * count
    else:
        sizes = [None] * count
    return [
        moved(data, [size if place == axis else one for place, one in enumerate(data.dims)], data.axis)
        for size in sizes
    ]


def concat(call: Call) -> list[Tensor]:
    """Concat along another axis than the rows', which all of its inputs share."""
    parts = [call.needed(place) for place in range(len(call.inputs))]
    axis = call.whole("axis", 0) % parts[0].rank
    if len({part.rank for part in parts}) > 1:
        raise MixedRowsError
    with_rows = [part for part in parts if part.has_rows]
    lengths = [part.dims[axis] for part in parts]
    total = volume(lengths)
    shape = list(parts[0].dims)
    shape[axis] = None if total is None else sum(one for one in lengths if isinstance(one, int))
    if not with_rows:
        return [parts[0].shaped(shape)]
    first = with_rows[0]
    if first.axis is None:
        return [rows(shape, None)]
    alike = all(part.axis == first.axis and times(part) == times(first) for part in with_rows)
    if len(with_rows) != len(parts) or not alike or axis == first.axis:
        raise MixedRowsError
    return [rows([first.dims[p] if p == first.axis else one for p, one in enumerate(shape)], first.axis)]


def gather(call: Call) -> list[Tensor]:
    """Gather from a constant table by rows' numbers, or constant columns of rows."""
    data, places = call.needed(0), call.needed(1)
    axis = call.whole("axis", 0) % max(data.rank, 1)
    shape = (*data.dims[:axis], *places.dims, *data.dims[axis + 1 :])
    if data.has_rows and places.has_rows:
        if data.axis is None and places.axis is None:
            return [rows(shape, None)]
        raise MixedRowsError
    if places.has_rows:
        return [rows(shape, None if places.axis is None else axis + places.axis)]
    if not data.has_rows:
        return [data.shaped(shape)]
    if data.axis is None:
        return [rows(shape, None)]
    if axis == data.axis:
        raise MixedRowsError
    at = data.axis if data.axis < axis else data.axis + places.rank - 1
    return [rows(shape, at)]


def gather_elements(call: Call) -> list[Tensor]:
    """GatherElements along another axis than the rows'."""
    data, places = call.needed(0), call.needed(1)
    axis = call.whole("axis", 0) % data.rank
    if data.has_rows and data.axis is None and places.axis is None:
        return [rows(places.dims, None)]
    if not (data.has_rows and places.has_rows and data.axis == places.axis) or axis == data.axis:
        raise MixedRowsError
    if times(data) != times(places):
        raise MixedRowsError
    return [rows(places.dims, data.axis)]


def gather_nd(call: Call) -> list[Tensor]:
    """GatherND from a constant table by rows' numbers."""
    data, places = call.needed(0), call.needed(1)
    width = places.dims[-1]
    if data.has_rows or call.whole("batch_dims", 0) or places.axis == places.rank - 1 or not isinstance(width, int):
        raise MixedRowsError
    return [rows((*places.dims[:-1], *data.dims[width:]), places.axis)]


def pad(call: Call) -> list[Tensor]:
    """Pad along other axes than the rows'."""
    data, told = call.needed(0), call.given(1)
    pads = call.wholes("pads") if told is None else list(told.known())
    if pads is None or call.given(3) is not None or len(pads) != 2 * data.rank:
        raise MixedRowsError
    before, after = pads[: data.rank], pads[data.rank :]
    if data.axis is not None and (before[data.axis] or after[data.axis]):
        raise MixedRowsError
    shape = [
        one if not a + b else one + a + b if isinstance(one, int) else None
        for one, a, b in zip(data.dims, before, after, strict=True)
    ]
    return [moved(data, shape, data.axis)]


def one_hot(call: Call) -> list[Tensor]:
    """OneHot of rows' numbers."""
    places, depth = call.needed(0), call.needed(1)
    axis = call.whole("axis", -1) % (places.rank + 1)
    length = depth.values[0] if depth.values and isinstance(depth.values[0], int) else None
    if depth.kind is not Kind.CONSTANT or call.needed(2).kind is not Kind.CONSTANT:
        raise MixedRowsError
    shape = (*places.dims[:axis], length, *places.dims[axis:])
    at = None if places.axis is None else places.axis + (axis <= places.axis)
    return [rows(shape, at)]


def shape_of(call: Call) -> list[Tensor]:
    """Shape: known lengths, and multiples of the number of rows."""
    data = call.needed(0)
    start, end = call.whole("start", 0), call.whole("end", data.rank)
    lengths = data.dims[slice(start, end)]
    if data.has_rows and data.axis is None and None in lengths:
        raise MixedRowsError
    return [constant((len(lengths),), lengths)]


def size_of(call: Call) -> list[Tensor]:
    """Size: the product of the lengths."""
    total = _product(call.needed(0).dims)
    return [constant((), (None if total == -1 else total,))]
