"""The page on the papers, and the tables on a terminal, from results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from papers_kit import Exhibit, Number, Table, complete, within

UNEXPLAINED = "**Unexplained.**"

HEAD = """<!-- Written by benchmarks/papers.py from benchmarks/results/. -->

# The five papers, table by table

Every table and figure of the papers behind five of fairkit's methods, run with fairkit, beside the numbers that the
papers print. A cell holds our mean ± standard deviation over the runs and, in brackets, the paper's. **≠** marks a mean
that is not within two of the paper's standard deviations (of ours, where the paper prints none); below the table stands
why, and what was tried.

    FAIRKIT_DATA=FOLDER python benchmarks/papers.py --list
    FAIRKIT_DATA=FOLDER python benchmarks/papers.py budro.table1

The command prints the tables, draws the figures, keeps every run in `benchmarks/results/` and writes this page from
them. It runs what is missing; `--runs N` and `--rows N` change the sizes, `--fresh` starts again.
"""


def shown(number: Number) -> str:
    """Write a mean and its standard deviation."""
    mean, sd = number
    text = f"{mean:.3f}" if abs(mean) < 10 else f"{mean:.1f}"
    return text if sd is None else f"{text} ± {sd:.3f}" if abs(mean) < 10 else f"{text} ± {sd:.1f}"


def columns_of(exhibit: Exhibit, table: Table) -> list[str]:
    """Return the columns: the paper's first."""
    theirs = [column for row in exhibit.paper.values() for column in row]
    ours = [column for row in table.values() for column in row]
    return list(dict.fromkeys([*theirs, *ours]))


def cell(exhibit: Exhibit, table: Table, method: str, column: str) -> str:
    """Write ours and the paper's."""
    ours = table.get(method, {}).get(column)
    theirs = exhibit.paper.get(method, {}).get(column)
    if ours is None:
        without = "none" if method in table else "not run"
        return "" if theirs is None else f"{without} ({shown(theirs)})"
    if theirs is None:
        return shown(ours)
    return f"{shown(ours)} ({shown(theirs)}){'' if within(ours, theirs) else ' ≠'}"


def differences(exhibit: Exhibit, table: Table) -> list[tuple[str, str, str]]:
    """Return (method, column, reason) of what is not met."""
    return [
        (method, column, exhibit.reason(method, column))
        for method, row in exhibit.paper.items()
        for column, theirs in row.items()
        if column in table.get(method, {}) and not within(table[method][column], theirs)
    ]


def not_run(exhibit: Exhibit, table: Table) -> list[tuple[str, str]]:
    """Return (method, reason) of the paper's rows that nobody ran."""
    return [(method, exhibit.reason(method)) for method in exhibit.paper if method not in table]


def section(exhibit: Exhibit, results: Mapping[str, Any] | None, image: str = "") -> str:
    """Return one exhibit's part of the page."""
    out = [f"### {', '.join([exhibit.name, *exhibit.also])}: {exhibit.title}", "", exhibit.setting, ""]
    picture = image or exhibit.image
    if not exhibit.runnable:
        return "\n".join([*out, *([f"![{exhibit.title}]({picture})", ""] if picture else [])])
    if results is None or not results["runs"]:
        return "\n".join([*out, "**Not run yet.**", ""])
    out += [size(exhibit, results), ""]
    table = exhibit.numbers(results["runs"])
    if table:
        columns = columns_of(exhibit, table)
        rows = list(dict.fromkeys([*table, *exhibit.paper]))
        out += [f"| | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
        out += [f"| {method} | {' | '.join(cell(exhibit, table, method, c) for c in columns)} |" for method in rows]
        out.append("")
        out += reasons(exhibit, table)
    if exhibit.claims is not None and complete(exhibit, results):
        out += [f"- {said(text, so)}" for text, so in exhibit.claims(results["runs"])]
        out.append("")
    if picture:
        out += [f"![{exhibit.title}]({picture})", ""]
    return "\n".join([*out, *(part for note in exhibit.notes for part in (note, ""))])


def said(text: str, so: bool) -> str:
    """Write a statement of the paper, or of ours, with what was found here."""
    if text.startswith("Ours: "):
        return text if so else f"{text} **Not met.**"
    return f"{'Here too' if so else '**Not here**'}: {text}"


def reasons(exhibit: Exhibit, table: Table) -> list[str]:
    """Return a line for every reason, with all the numbers that it explains."""
    by_reason: dict[str, list[str]] = {}
    for method, column, reason in differences(exhibit, table):
        by_reason.setdefault(reason or UNEXPLAINED, []).append(f"{method}, {column}")
    for method, reason in not_run(exhibit, table):
        by_reason.setdefault(reason or UNEXPLAINED, []).append(method)
    if not by_reason:
        return ["All numbers are within two standard deviations.", ""] if exhibit.paper else []
    return [*(f"- ≠ {'; '.join(names)}: {reason}" for reason, names in by_reason.items()), ""]


def size(exhibit: Exhibit, results: Mapping[str, Any]) -> str:
    """Say how much was run."""
    counts: dict[str, int] = {}
    for one in results["runs"]:
        counts[one["method"]] = counts.get(one["method"], 0) + 1
    spread = sorted(set(counts.values()))
    runs = f"{spread[0]} to {spread[-1]}" if len(spread) > 1 else str(spread[0])
    seconds = sum(one["cpu_seconds"] for one in results["runs"])
    rows = "all rows" if results["rows"] is None else f"{results['rows']:,} rows"
    some = "run" if runs == "1" else "runs"
    return f"Run: {runs} {some} of each, {rows}; {seconds:,.0f} CPU seconds together."


def printed(exhibit: Exhibit, results: Mapping[str, Any] | None) -> str:
    """Return the table for a terminal."""
    out = [f"\n{exhibit.name}: {exhibit.title}"]
    if not exhibit.runnable:
        return "\n".join([*out, f"  {exhibit.setting}"])
    if results is None:
        return "\n".join([*out, "  not run yet"])
    out.append(f"  {size(exhibit, results)}")
    table = exhibit.numbers(results["runs"])
    columns = columns_of(exhibit, table)
    cells = [["", *columns]] + [
        [method, *(cell(exhibit, table, method, column) for column in columns)]
        for method in dict.fromkeys([*table, *exhibit.paper])
    ]
    if table:
        widths = np.max([[len(text) for text in row] for row in cells], axis=0)
        out += ["  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    for method, column, reason in differences(exhibit, table):
        out.append(f"  {method}, {column}: {reason or UNEXPLAINED}")
    if exhibit.claims is not None and complete(exhibit, results):
        out += [f"  {said(text, so)}" for text, so in exhibit.claims(results["runs"])]
    return "\n".join(out)


def page(
    papers: Sequence[tuple[str, str, Sequence[Exhibit]]], found: Mapping[str, Any], images: Mapping[str, str]
) -> str:
    """Return the whole page: (short name, title, exhibits) of each paper; results and images by exhibit."""
    out = [HEAD]
    for _, title, exhibits in papers:
        out.append(f"## {title}\n")
        out += [section(one, found.get(one.name), images.get(one.name, "")) for one in exhibits]
    return "\n".join(out).rstrip() + "\n"
