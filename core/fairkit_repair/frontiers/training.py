"""Training and auditing one point of a frontier, here or in a process of its own."""

from __future__ import annotations

import itertools
import math
import time
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from fairkit.errors import FairkitError, ParameterError
from fairkit.intervals import two_sided
from fairkit.objective import Objective
from fairkit.settings import ModelOptions
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit.support.timings import phase, threads
from fairkit_repair.frontiers.state import Measure, Point, measures_of, point_key
from fairkit_repair.mitigation.choose import as_mitigator, find_mitigator

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import Roles
    from fairkit.data.table import Table
    from fairkit.engines.base import Engine
    from fairkit.fitted import Run
    from fairkit.progress import Progress
    from fairkit_onnx.file import OnnxModel
    from fairkit_repair.frontiers.state import State


BASELINE = "baseline"
PARITY_ROWS = 4_096
"""All training rows would take longer than the training itself; `fairkit mitigate` compares on all."""
Job = tuple[str, Mapping[str, Any]]
Trained = tuple[Point, bytes | None]


class Family(NamedTuple):
    """Points that are trained together: of one plugin, apart in one parameter."""

    jobs: tuple[Job, ...]  # the plugin and parameters of each; one that has nothing to share stands alone
    key: str = ""  # a digest of the whole family, which belongs to what its points are; empty for one that stands alone

    def point_keys(self) -> list[str]:
        """Return the keys of the points."""
        return [point_key(plugin, parameters, self.key) for plugin, parameters in self.jobs]

    @property
    def name(self) -> str:
        """What tells it from other families."""
        return " ".join(self.point_keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableRows:
    """A dataset that can be sent to another process."""

    table: pa.Table
    roles: Roles
    name: str

    @classmethod
    def of(cls, data: Dataset) -> PortableRows:
        """Read a dataset into memory, with the bins that it found."""
        import pyarrow as pa

        from fairkit.data.dataset import BATCH_ROWS
        from fairkit.data.table import fixed_roles

        table = pa.Table.from_batches(list(data.source.batches(data.columns, BATCH_ROWS)))
        return cls(table=table, roles=fixed_roles(data), name=data.name)

    def dataset(self) -> Dataset:
        """Return the dataset again."""
        from fairkit.data.dataset import Dataset
        from fairkit.data.sources import open_source

        return Dataset(open_source(self.table, self.name), self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all points share: rows to learn from, rows to measure on, and how to run."""

    table: Table
    validation: PortableRows
    run: Run
    confidence: float
    base: bytes | None = field(default=None, repr=False)
    auditors: tuple[str, ...] = ("group",)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def after(self, base: bytes | None) -> Setup:
        """Return the same with the model without mitigation, and the rate to keep that it implies."""
        objective = self.run.objective
        if base is not None and objective.kind == "rate":
            from fairkit_onnx.file import OnnxModel
            from fairkit_onnx.write.export import BaseModel

            model = BaseModel(OnnxModel(base, BASELINE), self.table, ModelOptions(task="binary"))
            scores, decided = model.answers(self.table.columns)
            objective = objective.on(decided, scores, self.table.row_weights())
        return replace(self, base=base, run=replace(self.run, objective=objective))

    def parity_rows(self) -> Table:
        """Return training rows, evenly spread, on which each exported file is compared with its model."""
        step = max(1, len(self.table) // PARITY_ROWS)
        return self.table.take(np.arange(0, len(self.table), step))


def train(setup: Setup, job: Job) -> Trained:
    """Train and audit one point; whatever goes wrong becomes a failed point."""
    started = time.perf_counter()
    try:
        return _trained(setup, [job])[0]
    except Exception as error:
        reason = str(error) if isinstance(error, FairkitError) else f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        return Point(plugin=job[0], parameters=job[1], status="failed", error=reason, seconds=seconds), None


def train_family(family: Family, setup: Setup) -> list[Trained]:
    """Train the points of a family together; where that fails, one by one, so that the good ones stay."""
    together: list[Trained] = []
    if len(family.jobs) > 1:
        with suppress(Exception):  # each is told its own error
            together = _trained(setup, family.jobs)
    trained = together or [train(setup, job) for job in family.jobs]
    return [(replace(point, family=family.key), content) for point, content in trained]


def _trained(setup: Setup, jobs: Sequence[Job]) -> list[Trained]:
    started = time.perf_counter()
    contents = _fit(setup, jobs)
    measures = [measure(setup, content) for content in contents]
    seconds = (time.perf_counter() - started) / len(jobs)
    return [
        (Point(plugin=job[0], parameters=job[1], status="done", measures=one, seconds=seconds), content)
        for job, content, one in zip(jobs, contents, measures, strict=True)
    ]


@phase("train")
def _fit(setup: Setup, jobs: Sequence[Job]) -> list[bytes]:
    """Train points of one plugin in one call, or the baseline, and return their files."""
    from fairkit_onnx.file import OnnxModel
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner
    from fairkit_repair.mitigation.learned import check_task, fit_files, run_of
    from fairkit_repair.postprocess import aimed

    run = replace(setup.run, threads=setup.run.threads or threads())
    if jobs[0][0] == BASELINE:
        before = replace(run, objective=Objective()) if run.objective.kind == "rate" else run
        (plain,) = aimed(lambda part: [fit_learner(run.learner or "lightgbm", part, run)], setup.table, before)
        return [export_bytes(plain, setup.parity_rows())]
    methods = [as_mitigator(plugin, parameters) for plugin, parameters in jobs]
    check_task(methods[0], setup.table)
    base = None
    if methods[0].stage == "post" and setup.base is not None:
        base = OnnxModel(setup.base, BASELINE)
    files = fit_files(methods, setup.table, run_of(methods[0], run), base, checked=setup.parity_rows())
    return [content for _, content in files]


def measure(setup: Setup, content: bytes) -> dict[str, Measure]:
    """Audit a point's model on the validation rows."""
    from fairkit.auditing.run import audit
    from fairkit_onnx.file import OnnxModel

    options = ModelOptions(task=setup.table.task)
    data = setup.validation.dataset()
    report = audit(
        OnnxModel(content, "point"),
        data,
        auditors=setup.auditors,
        parameters=setup.parameters,
        confidence=setup.confidence,
        seed=setup.run.seed,
        options=options,
    )
    return measures_of(report) | _gained(setup, OnnxModel(content, "point"), data)


def _gained(setup: Setup, model: OnnxModel, data: Dataset) -> dict[str, Measure]:
    """Measure an objective that is no metric: a cost, or a column of values."""
    from fairkit.data.table import Table
    from fairkit_repair.mitigation.learned import valued

    objective = setup.run.objective
    if objective.kind not in ("cost", "value"):
        return {}
    table = valued(Table.from_dataset(data, "binary"), data, objective.column)
    scorer = model.bind(data, ModelOptions(task="binary"))
    decided = scorer.predict({name: table.columns[name] for name in scorer.columns}).decision
    assert decided is not None  # noqa: S101 -- asked for of binary models
    value, influence = objective.measure(table, decided)
    weights = table.row_weights()
    half = two_sided(setup.confidence) * float(np.sqrt((weights**2 * influence**2).sum()) / weights.sum())
    return {objective.label: Measure(value=value, interval=(value - half, value + half), better="higher")}


# Asking for the points of a frontier: grids, families that are trained together, searches with a budget.


BATCH = 4
"""A search asks for so many points at a time, whatever the number of processes, so that it can be repeated."""


def families_of(sweep: Sweep) -> list[Family]:
    """Put the points of a sweep that a plugin can train together side by side; the others stand alone."""
    method = find_mitigator(sweep.plugin)
    shared = next(
        (k for k, values in sweep.vary.items() if k in getattr(method, "together", ()) and len(values) > 1), None
    )
    groups: dict[str, list[Job]] = {}
    for index, settings in enumerate(sweep.settings()):
        rest = {key: value for key, value in settings.items() if key != shared}
        groups.setdefault(str(index) if shared is None else point_key("", rest), []).append((sweep.plugin, settings))
    return [
        Family(
            tuple(jobs),
            "" if len(jobs) == 1 else point_key("family", {str(i): point_key(*job) for i, job in enumerate(jobs)}),
        )
        for jobs in groups.values()
    ]


class Runner:
    """Asks for points, from the state where they are and by training where not."""

    def __init__(self, setup: Setup, kept: State, engine: Engine, progress: Progress) -> None:
        self.setup, self.kept, self.engine, self.progress = setup, kept, engine, progress
        self.total = self.finished = 0

    def everything(self, sweeps: Sequence[Sweep], budget: int, axes: tuple[str, str]) -> list[Point]:
        """Return the baseline, then the points of every sweep."""
        grids = [family for sweep in sweeps if not sweep.search for family in families_of(sweep)]
        searches = [sweep for sweep in sweeps if sweep.search]
        self.total = 1 + sum(len(family.jobs) for family in grids) + budget * len(searches)
        baseline = self.points([Family(((BASELINE, {}),))])
        self.setup = self.setup.after(self.kept.model(baseline[0]))
        points = baseline + self.points(grids)
        for sweep in searches:
            points += self.search(sweep, budget, axes)
        return points

    def points(self, families: Sequence[Family]) -> list[Point]:
        """Return the points of some families, in their order."""
        missing = list({part.name: part for family in families for part in self._missing(family)}.values())
        total = sum(len(family.jobs) for family in families)
        self.finished += total - sum(len(family.jobs) for family in missing)
        self._tell()
        # the largest first, so that none is left alone at the end
        queue = sorted(missing, key=lambda family: len(family.jobs), reverse=True)
        self.engine.each(train_family, queue, self.engine.share(self.setup), done=self._done)
        return [self.kept.points[key] for family in families for key in family.point_keys()]

    def _missing(self, family: Family) -> list[Family]:
        """Return the untrained rest of a family: all of it, unless a point alone failed before."""
        keys = family.point_keys()
        left = [i for i, key in enumerate(keys) if self.kept.finished(key) is None]
        for key in {*keys} - {keys[i] for i in left}:
            self.kept.confirm(key, partial(measure, self.setup))
        known = [self.kept.points.get(keys[i]) for i in left]
        if len(left) < len(keys) and all(point is not None and point.status == "failed" for point in known):
            return [Family((family.jobs[i],), family.key) for i in left]
        return [family] if left else []

    def _done(self, trained: Sequence[Trained]) -> None:
        for point, model in trained:
            self.kept.add(point, model)
            self.finished += 1
            self._tell()

    def _tell(self) -> None:
        self.progress("training points", self.finished, self.total)

    def search(self, sweep: Sweep, budget: int, axes: tuple[str, str]) -> list[Point]:
        """Let an optimiser choose settings; replayed from the state it asks for the same ones again."""
        optuna = _optuna()
        study = optuna.create_study(
            directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=self.setup.run.seed)
        )
        space = _space(sweep, optuna)
        points: list[Point] = []
        while len(points) < budget:
            trials = [study.ask(space) for _ in range(min(BATCH, budget - len(points)))]
            families = [Family(((sweep.plugin, dict(sweep.fixed) | trial.params),)) for trial in trials]
            for trial, point in zip(trials, self.points(families), strict=True):
                measures = [point.measures.get(name) for name in axes]
                if None in measures:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    flat, upright = (m for m in measures if m is not None)
                    study.tell(trial, [flat.value, upright.value * (-1 if upright.better == "lower" else 1)])
                points.append(point)
        return points


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ParameterError("a search needs the package optuna: pip install 'fairkit[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _space(sweep: Sweep, optuna: Any) -> dict[str, Any]:
    method = find_mitigator(sweep.plugin)
    return {
        key: optuna.distributions.IntDistribution(int(bounds.low), int(bounds.high), log=bounds.log)
        if is_whole(method.Parameters, key)
        else optuna.distributions.FloatDistribution(bounds.low, bounds.high, log=bounds.log)
        for key, bounds in sweep.search.items()
    }


# What a frontier walks along: lists and ranges of parameters, and searches with a budget.


MOST_POINTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a search may look for a parameter: from `low` to `high`, evenly or on a log scale."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def parse(cls, text: str, key: str) -> Self:
        """Read ``lo:hi`` or ``lo:hi:log``.

        Raises
        ------
        ParameterError
            The text has another form.
        """
        parts = text.split(":")
        log = len(parts) == 3 and parts[2] == "log"
        numbers = _numbers(parts[:2])
        if numbers is None or len(numbers) != 2 or len(parts) > 2 + log or not numbers[0] < numbers[1]:
            raise ParameterError(f"`search` {key}={text} is not understood; write {key}=LOW:HIGH or LOW:HIGH:log")
        if log and numbers[0] <= 0:
            raise ParameterError(f"`search` {key}={text}: a log scale needs bounds above 0")
        return cls(low=numbers[0], high=numbers[1], log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One method and the settings to try.

    Attributes
    ----------
    plugin
        The method's name.
    fixed
        Parameters that stay.
    vary
        Values by parameter; every combination is a point. Without any there is one point.
    search
        Bounds by parameter, for a search with a budget in place of all combinations.
    """

    plugin: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    search: Mapping[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        twice = (set(self.vary) | set(self.search)) & set(self.fixed) | set(self.vary) & set(self.search)
        if twice:
            raise ParameterError(f"{self.plugin}: {', '.join(sorted(twice))} is both fixed and varied; give it once")
        if math.prod(len(values) for values in self.vary.values()) > MOST_POINTS:
            raise ParameterError(f"{self.plugin}: more than {MOST_POINTS} combinations; vary less, or use `search`")

    def settings(self) -> list[dict[str, Any]]:
        """Return the parameters of every combination."""
        return [
            dict(self.fixed) | dict(zip(self.vary, values, strict=True))
            for values in itertools.product(*self.vary.values())
        ]


def parse_values(text: str, key: str) -> list[Any]:
    """Read ``a,b,c``, ``lo:hi:n`` (n values, evenly) or ``lo:hi:n:log`` (evenly on a log scale)."""
    if ":" not in text:
        values = [part.strip() for part in text.split(",")]
        if not all(values):
            raise ParameterError(f"`vary` {key}={text} has an empty value; write {key}=A,B,C or {key}=LOW:HIGH:N")
        return list(dict.fromkeys(values))
    parts = text.split(":")
    log = len(parts) == 4 and parts[3] == "log"
    numbers = _numbers(parts[:3])
    if numbers is None or len(parts) not in (3, 4) or (len(parts) == 4 and not log):
        raise ParameterError(f"`vary` {key}={text} is no range; write {key}=LOW:HIGH:N or {key}=LOW:HIGH:N:log")
    low, high, count = numbers
    if count < 2 or count != int(count) or not low < high or (log and low <= 0):
        raise ParameterError(f"`vary` {key}={text}: a range has LOW < HIGH (above 0 with log) and N of 2 or more")
    n = int(count)
    if log:
        return [_tidy(low * (high / low) ** (i / (n - 1))) for i in range(n)]
    return [_tidy(low + (high - low) * i / (n - 1)) for i in range(n)]


def _numbers(parts: Sequence[str]) -> list[float] | None:
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    return values if all(math.isfinite(value) for value in values) else None


def _tidy(value: float) -> float:
    """Twelve digits, so that 0.1 + 0.2 is 0.3; whole numbers as such."""
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e9 else rounded


def is_whole(parameters: type, key: str) -> bool:
    """Tell whether a field of a parameters dataclass holds whole numbers only."""
    hint = typing.get_type_hints(parameters).get(key)
    kinds = set(typing.get_args(hint)) or {hint}
    return int in kinds and float not in kinds
