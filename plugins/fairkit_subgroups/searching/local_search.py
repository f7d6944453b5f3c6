"""Exact search: every group of a family that is large enough, and those whose limits are the most extreme."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_subgroups.searching import kernels
from fairkit_subgroups.searching.measures import STATES, Level, Measure, Sides, inner, limits, outer, planes, sides
from fairkit_subgroups.searching.tables import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_subgroups.searching.cells import Family, TableLayout
    from fairkit_subgroups.searching.tables import RowSample

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

    family: Family  # what is searched
    measure: Measure  # for what
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
            self.family.laid_out(planes(self.measure, table, weighted=self.weighted, soft=self.soft)) * self.scale
            for table in self.tables
        ]

    @functools.cached_property
    def totals(self) -> list[Array]:
        """By layer: the sums of all rows, shape [V]."""
        first = self.family.places[0]
        return [sums[:, : first.stop].sum(axis=1) for sums in self.laid]

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
        return sum(sum(counts) for counts in self.counts)

    def sides(self, some: Some) -> Sides:
        """Return the rates, sizes and variances of groups and of their complements."""
        total = self.totals[some.layer]
        return sides(self.measure, some.sums, total, weighted=self.weighted, soft=self.soft)

    def all_groups(self) -> Iterator[Some]:
        """Return every group that is large enough, many at once."""
        for layer, counts in enumerate(self.counts):
            parts: list[tuple[int, NDArray[np.int64], Array]] = []
            waiting = 0
            for table, groups in enumerate(counts):
                if not groups:
                    continue
                parts.append((table, *self._of_table(layer, table, groups)))
                waiting += groups
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
        layout = self.family.places[table]
        block = self.laid[layer][:, layout.start : layout.stop].reshape(-1, *layout.shape)
        return kernels.boxes(np.ascontiguousarray(block), layout.runs[1], layout.runs[2]), layout

    def _count(self, layer: int, table: int) -> int:
        sums, layout = self.boxes(layer, table)
        all_base = self.totals[layer][1]
        return int(kernels.large_enough(sums, layout.runs[0], self.rows, 1, self.least, all_base))

    def _of_table(self, layer: int, table: int, count: int) -> tuple[NDArray[np.int64], Array]:
        sums, layout = self.boxes(layer, table)
        all_base = self.totals[layer][1]
        result: tuple[NDArray[np.int64], Array] = kernels.groups_of(
            sums, layout.runs[0], self.rows, 1, self.least, all_base, count
        )
        return result


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


# The most extreme of all groups, found without computing every exact limit.


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
            ranked = [bound for bound in ranked if bound[0] > above]
            ranked.sort(
                key=lambda bound: (-bound[0], bound[1].group.table, bound[1].group.number, bound[1].group.layer)
            )
            ranked = ranked[:most]
        return [bound for _, bound in ranked]

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
        """Look at groups (see `fairkit_subgroups.searching.local_search.Tracker`)."""
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
        """Look at groups (see `fairkit_subgroups.searching.local_search.Tracker`)."""
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
        for index in reversed(range(len(self.shares))):
            above = -np.inf if best is None else best.at_most
            better = self._kept.exact(search, alpha, [index], above=above, most=1, size=self.size)
            best = better[0] if better else best
            groups.append(best)
        return groups[::-1]


# The list that is shown: groups that are treated worst, none of them the same people again.


CANDIDATES = 32
"""Of the groups that stand out among the rows left, so many are looked at among all rows."""

PARENT = 0.9
"""A group with fewer conditions is shown where its lower limit is at least this part of the larger one."""


@dataclass(frozen=True, slots=True)
class People:
    """The rows that are kept in cells, and how many rows each stands for."""

    kept: RowSample
    scale: float

    @classmethod
    def of(cls, kept: RowSample, rows: int, layers: Sequence[int]) -> People:
        """Return the rows of some layers, numbered from 0, of a table with so many rows."""
        scale = rows / max(len(kept.keys), 1)
        places = {layer: at for at, layer in enumerate(layers)}
        chosen = kept.take(np.flatnonzero(np.isin(kept.layer, list(layers))))
        renumbered = np.array([places[layer] for layer in chosen.layer.tolist()], dtype=np.int64)
        return cls(dataclasses.replace(chosen, layer=renumbered), scale)

    def member(self, family: Family, group: Group) -> NDArray[np.bool_]:
        """Return which of the rows are in a group."""
        inside = family.member(self.kept.codes, group.table, group.number)
        return np.asarray(inside & (self.kept.layer == group.layer))


def worst(search: Search, people: People, alpha: float, show: int, *, share: float) -> list[RankedGroup]:
    """Return at most `show` groups that are surely treated worse, the one with the largest lower limit first.

    The rows of a group that is on the list are removed, and the rest is searched again; the next group differs
    surely among all rows, and among those that are left. Its limits are those among all rows.
    """
    sign = search.measure.worse
    listed: list[RankedGroup] = []
    left = np.ones(len(people.kept.keys), dtype=bool)
    rest = search if people.scale == 1.0 else _among(search, people, left, share)
    while len(listed) < show:
        surest = Surest(sign, most=CANDIDATES)
        rest.look(alpha, [surest])
        among_all = (search.at(bound.group, alpha) for bound in surest.result(rest, alpha))
        chosen = next((bound for bound in among_all if surest.size.one(bound) > 0 and search.large(bound.group)), None)
        if chosen is None:
            break
        chosen = _parent(search, rest, chosen, alpha, surest)
        listed.append(chosen)
        gone = people.member(search.family, chosen.group)
        if not (gone & left).any():
            break
        left &= ~gone
        if left.sum() * people.scale < 2 * search.least:
            break
        rest = _among(search, people, left, share)
    return listed


def _among(search: Search, people: People, left: NDArray[np.bool_], share: float) -> Search:
    """Return the same search among some of the rows."""
    sample = people.kept.take(np.flatnonzero(left))
    name = search.measure.statistic(search.soft)
    tables = count(
        search.family,
        sample.codes,
        sample.layer,
        {name: sample.values[name]},
        {name: search.tables.shape[2]},
        len(search.tables),
    )
    rows = share * len(sample.keys) * people.scale
    return dataclasses.replace(search, tables=tables[name], rows=rows, scale=people.scale)


def _parent(search: Search, rest: Search, chosen: RankedGroup, alpha: float, surest: Surest) -> RankedGroup:
    """Return a group with fewer of the conditions, where that differs almost as much."""
    wanted = PARENT * surest.size.one(chosen)
    for table, number in search.family.parents(chosen.group.table, chosen.group.number):
        group = Group(chosen.group.layer, table, number)
        if not (search.large(group) and rest.large(group)):
            continue
        parent = search.at(group, alpha)
        if surest.size.one(parent) >= wanted and surest.size.one(rest.at(group, alpha)) > 0:
            return parent
    return chosen


def covers(family: Family, people: People, groups: Sequence[Group]) -> list[list[float]]:
    """Return which part of each group's rows is in each other one, shape [K, K]; row i is of group i."""
    members = np.array([people.member(family, group) for group in groups], dtype=np.float64)
    both = members @ members.T
    return [[float(cell) for cell in row] for row in both / np.maximum(np.diag(both), 1.0)[:, None]]


# How many groups it is in effect: the largest of all standardised differences under a multiplier bootstrap.


REPLICATES, LANES = 400, 16
MOST_ROWS = 50_000
_NORMAL = NormalDist()


def level(search: Search, maxima: Array, wrong: float) -> float:
    """Return α' from draws of the largest statistic: never below wrong / G."""
    # the ⌈(1 - α)(R + 1)⌉-th of R draws
    index = min(math.ceil((1 - wrong) * (len(maxima) + 1)), len(maxima)) - 1
    critical = float(np.sort(maxima)[index])
    return max(2 * _NORMAL.cdf(-critical), wrong / max(search.groups, 1))


def draws(search: Search, sample: RowSample, seed: int) -> Array:
    """Draw the largest standardised difference over all groups, shape [R]."""
    if len(sample.keys) > MOST_ROWS:
        sample = sample.take(np.argpartition(sample.keys, MOST_ROWS)[:MOST_ROWS])
    sample = sample.take(np.argsort(sample.keys))
    inside = _denominator(search.measure, sample)
    sample = sample.take(np.flatnonzero(inside))
    rng = np.random.default_rng([seed, *b"subgroups"])
    compared = search.measure.kind != "residual"
    largest = [
        _largest(search, sample, rng.standard_normal((len(sample.keys), LANES)), compared)
        for _ in range(REPLICATES // LANES)
    ]
    return np.concatenate(largest)


def _denominator(measure: Measure, sample: RowSample) -> NDArray[np.bool_]:
    over = np.array(measure.over, dtype=bool)
    if over.all():
        return np.ones(len(sample.keys), dtype=bool)
    if STATES in sample.values:
        return np.asarray(over[sample.values[STATES]])
    soft = sample.values[measure.statistic(soft=True)]  # rows by outcome stand at 0 and 6
    return np.asarray(np.where(soft[:, 6] > 0, over[2], over[0]))


def _largest(search: Search, sample: RowSample, noise: Array, compared: bool) -> Array:
    family = search.family
    # multiplier bootstrap: one normal number a row, in all groups (Chernozhukov, Chetverikov & Kato 2013)
    values = np.concatenate([np.ones((len(noise), 1)), noise], axis=1)
    most = np.zeros(LANES)
    for layer in range(len(search.laid)):
        rows = np.flatnonzero(sample.layer == layer)
        tables = np.zeros((family.cells, LANES + 1))
        for start in range(0, len(rows), kernels.CHUNK):
            some = rows[start : start + kernels.CHUNK]
            codes = np.ascontiguousarray(sample.codes[:, some])
            kernels.count_sums(codes, values[some], family.sizes, family.offsets, tables)
        laid = family.laid_out(tables)
        whole = values[rows].sum(axis=0)
        for table, layout in enumerate(family.places):
            if not search.counts[layer][table]:
                continue
            real, _ = search.boxes(layer, table)
            block = np.ascontiguousarray(laid[:, layout.start : layout.stop].reshape(-1, *layout.shape))
            sums = kernels.boxes(block, layout.runs[1], layout.runs[2])
            limits = search.rows, search.least, search.totals[layer][1]
            kernels.largest_statistics(sums, real, layout.runs[0], whole, compared, *limits, most)
    return most
