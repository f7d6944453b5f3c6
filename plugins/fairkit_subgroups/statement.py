"""What one audit can say: for every metric the surest difference, the bound for all groups, and the list."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairkit.errors import DataError
from fairkit_subgroups.searching.extremes import Bounds, Size, Surest
from fairkit_subgroups.searching.listing import People, covers, worst
from fairkit_subgroups.searching.measures import SOFT, Measure
from fairkit_subgroups.searching.search import Group, RankedGroup, Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_subgroups.parameters import Parameters
    from fairkit_subgroups.searched import Searched
    from fairkit_subgroups.searching.tables import Totals

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Where the curve of the certificate is shown, besides the least share."""

TESTED = 10
"""How many groups are tested on the other half."""


class Ends(NamedTuple):
    """What holds for all groups at once: the surest difference, and by share the largest possible one."""

    surest: RankedGroup | None
    bounds: tuple[RankedGroup | None, ...]

    @property
    def low(self) -> float:
        """The largest difference is at least this."""
        return 0.0 if self.surest is None else self.surest.surely

    @property
    def high(self) -> float:
        """The largest difference is at most this."""
        return 1.0 if not self.bounds or self.bounds[0] is None else min(self.bounds[0].at_most, 1.0)


@dataclass(frozen=True)
class Statement:
    """Searches with the totals of an audit."""

    searched: Searched  # what was searched, how, and what was counted
    chosen: Parameters  # what was searched, how, and what was counted
    total: Totals  # what was searched, how, and what was counted
    confidence: float  # of everything together

    @property
    def soft(self) -> bool:
        """Whether decisions are randomized or weighted."""
        return SOFT in self.total.tables

    @functools.cached_property
    def searches(self) -> dict[str, Search]:
        """By metric; with halves, those of the first one."""
        return {measure.name: self._search(measure, 0) for measure in self.searched.measures}

    @property
    def groups(self) -> int:
        """G: how many statements hold together."""
        return sum(search.groups for search in self.searches.values())

    @functools.cached_property
    def people(self) -> People:
        """The rows to tell groups apart; with halves, those of the first one."""
        halves = self.searched.halves
        return People.of(self.total.kept, self.total.rows, range(0, self.searched.layers, halves))

    @functools.cached_property
    def shares(self) -> list[float]:
        """Where the curve is shown."""
        return [self.chosen.share, *(share for share in SHARES if share > self.chosen.share)]

    def alpha(self, measure: Measure, confidence: float) -> float:
        """Return α' of one group: what may go wrong, over the number of groups."""
        wrong = 1 - confidence
        if self.chosen.validate == "half":
            return wrong / TESTED / len(self.searches)
        if self.chosen.simultaneous == "bootstrap":
            from fairkit_subgroups.searching.bootstrap import level

            search = self.searches[measure.name]
            return level(search, self._maxima[measure.name], wrong / len(self.searches))
        return wrong / max(self.groups, 1)

    def ends(self, measure: Measure, confidence: float) -> Ends:
        """Return the ends of the simultaneous statement about all groups, at a confidence."""
        if self.chosen.validate == "half":
            tested = self.tested(measure, confidence)
            size = Size(sure=True)
            return Ends(max(tested, key=size.one, default=None), ())
        search, alpha = self.searches[measure.name], self.alpha(measure, confidence)
        surest, bounds = Surest(0, above=-np.inf), Bounds(self.shares, self.total.rows)
        search.look(alpha, [surest, bounds])
        found = surest.result(search, alpha)
        return Ends(found[0] if found else None, tuple(bounds.result(search, alpha)))

    def listed(self, measure: Measure) -> list[RankedGroup]:
        """Return the groups to show."""
        if self.chosen.validate == "half":
            size = Size(sure=True, sign=measure.worse)
            found = [one for one in self.tested(measure, self.confidence) if size.one(one) > 0]
            return found[: self.chosen.show]
        alpha = self.alpha(measure, self.confidence)
        return worst(self.searches[measure.name], self.people, alpha, self.chosen.show, share=self.chosen.share)

    def tested(self, measure: Measure, confidence: float) -> list[RankedGroup]:
        """Return groups that were found in the first half, measured in the other."""
        alpha = self.alpha(measure, confidence)
        test = self._search(measure, 1)
        return [test.at(group, alpha) for group in self._candidates[measure.name] if test.large(group)]

    @functools.cached_property
    def _candidates(self) -> dict[str, list[Group]]:
        """By metric: what the first half gives to test."""
        alpha = (1 - self.confidence) / TESTED / len(self.searches)
        return {
            name: [one.group for one in worst(search, self.people, alpha, TESTED, share=self.chosen.share)]
            for name, search in self.searches.items()
        }

    @functools.cached_property
    def _maxima(self) -> dict[str, NDArray[np.float64]]:
        """By metric: draws of the largest standardised difference."""
        from fairkit_subgroups.searching.bootstrap import draws

        kept, seed = self.people.kept, self.searched.seed
        return {name: draws(search, kept, seed) for name, search in self.searches.items()}

    def covers(self, groups: Sequence[RankedGroup]) -> list[list[float]]:
        """Return which part of each group is in each other one."""
        return covers(self.searched.family, self.people, [one.group for one in groups])

    def check(self) -> None:
        """Refuse a table in which no group is large enough."""
        for search in self.searches.values():
            if search.groups:
                continue
            over = "rows" if search.measure.over == (1, 1, 1, 1) else "rows that the rate is over"
            raise DataError(
                f"subgroups: of {self.total.rows:,} rows no group has {self.chosen.share:.3g} of the rows and "
                f"{search.least:.0f} {over}, inside and outside, for {search.measure.name}; add rows, lower `least` or "
                "`share`, or search columns with fewer values"
            )

    def _search(self, measure: Measure, half: int) -> Search:
        tables = self.total.tables[measure.statistic(self.soft)]
        halves = self.searched.halves
        return Search(
            family=self.searched.family,
            measure=measure,
            tables=tables[half::halves],
            weighted=self.searched.weight > 0,
            soft=self.soft,
            rows=self.chosen.share * self.total.rows / halves,
            least=float(self.chosen.least),
        )
