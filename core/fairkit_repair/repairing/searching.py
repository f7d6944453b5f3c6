"""The search: candidates, cheap first, until the budget ends; the best so far is always at hand."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import FairkitError, ParameterError
from fairkit.support.timings import phase
from fairkit_repair.repairing.candidates import learner_settings, unconstrained
from fairkit_repair.repairing.chance import FOLDS
from fairkit_repair.repairing.evaluate import OutOfTimeError
from fairkit_repair.scored_rows import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Mitigator
    from fairkit.progress import Progress
    from fairkit.results.rules import Rule
    from fairkit_repair.repairing.chance import Forecast
    from fairkit_repair.repairing.evaluate import Bench
    from fairkit_repair.scored_rows import Study

    Array = NDArray[np.float64]


BY_GROUP = "it reads the group to decide"
BY_CHANCE = "it draws decisions by chance"
"""Why alternatives are left out."""
MOVED = "it does not keep the selection rate"
_HOPELESS = 0.05
_Z = NormalDist().inv_cdf(0.975)


@phase("search")
def search(bench: Bench, forecast: Forecast, usable: Sequence[Trial], study: Study, progress: Progress) -> list[Trial]:
    """Measure trials, cheap first; the first is the model without mitigation, which is always measured."""
    queue = [unconstrained(), *usable]
    if study.blind and not study.named:
        # as cheap as one training: before methods that take many
        tries = [unconstrained(learner_setting) for learner_setting in learner_settings(study.learner, bench.run.seed)]
        position = sum(candidate.capability.trainings <= 1 for candidate in queue)
        queue[position:position] = tries
    result: list[Trial] = []
    right = Against(bench)
    for position, candidate in enumerate(queue):
        progress("searching", position, len(queue))
        ready = bench.is_known(candidate.mitigator) or position == 0
        why = "" if ready else _left_out(candidate, result, study, bench)
        if why:
            result.append(candidate.left_out(why))
            continue
        measured = right.measured(forecast, candidate, _family(candidate, queue))
        if position == 0 and not study.unconstrained:
            measured = dataclasses.replace(measured, status="left out", reason="a method was asked for")
        elif position == 0 and study.blind and (read := bench.reads_group(candidate.mitigator)):
            measured = dataclasses.replace(measured, status="left out", reason=f"{BY_GROUP}: {read}")
        elif candidate.capability.randomized and study.deterministic:
            measured = dataclasses.replace(measured, status="left out", reason=BY_CHANCE)
        result.append(measured)
    measure = partial(right.measured, forecast)
    if study.deterministic is None:
        _refine_without_chance(result, study.sure, measure, bench.clock.left)
    else:
        refine(result, study.sure, measure, bench.clock.left)
    progress("searching", len(queue), len(queue))
    return result


def _refine_without_chance(
    result: list[Trial], sure: float, measure: Callable[[Trial], Trial], left: Callable[[], float]
) -> None:
    """Leave out what draws decisions by chance where something else is sure enough; else take all into account."""

    def without(one: Trial) -> Trial:
        drawn = one.randomized and one.status == "tried"
        return dataclasses.replace(one, status="left out", reason=BY_CHANCE) if drawn else one

    result[:] = map(without, result)
    refine(result, sure, lambda trial: without(measure(trial)), left)
    if any(may_be_picked(trial) and (trial.chance or 0.0) >= sure for trial in result):
        return
    for index, one in enumerate(result):
        if one.reason == BY_CHANCE and one.chance is not None:
            result[index] = dataclasses.replace(one, status="tried", reason="")
    refine(result, sure, measure, left)


def _left_out(candidate: Trial, result: Sequence[Trial], study: Study, bench: Bench) -> str:
    """Return why a candidate is not measured; empty where it is."""
    way = candidate.capability
    if study.blind and (way.reads_group or bench.reads_group(candidate.mitigator)):
        return BY_GROUP
    if bench.run.objective.kind == "rate" and "rate" not in getattr(candidate.mitigator, "objectives", ("rate",)):
        return "it cannot be set for the objective rate"
    if study.deterministic and way.randomized and way.trainings > 0:
        return BY_CHANCE
    if study.deterministic is None and way.randomized and any(not trial.randomized for trial in _sure(result, study)):
        return f"{BY_CHANCE}, and a rule that does not is sure enough"
    if why := _hopeless(candidate, result, study):
        return why
    seconds = way.trainings * bench.training() * (FOLDS + 1) if way.trainings else 0.0
    return "" if seconds <= bench.clock.left() else f"about {max(seconds, 1):,.0f} s, more than the budget has left"


def _sure(result: Sequence[Trial], study: Study) -> list[Trial]:
    return [trial for trial in result if trial.status != "left out" and (trial.chance or 0.0) >= study.sure]


def _hopeless(candidate: Trial, result: Sequence[Trial], study: Study) -> str:
    """Return why a candidate need not be measured, after what others came to; empty where it should be."""
    if candidate.capability.trainings > 0 and not (study.blind or study.named):
        if _sure(result, study):
            return "a cheaper method is sure enough"
        if any(_is_well_inside(trial, study.rules) for trial in result):
            return "rules on scores keep the limits by far already: what they lack is test rows, which no training adds"
    family = [trial for trial in result if trial.family == candidate.family]
    if family and family[-1].reason.startswith(MOVED) and candidate.capability.trainings == 0:
        return f"{MOVED} at the setting before"
    tried_so_far = [trial for trial in family if trial.status == "tried"]
    chances = [trial.chance for trial in tried_so_far if trial.chance is not None]
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


def _is_well_inside(one: Trial, rules: Sequence[Rule]) -> bool:
    """Return whether a rule on scores keeps every limit on the calibration rows, on disparities by half."""
    if one.status == "left out" or one.capability.trainings > 0 or not one.capability.reads_group:
        return False
    for name, value in one.values.items():
        rule = next((rule for rule in rules if name in (rule.metric, f"{rule.metric}:{rule.sensitive}")), None)
        rule = rule or next((rule for rule in rules if rule.metric == name.partition(":")[0]), None)
        if rule is None:
            return False
        half = rule.limit * 0.5 if rule.metric.endswith("_difference") else rule.limit
        if not (value <= half if rule.upper else rule.kept(value)):
            return False
    return True


class Against:
    """Measures alternatives: their numbers, and the objective against the first one's, row by row."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._first: tuple[float, Array] | None = None

    def measured(self, forecast: Forecast, trial: Trial, family: Sequence[Mitigator] = ()) -> Trial:
        """Return the alternative with what it comes to, or why it was left out."""
        bench, begun = self._bench, time.monotonic()
        try:
            chance = bench.measure(trial.mitigator, family)
        except FairkitError as error:
            return trial.left_out(str(error), time.monotonic() - begun)
        except OutOfTimeError:
            return trial.left_out("the budget ended during its training", time.monotonic() - begun)
        prediction = forecast.predict(chance, np.random.default_rng([bench.run.seed, 5]))
        binary = bench.table.task == "binary"
        constant = len(np.unique(chance.argmax(axis=1) if chance.ndim == 2 else chance)) == 1
        on_given = bench.rests_on_given(trial.mitigator)
        lowered, apart = (bench.optimism or 0.0) * on_given, (bench.optimism or 0.0) * (not on_given)
        value, change = self._change(chance, apart) if binary else (prediction.accuracy, None)
        why = "" if constant else self._moved(chance)
        return dataclasses.replace(
            trial,
            randomized=binary and bool(((chance > 0) & (chance < 1)).any()),
            accuracy=value - lowered,
            values=prediction.values,
            chance=0.0 if constant else prediction.chance,
            chances={} if constant else prediction.chances,
            rate=float(np.average(chance, weights=bench.table.weights)) if binary else None,
            change=None if constant else change,
            seconds=time.monotonic() - begun,
            status="left out" if why else "tried",
            reason=ALIKE if constant else why,
        )

    def _moved(self, chance: Array) -> str:
        """Say where the selection rate is not the one to keep."""
        objective = self._bench.run.objective
        if self._bench.table.task != "binary" or objective.rate is None:
            return ""
        rate = float(np.average(chance, weights=self._bench.table.weights))
        return "" if objective.keeps(rate) else f"{MOVED}: {objective.rate:.3f} before, {rate:.3f} after"

    def _change(self, chance: Array, ahead: float) -> tuple[float, tuple[float, float, float]]:
        """Return the objective's value, and its change with its 95 % interval."""
        value, influence = self._bench.run.objective.measure(self._bench.table, chance)
        if self._first is None:
            self._first = value, influence
        apart = influence - self._first[1]
        weights = self._bench.table.row_weights()
        error = float(np.sqrt((weights**2 * apart**2).sum()) / weights.sum())
        mean = value - self._first[0] + ahead
        return value, (mean, mean - _Z * error, mean + _Z * error)


# The pick, and what is tried beside what was tried: tolerances in between.


ALIKE = "the same decisions for everybody, of which no verdict is made"
_REFINED = 4
_CONFIRMED = 6
_NEAR = 0.05
_ALIKE = 0.05
"""Chances are predicted to about so much."""
_NORMAL = NormalDist()


def refine(result: list[Trial], sure: float, measure: Callable[[Trial], Trial], left: Callable[[], float]) -> None:
    """Measure tolerances in between that cost no training, and append them: see `_closer`."""
    if not any(may_be_picked(trial) for trial in result):
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
    while index not in looked and sum(may_be_picked(result[index]) for index in looked) < _CONFIRMED:
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
    value_picked = picked.parameters[dial]
    looser = [
        (trial.parameters[dial], trial.chance or 0.0)
        for trial in result
        if trial.family == picked.family and trial.status != "left out" and trial.parameters[dial] > value_picked
    ]
    if not looser:
        return None
    at, there = min(looser)
    high, low, wanted = (_NORMAL.inv_cdf(min(max(p, 0.002), 0.998)) for p in (here, there, sure))
    share = min(max((high - wanted) / max(high - low, 1e-9), 0.2), 0.8)
    value = round(value_picked + share * (at - value_picked), 4)
    if min(value - value_picked, at - value) < _NEAR * (at - value_picked) or at - value_picked < 1e-3:
        return None
    parameters = {**picked.parameters, dial: value}
    return Trial.of(type(picked.mitigator).with_values(parameters), parameters, way, picked.family, picked.fixed)


def pick(alternatives: Sequence[Trial], sure: float) -> int:
    """Return the place of the most accurate alternative whose chance is at least `sure`.

    Where there is none, it is the surest, and of those whose chance is as good up to `_ALIKE`, the most accurate; where
    none has any chance, the one whose numbers are nearest to keeping the limits.
    """
    ranked = {
        index: (alternative.chance, alternative.accuracy or 0.0)
        for index, alternative in enumerate(alternatives)
        if may_be_picked(alternative) and alternative.chance is not None and alternative.reason != ALIKE
    }
    if not ranked:  # a constant model is handed out only where there is nothing else, and is called one
        ranked = {index: (0.0, 0.0) for index, alternative in enumerate(alternatives) if alternative.reason == ALIKE}
    if not ranked:
        why = next((alternative.reason for alternative in reversed(alternatives) if alternative.reason), "")
        raise ParameterError(f"no alternative could be measured: {why}")
    surest = max(chance for chance, _ in ranked.values())
    if surest < _ALIKE:

        def nearness(index: int) -> tuple[float, float]:
            return ranked[index][0], -max(map(abs, alternatives[index].values.values()), default=0.0)

        return max(ranked, key=nearness)
    enough = sure if surest >= sure else surest - _ALIKE
    return max(
        (index for index, (chance, _) in ranked.items() if chance >= enough),
        key=lambda index: (ranked[index][1], not alternatives[index].randomized, -index),
    )


def may_be_picked(one: Trial) -> bool:
    """Return whether an alternative was measured and may be handed out."""
    return one.status != "left out" and one.chance is not None
