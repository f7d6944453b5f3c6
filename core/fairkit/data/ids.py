"""How many ids a column has, from a sketch whose size does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from fairkit.data.clusters import words_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

KEPT = 4_096
"""At most so many ids are kept; up to that their number is exact."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The distinct ids whose hash ends in `level` zeros, and the rows of each."""

    level: int
    words: NDArray[np.uint64]
    rows: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> Self:
        """Return the sketch of no rows."""
        return cls(0, np.empty(0, np.uint64), np.empty(0, np.int64))

    @classmethod
    def of(cls, column: pa.Array, level: int = 0) -> Self:
        """Return the sketch of a column at a level or a higher one; rows without an id are left out."""
        import pyarrow.compute as pc

        every = words_of(pc.drop_null(column))
        words, rows = np.unique(every[(every & np.uint64((1 << level) - 1)) == 0], return_counts=True)
        return cls(level, words, rows)._small()

    def __add__(self, right: Ids) -> Ids:
        level = max(self.level, right.level)
        mask = np.uint64((1 << level) - 1)
        both = np.concatenate([self.words, right.words])
        counts = np.concatenate([self.rows, right.rows])
        keep = (both & mask) == 0
        words, places = np.unique(both[keep], return_inverse=True)
        return type(self)(
            level, words, np.bincount(places, counts[keep], len(words)).astype(np.int64)
        )._small()

    def _small(self) -> Self:
        level, words, rows = self.level, self.words, self.rows
        while len(words) > KEPT:
            level += 1
            keep = (words & np.uint64((1 << level) - 1)) == 0
            words, rows = words[keep], rows[keep]
        return type(self)(level, words, rows)

    @property
    def count(self) -> int:
        """How many ids there are: exact up to `KEPT`, else within some 5 %."""
        return len(self.words) << self.level
