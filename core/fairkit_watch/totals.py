"""Counts by day and group: what every statement of a watch is a function of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_watch.between import Ends
from fairkit_watch.questions import needs_labels
from fairkit_watch.settings import POOLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate

    Array = NDArray[np.float64]

PARTS: Mapping[str, int] = {"d": 2, "c": 4, "u": 2, "m": 5, "dd": 2, "cc": 4, "uu": 2}
NOT_DRAWN = "n"
"""What a record holds for a day and group, and how many numbers: decisions (no, yes), closed cells (outcome 0 no,
0 yes,
1 no, 1 yes), unresolved (no, yes), moments of the score (Σw, Σw², Σwx, Σw²x, Σw²x²); under weights their squares'
sums."""

Increments = dict[str, dict[str, dict[str, dict[str, list[float]]]]]
"""Day, split, group, part: numbers to add."""


@dataclass(frozen=True, slots=True)
class Split:
    """The counts of one way to split people: arrays by day and group."""

    groups: tuple[str, ...]  # their names: the declared ones first, then in the order of their first day
    declared: int  # how many of them were declared
    parts: Mapping[str, Array]  # by the name of the part (see `PARTS`), shape [T, G, K]

    def window(self, start: int, stop: int) -> Split:
        """Return some days."""
        return Split(self.groups, self.declared, {key: part[start:stop] for key, part in self.parts.items()})

    def summed(self) -> dict[str, Array]:
        """Return the totals of all days, each [G, K]."""
        return {key: part.sum(axis=0) for key, part in self.parts.items()}

    def cumulated(self) -> dict[str, Array]:
        """Return the totals up to each day, each [T, G, K]."""
        return {key: part.cumsum(axis=0) for key, part in self.parts.items()}


@dataclass(frozen=True, slots=True)
class Daily:
    """All counts."""

    days: tuple[str, ...]  # every day that was reported, also one without decisions, in order
    splits: Mapping[str, Split]  # by name; `""` is everybody

    @property
    def rows(self) -> Array:
        """Decisions by day, shape [T]."""
        return np.asarray(self.splits[POOLED].parts["d"].sum(axis=(1, 2)))


def daily(
    records: Iterable[Increments], declared: Mapping[str, Sequence[str]], splits: Sequence[str], *, drawn: bool = False
) -> Daily:
    """Add increments up, in any order; where labels are `drawn`, unresolved decisions are those that were not."""
    summed = add_up(records)
    days = tuple(sorted(summed))
    by_split = {}
    for split in (POOLED, *splits):
        groups, declared_groups = _groups(summed, days, split, () if split == POOLED else declared.get(split, ()))
        place = {group: i for i, group in enumerate(groups)}
        parts = {key: np.zeros((len(days), len(groups), size)) for key, size in PARTS.items()}
        for t, day in enumerate(days):
            for group, held in summed[day].get(split, {}).items():
                for key, numbers in held.items():
                    parts[key][t, place[group]] = numbers
        if drawn:
            parts |= {NOT_DRAWN: parts["u"], "u": 0 * parts["u"], "uu": 0 * parts["uu"]}
        by_split[split] = Split(groups, declared_groups, parts)
    return Daily(days, by_split)


def add_up(records: Iterable[Increments]) -> Increments:
    """Return the sum of increments: the same for every order of the records, since floats are added exactly."""
    lists: dict[str, dict[str, dict[str, dict[str, list[list[float]]]]]] = {}
    for record in records:
        for day, splits in record.items():
            of_day = lists.setdefault(day, {})
            for split, groups in splits.items():
                of_split = of_day.setdefault(split, {})
                for group, parts in groups.items():
                    held = of_split.setdefault(group, {})
                    for key, numbers in parts.items():
                        held.setdefault(key, []).append(numbers)
    return {
        day: {
            split: {
                group: {key: [_sum(column) for column in zip(*rows, strict=True)] for key, rows in parts.items()}
                for group, parts in groups.items()
            }
            for split, groups in splits.items()
        }
        for day, splits in lists.items()
    }


def _sum(numbers: Sequence[float]) -> float:
    return numbers[0] if len(numbers) == 1 else _whole(math.fsum(numbers))


def _whole(value: float) -> float:
    return int(value) if value.is_integer() else value


def _groups(
    summed: Increments, days: Sequence[str], split: str, declared: Sequence[str]
) -> tuple[tuple[str, ...], int]:
    if split == POOLED:
        return (POOLED,), 1
    order: dict[str, None] = dict.fromkeys(declared)
    for day in days:
        order.update(dict.fromkeys(sorted(summed[day].get(split, {}))))
        if not declared and order:
            declared = tuple(order)
    return tuple(order), len(declared)


def rate_ends(rate: type[Rate], parts: Mapping[str, Array]) -> Ends:
    """Return a rate in every group, at both ends of what unresolved rows could make of it, shape [..., G].

    Rows are whole numbers, or effective ones where decisions have weights.
    """
    if not needs_labels(rate):
        return Ends.certain(*_rate(rate, parts["d"], parts["dd"]))
    if not parts["u"].any():
        return Ends.certain(*_rate(rate, parts["c"], parts["cc"]))
    corners = []
    for no in (0, 1):
        for yes in (0, 1):  # every unresolved no (yes) has the outcome 0, or every one has 1: extremes are at corners
            cells, squares = parts["c"].copy(), parts["cc"].copy()
            for target, open_ in ((cells, parts["u"]), (squares, parts["uu"])):
                target[..., 2 * no] += open_[..., 0]
                target[..., 2 * yes + 1] += open_[..., 1]
            corners.append(_rate(rate, cells, squares))
    values, sizes = np.array([value for value, _ in corners]), np.array([n for _, n in corners])
    low = np.nan_to_num(values, nan=0.0).argmin(axis=0)[None]
    high = np.nan_to_num(values, nan=1.0).argmax(axis=0)[None]
    ends = [np.take_along_axis(array, at, axis=0)[0] for at in (low, high) for array in (values, sizes)]
    return Ends(*ends)


def _rate(rate: type[Rate], cells: Array, squares: Array) -> tuple[Array, Array]:
    """Return a rate and the rows, or effective rows, that it is over."""
    width = cells.shape[-1]
    over, counted = np.array(rate.over, float)[:width], np.array(rate.counted, float)[:width]
    mass = cells @ over
    value = _divided(cells @ counted, mass)
    if not squares.any():
        return value, mass
    with np.errstate(divide="ignore", invalid="ignore"):
        all_, inside = squares @ over, squares @ counted
        spread = (
            inside * (1 - 2 * value) + value**2 * all_
        )  # of the residuals: the variance of the rate is spread / mass²
        kish = mass**2 / all_
        own = np.where(spread > 0, value * (1 - value) * mass**2 / spread, kish)
        return value, np.nan_to_num(np.minimum(kish, own), nan=0.0)


def point(rate: type[Rate], parts: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return a rate in every group from the rows that are resolved, and how many these are, shape [..., G]."""
    key = "c" if needs_labels(rate) else "d"
    return _rate(rate, parts[key], parts[key * 2])


def _divided(counted: Array, n: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(n > 0, counted / n, np.nan))


def summary(increments: Increments) -> dict[str, Any]:
    """Return totals as plain JSON with sorted keys: equal totals give equal bytes."""
    return {day: increments[day] for day in sorted(increments)}


def whole(increments: Mapping[str, Any]) -> Increments:
    """Return increments with whole numbers as such."""
    return {
        day: {
            split: {
                group: {key: [_whole(float(x)) for x in numbers] for key, numbers in parts.items()}
                for group, parts in groups.items()
            }
            for split, groups in splits.items()
        }
        for day, splits in increments.items()
    }
