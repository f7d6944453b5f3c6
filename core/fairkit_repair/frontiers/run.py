"""Accuracy against fairness: train along parameters, audit every point, pick by rule, report on fresh rows."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.polarity import is_constant
from fairkit.auditing.prepare import LoadedAuditors
from fairkit.auditing.run import audit
from fairkit.data.loading import as_dataset
from fairkit.data.table import Table
from fairkit.engines.local import LocalEngine, opened
from fairkit.errors import ParameterError, PluginError, did_you_mean
from fairkit.fitted import Run
from fairkit.intervals import two_sided
from fairkit.learners import as_learner
from fairkit.objective import KEPT
from fairkit.progress import Progress, no_progress
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit.settings import DEFAULT_AUDITORS, AuditSettings, ModelOptions
from fairkit.support.calls import checked
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.file import OnnxModel
from fairkit_repair.frontiers.state import Frontier, State
from fairkit_repair.frontiers.training import BASELINE, Family, PortableRows, Runner, Setup, Sweep, is_whole
from fairkit_repair.mitigation.choose import (
    aim_of,
    check_objective,
    check_repeats,
    drawn_anew,
    find_mitigator,
    plugins_of,
    split_dataset,
)
from fairkit_repair.mitigation.learned import CONSTANT, check_leak, valued
from fairkit_repair.scored_rows import audit_beside

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.objective import Objective
    from fairkit.results.findings import VerdictName
    from fairkit.results.policy import Change
    from fairkit.results.report import Report
    from fairkit_repair.frontiers.state import Measure, Point


AXES = {"regression": ("statistical_parity_ks", "mean_squared_error"), "ranking": ("exposure_difference", "ndcg")}
"""The disparity and the performance that are drawn where nothing is named, by task."""


@checked
def frontier(
    sweeps: Sequence[Sweep],
    data: Dataset,
    *,
    test: Dataset | None = None,
    holdout: float = 0.2,
    performance: str | None = None,
    disparity: str | None = None,
    choice: Choice | None = None,
    budget: int = 20,
    learner: Any = None,
    seed: int = 0,
    jobs: int | None = None,
    threads: int | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    confidence: float = 0.95,
    repeats: int = 1,
    objective: str | None = None,
    value: str | None = None,
    state: str | Path | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> Frontier:
    """Train along parameters and see what fairness costs.

    Parameters
    ----------
    sweeps
        Methods with the parameters to vary.
    data
        Rows to learn from; `holdout` of them are set aside to measure every point on (validation).
    test
        Rows for the chosen point only. Without them `holdout` of `data` are set aside first.
    holdout
        That share, in (0, 1).
    performance
        The metric of the vertical axis; by default the objective's (accuracy, precision at a kept rate, net gain, value
        per person), mean_squared_error in regression, ndcg of rankings.
    disparity
        ``METRIC`` or ``METRIC:COLUMN`` of the horizontal axis; by default demographic_parity_difference
        (statistical_parity_ks in regression, exposure_difference of rankings) of the first sensitive column. What
        another auditor measures, such as ``subgroup_difference`` or ``dif``, is measured by that.
    choice
        How to pick.
    budget
        Points of each search.
    learner
        For methods that take one, and the baseline.
    seed
        For every random draw.
    jobs
        Points at a time; by default as many as there are cores.
    threads
        For each training; by default the cores are shared among the jobs.
    parameters
        Parameters by auditor: where `disparity` is not the group audit's, as ``subgroup_difference``, of the auditor
        that measures it.
    confidence
        Of the intervals.
    repeats
        How often each point of the front is trained in all; after the first time on rows drawn anew with replacement,
        with the next seed. That shows how far retraining moves a point, which no interval covers; `state` does not
        keep it.
    objective, value
        What the thresholds of every point are set for, as in `fairkit.repair`; the rate to keep is that of the learner
        without mitigation. Points that do not keep it are named, and picked after all others.
    state
        A file that keeps finished points: the same call goes on where it was stopped.
    progress
        Told how many points are finished.
    engine
        ``"dask"`` trains the points on a cluster, as many at a time as it has threads (see
        `fairkit.engines.local.opened`); None: in `jobs` processes of this machine.
    scheduler
        The cluster's address; None starts one on this machine.

    Returns
    -------
    Frontier
        Equal for equal inputs, however often it was interrupted.

    Raises
    ------
    FairkitError
        A plugin, a parameter, a metric or the data cannot be used.
    KeyboardInterrupt
        The user stopped it; finished points are in the state file.
    """
    as_dataset(data)
    learner = as_learner(learner)
    check_repeats(repeats)
    if not sweeps:
        raise ParameterError("name at least one method with `sweeps`")
    aim = aim_of(data, None, objective, value, given=False)
    if aim.kind == "cost" and aim.costs is None:
        raise ParameterError("no model is given whose threshold would imply the costs: write them, as in cost=5:1")
    for sweep in sweeps:
        _check(sweep, aim)
    if jobs is not None and engine is not None:
        raise ParameterError(
            f"jobs={jobs} is for the processes of this machine, and an engine is named too: leave one of them out "
            "(a cluster trains as many points at a time as it has threads)"
        )
    cores = os.cpu_count() or 1
    processes = max(1, jobs or cores)
    with opened(LocalEngine(processes) if engine is None else engine, scheduler) as running:
        running.check(*plugins.needs_of(plugins_of(sweep.plugin for sweep in sweeps)))
        data.learn(running.total)
        rest, test_data = (data, test) if test is not None else split_dataset(data, holdout, seed)
        learning, validation = split_dataset(rest, holdout, seed + 1)
        table = valued(Table.from_dataset(learning), learning, aim.column)
        if test is not None:
            check_leak(table, Table.from_dataset(test, table.task))
        auditor = own_auditor(disparity)
        axes = _axes(table, data, performance or (aim.label if (objective, value) != (None, None) else None), disparity,
                     alone=auditor is not None)  # fmt: skip
        setup = Setup(
            table=table,
            validation=PortableRows.of(validation),
            run=Run(
                seed=seed,
                threads=threads or (max(1, cores // processes) if running.here else None),
                learner=learner,
                objective=aim,
            ),
            confidence=confidence,
            auditors=DEFAULT_AUDITORS if auditor is None else (*DEFAULT_AUDITORS, auditor),
            parameters={auditor: dict((parameters or {}).get(auditor, {}))} if auditor else {},
        )
        about = {
            "train": learning.sha256,
            "validation": validation.sha256,
            "seed": seed,
            "learner": learner,
            "confidence": confidence,
            "roles": str(table.roles),
            "version": version("fairkit"),
            "objective": aim.told(),
            **({"audited": {auditor: str(setup.parameters[auditor])}} if auditor else {}),
        }
        state_file = State(None if state is None else Path(state), about)
        runner = Runner(setup, state_file, running, progress)
        points = runner.everything(sweeps, budget, axes)
        measures = {name for point in points for name in point.measures}
        for name in axes:
            if measures and name not in measures:
                raise ParameterError(
                    f"no point has the metric {name!r}. {did_you_mean(name, measures, what='metrics')}"
                )
        result = _result(running, points, axes, choice or Choice(), test_data, state_file, runner.setup, progress)
        if repeats > 1:
            again = _again(result, runner.setup, running, repeats, progress)
            result = dataclasses.replace(result, repeats=again)
        return result


def _again(
    result: Frontier, setup: Setup, engine: Engine, repeats: int, progress: Progress
) -> dict[int, tuple[tuple[float, float], ...]]:
    """Train the points of the front again; return by point its axes over the trainings, where they are known."""
    places = sorted({*result.front, *([] if result.chosen is None else [result.chosen])})
    jobs = [Family(((result.points[index].plugin, result.points[index].parameters),)) for index in places]
    axes_by_point: dict[int, list[tuple[float, float]]] = {index: [] for index in places}
    for turn in range(repeats):
        trained: Sequence[Point] = [result.points[index] for index in places]
        if turn:
            run = dataclasses.replace(setup.run, seed=setup.run.seed + turn)
            setup_again = dataclasses.replace(setup, table=drawn_anew(setup.table, run.seed), run=run)
            trained = Runner(setup_again, State(None, {}), engine, progress).points(jobs)
        for place, point in zip(places, trained, strict=True):
            axes = result.axes(point)
            if axes is not None:
                axes_by_point[place].append((axes[0].value, axes[1].value))
    return {index: tuple(values) for index, values in axes_by_point.items()}


def _check(sweep: Sweep, objective: Objective) -> None:
    """Find errors in names and values before anything is trained."""
    method = find_mitigator(sweep.plugin)
    if method.stage == "post":
        check_objective(method, objective)
    for settings in sweep.settings():
        method.with_values(settings)
    for key, bounds in sweep.search.items():
        for end in (bounds.low, bounds.high):
            method.with_values(dict(sweep.fixed) | {key: int(end) if is_whole(method.Parameters, key) else end})


def own_auditor(disparity: str | None) -> str | None:
    """Return the auditor that measures a disparity besides `group`, if it is not between the groups of a column."""
    if disparity is None or ":" in disparity:
        return None
    metrics, _ = plugins.installed_metrics()
    for info in plugins.find():
        with suppress(PluginError):
            for cls in plugins.load(info.name).auditors:
                if disparity in (cls.measures(metrics) or ()):
                    return None if cls.name == "group" else cls.name
    return None


def _axes(
    table: Table, data: Dataset, performance: str | None, disparity: str | None, *, alone: bool
) -> tuple[str, str]:
    usual = AXES.get(table.task, ("demographic_parity_difference", "accuracy"))
    flat, upright = disparity or usual[0], performance or usual[1]
    if ":" in flat or alone:
        return flat, upright
    if not data.roles.sensitive:
        raise ParameterError("a frontier needs a sensitive column; name it with `sensitive`")
    return f"{flat}:{data.roles.sensitive[0].name}", upright


def _tested(
    engine: Engine, files: Sequence[bytes | None], test: Dataset, setup: Setup, progress: Progress
) -> tuple[Report | None, tuple[Change, ...]]:
    """Audit the chosen model on the test rows, beside the baseline where there is one."""
    baseline, chosen = files
    options = ModelOptions(task=setup.table.task)
    if chosen is None:
        return None, ()
    best = OnnxModel(chosen, "chosen")
    settings = AuditSettings(
        auditors=tuple(setup.auditors),
        parameters=setup.parameters,
        confidence=setup.confidence,
        seed=setup.run.seed,
        options=options,
    )
    if baseline is None:
        return audit(best, test, settings=settings, progress=progress, engine=engine), ()
    both = [OnnxModel(baseline, BASELINE), best]
    reports, comparison = audit_beside(engine, both, test, LoadedAuditors.of(settings), [options, options], progress)
    return reports[1], comparison.changes[0]


def _result(
    engine: Engine,
    points: Sequence[Point],
    axes: tuple[str, str],
    choice: Choice,
    test: Dataset,
    state: State,
    setup: Setup,
    progress: Progress,
) -> Frontier:
    rows = (len(setup.table), setup.validation.table.num_rows, test.learn(engine.total).rows)
    judged = Judged(validation=rows[1], test=rows[2], confidence=setup.confidence)
    moved = _moved(points, setup.run.objective)
    chosen, remark = pick(points, axes, choice, judged, moved)
    model = None if chosen is None else state.model(points[chosen])
    report, changes = _tested(engine, [state.model(points[0]), model], test, setup, progress)
    verdict, reason = _judged(report, axes[0], choice)
    constant = report is not None and is_constant(report)
    failed = sum(point.status == "failed" for point in points)
    notes = [*([CONSTANT] if constant else []), *([remark] if remark else [])]
    if moved:
        named = ", ".join(points[index].name for index in moved[:5]) + (", ..." if len(moved) > 5 else "")
        notes.append(
            f"{len(moved)} of {len(points)} points do not keep the selection rate of the baseline, and are picked "
            f"after all others: {named}."
        )
    if failed:
        notes.append(f"{failed} of {len(points)} points failed; the others are shown.")
    return Frontier(
        performance=axes[1],
        disparity=axes[0],
        points=tuple(points),
        front=tuple(pareto(points, axes)),
        chosen=chosen,
        rule=choice.told(),
        test=report,
        changes=changes,
        model=model,
        rows=rows,
        limit=choice.limit,
        chances=tuple(chance(point, axes[0], choice, judged) for point in points),
        verdict=verdict,
        reason=reason,
        sure=not remark,
        objective=setup.run.objective.told(),
        is_constant=constant,
        confidence=setup.confidence,
        seed=setup.run.seed,
        notes=tuple(notes),
    )


def _moved(points: Sequence[Point], objective: Objective) -> list[int]:
    """Return the points whose selection rate is surely not that of the baseline, though it is to be kept."""
    rates = [point.measures.get("selection_rate") for point in points]
    first = rates[0]
    if objective.kind != "rate" or first is None:
        return []

    def far(rate: Measure) -> bool:
        low, high = rate.interval or (rate.value, rate.value)
        return not low - KEPT <= first.value <= high + KEPT

    return [index for index, rate in enumerate(rates) if rate is not None and far(rate)]


def _judged(report: Report | None, axis: str, choice: Choice) -> tuple[VerdictName | None, str]:
    """Judge the pick's disparity on the test rows by the limit, as an audit does."""
    if report is None or choice.limit is None:
        return None, ""
    metric, _, column = axis.partition(":")
    upward = report.find(metric, column or None).better == "higher"
    rule = Rule.from_dict({"metric": metric, "sensitive": column or None, "min" if upward else "max": choice.limit})
    results, verdict = judge([rule], report.findings, confidence=report.confidence)
    return verdict, results[0].reason


# Which points of a frontier are on the front, and which one is picked.


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How to pick a point on the validation rows.

    Attributes
    ----------
    limit
        The best performance among points that will surely keep this limit on the test rows: at most this, or at least
        this where more of the disparity's metric is better, as of a ratio.
    sure
        With a limit: the chance that the audit of the test rows passes, in (0, 1).
    alpha
        Without a limit: the largest α · performance + (1 - α) · (1 - disparity), in [0, 1].
    """

    limit: float | None = None
    alpha: float = 0.75
    sure: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ParameterError(f"alpha={self.alpha} is not between 0 and 1")
        if not 0 < self.sure < 1:
            raise ParameterError(f"`sure` is a chance above 0 and below 1, not {self.sure}")

    def told(self) -> str:
        """Say it in words."""
        if self.limit is not None:
            return (
                f"best performance among points that keep the limit {self.limit:g} on the test rows with a predicted "
                f"chance of at least {self.sure:g}"
            )
        return f"largest {self.alpha:g} · performance + {1 - self.alpha:g} · (1 - disparity) on the validation rows"


def pareto(points: Sequence[Point], axes: tuple[str, str]) -> list[int]:
    """Return the places of the points that no other one beats on both axes, by the first axis.

    `points`: those without both measures are passed over; `axes`: names of the disparity (smaller is better) and of the
    performance (as its metric says).
    """
    scored = [(i, *_scores(point, axes)) for i, point in enumerate(points) if _scores(point, axes)]
    scored.sort(key=lambda point: (point[1], -point[2], point[0]))
    front: list[int] = []
    best = float("-inf")
    for index, _, performance in scored:
        if performance > best:
            front.append(index)
            best = performance
    return front


def _scores(point: Point, axes: tuple[str, str]) -> tuple[float, float] | tuple[()]:
    """The disparity, and the performance with its sign such that more is better."""
    x, y = (point.measures.get(name) for name in axes)
    if x is None or y is None:
        return ()
    return (-x.value if x.better == "higher" else x.value), (-y.value if y.better == "lower" else y.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How many rows points are measured on, and how many the pick will be judged on; at which confidence."""

    validation: int
    test: int
    confidence: float = 0.95


def chance(point: Point, axis: str, choice: Choice, rows: Judged) -> float | None:
    """Return the chance that the whole interval on the test rows keeps the limit; None without a limit or a number.

    The validation interval says how far the number may be off there, and by the root of the rows how wide its interval
    will be on the test rows: with the reach r on the limit's side, s = r / z, t² = validation / test rows,
    P(limit kept) = P(|x| + t r ≤ limit) for x ~ N(value, s² (1 + t²)). A point without an interval keeps no limit.
    """
    measure = point.measures.get(axis)
    if choice.limit is None or measure is None:
        return None
    if measure.interval is None:
        return 0.0
    low, high = measure.interval
    upward = measure.better == "higher"
    reach = max(measure.value - low if upward else high - measure.value, 1e-12)
    wide = math.sqrt(rows.validation / rows.test)
    spread = reach / two_sided(rows.confidence) * math.sqrt(1 + wide**2)
    normal = NormalDist(measure.value, spread)
    if upward:
        return 1 - normal.cdf(choice.limit + wide * reach)
    room = choice.limit - wide * reach
    return max(normal.cdf(room) - normal.cdf(-room), 0.0)


def pick(
    points: Sequence[Point], axes: tuple[str, str], choice: Choice, rows: Judged, moved: Collection[int] = ()
) -> tuple[int | None, str]:
    """Return a point's place by rule (None: none is done), and a remark where the rule could not be kept.

    A model that decides all people alike, or that is among the `moved` ones, is picked only where there is no other.
    """
    scored = {i: scores for i, point in enumerate(points) if (scores := _scores(point, axes))}
    if not scored:
        return None, "No point is done: nothing to pick."
    scored = {i: scores for i, scores in scored.items() if i not in moved} or scored
    scored = {i: scores for i, scores in scored.items() if not points[i].is_constant} or scored
    if choice.limit is None:
        a = choice.alpha
        return max(scored, key=lambda i: (a * scored[i][1] + (1 - a) * (1 - scored[i][0]), -i)), ""
    chances = {i: chance(points[i], axes[0], choice, rows) or 0.0 for i in scored}
    sure = [i for i in scored if chances[i] >= choice.sure]
    if sure:
        return max(sure, key=lambda i: (scored[i][1], -scored[i][0], -i)), ""
    surest = max(scored, key=lambda i: (round(chances[i], 6), -scored[i][0], scored[i][1], -i))
    return (
        surest,
        f"No point keeps the limit {choice.limit:g} with a chance of {choice.sure:g}: this is the surest one, with a "
        f"chance of {chances[surest]:.2f}.",
    )
