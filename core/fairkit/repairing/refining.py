"""The pick, and what is tried beside what was tried: tolerances in between, and rates that are known better."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairkit.repairing.candidates import Candidate
    from fairkit.results.searches import Alternative

ALIKE = "the same decisions for everybody, of which no verdict is made"
_REFINED = 4
_MOVED = 8
_CONFIRMED = 6
_NEAR = 0.05
_ALIKE = 0.05
"""Chances are predicted to about so much."""
_BEHIND = 0.15
"""A rule that is so much less sure is moved all the same, where it is more accurate."""
_MOVE = 0.03
_EDGE = 0.03
_NORMAL = NormalDist()


def refine(
    result: list[Alternative],
    queue: list[Candidate],
    sure: float,
    measure: Callable[[Candidate], Alternative],
    left: Callable[[], float],
) -> None:
    """Measure more of what costs no training, and append it: see `_closer` and `_steadier`.

    Parameters
    ----------
    result, queue
        What was measured and tried, in the same order.
    sure
        The chance that is asked for.
    measure
        Measures a candidate.
    left
        Tells the seconds that are left.
    """
    if not any(may_be_picked(one) for one in result):
        return
    for _ in range(_MOVED):
        other = _steadier(result, queue, sure)
        if other is None or left() < 0:
            break
        queue.append(other)
        result.append(measure(other))
    for _ in range(_REFINED):
        closer = _closer(result, queue, sure)
        if closer is None or left() < 0:
            break
        queue.append(closer)
        result.append(measure(closer))


def _steadier(result: Sequence[Alternative], queue: Sequence[Candidate], sure: float) -> Candidate | None:
    """Return a rule with its groups' rates moved away from one half, where nothing else is sure enough.

    The variance of a rate p is p (1 - p) over its rows: two groups of which .8 are accepted are known to be equal with
    fewer rows than two of which .6 are, and near the best rate accuracy changes little. Where a step is sure enough,
    the step before is halved.
    """
    usable = [
        place
        for place, one in enumerate(result)
        if may_be_picked(one) and one.rate is not None and queue[place].capability.level is not None
        and one.parameters.get(queue[place].capability.dial or "") == 0
        and queue[place].trainings == 0
    ]  # fmt: skip
    moved = [place for place in usable if queue[place].capability.level in result[place].parameters]
    if any((one.chance or 0.0) >= sure for place, one in enumerate(result) if place not in moved):
        return None
    plain = [place for place in usable if place not in moved]
    if not plain:
        return None
    most = max(result[place].chance or 0.0 for place in plain)
    near = [place for place in plain if (result[place].chance or 0.0) >= most - _BEHIND]
    start = max(near, key=lambda place: result[place].accuracy or 0.0)
    rate = _next_rate(result, start, moved, sure)
    if rate is None:
        return None
    one, level = queue[start], queue[start].capability.level or ""
    given = {**one.given, level: round(rate, 4)}
    return dataclasses.replace(one, given=given, method=type(one.method).with_values(given))


def _next_rate(result: Sequence[Alternative], start: int, moved: Sequence[int], sure: float) -> float | None:
    """Return one step further from one half, or between the last unsure step and the first sure one."""
    rate = result[start].rate or 0.0
    away = 1.0 if rate >= 0.5 else -1.0
    steps = {abs((result[place].rate or 0.0) - rate): result[place].chance or 0.0 for place in moved}
    enough = min((step for step, chance in steps.items() if chance >= sure), default=None)
    if enough is None:
        rate += away * (max(steps, default=0.0) + _MOVE)
        return rate if _EDGE <= rate <= 1 - _EDGE else None
    below = max((step for step in steps if step < enough), default=0.0)
    return None if enough - below < _MOVE * 0.4 else rate + away * 0.5 * (enough + below)


def confirm(result: list[Alternative], sure: float, again: Callable[[int], float]) -> int:
    """Return the place of the pick, with its chance predicted anew: the best of many looks better than it is.

    Parameters
    ----------
    result
        What was measured; chances of picks are replaced.
    sure
        The chance that is asked for.
    again
        Predicts the chance of the one at a place, from more and other draws.
    """
    looked: set[int] = set()
    place = pick(result, sure)
    while place not in looked and len(looked) < _CONFIRMED:
        looked.add(place)
        if result[place].chance:
            result[place] = dataclasses.replace(result[place], chance=again(place))
        place = pick(result, sure)
    return place


def _closer(result: Sequence[Alternative], queue: Sequence[Candidate], sure: float) -> Candidate | None:
    """Return the pick, if it costs no training, with its dial nearer to where the chance falls below `sure`."""
    place = pick(result, sure)
    one, dial = queue[place], queue[place].capability.dial
    here = result[place].chance or 0.0
    moved = one.capability.level in one.given
    if moved or one.trainings > 0 or dial is None or not one.capability.of_limit or here < sure:
        return None
    looser = [
        (other.given[dial], found.chance or 0.0)
        for other, found in zip(queue, result, strict=True)
        if other.family == one.family and found.status != "left out" and other.given[dial] > one.given[dial]
    ]
    if not looser:
        return None
    at, there = min(looser)
    high, low, wanted = (_NORMAL.inv_cdf(min(max(p, 0.002), 0.998)) for p in (here, there, sure))
    share = min(max((high - wanted) / max(high - low, 1e-9), 0.2), 0.8)
    value = round(one.given[dial] + share * (at - one.given[dial]), 4)
    if (
        min(value - one.given[dial], at - value) < _NEAR * (at - one.given[dial])
        or at - one.given[dial] < 1e-3
    ):
        return None
    given = {**one.given, dial: value}
    return dataclasses.replace(one, given=given, method=type(one.method).with_values(given))


def pick(alternatives: Sequence[Alternative], sure: float) -> int:
    """Return the place of the most accurate alternative whose chance is at least `sure`.

    Where there is none, it is the surest, and of those whose chance is as good up to `_ALIKE`, the most accurate; where
    none has any chance, the one whose numbers are nearest to keeping the limits.
    """
    known = {
        place: (one.chance, one.accuracy or 0.0)
        for place, one in enumerate(alternatives)
        if may_be_picked(one) and one.chance is not None and one.reason != ALIKE
    }
    if not known:  # a constant model is handed out only where there is nothing else, and is called one
        known = {place: (0.0, 0.0) for place, one in enumerate(alternatives) if one.reason == ALIKE}
    if not known:
        why = next((one.reason for one in reversed(alternatives) if one.reason), "")
        raise ParameterError(f"no alternative could be measured: {why}")
    surest = max(chance for chance, _ in known.values())
    if surest < _ALIKE:
        return max(known, key=lambda place: (known[place][0], -_excess(alternatives[place])))
    enough = sure if surest >= sure else surest - _ALIKE
    return max(
        (place for place, (chance, _) in known.items() if chance >= enough),
        key=lambda place: (known[place][1], -place),
    )


def may_be_picked(one: Alternative) -> bool:
    """Return whether an alternative was measured and may be handed out."""
    return one.status != "left out" and one.chance is not None


def _excess(one: Alternative) -> float:
    return max((abs(value) for value in one.values.values()), default=0.0)
