"""Exact search: every group of a family that is large enough, and those whose limits are the most extreme."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fairkit_subgroups.searching import kernels
from fairkit_subgroups.searching.exact import Level, inner, limits, outer
from fairkit_subgroups.searching.measures import Measure, Sides, planes, sides

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.family import Family, TableLayout

    Array = NDArray[np.float64]

TOGETHER = 32_768
"""Groups whose limits are computed together."""


class Group(NamedTuple):
    """One group: the copy of the tables (stratum), the table, and its number there."""

    layer: int
    table: int
    number: int


@dataclass(frozen=True, slots=True)
class Some:
    """Some groups of one layer: their tables and numbers, shape [G], and their sums, shape [V, G]."""

    layer: int
    tables: NDArray[np.int64]
    numbers: NDArray[np.int64]
    sums: Array

    def group(self, place: int) -> Group:
        """Return one of them."""
        return Group(self.layer, int(self.tables[place]), int(self.numbers[place]))


@dataclass(frozen=True, slots=True)
class RankedGroup:
    """A group with its exact limits: of the difference, group minus rest, or of outcome minus score."""

    group: Group
    rows: float
    value: float
    rest: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """What the limits are of."""
        return self.value - self.rest

    @property
    def surely(self) -> float:
        """The lower limit of the size of the difference; 0 where its sign is not known."""
        return max(self.low, -self.high, 0.0)

    @property
    def at_most(self) -> float:
        """The upper limit of the size of the difference."""
        return max(self.high, -self.low)


class Tracker(Protocol):
    """Keeps what may be the most extreme of all groups."""

    def see(self, some: Some, compared: Sides, wide: tuple[Array, Array], tight: tuple[Array, Array]) -> None:
        """Look at groups, with limits that contain their exact ones and limits inside those."""
        ...


@dataclass(frozen=True)
class Search:
    """All groups of a family, for one measure."""

    family: Family  # what is searched for what
    measure: Measure  # what is searched for what
    tables: NDArray[np.int64]  # sums by cell of the measure's statistic, int64, shape [layers, cells, J]
    weighted: bool
    soft: bool
    rows: float  # the least number of rows of a group
    least: float  # the least rows of the denominator, inside and outside
    scale: float = 1.0

    @functools.cached_property
    def laid(self) -> list[Array]:
        """By layer: sums by cell of all tables, shape [V, all cells]."""
        return [
            self.family.laid_out(planes(self.measure, one, weighted=self.weighted, soft=self.soft)) * self.scale
            for one in self.tables
        ]

    @functools.cached_property
    def totals(self) -> list[Array]:
        """By layer: the sums of all rows, shape [V]."""
        first = self.family.places[0]
        return [one[:, : first.stop].sum(axis=1) for one in self.laid]

    def level(self, alpha: float) -> Level:
        """Return the level of single limits."""
        return Level(alpha, self.measure.kind, self.weighted or self.soft)

    @functools.cached_property
    def counts(self) -> list[list[int]]:
        """By layer and table: how many groups are large enough."""
        return [
            [self._count(layer, table) for table in range(len(self.family.places))] for layer in range(len(self.laid))
        ]

    @property
    def groups(self) -> int:
        """G: how many groups are large enough."""
        return sum(sum(one) for one in self.counts)

    def sides(self, some: Some) -> Sides:
        """Return the rates, sizes and variances of groups and of their complements."""
        total = self.totals[some.layer]
        return sides(self.measure, some.sums, total, weighted=self.weighted, soft=self.soft)

    def all_groups(self) -> Iterator[Some]:
        """Return every group that is large enough, many at once."""
        for layer, counts in enumerate(self.counts):
            parts: list[tuple[int, NDArray[np.int64], Array]] = []
            waiting = 0
            for table, count in enumerate(counts):
                if not count:
                    continue
                parts.append((table, *self._of_table(layer, table, count)))
                waiting += count
                if waiting >= TOGETHER:
                    yield _joined(layer, parts)
                    parts, waiting = [], 0
            if parts:
                yield _joined(layer, parts)

    def look(self, alpha: float, trackers: Sequence[Tracker]) -> None:
        """Show every group to trackers, with quick bounds of its limits."""
        level = self.level(alpha)
        for some in self.all_groups():
            with np.errstate(all="ignore"):
                compared = self.sides(some)
                wide = outer(compared, level)
                tight = inner(compared, level)
            for tracker in trackers:
                tracker.see(some, compared, wide, tight)

    def exact_limits(self, compared: Sides, alpha: float) -> tuple[Array, Array]:
        """Return exact limits of differences, shape [G] each."""
        with np.errstate(all="ignore"):
            return limits(compared, self.level(alpha))

    def at(self, group: Group, alpha: float) -> RankedGroup:
        """Measure one group, whether it is large enough or not."""
        sums = self.family.box(self.laid[group.layer], group.table, group.number)[:, None]
        compared = sides(self.measure, sums, self.totals[group.layer], weighted=self.weighted, soft=self.soft)
        with np.errstate(all="ignore"):
            low, high = limits(compared, self.level(alpha))
        return found_at(group, compared, 0, float(low[0]), float(high[0]))

    def large(self, group: Group) -> bool:
        """Whether a group has enough rows, and the denominator inside and outside."""
        sums = self.family.box(self.laid[group.layer], group.table, group.number)
        inside, outside = sums[1], self.totals[group.layer][1] - sums[1]
        return bool(sums[0] >= self.rows and min(inside, outside) >= self.least)

    def boxes(self, layer: int, table: int) -> tuple[Array, TableLayout]:
        """Return sums over runs in one table (see `fairkit_subgroups.searching.kernels.boxes`), and the table."""
        place = self.family.places[table]
        block = self.laid[layer][:, place.start : place.stop].reshape(-1, *place.shape)
        return kernels.boxes(np.ascontiguousarray(block), place.runs[1], place.runs[2]), place

    def _count(self, layer: int, table: int) -> int:
        sums, place = self.boxes(layer, table)
        all_base = self.totals[layer][1]
        return int(kernels.large_enough(sums, place.runs[0], self.rows, 1, self.least, all_base))

    def _of_table(self, layer: int, table: int, count: int) -> tuple[NDArray[np.int64], Array]:
        sums, place = self.boxes(layer, table)
        all_base = self.totals[layer][1]
        found: tuple[NDArray[np.int64], Array] = kernels.groups_of(
            sums, place.runs[0], self.rows, 1, self.least, all_base, count
        )
        return found


def _joined(layer: int, parts: Sequence[tuple[int, NDArray[np.int64], Array]]) -> Some:
    return Some(
        layer,
        np.concatenate([np.full(len(numbers), table) for table, numbers, _ in parts]),
        np.concatenate([numbers for _, numbers, _ in parts]),
        np.concatenate([sums for _, _, sums in parts], axis=1),
    )


def found_at(group: Group, compared: Sides, index: int, low: float, high: float) -> RankedGroup:
    """Return one group of many with its limits."""
    return RankedGroup(
        group=group,
        rows=float(compared.rows[index]),
        value=float(compared.p[index]),
        rest=float(compared.rest[index]),
        low=low,
        high=high,
    )
