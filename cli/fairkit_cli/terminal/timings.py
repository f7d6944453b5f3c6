"""`--timings` of every command that works on data or a registry: the phases of a run, on stderr and in JSON."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fairkit.support.timings import cpu_seconds, timed
from fairkit_cli import BEGUN
from fairkit_cli.terminal.output import say

Timings = Annotated[
    bool,
    typer.Option(
        "--timings",
        help="Print how long each phase took (on stderr, and in a JSON result that is an object under `timings`).",
        rich_help_panel="Output",
    ),
]


def with_timings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a command the option ``--timings``."""
    signature = inspect.signature(command, eval_str=True)
    shown = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    option = inspect.Parameter("timings", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Timings)

    def run(*, timings: bool, **typed: Any) -> Any:
        if not timings:
            return command(**typed)
        with timed() as taken:
            taken.add("start", time.perf_counter() - BEGUN, cpu_seconds())
            try:
                return command(**typed)
            finally:
                say("\n".join(["timings", *lines(taken.to_dict())]))

    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    run.__signature__ = signature.replace(parameters=[*shown, option])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in [*shown, option]}
    return run


def lines(record: dict[str, Any]) -> list[str]:
    """Return timings as lines for a person: each phase with its share of the processor time."""
    whole = max(record["cpu_seconds"], 1e-9)
    told = [f"{'phase':<14}{'wall s':>9}{'cpu s':>9}{'share':>8}"]
    for each in [*record["phases"], {**record, "phase": "all"}]:
        share = f"{each['cpu_seconds'] / whole:.0%}"
        told.append(f"{each['phase']:<14}{each['wall_seconds']:>9.2f}{each['cpu_seconds']:>9.2f}{share:>8}")
    peak = record["peak_memory_mib"]
    return told if peak is None else [*told, f"peak memory {peak:,.0f} MiB"]
