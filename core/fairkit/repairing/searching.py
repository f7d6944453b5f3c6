"""The search: candidates, cheap first, until the budget ends; the best so far is always at hand."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import FairkitError, ParameterError
from fairkit.repairing.candidates import learner_settings, unconstrained
from fairkit.repairing.chance import predict
from fairkit.repairing.evaluate import OutOfTimeError
from fairkit.repairing.folds import FOLDS
from fairkit.results.searches import Alternative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.progress import Progress
    from fairkit.repairing.candidates import Candidate
    from fairkit.repairing.cells import Planned
    from fairkit.repairing.chance import Limited
    from fairkit.repairing.evaluate import Bench

_HOPELESS = 0.05
_REFINED = 4
_NEAR = 0.05
_ALIKE = 0.05
"""Chances are predicted to about so much."""
ALIKE = "the same decisions for everybody, of which no verdict is made"
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked of a search: see `fairkit.repairing.run.repair`."""

    sure: float
    blind: bool
    deterministic: bool
    named: bool
    unconstrained: bool
    learner: str


@dataclass(slots=True)
class Clock:
    """The budget: when it ends, and what a training takes."""

    ends: float
    training: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.ends - time.monotonic()

    def watched(self, progress: Progress) -> Progress:
        """Return a progress that raises `OutOfTimeError` when the budget has ended."""

        def report(doing: str, done: int, total: int, **values: float) -> None:
            progress(doing, done, total, **values)
            if self.left() < 0:
                raise OutOfTimeError

        return report


def search(
    bench: Bench,
    planned: Planned,
    limits: Sequence[Limited],
    found: Sequence[Candidate],
    asked: Asked,
    clock: Clock,
    progress: Progress,
) -> tuple[list[Alternative], list[Candidate]]:
    """Measure candidates, cheap first.

    Returns
    -------
    list of Alternative, list of Candidate
        In the same order; the first is the model without mitigation, which is always measured.
    """
    queue = [unconstrained(), *found]
    if asked.blind and not asked.named:
        # as cheap as one training: before methods that take many
        tries = [unconstrained(one) for one in learner_settings(asked.learner, bench.run.seed)]
        place = sum(one.trainings <= 1 for one in queue)
        queue[place:place] = tries
    result: list[Alternative] = []
    best: dict[str, list[float]] = {}
    for place, one in enumerate(queue):
        progress("searching", place, len(queue))
        why = _left_out(one, result, best, asked, clock, first=place == 0)
        if why:
            result.append(_blank(one, why))
            continue
        measured = _measured(bench, planned, limits, one)
        if place == 0 and not asked.unconstrained:
            measured = dataclasses.replace(measured, status="left out", reason="a method was asked for")
        elif one.capability.randomized and asked.deterministic:
            measured = dataclasses.replace(measured, status="left out", reason="it draws decisions by chance")
        elif measured.chance is not None and measured.status == "tried":
            best.setdefault(one.family, []).append(measured.chance)
        result.append(measured)
    for _ in range(_REFINED if any(_may_be_picked(one) for one in result) else 0):
        closer = _closer(result, queue, asked.sure)
        if closer is None or clock.left() < 0:
            break
        queue.append(closer)
        result.append(_measured(bench, planned, limits, closer))
    progress("searching", len(queue), len(queue))
    return result, queue


def _closer(result: Sequence[Alternative], queue: Sequence[Candidate], sure: float) -> Candidate | None:
    """Return the pick, if it costs no training, with its dial nearer to where the chance falls below `sure`."""
    place = pick(result, sure)
    one, dial = queue[place], queue[place].capability.dial
    here = result[place].chance or 0.0
    if one.trainings > 0 or dial is None or not one.capability.of_limit or here < sure:
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


def _left_out(
    one: Candidate,
    result: Sequence[Alternative],
    best: dict[str, list[float]],
    asked: Asked,
    clock: Clock,
    *,
    first: bool,
) -> str:
    """Return why a candidate is not measured; empty where it is."""
    if first:
        return ""
    seconds = one.trainings * clock.training * (FOLDS + 1)
    reasons = {
        "it reads the group to decide": asked.blind and one.capability.reads_group,
        "it draws decisions by chance": asked.deterministic
        and one.capability.randomized
        and one.trainings > 0,
        f"about {max(seconds, 1):,.0f} s, more than the budget has left": seconds > clock.left(),
    }
    return next((why for why, holds in reasons.items() if holds), "") or _hopeless(one, result, best, asked)


def _hopeless(
    one: Candidate, result: Sequence[Alternative], best: dict[str, list[float]], asked: Asked
) -> str:
    """Return why a candidate need not be measured, after what others came to; empty where it should be."""
    sure = [other for other in result if other.status != "left out" and (other.chance or 0.0) >= asked.sure]
    if one.trainings > 0 and sure and not (asked.blind or asked.named):
        return "a cheaper method is sure enough"
    chances = best.get(one.family, [])
    if one.family != "settings" and chances:
        if len(chances) == 1 and chances[0] < _HOPELESS:
            return "its strictest setting does not pass"
        if max(chances) >= asked.sure and chances[-1] < _HOPELESS:
            return "a stricter setting does not pass"
    return ""


def _measured(bench: Bench, planned: Planned, limits: Sequence[Limited], one: Candidate) -> Alternative:
    begun = time.monotonic()
    try:
        chance = bench.measure(one.method)
    except FairkitError as error:
        return _blank(one, str(error), time.monotonic() - begun)
    except OutOfTimeError:
        return _blank(one, "the budget ended during its training", time.monotonic() - begun)
    told = predict(planned, chance, limits, np.random.default_rng([bench.run.seed, 5]))
    drawn = bool(((chance > 0) & (chance < 1)).any())
    alike = len(np.unique(chance)) == 1
    restless = "" if alike or told.chance < _HOPELESS else bench.restless(one.method, chance)
    return Alternative(
        method=one.method.name,
        parameters=one.given,
        randomized=drawn,
        reads_group=one.capability.reads_group,
        accuracy=told.accuracy,
        values=told.values,
        chance=0.0 if alike else told.chance,
        seconds=time.monotonic() - begun,
        status="left out" if restless else "tried",
        reason=ALIKE if alike else restless,
    )


def _blank(one: Candidate, why: str, seconds: float = 0.0) -> Alternative:
    return Alternative(
        method=one.method.name,
        parameters=one.given,
        randomized=one.capability.randomized,
        reads_group=one.capability.reads_group,
        seconds=seconds,
        status="left out",
        reason=why,
    )


def pick(alternatives: Sequence[Alternative], sure: float) -> int:
    """Return the place of the most accurate alternative whose chance is at least `sure`.

    Where there is none, it is the surest, and of those whose chance is as good up to `_ALIKE`, the most accurate; where
    none has any chance, the one whose numbers are nearest to keeping the limits.
    """
    known = {
        place: (one.chance, one.accuracy or 0.0)
        for place, one in enumerate(alternatives)
        if _may_be_picked(one) and one.chance is not None and one.reason != ALIKE
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


def _may_be_picked(one: Alternative) -> bool:
    return one.status != "left out" and one.chance is not None


def _excess(one: Alternative) -> float:
    return max((abs(value) for value in one.values.values()), default=0.0)
