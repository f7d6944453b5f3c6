"""How many rows a graph is given at once: as many as its memory allows, found while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fairkit.support.timings import peak_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

FIRST, MOST = 512, 65_536
"""The first batch has so many rows; each is twice as long as the last, up to the second."""

BUDGET = 192.0
"""MiB by which a batch may raise the process's peak of memory before batches stop growing."""


class Batches:
    """Cuts rows into batches that grow until they cost memory.

    A model of nearest neighbours holds a distance to every one of its rows for each row that it scores; a linear
    model holds nothing. Both start with `FIRST` rows, and the peak of memory tells them apart.
    """

    def __init__(self) -> None:
        self.rows = FIRST
        self._growing = peak_memory() is not None

    def each(self, feeds: Feeds, run: Callable[[Feeds], list[Any]]) -> list[list[Any]]:
        """Run a graph on rows in batches, and return the outputs of each."""
        count = len(next(iter(feeds.values())))
        if count <= self.rows:
            return [run(feeds)]
        parts, start = [], 0
        while start < count:
            # a rest that is hardly longer than a batch goes along: no batch of one row at the end
            end = start + self.rows if count - start > self.rows * 5 // 4 else count
            before = peak_memory() or 0.0
            parts.append(run({name: array[start:end] for name, array in feeds.items()}))
            self._pace((peak_memory() or 0.0) - before)
            start = end
        return parts

    def _pace(self, grown: float) -> None:
        """Set the next batch's rows by what the last one cost."""
        if grown > BUDGET:
            self.rows = max(self.rows // 2, 1)
            self._growing = False
        elif grown > BUDGET / 2:
            self._growing = False
        elif self._growing:
            self.rows = min(self.rows * 2, MOST)
