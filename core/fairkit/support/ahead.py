"""Items that a thread makes while those before them are worked on."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from fairkit.support.timings import Phase, running

Item = TypeVar("Item")


def ahead(name: Phase, items: Iterator[Item], threads: int | None = None) -> Iterator[Item]:
    """Return the items, each made in a thread of its own while the one before is used; an error comes in its place.

    Numpy, Arrow and hashes let two threads work at a time. With one processor nothing is made ahead.
    """
    from concurrent.futures import ThreadPoolExecutor

    if (threads or _processors()) < 2:
        yield from items
        return

    def made() -> tuple[list[Item], float]:
        begun = time.thread_time()
        return list(itertools.islice(items, 1)), time.thread_time() - begun

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(made)
        while True:
            item, spent = waiting.result()
            timings = running()
            if timings is not None:
                timings.beside(name, spent)
            if not item:
                return
            waiting = thread.submit(made)
            yield item[0]


def threads(parts: Sequence[object] = ()) -> int | None:
    """Return how many threads a function may use on the worker that runs it; None where that is nobody's worker."""
    if any(getattr(part, "alone", False) for part in parts):  # a connection belongs to one thread
        return 1
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return int(distributed.get_worker().state.nthreads)
    except ValueError:
        return None


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
