"""The pick, and what is tried beside what was tried: tolerances in between, and rates that are known better."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError
from fairkit_repair.studies import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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
_SPARE = 0.01
"""A chance is predicted to about so much: what is nearer to `sure` is often below it when it is predicted anew."""
_EDGE = 0.03
_NORMAL = NormalDist()


def refine(
    result: list[Trial], sure: float, measure: Callable[[Trial, bool], Trial], left: Callable[[], float]
) -> None:
    """Measure more of what costs no training, and append it: see `_walk` and `_closer`."""
    if not any(may_be_picked(one) for one in result):
        return

    def measured(one: Trial, *, closely: bool = False) -> Trial:
        result.append(measure(one, closely))
        return result[-1]

    best, aim = _best_sure(result, sure), min(sure + _SPARE, 0.5 * (1 + sure))
    for start, chance, rate in _starts(result, best):
        walked = _walk(start, chance, rate, (aim, best), lambda one: measured(one, closely=True), left)
        best = max(best, walked)
    for _ in range(_REFINED):
        closer = _closer(result, sure)
        if closer is None or left() < 0:
            break
        measured(closer)


def _starts(result: Sequence[Trial], least: float) -> list[tuple[Trial, float | None, float]]:
    """Return rules whose groups' rates are worth moving, with their chance and rate.

    There are none where what is sure enough has an accuracy, `least`, that moving could not reach. The last is the most
    accurate one among the surest; before it come those with a method's steadier settings, of unknown chance.
    """
    usable = [
        one
        for one in result
        if may_be_picked(one) and one.rate is not None
        and one.capability.level not in (None, *one.fixed)
        and one.parameters.get(one.capability.dial or "") == 0
        and one.capability.trainings == 0
    ]  # fmt: skip
    if not usable:
        return []
    most = max(one.chance or 0.0 for one in usable)
    near = [one for one in usable if (one.chance or 0.0) >= most - _BEHIND]
    best = max(near, key=lambda one: one.accuracy or 0.0)
    if (best.accuracy or 0.0) <= least:
        return []
    rate = best.rate or 0.0
    starts: list[tuple[Trial, float | None, float]] = []
    for family in dict.fromkeys(one.family for one in usable):
        one = next(one for one in usable if one.family == family)
        starts += [
            (_changed(one, settings), None, rate)
            for settings in one.capability.steadier
            if not settings.keys() & one.fixed
        ]
    return [*starts, (best, best.chance or 0.0, rate)]


def _best_sure(result: Sequence[Trial], sure: float) -> float:
    """Return the highest accuracy of what is sure enough; 0 where nothing is."""
    known = [one.accuracy or 0.0 for one in result if may_be_picked(one) and (one.chance or 0.0) >= sure]
    return max(known, default=0.0)


def _walk(
    start: Trial,
    chance: float | None,
    rate: float,
    wanted: tuple[float, float],
    measured: Callable[[Trial], Trial],
    left: Callable[[], float],
) -> float:
    """Move the groups' common rate away from one half until the rule is sure enough, then halve the last step.

    The variance of a rate p is at most p (1 - p) over its rows: two groups of which .8 are accepted are known to be
    equal with fewer rows than two of which .6 are, and near the best rate accuracy changes little. Decisions that are
    drawn by chance for more people vary less still: an audit measures their probability.
    """
    level, (aim, least) = start.capability.level or "", wanted
    away, best = 1.0 if rate >= 0.5 else -1.0, 0.0
    steps: dict[float, float] = {} if chance is None else {0.0: chance}
    for _ in range(_MOVED):
        step = _next_step(steps, aim)
        if step is None or not _EDGE <= rate + away * step <= 1 - _EDGE or left() < 0:
            break
        alternative = measured(_changed(start, {level: round(rate + away * step, 4)}))
        if not may_be_picked(alternative):
            break
        steps[step] = alternative.chance or 0.0
        if steps[step] >= aim:
            best = max(best, alternative.accuracy or 0.0)
        elif (alternative.accuracy or 0.0) < max(best, least):
            break
    return best


def _next_step(steps: Mapping[float, float], sure: float) -> float | None:
    """Return one step further, or between the last unsure step and the first sure one; None where it is found."""
    if not steps:
        return 0.0
    enough = min((step for step, chance in steps.items() if chance >= sure), default=None)
    if enough is None:
        return max(steps) + _MOVE
    below = max((step for step in steps if step < enough), default=enough)
    return None if enough - below < _MOVE * 0.4 else 0.5 * (below + enough)


def _changed(one: Trial, settings: Mapping[str, Any]) -> Trial:
    given = {**one.parameters, **settings}
    return Trial.of(type(one.mitigator).with_values(given), given, one.capability, one.family, one.fixed)


def confirm(result: list[Trial], sure: float, again: Callable[[int], float]) -> int:
    """Return the place of the pick, with its chance predicted anew: the best of many looks better than it is."""
    looked: set[int] = set()
    index = pick(result, sure)
    while index not in looked and len(looked) < _CONFIRMED:
        looked.add(index)
        if result[index].chance:
            result[index] = dataclasses.replace(result[index], chance=again(index))
        index = pick(result, sure)
    return index


def _closer(result: Sequence[Trial], sure: float) -> Trial | None:
    """Return the pick, if it costs no training, with its dial nearer to where the chance falls below `sure`."""
    picked = result[pick(result, sure)]
    way, dial, here = picked.capability, picked.capability.dial, picked.chance or 0.0
    if way.level in picked.parameters or way.trainings > 0 or dial is None or not way.of_limit or here < sure:
        return None
    own = picked.parameters[dial]
    looser = [
        (other.parameters[dial], other.chance or 0.0)
        for other in result
        if other.family == picked.family and other.status != "left out" and other.parameters[dial] > own
    ]
    if not looser:
        return None
    at, there = min(looser)
    high, low, wanted = (_NORMAL.inv_cdf(min(max(p, 0.002), 0.998)) for p in (here, there, sure))
    share = min(max((high - wanted) / max(high - low, 1e-9), 0.2), 0.8)
    value = round(own + share * (at - own), 4)
    if min(value - own, at - value) < _NEAR * (at - own) or at - own < 1e-3:
        return None
    return _changed(picked, {dial: value})


def pick(alternatives: Sequence[Trial], sure: float) -> int:
    """Return the place of the most accurate alternative whose chance is at least `sure`.

    Where there is none, it is the surest, and of those whose chance is as good up to `_ALIKE`, the most accurate; where
    none has any chance, the one whose numbers are nearest to keeping the limits.
    """
    ranked = {
        place: (one.chance, one.accuracy or 0.0)
        for place, one in enumerate(alternatives)
        if may_be_picked(one) and one.chance is not None and one.reason != ALIKE
    }
    if not ranked:  # a constant model is handed out only where there is nothing else, and is called one
        ranked = {place: (0.0, 0.0) for place, one in enumerate(alternatives) if one.reason == ALIKE}
    if not ranked:
        why = next((one.reason for one in reversed(alternatives) if one.reason), "")
        raise ParameterError(f"no alternative could be measured: {why}")
    surest = max(chance for chance, _ in ranked.values())
    if surest < _ALIKE:
        return max(ranked, key=lambda place: (ranked[place][0], -_excess(alternatives[place])))
    enough = sure if surest >= sure else surest - _ALIKE
    return max(
        (place for place, (chance, _) in ranked.items() if chance >= enough),
        key=lambda place: (ranked[place][1], not alternatives[place].randomized, -place),
    )


def may_be_picked(one: Trial) -> bool:
    """Return whether an alternative was measured and may be handed out."""
    return one.status != "left out" and one.chance is not None


def _excess(one: Trial) -> float:
    return max((abs(value) for value in one.values.values()), default=0.0)
