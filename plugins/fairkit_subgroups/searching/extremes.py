"""The most extreme of all groups, found without computing every exact limit.

Quick bounds contain each group's exact limits, or lie inside them. A group whose best case is worse than another's
worst case is left out; of the others exact limits are computed in the order of their best cases, until no best case
that is left can be better than what was found. So the result is that of computing all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit_subgroups.searching.search import RankedGroup, Some, found_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.measures import Sides
    from fairkit_subgroups.searching.search import Search

    Array = NDArray[np.float64]

STEP = 64
"""Exact limits are computed for so many groups at once."""


class ExtremeCandidates:
    """Groups that may be the most extreme, with the best case of each."""

    def __init__(self) -> None:
        self._parts: list[tuple[Some, Sides, Array, NDArray[np.int64]]] = []

    def add(self, some: Some, compared: Sides, best: Array, bins: NDArray[np.int64], keep: NDArray[np.bool_]) -> None:
        """Keep some groups."""
        places = np.flatnonzero(keep)
        if len(places):
            chosen = Some(some.layer, some.tables[places], some.numbers[places], some.sums[:, places])
            self._parts.append((chosen, compared.take(places), best[places], bins[places]))

    def only(self, least: Array) -> None:
        """Leave out whose best case is below the least of its bin."""
        parts, self._parts = self._parts, []
        for some, compared, best, bins in parts:
            self.add(some, compared, best, bins, best >= least[bins])

    def exact(
        self, search: Search, alpha: float, bins: Sequence[int], *, above: float, most: int, size: Size
    ) -> list[RankedGroup]:
        """Return the `most` groups of these bins with the largest exact size above a number, largest first.

        Groups of equal size come in the order of their conditions: fewer first.
        """
        rows = [
            (float(best[i]), part, int(i))
            for part, (_, _, best, at) in enumerate(self._parts)
            for i in np.flatnonzero(np.isin(at, bins))
        ]
        rows.sort(key=lambda row: -row[0])
        ranked: list[tuple[float, RankedGroup]] = []
        for start in range(0, len(rows), STEP):
            some = rows[start : start + STEP]
            bar = ranked[most - 1][0] if len(ranked) >= most else above
            if some[0][0] < bar:
                break
            ranked += self._measure(search, alpha, some, size)
            ranked = [one for one in ranked if one[0] > above]
            ranked.sort(key=lambda one: (-one[0], one[1].group.table, one[1].group.number, one[1].group.layer))
            ranked = ranked[:most]
        return [one for _, one in ranked]

    def _measure(
        self, search: Search, alpha: float, rows: Sequence[tuple[float, int, int]], size: Size
    ) -> list[tuple[float, RankedGroup]]:
        out = []
        for part in sorted({row[1] for row in rows}):
            some, compared, _, _ = self._parts[part]
            places = np.array([row[2] for row in rows if row[1] == part])
            chosen = compared.take(places)
            low, high = search.exact_limits(chosen, alpha)
            sizes = size.of(low, high)
            out += [
                (float(sizes[i]), found_at(some.group(int(p)), chosen, i, float(low[i]), float(high[i])))
                for i, p in enumerate(places)
            ]
        return out


class Size:
    """How large a difference is: at least (`sure`), or at most; of either sign, or of one that is bad for the group."""

    def __init__(self, *, sure: bool, sign: int = 0) -> None:
        self.sure, self.sign = sure, sign

    def of(self, low: Array, high: Array) -> Array:
        """Return the size from limits, shape [G]."""
        if not self.sure:
            return np.maximum(high, -low)
        return low if self.sign > 0 else -high if self.sign < 0 else np.maximum(low, -high)

    def one(self, found: RankedGroup) -> float:
        """Return it for one group."""
        return float(self.of(np.array([found.low]), np.array([found.high]))[0])


class Surest:
    """Keeps the groups whose difference is the largest for sure."""

    def __init__(self, sign: int, most: int = 1, above: float = 0.0) -> None:
        self.size, self.most, self.above = Size(sure=True, sign=sign), most, above
        self._kept = ExtremeCandidates()
        self._floors = np.empty(0)

    def see(self, some: Some, compared: Sides, wide: tuple[Array, Array], tight: tuple[Array, Array]) -> None:
        """Look at groups (see `fairkit_subgroups.searching.search.Tracker`)."""
        best, worst = self.size.of(*tight), self.size.of(*wide)
        floor = self._floor
        keep = (best > self.above) & (best >= floor)
        self._kept.add(some, compared, best, np.zeros(len(best), dtype=np.int64), keep)
        floors = np.concatenate([self._floors, worst[keep & (worst > floor)]])
        self._floors = np.sort(floors)[::-1][: self.most]
        if self._floor > floor:
            self._kept.only(np.array([self._floor]))

    @property
    def _floor(self) -> float:
        return float(self._floors[-1]) if len(self._floors) >= self.most else self.above

    def result(self, search: Search, alpha: float) -> list[RankedGroup]:
        """Return them, the surest first."""
        return self._kept.exact(search, alpha, [0], above=self.above, most=self.most, size=self.size)


class Bounds:
    """Keeps, for each share of the rows, the group of at least that share whose difference may be the largest."""

    def __init__(self, shares: Sequence[float], rows: float) -> None:
        self.shares = list(shares)
        self._least = np.array([share * rows for share in shares]) - 1e-9
        self._kept = ExtremeCandidates()
        self._floors = np.full(len(shares), -np.inf)
        self.size = Size(sure=False)

    def see(self, some: Some, compared: Sides, wide: tuple[Array, Array], tight: tuple[Array, Array]) -> None:
        """Look at groups (see `fairkit_subgroups.searching.search.Tracker`)."""
        bins = np.searchsorted(self._least, compared.rows, side="right") - 1
        best, worst = self.size.of(*wide), self.size.of(*tight)
        keep = (bins >= 0) & (best >= self._floors[np.maximum(bins, 0)])
        np.maximum.at(self._floors, bins[keep], worst[keep])
        self._floors = np.maximum.accumulate(self._floors[::-1])[::-1]
        self._kept.add(some, compared, best, bins, keep)
        self._kept.only(self._floors)

    def result(self, search: Search, alpha: float) -> list[RankedGroup | None]:
        """Return them, in the order of the shares; None where no group is so large."""
        best: RankedGroup | None = None
        groups: list[RankedGroup | None] = []
        for place in reversed(range(len(self.shares))):
            above = -np.inf if best is None else best.at_most
            better = self._kept.exact(search, alpha, [place], above=above, most=1, size=self.size)
            best = better[0] if better else best
            groups.append(best)
        return groups[::-1]
