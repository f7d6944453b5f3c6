"""The search: candidates, cheap first, until the budget ends; the best so far is always at hand."""

from __future__ import annotations

import dataclasses
import time
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import FairkitError
from fairkit_repair.repairing.candidates import learner_settings, unconstrained
from fairkit_repair.repairing.evaluate import OutOfTimeError
from fairkit_repair.repairing.folds import FOLDS
from fairkit_repair.repairing.refining import ALIKE, may_be_picked, refine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.mitigators import Mitigator
    from fairkit.progress import Progress
    from fairkit_repair.repairing.chance import Forecast
    from fairkit_repair.repairing.evaluate import Bench, Clock
    from fairkit_repair.studies import Study, Trial

    Array = NDArray[np.float64]

BY_CHANCE = "it draws decisions by chance"
"""Why a rule is left out where decisions must not be drawn."""
_HOPELESS = 0.05
_Z = NormalDist().inv_cdf(0.975)


def search(bench: Bench, forecast: Forecast, usable: Sequence[Trial], study: Study, progress: Progress) -> list[Trial]:
    """Measure trials, cheap first; the first is the model without mitigation, which is always measured."""
    queue = [unconstrained(), *usable]
    if study.blind and not study.named:
        # as cheap as one training: before methods that take many
        tries = [unconstrained(one) for one in learner_settings(study.learner, bench.run.seed)]
        position = sum(one.capability.trainings <= 1 for one in queue)
        queue[position:position] = tries
    result: list[Trial] = []
    right = RightBy(bench.table)
    for position, candidate in enumerate(queue):
        progress("searching", position, len(queue))
        ready = bench.is_known(candidate.mitigator) or position == 0
        why = "" if ready else _left_out(candidate, result, study, bench.clock)
        if why:
            result.append(candidate.left_out(why))
            continue
        measured = _measured(bench, forecast, right, candidate, _family(candidate, queue))
        if position == 0 and not study.unconstrained:
            measured = dataclasses.replace(measured, status="left out", reason="a method was asked for")
        elif candidate.capability.randomized and study.deterministic:
            measured = dataclasses.replace(measured, status="left out", reason=BY_CHANCE)
        result.append(measured)

    def measure(one: Trial, closely: bool) -> Trial:
        return _measured(bench, forecast, right, one, draws=forecast.many if closely else None)

    if study.deterministic is None:
        _refine_without_chance(result, study.sure, measure, bench.clock.left)
    else:
        refine(result, study.sure, measure, bench.clock.left)
    progress("searching", len(queue), len(queue))
    return result


def _refine_without_chance(
    result: list[Trial], sure: float, measure: Callable[[Trial, bool], Trial], left: Callable[[], float]
) -> None:
    """Leave out what draws decisions by chance where something else is sure enough; else take all into account."""

    def without(one: Trial) -> Trial:
        drawn = one.randomized and one.status == "tried"
        return dataclasses.replace(one, status="left out", reason=BY_CHANCE) if drawn else one

    result[:] = map(without, result)
    refine(result, sure, lambda one, closely: without(measure(one, closely)), left)
    if any(may_be_picked(one) and (one.chance or 0.0) >= sure for one in result):
        return
    for place, one in enumerate(result):
        if one.reason == BY_CHANCE and one.chance is not None:
            result[place] = dataclasses.replace(one, status="tried", reason="")
    refine(result, sure, measure, left)


def _left_out(candidate: Trial, result: Sequence[Trial], study: Study, clock: Clock) -> str:
    """Return why a candidate is not measured; empty where it is."""
    seconds = candidate.capability.trainings * clock.training * (FOLDS + 1)
    reasons = {
        "it reads the group to decide": study.blind and candidate.capability.reads_group,
        BY_CHANCE: bool(study.deterministic) and candidate.capability.randomized and candidate.capability.trainings > 0,
        f"about {max(seconds, 1):,.0f} s, more than the budget has left": seconds > clock.left(),
    }
    return next((why for why, holds in reasons.items() if holds), "") or _hopeless(candidate, result, study)


def _hopeless(candidate: Trial, result: Sequence[Trial], study: Study) -> str:
    """Return why a candidate need not be measured, after what others came to; empty where it should be."""
    sure = [other for other in result if other.status != "left out" and (other.chance or 0.0) >= study.sure]
    if candidate.capability.trainings > 0 and sure and not (study.blind or study.named):
        return "a cheaper method is sure enough"
    own = [one for one in result if one.family == candidate.family and one.status == "tried"]
    chances = [one.chance for one in own if one.chance is not None]
    if candidate.family != "settings" and chances:
        if len(chances) == 1 and chances[0] < _HOPELESS:
            return "its strictest setting does not pass"
        if max(chances) >= study.sure and chances[-1] < _HOPELESS:
            return "a stricter setting does not pass"
    return ""


def _family(one: Trial, queue: Sequence[Trial]) -> list[Mitigator]:
    """Return the methods that can be trained together with one: those of its family, apart in its dial."""
    if one.capability.dial not in getattr(one.mitigator, "together", ()):
        return []
    return [other.mitigator for other in queue if other.family == one.family]


class RightBy:
    """How likely each row's decision is right, by alternative: accuracy against the first one's, row by row."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._first: Array | None = None

    def change(self, chance: Array, ahead: float = 0.0) -> tuple[float, float, float] | None:
        """Return the change of accuracy with its 95 % interval; None where outcomes are not two."""
        if self._table.task != "binary":
            return None
        own = np.where(self._table.target > 0, chance, 1.0 - chance)
        if self._first is None:
            self._first = own
        apart, weights = own - self._first, self._table.row_weights()
        mean = float(np.average(apart, weights=weights))
        error = float(np.sqrt((weights**2 * (apart - mean) ** 2).sum()) / weights.sum())
        return mean + ahead, mean - _Z * error + ahead, mean + _Z * error + ahead


def _measured(
    bench: Bench,
    forecast: Forecast,
    right: RightBy,
    trial: Trial,
    family: Sequence[Mitigator] = (),
    draws: int | None = None,
) -> Trial:
    begun = time.monotonic()
    try:
        chance = bench.measure(trial.mitigator, family)
    except FairkitError as error:
        return trial.left_out(str(error), time.monotonic() - begun)
    except OutOfTimeError:
        return trial.left_out("the budget ended during its training", time.monotonic() - begun)
    prediction = forecast.predict(chance, np.random.default_rng([bench.run.seed, 5]), draws)
    binary = bench.table.task == "binary"
    drawn = binary and bool(((chance > 0) & (chance < 1)).any())
    decisions = chance.argmax(axis=1) if chance.ndim == 2 else chance
    constant = len(np.unique(decisions)) == 1
    given = bench.rests_on_given(trial.mitigator)
    lowered, apart = (bench.optimism or 0.0) * given, (bench.optimism or 0.0) * (not given)
    restless = "" if constant or prediction.chance < _HOPELESS else bench.restless(trial.mitigator, chance)
    return dataclasses.replace(
        trial,
        randomized=drawn,
        accuracy=prediction.accuracy - lowered,
        values=prediction.values,
        chance=0.0 if constant else prediction.chance,
        chances={} if constant else prediction.chances,
        rate=prediction.rate,
        change=None if constant else right.change(chance, apart),
        seconds=time.monotonic() - begun,
        status="left out" if restless else "tried",
        reason=ALIKE if constant else restless,
    )
