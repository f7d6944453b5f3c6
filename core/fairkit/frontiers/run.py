"""Accuracy against fairness: train along parameters, audit every point, pick by rule, report on fresh rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.prepare import Asked
from fairkit.auditing.run import audit
from fairkit.comparing.beside import audit_beside
from fairkit.data.dataset import need_dataset
from fairkit.data.table import Table
from fairkit.engines.local import LocalEngine
from fairkit.engines.opening import opened
from fairkit.errors import ParameterError, did_you_mean
from fairkit.frontiers.choice import Choice, pareto, pick
from fairkit.frontiers.schedule import Runner
from fairkit.frontiers.state import State
from fairkit.frontiers.sweeps import Sweep, is_whole
from fairkit.frontiers.training import BASELINE, Family, Rows, Setup
from fairkit.mitigation.choose import find_mitigator
from fairkit.mitigation.repeats import check_repeats, drawn_anew
from fairkit.mitigation.split import split_dataset
from fairkit.models.scorer import ModelOptions
from fairkit.onnx.model import OnnxModel
from fairkit.progress import Progress, no_progress

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.frontiers.points import Measure, Point
    from fairkit.results.comparisons import Change
    from fairkit.results.findings import Report

SCHEMA = "fairkit.frontier/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All points with the front among them, and the chosen one on test rows.

    Attributes
    ----------
    performance, disparity
        The names of the two axes: ``accuracy``, ``demographic_parity_difference:sex``.
    points
        In the order in which they were asked for; the first is the baseline.
    front
        Places of the points that no other one beats on both axes, by disparity.
    chosen
        The picked point's place; None where no point is done.
    rule
        How it was picked.
    test
        Its audit on the test rows, and the paired differences from the baseline there.
    model
        Its file.
    rows
        Of training, validation and test.
    notes
        What a reader must know.
    repeats
        Where trainings were repeated: by place of a point of the front, its (disparity, performance) over trainings,
        the point's own first.
    """

    performance: str
    disparity: str
    points: tuple[Point, ...]
    front: tuple[int, ...]
    chosen: int | None
    rule: str
    test: Report | None = None
    changes: tuple[Change, ...] = ()
    model: bytes | None = None
    rows: tuple[int, int, int] = (0, 0, 0)
    confidence: float = 0.95
    seed: int = 0
    notes: tuple[str, ...] = ()
    repeats: Mapping[int, tuple[tuple[float, float], ...]] = field(default_factory=dict)

    def axes(self, point: Point) -> tuple[Measure, Measure] | None:
        """Return a point's disparity and performance; None where it has not both."""
        x, y = point.measures.get(self.disparity), point.measures.get(self.performance)
        return None if x is None or y is None else (x, y)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.frontier/1``."""
        return {
            "schema": SCHEMA,
            "performance": self.performance,
            "disparity": self.disparity,
            "points": [point.to_dict() for point in self.points],
            "front": list(self.front),
            "chosen": self.chosen,
            "rule": self.rule,
            "test": None if self.test is None else self.test.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "rows": dict(zip(("train", "validation", "test"), self.rows, strict=True)),
            "confidence": self.confidence,
            "seed": self.seed,
            "notes": list(self.notes),
        } | ({} if not self.repeats else {"repeats": self._repeated()})

    def _repeated(self) -> list[dict[str, Any]]:
        return [
            {"point": place, "disparity": [x for x, _ in values], "performance": [y for _, y in values]}
            for place, values in self.repeats.items()
        ]


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
    learner: str | None = None,
    seed: int = 0,
    jobs: int | None = None,
    threads: int | None = None,
    confidence: float = 0.95,
    repeats: int = 1,
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
        The metric of the vertical axis; by default accuracy, and mean_squared_error in regression.
    disparity
        ``METRIC`` or ``METRIC:COLUMN`` of the horizontal axis; by default demographic_parity_difference
        (statistical_parity_ks in regression) of the first sensitive column.
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
    confidence
        Of the intervals.
    repeats
        How often each point of the front is trained in all; after the first time on rows drawn anew with replacement,
        with the next seed. That shows how far retraining moves a point, which no interval covers; `state` does not
        keep it.
    state
        A file that keeps finished points: the same call goes on where it was stopped.
    progress
        Told how many points are finished.
    engine
        ``"dask"`` trains the points on a cluster, as many at a time as it has threads (see
        `fairkit.engines.opening.opened`); None: in `jobs` processes of this machine.
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
    need_dataset(data)
    check_repeats(repeats)
    if not sweeps:
        raise ParameterError("name at least one method: --plugin NAME")
    for sweep in sweeps:
        _check(sweep)
    if jobs is not None and engine is not None:
        raise ParameterError(
            f"jobs={jobs} is for the processes of this machine, and an engine is named too: leave one of them out "
            "(a cluster trains as many points at a time as it has threads)"
        )
    cores = os.cpu_count() or 1
    processes = max(1, jobs or cores)
    with opened(LocalEngine(processes) if engine is None else engine, scheduler) as running:
        running.check(*plugins.needs_of(_plugins(sweeps)))
        data.learn(running.total)
        rest, held = (data, test) if test is not None else split_dataset(data, holdout, seed)
        learning, validation = split_dataset(rest, holdout, seed + 1)
        table = Table.from_dataset(learning)
        axes = _axes(table, data, performance, disparity)
        setup = Setup(
            table=table,
            validation=Rows.of(validation),
            seed=seed,
            threads=threads or (max(1, cores // processes) if running.here else None),
            learner=learner,
            confidence=confidence,
        )
        about = {
            "train": learning.sha256,
            "validation": validation.sha256,
            "seed": seed,
            "learner": learner,
            "confidence": confidence,
            "roles": str(table.roles),
            "version": version("fairkit"),
        }
        kept = State(None if state is None else Path(state), about)
        runner = Runner(setup, kept, running, progress)
        points = runner.everything(sweeps, budget, axes)
        _check_axes(points, axes)
        result = _result(running, points, axes, choice or Choice(), held, kept, setup, progress)
        if repeats > 1:
            again = _again(result, runner.setup, running, repeats, progress)
            result = dataclasses.replace(result, repeats=again)
        return result


def _again(
    result: Frontier, setup: Setup, engine: Engine, repeats: int, progress: Progress
) -> dict[int, tuple[tuple[float, float], ...]]:
    """Train the points of the front again; return by point its axes over the trainings, where they are known."""
    places = sorted({*result.front, *([] if result.chosen is None else [result.chosen])})
    jobs = [Family(((result.points[place].plugin, result.points[place].parameters),)) for place in places]
    found: dict[int, list[tuple[float, float]]] = {place: [] for place in places}
    for turn in range(repeats):
        trained: Sequence[Point] = [result.points[place] for place in places]
        if turn:
            drawn = drawn_anew(setup.table, setup.seed + turn)
            other = dataclasses.replace(setup, table=drawn, seed=setup.seed + turn)
            trained = Runner(other, State(None, {}), engine, progress).points(jobs)
        for place, point in zip(places, trained, strict=True):
            axes = result.axes(point)
            if axes is not None:
                found[place].append((axes[0].value, axes[1].value))
    return {place: tuple(values) for place, values in found.items()}


def _plugins(sweeps: Sequence[Sweep]) -> list[plugins.Plugin]:
    """Return the installed plugins that train."""
    known = {found.name for found in plugins.find()}
    return [plugins.load(sweep.plugin) for sweep in sweeps if sweep.plugin in known]


def _check(sweep: Sweep) -> None:
    """Find errors in names and values before anything is trained."""
    method = find_mitigator(sweep.plugin)
    for settings in sweep.settings():
        method.with_values(settings)
    for key, bounds in sweep.search.items():
        for end in (bounds.low, bounds.high):
            method.with_values(
                dict(sweep.fixed) | {key: int(end) if is_whole(method.Parameters, key) else end}
            )


def _axes(table: Table, data: Dataset, performance: str | None, disparity: str | None) -> tuple[str, str]:
    regression = table.task == "regression"
    upright = performance or ("mean_squared_error" if regression else "accuracy")
    flat = disparity or ("statistical_parity_ks" if regression else "demographic_parity_difference")
    if ":" in flat:
        return flat, upright
    if not data.roles.sensitive:
        raise ParameterError("a frontier needs a sensitive column; name it with `sensitive`")
    return f"{flat}:{data.roles.sensitive[0].name}", upright


def _check_axes(points: Sequence[Point], axes: tuple[str, str]) -> None:
    known = {name for point in points for name in point.measures}
    for name in axes:
        if known and name not in known:
            raise ParameterError(
                f"no point has the metric {name!r}. {did_you_mean(name, known, what='metrics')}"
            )


def _tested(
    engine: Engine, files: Sequence[bytes | None], held: Dataset, setup: Setup, progress: Progress
) -> tuple[Report | None, tuple[Change, ...]]:
    """Audit the chosen model on the test rows, beside the baseline where there is one."""
    baseline, chosen = files
    options = ModelOptions(task=setup.table.task)
    if chosen is None:
        return None, ()
    best = OnnxModel(chosen, "chosen")
    told: dict[str, Any] = {"confidence": setup.confidence, "seed": setup.seed}
    if baseline is None:
        return audit(best, held, **told, options=options, progress=progress, engine=engine), ()
    both = [OnnxModel(baseline, BASELINE), best]
    asked = Asked.of(("group",), None, **told)
    reports, comparison = audit_beside(engine, both, held, asked, [options, options], progress)
    return reports[1], comparison.changes[0]


def _result(
    engine: Engine,
    points: Sequence[Point],
    axes: tuple[str, str],
    choice: Choice,
    held: Dataset,
    kept: State,
    setup: Setup,
    progress: Progress,
) -> Frontier:
    chosen, remark = pick(points, axes, choice)
    model = None if chosen is None else kept.model(points[chosen])
    report, changes = _tested(engine, [kept.model(points[0]), model], held, setup, progress)
    failed = sum(point.status == "failed" for point in points)
    notes = [remark] if remark else []
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
        rows=(len(setup.table), setup.validation.table.num_rows, held.learn(engine.total).rows),
        confidence=setup.confidence,
        seed=setup.seed,
        notes=tuple(notes),
    )
