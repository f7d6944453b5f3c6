"""`fairkit.repair`: from a policy to the most accurate model that will surely pass it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.loading import as_dataset
from fairkit.data.table import Table
from fairkit.data.task import choose_task
from fairkit.engines.opening import opened
from fairkit.errors import DataError, ParameterError, PolicyError, PowerError
from fairkit.fitted import FittedModel, Prediction, Run
from fairkit.learners import check_target, fit_learner
from fairkit.mitigation.asked import check_policy
from fairkit.mitigation.learned import AFTER, BEFORE, Learned, foreign, provenance
from fairkit.mitigation.run import MitigationResult, measured
from fairkit.mitigation.split import split_dataset
from fairkit.onnx.model import OnnxModel
from fairkit.onnx.read.safety import embedded_settings, parse, read_bytes
from fairkit.onnx.write.export import export_bytes
from fairkit.progress import no_progress
from fairkit.repairing.candidates import PlainLearner, able, candidates
from fairkit.repairing.cells import Planned
from fairkit.repairing.chance import limits_of
from fairkit.repairing.evaluate import Bench, restricted, run_of, without_sensitive
from fairkit.repairing.folds import FOLDS, folds_of, learner_scores
from fairkit.repairing.leaks import check_leak
from fairkit.repairing.power import power_of
from fairkit.repairing.searching import Asked, Clock, pick, search
from fairkit.results.searches import Power, Search
from fairkit.support.files import check_writable

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.onnx.write.base import BaseModel
    from fairkit.progress import Progress
    from fairkit.repairing.chance import Limited
    from fairkit.results.policy import Rule
    from fairkit.results.searches import Alternative

SURE, BUDGET, ENOUGH = 0.95, 5.0, 0.5
"""The chance of passing that is asked for; minutes; the least power to go on with."""
_PILOT = 6_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel(FittedModel):
    """A model that was given, and that nothing was changed in."""

    model: OnnxModel
    table: Table
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ("No alternative was better: the file is the given model.",)

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns; decisions are those of the threshold 0.5."""
        scores = _base_of(self.model, self.table).scores(columns)
        return Prediction(score=scores, decision_probability=(scores >= 0.5).astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return the given graph."""
        return self.model.proto


def repair(
    data: Dataset,
    policy: Sequence[Rule],
    *,
    test: Dataset | None = None,
    holdout: float = 0.2,
    model: Any = None,
    learner: str | None = None,
    methods: Sequence[str] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    sure: float = SURE,
    budget: float = BUDGET,
    blind: bool = False,
    deterministic: bool = False,
    anyway: bool = False,
    unconstrained: bool = True,
    seed: int = 0,
    threads: int | None = None,
    confidence: float = 0.95,
    output: str | Path | None = None,
    progress: Progress = no_progress,
) -> MitigationResult:
    """Search the most accurate model that will surely pass a policy, and audit it once on test rows.

    For every alternative the chance of passing is predicted from rows that its model did not see: rates are drawn from
    what these rows say, then totals of the test rows' number, and the verdict's own function judges each drawn audit,
    all rules together. The most accurate alternative with a chance of at least `sure` is trained on all rows, exported,
    and looked at on the test rows once.

    Parameters
    ----------
    data
        Rows to learn from, from `fairkit.load_data`; a binary task.
    policy
        Rules on rates and their disparities.
    test
        Rows for the one look. Without them `holdout` of `data` are held out, evenly from every group and class.
    holdout
        That share, in (0, 1).
    model
        A model to repair; None trains `learner`.
    learner
        What trains; by default lightgbm.
    methods
        Names of the methods to try; None: all installed ones that can meet the policy.
    parameters
        By method, parameters to hold fixed.
    sure
        The chance of passing to reach, in (0, 1).
    budget
        Minutes that the search may take. What is cheap is tried first; a fit that the budget ends is left out.
    blind
        Take models only that decide without the group; sensitive columns are no features then.
    deterministic
        Take models only that draw no decision by chance.
    anyway
        Go on where even a model without any disparity would pass with a chance below one half.
    unconstrained
        Whether the model without mitigation may be the pick.
    seed
        For every random draw.
    threads
        Default: one below 50,000 rows, else left to the libraries.
    confidence
        Of the intervals.
    output
        Where the result will be saved: checked before training, written at the end.
    progress
        Told what is tried.

    Returns
    -------
    MitigationResult
        With `search`; `after.verdict` is the audit's. Equal for equal inputs, while the budget does not end the search.

    Raises
    ------
    PowerError
        The test rows cannot decide the policy.
    FairkitError
        The policy, the methods, the data or the model cannot be used.

    Examples
    --------
    >>> rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", maximum=0.05)
    >>> result = fairkit.repair(data, [rule], test=test)                              # doctest: +SKIP
    >>> result.after.verdict, result.search.choice.name                               # doctest: +SKIP
    ('pass', 'threshold-optimizer (constraint = demographic_parity, tolerance = 0.02)')
    """
    as_dataset(data)
    if output is not None:
        check_writable(Path(output))
    _check(policy, sure, budget)
    check_policy(policy, data)
    _check_task(policy, data)
    limits = limits_of(policy, [split.name for split in data.roles.sensitive], confidence)
    candidates(limits, methods, parameters or {}, 0.5)  # names and parameters that are wrong are said now
    begun = time.monotonic()
    run = Run(seed=seed, threads=threads, learner=learner, progress=progress)
    with opened(None, None) as engine:
        table, held, test_data = _read(engine, data, test, holdout, seed, blind=blind)
        splits = list(dict.fromkeys(one.split for one in limits if one.split is not None))
        table = restricted(table, splits)
        run = run.on(len(table))
        planned = _planned(table, held, splits)
        base = None if model is None else OnnxModel.load(model)
        _check_base(base, table, blind=blind)
        power = _power(table, planned, limits, base, run, anyway=anyway)
        clock = Clock(ends=begun + 60 * budget)
        bench = _bench(table, base, run, clock)
        rate = float(np.average(bench.decisions))
        found, _ = candidates(limits, methods, parameters or {}, rate)
        asked = Asked(
            sure=sure, blind=blind, deterministic=deterministic, named=methods is not None,
            unconstrained=unconstrained,
            learner=learner or "lightgbm",
        )  # fmt: skip
        alternatives, queue = search(bench, planned, limits, found, asked, clock, progress)
        place = pick(alternatives, sure)
        alternatives[place] = dataclasses.replace(alternatives[place], status="picked")
        told = Search(
            rules=tuple(policy), sure=sure, budget=budget, power=power, alternatives=tuple(alternatives),
            picked=place, calibration_rows=len(table), seconds=time.monotonic() - begun,
            looks=_looks(output, test_data.sha256), test_sha256=test_data.sha256, blind=blind,
            deterministic=deterministic,
        )  # fmt: skip
        result = _finished(engine, bench, queue[place].method, test_data, told, run, confidence)
    if output is not None:
        result.save(output)
    return result


def _check(policy: Sequence[Rule], sure: float, budget: float) -> None:
    if not policy:
        raise PolicyError("a search needs a policy: give at least one rule")
    if not 0 < sure < 1:
        raise ParameterError(f"`sure` is a chance above 0 and below 1, not {sure}")
    if not budget > 0:
        raise ParameterError(f"`budget` is a number of minutes above 0, not {budget}")


def _check_task(policy: Sequence[Rule], data: Dataset) -> None:
    """Refuse tasks whose verdicts the search does not predict, and name the methods that are for them."""
    task = choose_task(data, None)
    if task == "binary":
        return
    names = able(task, [rule.metric for rule in policy])
    told = (
        f"name {' or '.join(names)} with `plugin`, and give its tolerance, somewhat below the limit"
        if names
        else "no installed method says that it can meet the policy in this task"
    )
    raise DataError(
        f"{data.name}: a search under a policy is for binary outcomes, and this is a {task} task; {told}"
    )


def _read(
    engine: Engine, data: Dataset, test: Dataset | None, holdout: float, seed: int, *, blind: bool
) -> tuple[Table, Table, Dataset]:
    """Return the training rows, the test rows, and the test rows as a dataset to audit on."""
    data.learn(engine.total)
    if test is not None:
        test.learn(engine.total)
    train_data, test_data = (data, test) if test is not None else split_dataset(data, holdout, seed)
    if test is not None and test.sha256 == data.sha256:
        raise DataError("the test rows are the training rows: give other rows in `test`, or leave it out")
    train_data.learn(engine.total)
    table = Table.from_dataset(train_data)
    check_target(table)
    held = Table.from_dataset(test_data)
    if test is not None:
        check_leak(table, held)
    return (without_sensitive(table) if blind else table), held, test_data


def _planned(table: Table, held: Table, splits: list[str]) -> Planned:
    """Return who the test rows are, in the training rows' groups."""
    codes = {}
    for name in splits:
        mine, other = table.groups[name].names, held.groups[name]
        places = np.array([mine.index(one) if one in mine else len(mine) for one in other.names], np.int64)
        codes[name] = places[other.codes]
    groups = {name: table.groups[name] for name in splits}
    return Planned.of(groups, table.target, table.weights, codes, len(held))


def _check_base(base: OnnxModel | None, table: Table, *, blind: bool) -> None:
    if base is None or not blind:
        return
    hidden = {column for split in table.roles.sensitive for column in split.columns}
    read = sorted(hidden & {entry.name for entry in base.inputs})
    if read:
        raise ParameterError(
            f"the given model reads {', '.join(map(repr, read))}, so that it cannot decide without the group: "
            "leave out `blind`, or give another `model`"
        )


def _power(
    table: Table,
    planned: Planned,
    limits: Sequence[Limited],
    base: OnnxModel | None,
    run: Run,
    *,
    anyway: bool,
) -> Power:
    """Return what the test rows can show, from a pilot on a few rows; refuse where that is not enough.

    Raises
    ------
    PowerError
        A model without any disparity would pass with a chance below `ENOUGH`, and `anyway` is not set.
    """
    decisions = (
        _pilot(table, run)
        if base is None
        else (_base_of(base, table).scores(table.columns) >= 0.5).astype(np.float64)
    )
    power = power_of(planned, decisions, limits, run.seed, enough=ENOUGH)
    if power.chance >= ENOUGH or anyway:
        return power
    if power.small:
        raise PowerError(
            f"no verdict can come out: among the test rows, {', '.join(power.small)} have fewer than 30 rows. "
            "Merge groups, give more rows in `test`, or go on with `anyway`"
        )
    more = (
        "no number of rows changes that"
        if power.needed is None
        else f"about {power.needed:,} test rows would give it 90 %"
    )
    raise PowerError(
        f"{power.rows:,} test rows cannot decide this policy: a model without any disparity would pass with a "
        f"chance of {power.chance:.2f} only; {more}. Give more rows in `test`, a larger `holdout`, a wider limit, "
        "or go on with `anyway`"
    )


def _pilot(table: Table, run: Run) -> NDArray[np.float64]:
    """Return decisions whose rates are those of a quick model on a few rows."""
    rows = np.arange(len(table))
    if len(table) > _PILOT:
        rows = np.sort(np.random.default_rng([run.seed, 3]).choice(len(table), _PILOT, replace=False))
    part = table.take(rows)
    quiet = dataclasses.replace(run, progress=no_progress)
    try:
        _, decided = learner_scores(part, folds_of(part, 2, run.seed), _learner(run), quiet)
    except DataError:
        decided = part.target  # one outcome only in a half: nobody knows better
    decisions = np.empty(len(table))
    for outcome in (0.0, 1.0):
        own, seen = table.target == outcome, part.target == outcome
        decisions[own] = decided[seen].mean() if seen.any() else outcome
    return decisions


def _learner(run: Run) -> str:
    return PlainLearner().learner(run)


def _base_of(model: OnnxModel, table: Table) -> BaseModel:
    from fairkit.models.scorer import ModelOptions
    from fairkit.onnx.write.base import BaseModel

    return BaseModel(model, table, ModelOptions(task="binary"))


def _bench(table: Table, base: OnnxModel | None, run: Run, clock: Clock) -> Bench:
    """Train the base on all rows and score every row by models that did not see it."""
    half = folds_of(table, 2, run.seed + 1)
    fold = folds_of(table, FOLDS, run.seed)
    quiet = dataclasses.replace(run, progress=no_progress)
    fitted: FittedModel | None = None
    begun = time.monotonic()
    if base is None:
        run.progress("training the model without mitigation", 0, 1)
        fitted = fit_learner(_learner(run), table, quiet)
        clock.training = time.monotonic() - begun
        base = OnnxModel(export_bytes(fitted, table), BEFORE)
        scores, decisions = learner_scores(table, fold, _learner(run), quiet)
    else:
        scores = _base_of(base, table).scores(table.columns)
        decisions = (scores >= 0.5).astype(np.float64)
        fit_learner(_learner(run), table.take(half == 0), quiet)
        clock.training = 2 * (time.monotonic() - begun)
    watched = dataclasses.replace(run, progress=clock.watched(no_progress))
    return Bench(
        table=table, fold=fold, half=half, base=base, fitted=fitted, scores=scores, decisions=decisions,
        run=watched,
    )  # fmt: skip


def _looks(output: str | Path | None, test: str) -> int:
    """Return how often these test rows were looked at for the file that is there, this time included."""
    if output is None or not Path(output).is_file():
        return 1
    try:
        told = embedded_settings(parse(read_bytes(Path(output)), str(output)))["mitigation"]["search"]
        return int(told["looks"]) + 1 if told["test_sha256"] == test else 1
    except Exception:
        return 1


def _finished(
    engine: Engine,
    bench: Bench,
    method: Any,
    test: Dataset,
    told: Search,
    run: Run,
    confidence: float,
) -> MitigationResult:
    """Train the pick on all rows, export it, and look at the test rows."""
    run.progress("training the pick", 0, 1)
    fitted = bench.fit(method, dataclasses.replace(run, progress=no_progress))
    if fitted is None:
        fitted, content = GivenModel(model=bench.base, table=bench.table), bench.base.content
    else:
        about = provenance(method, run_of(method, run), bench.base if method.stage == "post" else None)
        about["mitigation"]["search"] = told.summary()
        content = export_bytes(fitted, bench.table, about)
    given = bench.fitted is None
    base = bench.base
    if not base.external:
        base = OnnxModel(base.content, BEFORE, sandbox=base.sandbox)
    learned = Learned(
        fitted=fitted,
        model=OnnxModel(content, AFTER, sandbox=foreign(bench.base) if given else None),
        baseline=base,
        table=bench.table,
        test=test,
        compared=test,
        notes=_notes(told, given=given),
    )
    result = measured(engine, learned, method, told.rules, confidence, run)
    return dataclasses.replace(result, search=told)


def _notes(told: Search, *, given: bool) -> tuple[str, ...]:
    notes = []
    if not told.reached:
        notes.append(
            f"No alternative reaches the chance {told.sure:g}: the surest one was picked, and it passes with a "
            f"predicted chance of {told.choice.chance:.2f} only."
        )
    if told.deterministic:
        notes += _cost_of_determinism(told)
    if given:
        notes.append(
            "Chances are predicted from the given model's scores of the training rows; if it learned from these "
            "rows, they are too good."
        )
    if told.looks > 1:
        notes.append(
            f"This is look {told.looks} at the same test rows for this file. Each look that is judged by itself is "
            "another chance to pass wrongly; fresh test rows mend that."
        )
    return tuple(notes)


def _cost_of_determinism(told: Search) -> list[str]:
    drawn: list[Alternative] = [
        one for one in told.alternatives
        if one.randomized and one.status == "left out" and (one.chance or 0.0) >= told.sure
    ]  # fmt: skip
    if not drawn:
        return []
    best = max(drawn, key=lambda one: one.accuracy or 0.0)
    loss = (best.accuracy or 0.0) - (told.choice.accuracy or 0.0)
    return [
        f"Without decisions drawn by chance the predicted accuracy is {abs(loss):.4f} "
        f"{'lower' if loss > 0 else 'higher'} than with them ({best.name})."
    ]
