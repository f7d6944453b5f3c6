"""The list that is shown: groups that are treated worst, none of them the same people again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_subgroups.searching.extremes import Surest
from fairkit_subgroups.searching.search import Group, RankedGroup
from fairkit_subgroups.searching.tables import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_subgroups.searching.family import Family
    from fairkit_subgroups.searching.search import Search
    from fairkit_subgroups.searching.tables import RowSample

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
        among_all = (search.at(one.group, alpha) for one in surest.result(rest, alpha))
        chosen = next((one for one in among_all if surest.size.one(one) > 0 and search.large(one.group)), None)
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
