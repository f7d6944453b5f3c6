"""Training and auditing one point of a frontier, here or in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import FairkitError
from fairkit.intervals import two_sided
from fairkit.objective import Objective
from fairkit.settings import ModelOptions
from fairkit.support.ahead import threads
from fairkit.support.timings import phase
from fairkit_repair.frontiers.points import Measure, Point, measures_of, point_key

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import Roles
    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_onnx.model import OnnxModel

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
            from fairkit_onnx.model import OnnxModel
            from fairkit_onnx.write.base import BaseModel

            model = BaseModel(OnnxModel(base, BASELINE), self.table, ModelOptions(task="binary"))
            decided, scores = model.decisions(self.table.columns), model.scores(self.table.columns)
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
        told = str(error) if isinstance(error, FairkitError) else f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        return Point(plugin=job[0], parameters=job[1], status="failed", error=told, seconds=seconds), None


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
    from fairkit_onnx.model import OnnxModel
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.common_threshold import aimed
    from fairkit_repair.learners import fit_learner
    from fairkit_repair.mitigation.choose import as_mitigator
    from fairkit_repair.mitigation.learned import check_task, fit_files, run_of

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
    from fairkit_onnx.model import OnnxModel

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
