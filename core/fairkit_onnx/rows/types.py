"""What is known of a tensor without running the graph: whether it holds constants, rows, or the size of the batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod


class MixedRowsError(Exception):
    """An operator for which it cannot be shown that the rows stay apart."""


@dataclass(frozen=True, slots=True)
class Count:
    """A multiple of the number of rows."""

    times: int = 1


Dim = int | Count | None
"""The length of an axis; None where it is the same for every batch and not known."""

LARGEST, MOST_TIMES = 2**31 - 1, 1_024
"""Larger whole numbers could wrap around in the graph's arithmetic: they count as unknown."""


class Kind(Enum):
    """What a tensor depends on."""

    CONSTANT = "constant"
    ROWS = "rows"
    SIZE = "size"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Origin:
    """A node at which rows may have met."""

    operator: str
    name: str

    def __str__(self) -> str:
        return f"{self.operator} {self.name!r}" if self.name else self.operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of the graph."""

    kind: Kind = Kind.CONSTANT
    shape: tuple[Dim, ...] | None = None  # its lengths; None where not even their number is known
    axis: int | None = None
    values: tuple[Dim, ...] | None = None
    origins: frozenset[Origin] = frozenset()  # mixed: where rows may have met first
    items: tuple[Tensor, ...] | None = None  # the tensors of a sequence

    @property
    def rank(self) -> int:
        """The number of axes."""
        if self.shape is None:
            raise MixedRowsError
        return len(self.shape)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The lengths of the axes."""
        if self.shape is None:
            raise MixedRowsError
        return self.shape

    @property
    def has_rows(self) -> bool:
        """Whether entries belong to rows."""
        return self.kind is Kind.ROWS

    def known(self) -> tuple[int, ...]:
        """Return the entries of a constant."""
        if self.kind is not Kind.CONSTANT or self.values is None:
            raise MixedRowsError
        found = tuple(value for value in self.values if isinstance(value, int))
        if len(found) != len(self.values):
            raise MixedRowsError
        return found

    def shaped(self, shape: Sequence[Dim] | None) -> Tensor:
        """Return the same dependence with another shape."""
        return replace(self, shape=None if shape is None else tuple(shape), values=None)


def rows(shape: Iterable[Dim], axis: int | None) -> Tensor:
    """Return a tensor of rows along an axis."""
    return Tensor(kind=Kind.ROWS, shape=tuple(shape), axis=axis)


def moved(data: Tensor, shape: Sequence[Dim], axis: int | None) -> Tensor:
    """Return what depends on the same as a tensor, with another shape; rows lie along the axis."""
    return rows(shape, axis) if data.has_rows else data.shaped(shape)


def constant(shape: Iterable[Dim] | None = None, values: Iterable[Dim] | None = None) -> Tensor:
    """Return a constant; a size where an entry or a length is one."""
    lengths = None if shape is None else tuple(shape)
    entries = None if values is None else tuple(values)
    sized = any(isinstance(one, Count) for one in (*(lengths or ()), *(entries or ())))
    return Tensor(kind=Kind.SIZE if sized else Kind.CONSTANT, shape=lengths, values=entries)


def mixed(origins: Iterable[Origin]) -> Tensor:
    """Return a tensor in which rows may have met."""
    return Tensor(kind=Kind.MIXED, origins=frozenset(origins))


def bounded(value: Dim) -> Dim:
    """Return a number computed by the graph; None where its own arithmetic could have wrapped around."""
    if isinstance(value, Count):
        return value if 0 < value.times <= MOST_TIMES else None
    return value if value is None or abs(value) <= LARGEST else None


def row_axis(tensor: Tensor) -> int:
    """Return the axis of a tensor of rows."""
    if tensor.axis is None:
        raise MixedRowsError
    return tensor.axis


def times(tensor: Tensor) -> int:
    """Return how many entries along the axis belong to each row."""
    length = tensor.dims[row_axis(tensor)]
    if not isinstance(length, Count):
        raise MixedRowsError
    return length.times


def volume(dims: Iterable[Dim]) -> int | None:
    """Return the product of lengths; None where one is not a known number."""
    lengths = list(dims)
    numbers = [one for one in lengths if isinstance(one, int)]
    return prod(numbers) if len(numbers) == len(lengths) else None


def broadcast(tensors: Sequence[Tensor]) -> Tensor:
    """Return the type of an elementwise result: row axes must meet, and constants have length 1 there."""
    rank = max(tensor.rank for tensor in tensors)
    moved = [(1,) * (rank - tensor.rank) + tensor.dims for tensor in tensors]
    axes = {rank - tensor.rank + tensor.axis for tensor in tensors if tensor.has_rows and tensor.axis is not None}
    if len(axes) > 1:
        raise MixedRowsError
    shape = [_together([dims[place] for dims in moved]) for place in range(rank)]
    kind = joined_kind(tensors)
    if not axes:
        return Tensor(kind=kind, shape=tuple(shape))
    at = axes.pop()
    counts = {dims[at] for tensor, dims in zip(tensors, moved, strict=True) if tensor.has_rows}
    others = {dims[at] for tensor, dims in zip(tensors, moved, strict=True) if not tensor.has_rows}
    if len(counts) != 1 or not others <= {1} or kind is not Kind.ROWS:
        raise MixedRowsError
    if any(tensor.has_rows and tensor.axis is None for tensor in tensors):
        raise MixedRowsError
    shape[at] = counts.pop()
    return rows(shape, at)


def joined_kind(tensors: Iterable[Tensor]) -> Kind:
    """Return the kind of a result of several tensors; rows with a size are mixed."""
    kinds = {tensor.kind for tensor in tensors}
    if Kind.MIXED in kinds or {Kind.ROWS, Kind.SIZE} <= kinds:
        raise MixedRowsError
    return next((kind for kind in (Kind.ROWS, Kind.SIZE) if kind in kinds), Kind.CONSTANT)


def _together(dims: Sequence[Dim]) -> Dim:
    """Return the length that axes have together; those of length 1 stretch."""
    longer = {one for one in dims if one != 1}
    if not longer:
        return 1
    sure = longer - {None}
    if len(sure) > 1:
        raise MixedRowsError
    return sure.pop() if sure else None
