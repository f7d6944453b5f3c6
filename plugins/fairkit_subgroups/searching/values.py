"""What columns hold: counts of their values, which add up over pieces of a table in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.data.arrow import as_numpy

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source


@dataclass(frozen=True, slots=True)
class Text:
    """Counts of text; beyond `most` different values they are forgotten."""

    most: ClassVar[int] = 50_000
    counts: Mapping[str, int]
    missing: int
    too_many: bool = False

    def __add__(self, other: Text) -> Text:
        too_many, missing = self.too_many or other.too_many, self.missing + other.missing
        if not too_many:
            counts = dict(self.counts)
            for text, count in other.counts.items():
                counts[text] = counts.get(text, 0) + count
            if len(counts) <= self.most:
                return Text(counts, missing)
        return Text({}, missing, too_many=True)


@dataclass(frozen=True, slots=True)
class Number:
    """Counts of numbers.

    Beyond `most` different values, the lowest bits of each are dropped, as few as it takes: that number of bits
    depends on the values only, and not on the order in which they come.
    """

    most: ClassVar[int] = 20_000
    values: NDArray[np.float64]  # distinct and increasing, without the dropped bits, shape [m]
    counts: NDArray[np.int64]  # distinct and increasing, without the dropped bits, shape [m]
    missing: int  # how many cells are empty
    dropped: int = 0  # how many bits
    largest: float = -np.inf  # the largest number

    def __add__(self, other: Number) -> Number:
        values = np.concatenate([self.values, other.values])
        counts = np.concatenate([self.counts, other.counts])
        largest = max(self.largest, other.largest)
        missing, dropped = self.missing + other.missing, max(self.dropped, other.dropped)
        return _cut(values, counts, missing, dropped, largest)


def _cut(values: NDArray[np.float64], counts: NDArray[np.int64], missing: int, dropped: int, largest: float) -> Number:
    while True:
        cut = (values.view(np.int64) >> dropped << dropped).view(np.float64) if dropped else values
        distinct, places = np.unique(cut, return_inverse=True)
        if len(distinct) <= Number.most:
            totals = np.bincount(places, counts, len(distinct)).astype(np.int64)
            return Number(distinct, totals, missing, dropped, largest)
        dropped += 1 if dropped else 30


@dataclass(frozen=True, slots=True)
class Tallies:
    """What columns hold, by name, the number of rows, and the largest weight."""

    columns: Mapping[str, Text | Number]
    rows: int
    weight: float = 0.0

    def __add__(self, other: Tallies) -> Tallies:
        added = {name: one + other.columns[name] for name, one in self.columns.items()}  # type: ignore[operator]
        return Tallies(added, self.rows + other.rows, max(self.weight, other.weight))


def is_text(column: pa.Array) -> bool:
    """Whether a column holds text, or nothing at all."""
    import pyarrow as pa

    return any(test(column.type) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null))


def plain_text(column: pa.Array) -> pa.Array:
    """Return a column of text as such, also one without any value."""
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def tally(source: Source, start: int, dataset: Dataset, columns: Sequence[str]) -> Tallies | None:
    """Count what columns hold in the rows of a piece of a table that have a weight; None where there are none."""
    total: Tallies | None = None
    for batch in dataset.part(source, start).batches(columns, partial=True):
        used = with_weight(batch)
        if not len(used):
            continue
        found = {name: tally_column(used.arrow(name)) for name in columns}
        weight = 0.0 if used.weights is None else float(used.weights.max())
        one = Tallies(found, len(used), weight)
        total = one if total is None else total + one
    return total


def with_weight(batch: Batch) -> Batch:
    """Leave out the rows whose weight is 0."""
    if batch.weights is None or bool((batch.weights > 0).all()):
        return batch
    return batch.take(batch.weights > 0)


def tally_column(column: pa.Array) -> Text | Number:
    """Count what one column holds."""
    import pyarrow.compute as pc

    if is_text(column):
        counted = pc.value_counts(plain_text(column))
        texts, counts = counted.field("values").to_pylist(), as_numpy(counted.field("counts")).tolist()
        pairs = dict(zip(texts, counts, strict=True))
        missing = pairs.pop(None, 0) + pairs.pop("", 0)
        return Text(pairs, missing) + Text({}, 0)
    values = as_numpy(column).astype(np.float64)
    nan = np.isnan(values)
    missing = int(nan.sum())
    known = values[~nan] if missing else values
    distinct, counts = np.unique(known + 0.0, return_counts=True)
    largest = float(distinct[-1]) if len(distinct) else -np.inf
    return _cut(distinct, counts.astype(np.int64), missing, 0, largest)
