"""What runs functions where the rows are: in this process, or on the workers of a cluster.

An engine knows sources and functions. A function gets one piece of a table as a source of its own, and the number of
its first row: ``function(source, start, *shared)``. Here there is one piece, the whole table.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.errors import EngineError

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit.settings import ModelOptions


Told = Callable[[int], None]
"""Called with the number of rows that are done."""


def nobody(rows: int) -> None:
    """Tell nobody."""


class Spread(Protocol):
    """Pieces of one thing, in the order of the table's rows, on several workers or here.

    A piece is made again, elsewhere, when its worker is lost: functions given here must be pure.
    """

    @property
    def pieces(self) -> int:
        """How many there are."""
        ...

    def derive(self, function: Callable[..., Any], *shared: Any) -> Spread:
        """Apply ``function(piece, *shared)`` to every piece; the results stay where the pieces are."""
        ...

    def numbered(self, function: Callable[..., Any], each: Sequence[Any], *shared: Any) -> Spread:
        """Apply ``function(piece, each[number], *shared)`` to every piece; the results stay where the pieces are."""
        ...

    def merged(self) -> Spread:
        """Add neighbouring pieces up until there is one for each worker at most; None adds nothing."""
        ...

    def total(self) -> Any:
        """Add all pieces up, in an order that depends on their number only, and bring the sum here."""
        ...

    def collect(self) -> list[Any]:
        """Bring all pieces here."""
        ...


class Engine(Protocol):
    """Runs functions where the rows are."""

    here: bool  # whether that is in this process: then a table is one piece, and its rows can be read without a network

    def check(self, distributions: Mapping[str, str], extras: Iterable[str] = ()) -> None:
        """Raise EngineError unless every worker has this fairkit, these distributions, and the extras' libraries."""
        ...

    def placed(self, data: Dataset, reasons: Sequence[str], options: ModelOptions, cut: float | None = None) -> Dataset:
        """Return a dataset as it is read here."""
        ...

    def share(self, thing: Any) -> Any:
        """Put something where every worker finds it; return what stands for it among the `shared` arguments."""
        ...

    def map(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Spread:
        """Apply ``function(piece, start, *shared)`` to every piece of a table."""
        ...

    def total(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Any:
        """Add up what ``function(piece, start, *shared)`` returns for every piece; None adds nothing."""
        ...

    def each(
        self, function: Callable[..., Any], items: Sequence[Any], *shared: Any, done: Callable[[Any], None]
    ) -> None:
        """Call ``done(function(item, *shared))`` for every item, in the order in which they are finished.

        `done` runs in this process; what the function returns should be small.
        """
        ...


def add(one: Any, other: Any) -> Any:
    """Add two totals; None stands for no rows."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


# Calling a function for many things in processes of this machine, which end with this one.


def each_in_processes(
    function: Callable[..., Any],
    items: Sequence[Any],
    shared: Sequence[Any],
    processes: int,
    done: Callable[[Any], None],
) -> None:
    """Call ``done(function(item, *shared))`` for every item, in the order in which they are finished."""
    from loky.process_executor import ProcessPoolExecutor, TerminatedWorkerError

    call = pickle.dumps((function, tuple(shared)), protocol=5)
    pool = ProcessPoolExecutor(min(processes, len(items)), initializer=_start, initargs=(call, os.getpid()))
    try:
        from concurrent.futures import as_completed

        for future in as_completed([pool.submit(_call, item) for item in items]):
            done(future.result())
    except TerminatedWorkerError as error:
        raise EngineError(
            "a training process ended by itself, perhaps because it used too much memory; try again with fewer "
            "`jobs`. Finished points are kept where a `state` file is named"
        ) from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


_shared: dict[str, Any] = {}


def _start(call: bytes, parent: int) -> None:
    """Load what all calls share, once in each process, which ends with its parent; Ctrl-C is the parent's business."""
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _shared["call"] = pickle.loads(call)  # noqa: S301 -- made by the parent just now


def _end_with(parent: int) -> None:
    """End this process soon after its parent, also where the parent was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _call(item: Any) -> Any:
    function, shared = _shared["call"]
    return function(item, *shared)
