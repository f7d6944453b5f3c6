"""`fairkit coverage`: do the intervals of any library hold the truth, and how wide are they?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import echo, print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_testing.coverage import Coverage

_FORMATS = ("table", "json")


def coverage(
    runner: Annotated[
        str,
        typer.Argument(
            metavar="RUNNER",
            help='The command that makes intervals, such as "python runner.py": it reads a sample as a line of JSON '
            "from its input and answers with a line of JSON.",
        ),
    ],
    *,
    family: Annotated[
        list[str] | None, opt.option("--family", "NAME", "Only this family of populations; repeatable.")
    ] = None,
    every: Annotated[int, opt.option("--every", "N", "Only each N-th population.")] = 1,
    samples: Annotated[int, opt.option("--samples", "N", "Samples of each population.")] = 200,
    confidence: Annotated[float, opt.option("--confidence", "C", "The confidence of the intervals.")] = 0.95,
    seed: Annotated[int, opt.option("--seed", "N", "The seed of the samples.")] = 0,
    output_format: Annotated[str, opt.option("--format", "NAME", "table or json.")] = "table",
    output: Annotated[Path | None, opt.option("--output", "FILE", "Write the JSON to a file, too.")] = None,
) -> None:
    """Measure how often a library's intervals hold the truth, on populations whose truth is known."""
    import json

    from fairkit.support.files import check_writable, write_atomic
    from fairkit_testing.coverage import Runner, chosen_populations, coverage_of

    for name, number, good in (
        ("every", every, every >= 1),
        ("samples", samples, samples >= 1),
        ("confidence", confidence, 0 < confidence < 1),
    ):
        if not good:
            raise ParameterError(f"`{name}` is {number}; it must be {_RANGES[name]}")
    if output_format not in _FORMATS:
        raise ParameterError(f"`format` is {output_format!r}; there are {', '.join(_FORMATS)}")
    if output is not None:
        check_writable(output)
    populations = chosen_populations(family or (), every)
    cells: list[Coverage] = []
    with Runner(runner) as running:
        for cell in coverage_of(running, populations, samples=samples, seed=seed, confidence=confidence):
            cells.append(cell)
            if output_format == "table":
                echo(_line(cell))
    record = {"runner": runner, "samples": samples, "seed": seed, "confidence": confidence,
              "populations": [cell.to_dict() for cell in cells]}  # fmt: skip
    if output_format == "json":
        print_json(record)
    else:
        for line in _summary(cells):
            say(line)
    if output is not None:
        write_atomic(output, json.dumps(record, indent=1) + "\n")
    raise typer.Exit(int(any(not cell.holds for cell in cells)))


_RANGES = {"every": "1 or more", "samples": "1 or more", "confidence": "between 0 and 1"}


def _line(cell: Coverage) -> str:
    name = f"{cell.family}: {cell.name}"
    if cell.covers is None:
        return f"{name:<76} no such number"
    width = "-" if cell.width is None else f"{cell.width:.4g}"
    mark = "" if cell.holds else "  does not hold"
    return f"{name:<76}{cell.covers:7.3f}{cell.noted:7.3f}{cell.false_pass:7.3f}{width:>10}{mark}"


def _summary(found: Sequence[Coverage]) -> list[str]:
    supported = [cell for cell in found if cell.covers is not None]
    lines = [
        "Columns: the share of intervals that hold the truth or are noted, the share that is noted, that of false "
        "passes, and the median width.",
        f"{len(supported)} of {len(found)} populations are supported; {sum(not cell.holds for cell in supported)} do "
        "not hold",
    ]
    if supported:
        worst = min(supported, key=lambda cell: cell.covers or 0.0)
        lines.append(f"worst coverage: {worst.covers:.3f}, {worst.family}: {worst.name}")
    return lines
