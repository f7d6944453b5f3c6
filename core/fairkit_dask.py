"""Rows on the workers of a Dask cluster (extra ``dask``): the engine, and what reaches or starts a cluster."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib.metadata import requires, version
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import FramePart
from fairkit.engines import local
from fairkit.engines.base import Told, nobody
from fairkit.errors import DataError, EngineError, MissingExtraError

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit.settings import ModelOptions


# Reaching a cluster, or starting one on this machine, and finding out whether its workers are fit for the work.


_LEAN = {
    "distributed.worker.profile.enabled": False,
    # the web pages need no key, and show names and figures
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Dask gives freed memory back at once; taking it again for each batch costs more than the work on it
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 28,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}
"""Settings of a cluster on this machine."""

TIMEOUT = 10.0
"""Seconds to wait for a scheduler, and for its first worker."""


@contextmanager
def connected(scheduler: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Return a client of the scheduler, or of a new cluster on this machine, which ends with it.

    A cluster on this machine speaks TLS with a key that only its processes have: whoever else reaches its ports can
    neither read rows nor run code. A scheduler that is named is reached as its address says; `tcp` trusts the network.
    """
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError("dask", "dask") from error
    if scheduler is not None:
        with _client(distributed, scheduler) as client:
            yield client
        return
    count = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    import dask

    with (
        # a copy: Dask appends to the lists of its settings
        dask.config.set(deepcopy(_LEAN)),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),  # other users of this machine reach the ports too
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def _client(distributed: Any, scheduler: str) -> Iterator[Any]:
    try:
        client = distributed.Client(scheduler, timeout=TIMEOUT)
    except TypeError as error:
        raise EngineError(
            f"the scheduler {scheduler} speaks TLS, and Dask has no certificate and key to speak to it with: set "
            "distributed.comm.tls.ca-file and distributed.comm.tls.client in Dask's own configuration"
        ) from error
    except (OSError, ValueError, TimeoutError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {scheduler} ({type(error).__name__}); is it running, and is the address "
            "right? It looks like tcp://10.0.0.1:8786. Without `scheduler` the work is done on this machine"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=TIMEOUT)
        except TimeoutError:
            raise EngineError(
                f"the Dask scheduler at {scheduler} has no workers; start some: dask worker {scheduler}"
            ) from None
        yield client


def check_workers(client: Any, distributions: Mapping[str, str], extras: Iterable[str] = ()) -> None:
    """Compare fairkit and other distributions on every worker with those here, and look for what extras need."""
    wanted = {
        "fairkit": version("fairkit"),
        **{name.lower().replace("_", "-"): distribution for name, distribution in distributions.items()},
    }
    libraries = {extra: _libraries(extra) for extra in sorted(extras)}
    for address, answer in client.run(_probe()).items():
        _check_worker(address, answer, wanted, libraries)


def _check_worker(
    address: str, versions: Mapping[str, str], wanted: Mapping[str, str], libraries: Mapping[str, Iterable[str]]
) -> None:
    for name, ours in wanted.items():
        if name not in versions:
            raise EngineError(f"the worker {address} has no {name}; fix it there with: pip install '{name}=={ours}'")
        if versions[name] != ours:
            raise EngineError(
                f"the worker {address} has {name} {versions[name]}, but here it is {ours}: both must be the same; "
                f"fix it there with: pip install '{name}=={ours}'"
            )
    for extra, names in libraries.items():
        # xgboost-cpu and xgboost are the same module
        absent = [name for name in names if not versions.keys() & {name, name.removesuffix("-cpu")}]
        if absent:
            raise EngineError(
                f"the worker {address} has no {absent[0]}; fix it there with: pip install 'fairkit[{extra}]'"
            )


def _probe() -> Any:
    """Return a function that travels as code, so that it runs where there is no fairkit too."""

    def installed() -> dict[str, str]:
        from importlib.metadata import distributions

        result: dict[str, str] = {}
        for distribution in distributions():
            name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
            result.setdefault(name, distribution.version)
        return result

    return installed


def _libraries(extra: str) -> list[str]:
    """The distributions that an extra of fairkit needs, those of extras within it too."""
    from packaging.requirements import Requirement

    names: list[str] = []
    for text in requires("fairkit") or ():
        requirement = Requirement(text)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "fairkit":
            names += [name for inner in sorted(requirement.extras) for name in _libraries(inner)]
        elif not requirement.marker.evaluate({"extra": ""}):
            names.append(requirement.name.lower().replace("_", "-"))
    return names


# The Dask engine: one task for each part of the table, totals merged pairwise on the workers in a fixed order.


PART_ROWS = 1_000_000
"""A Parquet file of more rows is cut at its row groups."""

FAN_IN = 8
"""How many totals one merging task adds up."""


class DaskEngine:
    """Runs functions on the workers of a Dask client (see `fairkit.engines.base.Engine`).

    Every task is a pure function of its part and of shared tasks, so that Dask can run it again elsewhere when a
    worker is lost. Merging goes by the parts' order, whenever they are done: equal inputs, equal bytes.
    """

    here = False

    def __init__(self, client: Any) -> None:
        self.client = client

    def check(self, distributions: Mapping[str, str], extras: Iterable[str] = ()) -> None:
        """See `Engine.check`."""
        check_workers(self.client, distributions, extras)

    def placed(self, data: Dataset, reasons: Sequence[str], options: ModelOptions, cut: float | None = None) -> Dataset:
        """See `Engine.placed`: rows are read."""
        return data

    def share(self, thing: Any) -> Any:
        """See `Engine.share`: a task of its own, which goes to each worker once."""
        return self.submit(local.identity, thing)

    def map(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Pieces:
        """See `Engine.map`."""
        futures = self.start(function, source, itertools.repeat(()), *shared)
        if told is not nobody:
            self._watch(futures, source, told)
        return Pieces(self, futures)

    def total(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Any:
        """See `Engine.total`."""
        return self.map(function, source, *shared, told=told).total()

    def each(
        self, function: Callable[..., Any], items: Sequence[Any], *shared: Any, done: Callable[[Any], None]
    ) -> None:
        """See `Engine.each`."""
        from distributed import as_completed

        futures = [self.submit(function, item, *shared) for item in items]
        try:
            with lost("the work on a point"):
                for future in as_completed(futures):
                    done(future.result())
        except BaseException:
            self.client.cancel(futures, force=True)
            raise

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit one pure task under a key of its own."""
        return self._submit(function.__name__, function, *arguments)

    def _submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit a task under a name, by which Dask learns how long such tasks take."""
        import dask

        key = f"fairkit-{name}-{uuid.uuid4().hex}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self.client.submit(function, *arguments, key=key)

    def reduce(self, futures: Sequence[Any]) -> Any:
        """Merge totals in a tree that depends on their number only."""
        level = list(futures)
        while len(level) > 1:
            level = [self.submit(local.merged, *level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)]
        return level[0]

    def workers(self) -> int:
        """Return how many workers there are now."""
        return max(len(self.client.scheduler_info(n_workers=-1)["workers"]), 1)

    def counts(self, source: Source) -> tuple[int, ...]:
        """Return the rows of every part; those of CSV files are counted where they are, which settles types too."""
        if source.counts is None:
            if len(source.parts) and not any(
                isinstance(getattr(part, "part", part), FramePart) for part in source.parts
            ):
                source.parts = source.split(PART_ROWS).parts
            known = [part.rows() for part in source.parts]
            source.counts = tuple(n for n in known if n is not None)
            if len(source.counts) < len(known):
                source.counts = self._read_counts(source)
        return source.counts

    def _read_counts(self, source: Source) -> tuple[int, ...]:
        while True:
            with lost("counting the rows"):
                starts = itertools.repeat(0)
                futures = self._start(local.count, source, starts, itertools.repeat(()))
                results = self.client.gather(futures)
            failed = [result.failed for result in results if result.failed is not None]
            if not failed:
                return tuple(result.rows for result in results)
            if not any(source.widen(text) for text in failed):
                raise DataError(f"{source.name} cannot be read: {failed[0]}")

    def start(
        self, function: Callable[..., Any], source: Source, each: Iterable[tuple[Any, ...]], *shared: Any
    ) -> list[Any]:
        """Start ``function(piece, start, *own, *shared)`` on every part, with its `own` of `each`."""
        starts = itertools.accumulate(self.counts(source), initial=0)
        return self._start(function, source, starts, each, *shared)

    def _start(
        self,
        function: Callable[..., Any],
        source: Source,
        starts: Iterable[int],
        each: Iterable[tuple[Any, ...]],
        *shared: Any,
    ) -> list[Any]:
        futures = []
        for part, start, arguments in zip(source.parts, starts, each, strict=False):
            inner = getattr(part, "part", part)
            frame = self.client.compute(inner.delayed) if isinstance(inner, FramePart) else part
            position = local.PartPosition(source.of(part).name, source.types, start, getattr(part, "around", None))
            futures.append(self._submit(function.__name__, local.call, function, frame, position, *arguments, *shared))
        return futures

    def _watch(self, futures: Sequence[Any], source: Source, progress: Told) -> None:
        """Tell how many rows are done as parts get done."""
        from distributed import as_completed

        counts = dict(zip((future.key for future in futures), source.counts or (), strict=True))
        done = 0
        for future in as_completed(list(futures)):
            done += counts[future.key]
            progress(done)


class Pieces:
    """Results that lie on the workers (see `fairkit.engines.base.Spread`)."""

    def __init__(self, engine: DaskEngine, futures: Sequence[Any]) -> None:
        self.engine, self._futures = engine, list(futures)

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self._futures)

    def derive(self, function: Callable[..., Any], *shared: Any) -> Pieces:
        """See `Spread.derive`."""
        submit = self.engine.submit
        return Pieces(self.engine, [submit(function, future, *shared) for future in self._futures])

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Pieces:
        """See `Spread.numbered`."""
        submit = self.engine.submit
        pairs = zip(self._futures, each, strict=True)
        return Pieces(self.engine, [submit(function, future, own, *shared) for future, own in pairs])

    def merged(self) -> Pieces:
        """See `Spread.merged`."""
        futures = self._futures
        pieces = min(self.engine.workers(), len(futures))
        bounds = [len(futures) * piece // pieces for piece in range(pieces + 1)]
        engine = self.engine
        return Pieces(engine, [engine.reduce(futures[low:high]) for low, high in itertools.pairwise(bounds)])

    def total(self) -> Any:
        """See `Spread.total`."""
        with lost("the work on the rows"):
            return self.engine.reduce(self._futures).result()

    def collect(self) -> list[Any]:
        """See `Spread.collect`."""
        with lost("the work on the rows"):
            result: list[Any] = self.engine.client.gather(self._futures)
        return result


@contextmanager
def lost(doing: str) -> Iterator[None]:
    """Turn what Dask raises when workers are lost for good into one message."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        yield
    except KilledWorker as error:
        raise EngineError(
            f"workers were lost again and again while {doing} (Dask gave up on {error.task!r}); most often they ran "
            "out of memory: give them more, or write the data in smaller parts"
        ) from error
    except (FutureCancelledError, OSError, TimeoutError, pickle.PicklingError) as error:
        raise EngineError(f"the cluster was lost while {doing}: {type(error).__name__}: {error}") from error
