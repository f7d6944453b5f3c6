"""Columns as small whole numbers: each cell's place in a list of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy, places_in

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Places = NDArray[np.intp]

_HEAD = 1_024
_SPAN = 1_024
"""Whole numbers that span no more than this are coded by their distance to the smallest."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A column's cells by their places in a list of values."""

    values: pa.Array  # the values; none is missing, and some may be nowhere in the column
    places: Places  # shape [n]; `len(values)` where a cell is missing

    @property
    def cells(self) -> list[Any]:
        """The values as Python's objects, and None for missing cells."""
        return [*self.values.to_pylist(), None]

    def counted(self, times: NDArray[np.int64] | None = None) -> tuple[list[int], list[int]]:
        """Return the places that cells have, in the order in which they first do, and how many cells have each."""
        size, rows = len(self.values) + 1, len(self.places)
        counts = np.bincount(self.places, times, size).astype(np.int64, copy=False)
        first = np.full(size, rows)
        for part in (self.places[:_HEAD], self.places):
            first[part[::-1]] = np.arange(len(part))[::-1]
            if ((first < rows) == (counts > 0)).all():
                break
        used = np.flatnonzero(counts)
        order = used[np.argsort(first[used])]
        return order.tolist(), counts[order].tolist()

    def mapped(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return what a table of ``len(values) + 1`` entries has for each cell, shape [n]."""
        return table.take(self.places)


def codes_of(column: pa.Array) -> Codes:
    """Return a column's values and places: those that it has, those of close whole numbers, or those that are found."""
    known = ready_codes(column)
    if known is not None:
        return known
    coded = column.dictionary_encode()
    return Codes(coded.dictionary, places_in(coded))


def ready_codes(column: pa.Array) -> Codes | None:
    """Return a column's values and places where they need no search: of dictionaries, and of close whole numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return Codes(column.dictionary, places_in(column))
    if pa.types.is_integer(column.type) and len(column) and not column.null_count:
        cells = as_numpy(column)
        low, high = int(cells.min()), int(cells.max())
        if high - low < _SPAN:
            return Codes(as_arrow(np.arange(low, high + 1)), cells - low)
    return None


def equal_cells(column: pa.Array, value: Any) -> NDArray[np.bool_]:
    """Return which cells are a value, shape [n]."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return np.asarray(as_numpy(column) == value)
    codes = codes_of(column)
    return codes.mapped(np.array([cell == value for cell in codes.cells]))
