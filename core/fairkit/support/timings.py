"""Where the time of a run goes: phases that are named where the work is done, and added up while somebody asks."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

Phase = Literal[
    "start", "read", "load model", "score", "measure", "train", "learn metric", "search", "intervals", "export",
    "write", "other",
]  # fmt: skip
"""What time is spent on; ``other`` is all that nobody named."""

Item = TypeVar("Item")


@dataclass(slots=True)
class Spent:
    """Seconds of one phase: on the wall's clock, and of all processors, of this process and its children."""

    wall: float = 0.0
    cpu: float = 0.0


@dataclass(slots=True)
class Timings:
    """The phases of one run, each without those inside it: they add up to the whole."""

    spent: dict[str, Spent] = field(default_factory=dict)  # by phase, in the order in which they began
    _open: list[str] = field(default_factory=lambda: ["other"])
    _beside: float = 0.0
    _mark: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), cpu_seconds()))

    def begin(self, name: str) -> None:
        """Enter a phase; the one around it pauses."""
        self._book()
        self._open.append(name)

    def end(self) -> None:
        """Leave it."""
        self._book()
        self._open.pop()

    def add(self, name: str, wall: float, cpu: float) -> None:
        """Book seconds that were measured elsewhere."""
        spent = self.spent.setdefault(name, Spent())
        spent.wall += wall
        spent.cpu += cpu

    def beside(self, name: str, cpu: float) -> None:
        """Book processor time of a thread that worked beside this one; no phase of this one has it."""
        self.add(name, 0.0, cpu)
        self._beside += cpu

    def to_dict(self) -> dict[str, Any]:
        """Return the seconds of each phase so far and of all, and the peak of memory in MiB (None where unknown)."""
        self._book()
        return {
            "phases": [
                {"phase": name, "wall_seconds": round(spent.wall, 4), "cpu_seconds": round(spent.cpu, 4)}
                for name, spent in self.spent.items()
            ],
            "wall_seconds": round(sum(spent.wall for spent in self.spent.values()), 4),
            "cpu_seconds": round(sum(spent.cpu for spent in self.spent.values()), 4),
            "peak_memory_mib": peak_memory(),
        }

    def _book(self) -> None:
        now = time.perf_counter(), cpu_seconds() - self._beside
        self.add(self._open[-1], now[0] - self._mark[0], now[1] - self._mark[1])
        self._mark = now


_running: ContextVar[Timings | None] = ContextVar("fairkit_timings", default=None)


def running() -> Timings | None:
    """Return the timings that are being taken, or None."""
    return _running.get()


@contextmanager
def timed() -> Iterator[Timings]:
    """Take the time of the phases inside; in this thread, and with the processor time of all."""
    timings = Timings()
    token = _running.set(timings)
    try:
        yield timings
    finally:
        _running.reset(token)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Name the work inside; it costs nothing where nobody takes the time."""
    timings = _running.get()
    if timings is None:
        yield
        return
    timings.begin(name)
    try:
        yield
    finally:
        timings.end()


def each(name: Phase, items: Iterable[Item]) -> Iterator[Item]:
    """Iterate, and name the making of each item; what is done with an item is not in it."""
    iterator = iter(items)
    while True:
        with phase(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children; of those that run where the system says so."""
    times = os.times()
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(_child_cpu(child) for child in _children())


def peak_memory() -> float | None:
    """Return the most memory that this process has held, and its children that run, in MiB; None where unknown."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = most / (2**20 if sys.platform == "darwin" else 2**10)
    return round(peak + sum(_child_peak(child) for child in _children()), 1)


def _children() -> list[Path]:
    """Return the system's folder of each child process that runs; none but on Linux."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 -- often called
            return [Path("/proc", number) for number in file.read().split()]
    except OSError:
        return []


def _child_cpu(child: Path) -> float:
    """Return the seconds of a child: the 14th and 15th field of its line (proc(5))."""
    try:
        fields = (child / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):  # it has ended meanwhile
        return 0.0


def _child_peak(child: Path) -> float:
    """Return the most memory of a child, in MiB."""
    try:
        for line in (child / "status").read_text("utf-8", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except (OSError, ValueError, IndexError):  # it has ended meanwhile
        return 0.0
    return 0.0


# Items that a thread makes while those before them are worked on.


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
