"""`fairkit --timings COMMAND`: the phases of a run, on stderr and in JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairkit.support.timings import cpu_seconds, timed
from fairkit_cli import BEGUN
from fairkit_cli.terminal.output import say


@contextmanager
def told(wanted: bool) -> Iterator[None]:
    """Time what is done meanwhile, and print it; nothing where it is not wanted."""
    if not wanted:
        yield
        return
    with timed() as taken:
        taken.add("start", time.perf_counter() - BEGUN, cpu_seconds())
        try:
            yield
        finally:
            say("\n".join(["timings", *lines(taken.to_dict())]))


def lines(record: dict[str, Any]) -> list[str]:
    """Return timings as lines for a person: each phase with its share of the processor time."""
    whole = max(record["cpu_seconds"], 1e-9)
    told = [f"{'phase':<14}{'wall s':>9}{'cpu s':>9}{'share':>8}"]
    for each in [*record["phases"], {**record, "phase": "all"}]:
        share = f"{each['cpu_seconds'] / whole:.0%}"
        told.append(f"{each['phase']:<14}{each['wall_seconds']:>9.2f}{each['cpu_seconds']:>9.2f}{share:>8}")
    peak = record["peak_memory_mib"]
    return told if peak is None else [*told, f"peak memory {peak:,.0f} MiB"]
