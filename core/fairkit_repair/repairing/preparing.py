"""Before a search: the rows, who will be judged, what the test rows can show, and a base with scores of its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.table import Table
from fairkit.data.task import choose_task
from fairkit.errors import DataError, PolicyError, PowerError
from fairkit.fitted import FittedModel, Prediction
from fairkit.planning.assumptions import target_of
from fairkit.planning.results import two_digits
from fairkit.planning.run import installed
from fairkit.progress import no_progress
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.write.export import BaseModel, export_bytes
from fairkit_repair.learners import check_target, fit_learner
from fairkit_repair.mitigation.choose import find_mitigator, split_dataset
from fairkit_repair.mitigation.learned import BEFORE, check_leak, valued
from fairkit_repair.postprocess import with_threshold
from fairkit_repair.repairing.candidates import PlainLearner
from fairkit_repair.repairing.chance import FOLDS, ByRates, Planned, folds_of, learner_scores, missing_of, told_missing
from fairkit_repair.repairing.evaluate import Bench, ByAudits, Clock, halves, without_sensitive
from fairkit_repair.scored_rows import Power

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.fitted import Run
    from fairkit.objective import Objective
    from fairkit.results.rules import Rule
    from fairkit_repair.repairing.chance import Forecast, Limited
    from fairkit_repair.scored_rows import Study

    Array = NDArray[np.float64]


_LEAST_OF_CLASS = 4 * FOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a search is made on."""

    table: Table  # the training rows, with the groups of the policy
    held: Table  # the test rows as a table: how far a given model does better on the training rows is told from both
    test: Dataset  # the test rows
    forecast: Forecast  # predicts verdicts on them
    unseen: tuple[str, ...] = ()  # groups of test rows that no training row has, with their sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel(FittedModel):
    """A model that was given, and that nothing was changed in."""

    model: OnnxModel
    table: Table
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ("No alternative was better: the file is the given model.",)

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns, and decide as the model does."""
        base = base_of(self.model, self.table)
        if self.table.task == "ranking":
            return Prediction(score=base.scores(columns))
        score, decision = base.answers(columns)
        return Prediction(score=score, decision_probability=decision)

    def to_onnx(self) -> onnx.ModelProto:
        """Return the given graph."""
        return self.model.proto


def prepare(
    engine: Engine,
    data: Dataset,
    test: Dataset | None,
    holdout: float,
    study: Study,
    limits: Sequence[Limited],
    confidence: float,
    column: str | None = None,
) -> Prepared:
    """Read the rows, and say what verdicts on the test rows are predicted by."""
    data.learn(engine.total)
    if test is not None:
        test.learn(engine.total)
    train_data, test_data = (data, test) if test is not None else split_dataset(data, holdout, study.seed)
    if test is not None and test.sha256 == data.sha256:
        raise DataError("the test rows are the training rows: give other rows in `test`, or leave it out")
    train_data.learn(engine.total)
    table = valued(Table.from_dataset(train_data), train_data, column)
    check_target(table)
    tested = valued(Table.from_dataset(test_data), test_data, column)
    if test is not None:
        check_leak(table, tested)
    _check_classes(table)
    splits = list(dict.fromkeys(limit.split for limit in limits if limit.split is not None))
    table = without_sensitive(table) if study.blind else table
    table = dataclasses.replace(table, groups={name: table.groups[name] for name in splits})
    planned = _planned(table, tested)
    forecast: Forecast
    if table.task == "binary":
        planned = dataclasses.replace(planned, missing=missing_of(test_data.profile, splits))
        forecast = ByRates(planned=planned, limits=limits, confidence=confidence)
    else:
        queries = 0 if tested.queries is None else int(tested.queries.max()) + 1
        forecast = ByAudits.of(train_data, table, planned, study.rules, queries, confidence)
    unseen = tuple(
        f"{name} ({size} rows)"
        for split in splits
        for name, size in zip(tested.groups[split].names, tested.groups[split].sizes().tolist(), strict=True)
        if size and name not in table.groups[split].names
    )
    return Prepared(table=table, held=tested, test=test_data, forecast=forecast, unseen=unseen)


def _planned(table: Table, tested: Table) -> Planned:
    """Return who the test rows are, in the training rows' groups."""
    codes = {}
    for name in table.groups:
        mine, tested_groups = table.groups[name].names, tested.groups[name]
        places = np.array([mine.index(name) if name in mine else len(mine) for name in tested_groups.names], np.int64)
        codes[name] = places[tested_groups.codes]
    return Planned.of(table.groups, table.target, table.weights, codes, len(tested))


def _check_classes(table: Table) -> None:
    """Refuse classes that a fold's training rows may lack."""
    if table.task != "multiclass":
        return
    sizes = np.bincount(table.target.astype(np.int64), minlength=len(table.classes))
    if sizes.min() < _LEAST_OF_CLASS:
        raise DataError(
            f"{table.name}: the class {table.classes[int(sizes.argmin())]!r} has {int(sizes.min())} training rows, and "
            f"a search needs {_LEAST_OF_CLASS} for scores outside training; merge classes, or add rows"
        )


def base_of(model: OnnxModel, table: Table) -> BaseModel:
    """Return a given model, bound to the rows."""
    from fairkit.settings import ModelOptions

    table = dataclasses.replace(table, features=table.roles.features or table.features)
    graded = table.task == "ranking" and table.roles.favorable is None
    return BaseModel(model, table, ModelOptions(task="regression" if graded else "binary"))


def optimism_of(base: OnnxModel, table: Table, tested: Table, objective: Objective) -> float | None:
    """Return by how much a given model does better at the objective on the training rows than on the test rows.

    0 where the difference is within two standard errors: nothing says then that it learned from these rows. None where
    outcomes are not two.
    """
    if table.task != "binary":
        return None
    parts = []
    for rows in (table, tested):
        mean, influence = objective.measure(rows, base_of(base, table).decisions(rows.columns))
        weights = rows.row_weights()
        parts.append((mean, float((weights**2 * influence**2).sum() / weights.sum() ** 2)))
    (first, variance), (fresh, fresh_variance) = parts
    return first - fresh if first - fresh > 2 * np.sqrt(variance + fresh_variance) else 0.0


def make_bench(table: Table, base: OnnxModel | None, run: Run, ends: float, tested: Table) -> Bench:
    """Train the base on all rows and score every row by models that did not see it.

    A given base may have learned from these rows: how much better it does on them than on `tested` is kept beside it.
    The budget ends at `ends` of the monotonic clock.
    """
    learner, half = PlainLearner().learner(run), folds_of(table, 2, run.seed + 1)
    fold = folds_of(table, FOLDS, run.seed)
    quiet = dataclasses.replace(run, progress=no_progress)
    fitted: FittedModel | None = None
    optimism, clock = None, Clock(ends=ends)
    if base is None:
        run.progress("training the model without mitigation", 0, 1)
        fitted = fit_learner(learner, table, quiet)
        base = OnnxModel(export_bytes(fitted, table), BEFORE)
        scores, decisions = learner_scores(table, fold, learner, quiet)
    else:
        scores, decisions = base_of(base, table).answers(table.columns)
    if table.task == "binary":  # the rate to keep, or the costs, are those that the model before implies
        aim = quiet.objective.on(decisions, scores, table.row_weights())
        quiet = dataclasses.replace(quiet, objective=aim)
        free = dataclasses.replace(aim, bounds=())
        if fitted is None:
            optimism = optimism_of(base, table, tested, aim)
        elif not free.is_plain and free.kind != "rate":  # the model before is set for the objective, too
            unbound = dataclasses.replace(quiet, objective=free)
            decisions = halves(scores, table, half, unbound)
            fitted = with_threshold(fitted, table, unbound, scores)
    elif fitted is None:
        decisions = scores
    watched = dataclasses.replace(quiet, progress=clock.watched(no_progress))
    return Bench(
        table=table, fold=fold, half=half, base=base, fitted=fitted, scores=scores, decisions=decisions,
        run=watched, clock=clock, optimism=optimism,
    )  # fmt: skip


# Whether the test rows can decide a policy, from a quick model on a few rows, before anything is trained.


ENOUGH = 0.5
"""The least power to go on with."""
_PILOT = 6_000


def check_power(prepared: Prepared, base: OnnxModel | None, run: Run, *, anyway: bool) -> Power:
    """Return the power of the test rows, from a pilot on a few rows; refuse where it is not enough."""
    forecast, table = prepared.forecast, prepared.table
    if table.task == "ranking":
        pilot = forecast, np.zeros(len(table))
    elif base is not None:
        pilot = forecast, base_of(base, table).decisions(table.columns).astype(np.float64)
    else:
        pilot = forecast.pilot(*_pilot(table, run))
    power = power_of(*pilot, run.seed)
    if prepared.unseen and not anyway:
        raise PowerError(
            f"test rows are of groups that no training row has: {', '.join(prepared.unseen[:5])}. What a model does to "
            "them cannot be predicted: give training rows of these groups, leave them out of `test`, or go on with "
            "`anyway`"
        )
    if power.chance >= ENOUGH or anyway:
        return power
    what = "queries" if table.task == "ranking" else "rows"
    if power.small:
        raise PowerError(
            f"no verdict can come out: among the test rows, {', '.join(power.small)} have fewer than 30 rows. "
            "Merge groups, give more rows in `test`, or go on with `anyway`"
        )
    more = (
        "no number of rows changes that"
        if power.needed is None
        else f"about {power.needed:,} test {what} would give it 90 %"
    )
    unknown = told_missing(forecast.planned.missing, prepared.test.profile.rows)
    if unknown:
        more = f"{unknown}, and a verdict must hold whatever their groups are: fill these values in"
    raise PowerError(
        f"{power.rows:,} test {what} cannot decide this policy: a model without any disparity would pass with a "
        f"chance of {power.chance:.2f} only; {more}. Give more rows in `test`, a larger `holdout`, a wider limit, "
        "or go on with `anyway`"
    )


def _pilot(table: Table, run: Run) -> tuple[NDArray[np.int64], Array]:
    """Return a few of the rows, and what a quick model says of them."""
    rows = np.arange(len(table))
    if len(table) > _PILOT:
        rows = np.sort(np.random.default_rng([run.seed, 3]).choice(len(table), _PILOT, replace=False))
    part = table.take(rows)
    quiet = dataclasses.replace(run, progress=no_progress)
    try:
        return rows, learner_scores(part, folds_of(part, 2, run.seed), PlainLearner().learner(run), quiet)[1]
    except DataError:  # a class is in one half only: nobody knows better
        if table.task == "multiclass":
            return rows, np.eye(len(table.classes))[part.target.astype(np.int64)]
        return rows, part.target


def power_of(forecast: Forecast, said: Array, seed: int) -> Power:
    """Return the chance that a model without any disparity passes the rules on disparities."""
    between, equal = forecast.equal(said)
    if equal is None:
        return Power(chance=1.0, rows=forecast.rows)

    def at(factor: float) -> float:
        rng = np.random.default_rng([seed, 7])
        return between.scaled(factor).predict(equal, rng, between.few, fixed_rates=True).chance

    now, small = at(1.0), between.small()
    rows_needed = None if now >= ENOUGH or small else between.needed(at)
    rows = None if rows_needed is None else two_digits(rows_needed)
    return Power(chance=now, rows=forecast.rows, needed=rows, small=small)


# Whether a method's tolerance can be chosen under a policy.


def can_choose(plugin: str, policy: Sequence[Rule], parameters: Iterable[str], data: Dataset) -> bool:
    """Return whether a search can set the method's dial: it can meet a rule, and the user did not set it.

    Where outcomes are binary, every rule must be on a number that is made of rates: the chance of others cannot be
    predicted.
    """
    cls = find_mitigator(plugin)
    names = {key.partition(".")[0] for key in parameters}
    if any(capability.dial in names for capability in cls.capabilities):
        return False
    if not any(capability.meets(rule.metric) for rule in policy for capability in cls.capabilities):
        return False
    task = choose_task(data, None)
    if task not in cls.tasks:
        return False
    return task != "binary" or _all_of_rates(policy)


def _all_of_rates(policy: Sequence[Rule]) -> bool:
    metrics = installed()
    try:
        for rule in policy:
            target_of(rule.metric, metrics)
    except PolicyError:
        return False
    return True
