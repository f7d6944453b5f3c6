"""Columns of numbers, cut into pieces on which everything that a graph makes of them keeps their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError
from fairkit_onnx.structure.domain import Listed, Numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_onnx.structure.orders import Condition

    Matrix = NDArray[Any]
    Encode = Callable[[Mapping[str, NDArray[Any]]], Matrix]
    Keys = NDArray[np.int64]

MOST_PIECES = 10_000


class EncodedRows:
    """Encodes rows in which one block differs from the defaults."""

    def __init__(self, encode: Encode, defaults: Mapping[str, Any]) -> None:
        self._encode, self._defaults = encode, defaults

    def __call__(self, rows: int, changed: Sequence[tuple[NDArray[np.int64], str, NDArray[Any]]]) -> Matrix:
        """Return the features of `rows` rows; of some, by their places, a column has other values."""
        columns: dict[str, NDArray[Any]] = {}
        for name, value in self._defaults.items():
            text = isinstance(value, str) or value is None
            columns[name] = np.full(rows, value, dtype=object if text else type(value))
        for places, name, values in changed:
            if columns[name].dtype.kind not in "Of" and values.dtype.kind == "f":
                columns[name] = columns[name].astype(np.float64)
            columns[name][places] = values
        return self._encode(columns)


def keys_of(values: NDArray[np.float64], kind: type, whole: bool) -> Keys:
    """Number the values of a kind, so that the next value has the next number."""
    if whole:
        return values.astype(np.int64)
    integer = np.int32 if kind is np.float32 else np.int64
    bits: NDArray[Any] = values.astype(kind)
    raw = bits.view(integer).astype(np.int64)
    return np.where(raw < 0, np.int64(np.iinfo(integer).min) - raw, raw)


def numbers_of(keys: Keys, kind: type, whole: bool) -> NDArray[np.float64]:
    """Return the values with these numbers."""
    if whole:
        return keys.astype(np.float64)
    integer = np.int32 if kind is np.float32 else np.int64
    least = np.int64(np.iinfo(integer).min)
    return np.where(keys < 0, least - keys, keys).astype(integer).view(kind).astype(np.float64)


def middle(first: Keys, last: Keys) -> Keys:
    """Return the key halfway between two, without overflow."""
    return first // 2 + last // 2 + (first % 2 + last % 2) // 2


def check_ends(domain: Numbers) -> None:
    """Refuse a domain of numbers that is empty or infinite."""
    if not np.isfinite([domain.low, domain.high]).all():
        raise DataError(f"the domain of {domain.name!r} goes from {domain.low} to {domain.high}: give finite ends")
    if not domain.low <= domain.high:
        raise DataError(f"the domain of {domain.name!r} is empty: {domain.low:g} to {domain.high:g}")


def pieces_of(
    domains: Sequence[Numbers | Listed],
    conditions: Sequence[Condition],
    encoding: Callable[[str], Encode],
    defaults: Mapping[str, Any],
    kinds: Mapping[str, type],
) -> dict[str, NDArray[np.float64]]:
    """Cut each column of numbers where an operator may turn its order, and check that it keeps it between the cuts."""
    numbers = {one.name: one for one in domains if isinstance(one, Numbers)}
    pieces: dict[str, _Pieces] = {}
    for name, one in numbers.items():
        check_ends(one)
        pieces[name] = _Pieces(one, kinds[name])
    for condition in conditions:
        mine = [(place, name) for place, name in enumerate(condition.columns) if name in numbers]
        if not mine:
            continue
        run = EncodedRows(encoding(condition.tensor), defaults)
        for place, name in mine:
            pieces[name or ""].meet(condition, place, run)
    return {name: some.tops for name, some in pieces.items()}


class _Pieces:
    """The pieces of a column, by the keys of their ends."""

    def __init__(self, domain: Numbers, kind: type) -> None:
        self.domain, self.kind = domain, kind
        ends = keys_of(np.array([domain.low, domain.high]), kind, domain.whole)
        self.first, self.last = ends[:1], ends[1:]

    @property
    def tops(self) -> NDArray[np.float64]:
        return numbers_of(self.last, self.kind, self.domain.whole)

    def meet(self, condition: Condition, column: int, run: EncodedRows) -> None:
        """Cut as a condition asks, and check the rest of it at the ends: between them the order is kept."""

        def values(keys: Keys) -> NDArray[np.float64]:
            some = numbers_of(keys, self.kind, self.domain.whole)
            return np.asarray(run(len(keys), [(np.arange(len(keys)), self.domain.name, some)])[:, column], np.float64)

        for cut in condition.cuts:
            for below in (np.less, np.less_equal):
                self._split(lambda keys, cut=cut, below=below: below(values(keys), cut))  # type: ignore[misc]
        self._check(condition, values(self.first), values(self.last))

    def _split(self, side: Callable[[Keys], NDArray[np.bool_]]) -> None:
        start = side(self.first)
        here = np.flatnonzero(start != side(self.last))
        if not len(here):
            return
        low, high, start = self.first[here].copy(), self.last[here].copy(), start[here]
        while (high - low > 1).any():
            halfway = middle(low, high)
            same = side(halfway) == start
            low, high = np.where(same, halfway, low), np.where(same, high, halfway)
        self.first = np.sort(np.concatenate([self.first, high]))
        self.last = np.sort(np.concatenate([self.last, low]))
        if len(self.first) > MOST_PIECES:
            raise ModelError(f"column {self.domain.name!r} falls into more than {MOST_PIECES:,} pieces")

    def _check(self, condition: Condition, first: NDArray[np.float64], last: NDArray[np.float64]) -> None:
        both = np.stack([first, last])
        gone = np.isnan(both)
        why = ""
        if (gone[0] != gone[1]).any():
            why = "gives no number for some of its values alone"
        elif condition.finite and np.isinf(both).any():
            why = "reads an infinite number"
        elif condition.nonzero and ((both == 0).any() or (np.sign(first) != np.sign(last))[~gone[0]].any()):
            why = "divides by zero"
        elif (
            condition.inside is not None
            and not (gone | ((both >= condition.inside[0]) & (both <= condition.inside[1]))).all()
        ):
            why = f"reads numbers beyond {condition.inside[0]:g} to {condition.inside[1]:g}"
        if why:
            name = self.domain.name
            raise ModelError(
                f"the node {condition.node} {why} where column {name!r} goes from {self.domain.low:g} to "
                f"{self.domain.high:g}; say with all-inputs.domain.{name}=LOW:HIGH which numbers are meant"
            )
