"""Training and auditing one point of a frontier, here or in a process of its own."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit.frontier_points import Measure, Point, measures_of
from fairkit.models import ModelOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data import Dataset
    from fairkit.mitigators import Table
    from fairkit.roles import Roles

BASELINE = "baseline"
Job = tuple[str, Mapping[str, Any]]
Done = Callable[[Point, bytes | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A dataset that can be sent to another process."""

    table: pa.Table
    roles: Roles
    name: str

    @classmethod
    def of(cls, data: Dataset) -> Rows:
        """Read a dataset into memory, with the bins that it found."""
        import pyarrow as pa

        from fairkit.data import BATCH_ROWS
        from fairkit.mitigators import fixed_roles

        table = pa.Table.from_batches(list(data.source.batches(data.columns, BATCH_ROWS)))
        return cls(table=table, roles=fixed_roles(data), name=data.name)

    def dataset(self) -> Dataset:
        """Give the dataset again."""
        from fairkit.data import Dataset
        from fairkit.sources import open_source

        return Dataset(open_source(self.table, self.name), self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all points share: rows to learn from, rows to measure on, and how to run."""

    table: Table
    validation: Rows
    seed: int
    threads: int | None
    learner: str | None
    confidence: float
    base: bytes | None = field(default=None, repr=False)


def train(setup: Setup, job: Job) -> tuple[Point, bytes | None]:
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
        measures = _measure(setup, content)
    except FairkitError as error:
        return _failed(job, str(error), started), None
    except Exception as error:
        return _failed(job, f"{type(error).__name__}: {error}", started), None
    seconds = time.perf_counter() - started
    done = Point(plugin=plugin, parameters=parameters, status="done", measures=measures, seconds=seconds)
    return done, content


def _failed(job: Job, error: str, started: float) -> Point:
    seconds = time.perf_counter() - started
    return Point(plugin=job[0], parameters=job[1], status="failed", error=error, seconds=seconds)


def _fit(setup: Setup, plugin: str, parameters: Mapping[str, Any]) -> bytes:
    from fairkit.learners import fit_learner
    from fairkit.mitigation import _check_task, _mitigation, as_mitigator
    from fairkit.mitigators import Run
    from fairkit.onnx.export import export
    from fairkit.onnx.model import OnnxModel

    run = Run(seed=setup.seed, threads=setup.threads, learner=setup.learner)
    if plugin == BASELINE:
        plain = fit_learner(setup.learner or "lightgbm", setup.table, run)
        return export(plain, setup.table).SerializeToString(deterministic=True)
    method = as_mitigator(plugin, parameters)
    _check_task(method, setup.table)
    base = None
    if method.stage == "post" and setup.base is not None:
        base = OnnxModel(scores_only(setup.base), BASELINE)
    if not method.learners:
        run = Run(seed=setup.seed, threads=setup.threads)
    fitted = method.fit(setup.table, run, validation=None, model=base)
    return export(fitted, setup.table, _mitigation(method, run, base)).SerializeToString(deterministic=True)


def scores_only(content: bytes) -> bytes:
    """Give an exported model with its score as the one output: what a post-processing rule is put on.

    The rule brings a ``score`` and decisions of its own, so the old score gets another name.
    """
    import onnx

    model = onnx.load_from_string(content)
    outputs = [output for output in model.graph.output if output.name == "score"]
    if not outputs:
        return content
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    for names in [part for node in model.graph.node for part in (node.input, node.output)]:
        for place, name in enumerate(names):
            if name == "score":
                names[place] = "base_score"
    model.graph.output[0].name = "base_score"
    stripped: bytes = model.SerializeToString(deterministic=True)
    return stripped


def _measure(setup: Setup, content: bytes) -> dict[str, Measure]:
    from fairkit.auditing import audit
    from fairkit.onnx.model import OnnxModel

    options = ModelOptions(task=setup.table.task)
    data = setup.validation.dataset()
    report = audit(
        OnnxModel(content, "point"), data, confidence=setup.confidence, seed=setup.seed, options=options
    )
    return measures_of(report)


def run_all(setup: Setup, jobs: Sequence[Job], processes: int, done: Done, folder: Path) -> None:
    """Train all points, each told to `done` as it finishes.

    Parameters
    ----------
    setup
        What the points share.
    jobs
        What to try.
    processes
        How many at a time; 1 stays in this process.
    done
        Called in this process, in the order in which points finish.
    folder
        For what is handed to the processes.

    Raises
    ------
    KeyboardInterrupt
        The user stopped it: running points are given up, finished ones were told.
    """
    if processes <= 1 or len(jobs) <= 1:
        for job in jobs:
            done(*train(setup, job))
        return
    import multiprocessing

    shared = folder / "setup.pickle"
    shared.write_bytes(pickle.dumps(setup, protocol=5))
    context = multiprocessing.get_context("spawn")  # threads of other libraries do not survive a fork
    pool = ProcessPoolExecutor(
        min(processes, len(jobs)), mp_context=context, initializer=_start, initargs=(str(shared),)
    )
    try:
        left: set[Future[tuple[Point, bytes | None]]] = {pool.submit(_train_shared, job) for job in jobs}
        while left:
            ended, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ended:
                done(*future.result())
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


_shared: dict[str, Setup] = {}


def _start(path: str) -> None:
    """Load what all points share, once in each process; Ctrl-C is the parent's business."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _shared["setup"] = pickle.loads(Path(path).read_bytes())  # noqa: S301 -- written by the parent just now


def _train_shared(job: Job) -> tuple[Point, bytes | None]:
    return train(_shared["setup"], job)
