"""Training and auditing one point of a frontier, here or in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import FairkitError
from fairkit.settings import ModelOptions
from fairkit.support.ahead import threads
from fairkit.support.timings import phase
from fairkit_repair.frontiers.points import Measure, Point, measures_of, point_key

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import Roles
    from fairkit.data.table import Table

BASELINE = "baseline"
PARITY_ROWS = 4_096
"""All training rows would take longer than the training itself; `fairkit mitigate` compares on all."""
Job = tuple[str, Mapping[str, Any]]
Trained = tuple[Point, bytes | None]


class Family(NamedTuple):
    """Points that are trained together: of one plugin, apart in one parameter.

    Attributes
    ----------
    jobs
        The plugin and parameters of each; one that has nothing to share stands alone.
    key
        A digest of the whole family, which belongs to what its points are; empty for one that stands alone.
    """

    jobs: tuple[Job, ...]
    key: str = ""

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
    seed: int
    threads: int | None
    learner: str | None
    confidence: float
    base: bytes | None = field(default=None, repr=False)
    auditors: tuple[str, ...] = ("group",)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def parity_rows(self) -> Table:
        """Return training rows, evenly spread, on which each exported file is compared with its model."""
        step = max(1, len(self.table) // PARITY_ROWS)
        return self.table.take(np.arange(0, len(self.table), step))


def train(setup: Setup, job: Job) -> Trained:
    """Train and audit one point; whatever goes wrong becomes a failed point.

    Parameters
    ----------
    setup
        What all points share.
    job
        The plugin and its parameters.

    Returns
    -------
    Point, bytes or None
        The point, and its model where it is done.
    """
    plugin, parameters = job
    started = time.perf_counter()
    try:
        content = _fit(setup, plugin, parameters)
        measures = measure(setup, content)
    except FairkitError as error:
        return _failed(job, str(error), started), None
    except Exception as error:
        return _failed(job, f"{type(error).__name__}: {error}", started), None
    seconds = time.perf_counter() - started
    done = Point(plugin=plugin, parameters=parameters, status="done", measures=measures, seconds=seconds)
    return done, content


def train_family(family: Family, setup: Setup) -> list[Trained]:
    """Train the points of a family together; where that fails, one by one, so that the good ones stay.

    Returns
    -------
    list
        As `train`, in the order of the jobs; each is told an equal part of the time.
    """
    trained = _train_together(setup, family.jobs) if len(family.jobs) > 1 else None
    trained = trained or [train(setup, job) for job in family.jobs]
    return [(replace(point, family=family.key), content) for point, content in trained]


def _train_together(setup: Setup, jobs: Sequence[Job]) -> list[Trained] | None:
    started = time.perf_counter()
    try:
        contents = _fit_together(setup, jobs)
        measures = [measure(setup, content) for content in contents]
    except Exception:
        return None  # each is told its own error
    seconds = (time.perf_counter() - started) / len(jobs)
    return [
        (Point(plugin=job[0], parameters=job[1], status="done", measures=one, seconds=seconds), content)
        for job, content, one in zip(jobs, contents, measures, strict=True)
    ]


def _failed(job: Job, error: str, started: float) -> Point:
    seconds = time.perf_counter() - started
    return Point(plugin=job[0], parameters=job[1], status="failed", error=error, seconds=seconds)


@phase("train")
def _fit(setup: Setup, plugin: str, parameters: Mapping[str, Any]) -> bytes:
    from fairkit.fitted import Run
    from fairkit_onnx.write.export import export_bytes
    from fairkit_repair.learners import fit_learner

    if plugin == BASELINE:
        run = Run(seed=setup.seed, threads=setup.threads or threads(), learner=setup.learner)
        plain = fit_learner(setup.learner or "lightgbm", setup.table, run)
        return export_bytes(plain, setup.parity_rows())
    return _fit_together(setup, [(plugin, parameters)])[0]


@phase("train")
def _fit_together(setup: Setup, jobs: Sequence[Job]) -> list[bytes]:
    """Train points of one plugin in one call, and return their files."""
    from fairkit.fitted import Run
    from fairkit_onnx.model import OnnxModel
    from fairkit_repair.mitigation.choose import as_mitigator
    from fairkit_repair.mitigation.learned import check_task, fit_files

    methods = [as_mitigator(plugin, parameters) for plugin, parameters in jobs]
    first = methods[0]
    check_task(first, setup.table)
    base = None
    if first.stage == "post" and setup.base is not None:
        base = OnnxModel(setup.base, BASELINE)
    learner = setup.learner if first.learners else None
    run = Run(seed=setup.seed, threads=setup.threads or threads(), learner=learner)
    found = fit_files(methods, setup.table, run, base, checked=setup.parity_rows())
    return [content for _, content in found]


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
        seed=setup.seed,
        options=options,
    )
    return measures_of(report)
