"""Calling a function for many things in processes of this machine, which end with this one."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import Any

from fairkit.errors import EngineError


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
