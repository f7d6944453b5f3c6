"""The Dask engine: one task for each part of the table, totals merged pairwise on the workers in a fixed order."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairkit.data.frames import FramePart
from fairkit.data.sources import Source
from fairkit.engines import remote
from fairkit.engines.cluster import check_workers
from fairkit.engines.remote import Elsewhere, Job, Place
from fairkit.errors import DataError, EngineError
from fairkit.progress import Progress, no_progress

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext, Auditor
    from fairkit.data.dataset import Dataset
    from fairkit.data.profile import Bins, Tally
    from fairkit.data.roles import Roles
    from fairkit.plugins.records import Plugin

PART_ROWS = 1_000_000
"""A Parquet file of more rows is cut at its row groups."""

FAN_IN = 8
"""How many totals one merging task adds up."""


class DaskEngine:
    """Spreads audits over the workers of a Dask client (see `fairkit.engines.Engine`).

    Every task is a pure function of its part and of shared tasks, so that Dask can run it again elsewhere when a
    worker is lost. Merging goes by the parts' order, whenever they are done: equal inputs, equal bytes.

    Parameters
    ----------
    client
        A `distributed.Client`. Files must have the same paths for it and for the workers.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._checked: set[str] = set()

    def check(self, used: Sequence[Plugin], extras: Sequence[str] = ()) -> None:
        """See `fairkit.engines.Engine.check`."""
        check_workers(self.client, used, extras)

    def tally(self, source: Source, roles: Roles, bins: Bins) -> Tally:
        """See `fairkit.engines.Engine.tally`."""
        futures = self.on_parts(remote.tally, source, roles, bins)
        with lost("reading the data"):
            found: Tally = self.reduce(futures).result()
        return found

    def measure(
        self,
        auditors: Sequence[Auditor],
        context: AuditContext,
        columns: Sequence[str],
        used: Sequence[Plugin],
    ) -> list[Any]:
        """See `fairkit.engines.Engine.measure`."""
        source = context.dataset.source
        owners = [next(p.found for p in used if type(auditor) in p.auditors) for auditor in auditors]
        there = dataclasses.replace(
            context, dataset=rowless(context.dataset), progress=no_progress, engine=None
        )
        job = self.share(Job(list(auditors), owners, there, list(columns)))
        futures = self.on_parts(remote.measure, source, job)
        self._watch(futures, source, context.progress)
        totals: list[Any] = []
        for number, auditor in enumerate(auditors):
            picked = [self.submit(remote.pick, future, number) for future in futures]
            totals.append(self._spread(picked) if auditor.spread else self.reduce(picked))
        with lost("scoring the rows"):
            return [total if isinstance(total, Pieces) else total.result() for total in totals]

    def distinct(self, dataset: Dataset, column: str, most: int) -> list[Any]:
        """See `fairkit.engines.Engine.distinct`."""
        futures = self.on_parts(remote.distinct, dataset.source, self.share(rowless(dataset)), column, most)
        with lost("reading the data"):
            parts = self.client.gather(futures)
        found = dict.fromkeys(value for part in parts for value in part)
        return sorted(found, key=lambda value: (isinstance(value, str), value))

    def share(self, thing: Any) -> Any:
        """See `fairkit.engines.Engine.share`: a task of its own, which goes to each worker once."""
        return self.submit(remote.identity, thing)

    def on_parts(self, function: Callable[..., Any], source: Source, *shared: Any) -> list[Any]:
        """Run ``function(part, place, *shared)`` on every part; return the futures in order."""
        starts = [0, *itertools.accumulate(self._counts(source))]
        return self._submit_parts(function, source, starts, *shared)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit one pure task under a key of its own."""
        import dask

        key = f"fairkit-{function.__name__}-{uuid.uuid4().hex}"
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return self.client.submit(function, *arguments, key=key)

    def reduce(self, futures: Sequence[Any]) -> Any:
        """Merge totals in a tree that depends on their number only."""
        level = list(futures)
        while len(level) > 1:
            level = [
                self.submit(remote.merged, *level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)
            ]
        return level[0]

    def workers(self) -> int:
        """How many workers there are now."""
        return max(len(self.client.scheduler_info(n_workers=-1)["workers"]), 1)

    def _spread(self, futures: Sequence[Any]) -> Pieces:
        """Join neighbouring parts to as many pieces as there are workers."""
        pieces = min(self.workers(), len(futures))
        bounds = [len(futures) * piece // pieces for piece in range(pieces + 1)]
        return Pieces(self, [self.reduce(futures[low:high]) for low, high in itertools.pairwise(bounds)])

    def _counts(self, source: Source) -> tuple[int, ...]:
        """The rows of every part; those of CSV files are counted where they are, which settles types too."""
        if source.counts is None:
            if len(source.parts) and not any(isinstance(part, FramePart) for part in source.parts):
                source.parts = source.split(PART_ROWS).parts
            known = [part.rows() for part in source.parts]
            source.counts = tuple(n for n in known if n is not None)
            if len(source.counts) < len(known):
                source.counts = self._read_counts(source)
        return source.counts

    def _read_counts(self, source: Source) -> tuple[int, ...]:
        while True:
            with lost("counting the rows"):
                found = self.client.gather(self._submit_parts(remote.count, source, [0] * len(source.parts)))
            failed = [one.failed for one in found if one.failed is not None]
            if not failed:
                return tuple(one.rows for one in found)
            if not any(source.widen(text) for text in failed):
                raise DataError(f"{source.name} cannot be read: {failed[0]}")

    def _submit_parts(
        self, function: Callable[..., Any], source: Source, starts: Sequence[int], *shared: Any
    ) -> list[Any]:
        futures = []
        for part, start in zip(source.parts, starts, strict=False):
            frame = self.client.compute(part.delayed) if isinstance(part, FramePart) else part
            place = Place(source.of(part).name, source.types, start)
            futures.append(self.submit(function, frame, place, *shared))
        return futures

    def _watch(self, futures: Sequence[Any], source: Source, progress: Progress) -> None:
        """Tell how many rows are scored as parts get done."""
        from distributed import as_completed

        counts = dict(zip((future.key for future in futures), source.counts or (), strict=True))
        done, total = 0, sum(counts.values())
        for future in as_completed(list(futures)):
            done += counts[future.key]
            progress("scoring rows", done, total)


class Pieces:
    """Results that lie on the workers (see `fairkit.engines.Spread`)."""

    def __init__(self, engine: DaskEngine, futures: Sequence[Any]) -> None:
        self.engine, self._futures = engine, list(futures)

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self._futures)

    def derive(self, function: Callable[..., Any], *shared: Any) -> Pieces:
        """See `fairkit.engines.Spread.derive`."""
        submit = self.engine.submit
        return Pieces(self.engine, [submit(function, future, *shared) for future in self._futures])

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Pieces:
        """See `fairkit.engines.Spread.numbered`."""
        submit = self.engine.submit
        pairs = zip(self._futures, each, strict=True)
        return Pieces(self.engine, [submit(function, future, own, *shared) for future, own in pairs])

    def collect(self) -> list[Any]:
        """See `fairkit.engines.Spread.collect`."""
        with lost("the work on the rows"):
            found: list[Any] = self.engine.client.gather(self._futures)
        return found


def rowless(dataset: Dataset) -> Dataset:
    """Return a dataset that knows groups and labels, and whose rows are read part by part only."""
    source = dataset.source
    return dataset.part(Source(source.name, source.types, (Elsewhere(source.name),)), 0)


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
