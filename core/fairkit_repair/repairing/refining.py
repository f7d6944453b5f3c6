"""The pick, and what is tried beside what was tried: tolerances in between."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError
from fairkit_repair.studies import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


ALIKE = "the same decisions for everybody, of which no verdict is made"
_REFINED = 4
_CONFIRMED = 6
_NEAR = 0.05
_ALIKE = 0.05
"""Chances are predicted to about so much."""
_NORMAL = NormalDist()


def refine(result: list[Trial], sure: float, measure: Callable[[Trial], Trial], left: Callable[[], float]) -> None:
    """Measure tolerances in between that cost no training, and append them: see `_closer`."""
    if not any(may_be_picked(one) for one in result):
        return
    for _ in range(_REFINED):
        closer = _closer(result, sure)
        if closer is None or left() < 0:
            break
        result.append(measure(closer))


def confirm(result: list[Trial], sure: float, again: Callable[[Trial], Trial]) -> int:
    """Return the place of the pick, with its chance predicted anew: the best of many looks better than it is.

    What turns out to be no pick (see `fairkit_repair.repairing.evaluate.Bench.restless`) makes way for the next.
    """
    looked: set[int] = set()
    index = pick(result, sure)
    while index not in looked and sum(may_be_picked(result[place]) for place in looked) < _CONFIRMED:
        looked.add(index)
        if result[index].chance:
            result[index] = again(result[index])
        index = pick(result, sure)
    return index


def _closer(result: Sequence[Trial], sure: float) -> Trial | None:
    """Return the pick, if it costs no training, with its dial nearer to where the chance falls below `sure`."""
    picked = result[pick(result, sure)]
    way, dial, here = picked.capability, picked.capability.dial, picked.chance or 0.0
    if way.trainings > 0 or dial is None or not way.of_limit or here < sure:
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
    given = {**picked.parameters, dial: value}
    return Trial.of(type(picked.mitigator).with_values(given), given, way, picked.family, picked.fixed)


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
