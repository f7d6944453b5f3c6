"""What the papers' modules share: exhibits, their results as JSON, and the comparison with printed numbers."""

from __future__ import annotations

import functools
import json
import os
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairkit.errors import FairkitError

SCHEMA = "fairkit.papers/1"
Number = tuple[float, float | None]
"""Mean and standard deviation; None where there is none."""
Table = dict[str, dict[str, Number]]
"""Method -> column -> number."""
Run = dict[str, Any]
"""One run of one method: {"method", "run", "cpu_seconds", "values"}."""


class PapersError(Exception):
    """A message for the user."""


def folder() -> Path:
    """The folder with the public data sets."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("FAIRKIT_DATA", default))


def find(name: str) -> Path:
    """Return the file of one of the public data sets."""
    path = folder() / f"{name}.parquet"
    if not path.exists():
        raise PapersError(f"{path} does not exist: name the folder with {path.name} in FAIRKIT_DATA")
    return path


def read(name: str):
    """Read one of the public data sets."""
    import pandas as pd

    return pd.read_parquet(find(name))


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One table or figure of a paper.

    Attributes
    ----------
    name
        As in budro.table1; its title, setting, notes and reasons stand in papers.toml.
    also
        Other names: tables and figures of the same runs.
    methods
        In the order of the table.
    compute
        (method, number of the run, rows or None) -> what is kept as JSON: numbers by column, or what `table` reads.
    count
        Runs of every method: random splits, or random configurations.
    counts
        Where it is another for some methods, and cannot be more.
    most
        The most runs that there are.
    rows
        How many rows by default; None: all.
    table
        From the runs to the numbers shown; by default mean and standard deviation over the runs.
    paper
        What the paper prints.
    claims
        From the runs to what the paper says in words: (sentence, whether it is so here).
    figure
        From the runs to an SVG.
    image
        A picture that another script draws, relative to docs/.
    """

    name: str
    also: Sequence[str] = ()
    methods: Sequence[str] = ()
    compute: Callable[[str, int, int | None], Mapping[str, Any]] | None = None
    count: int = 1
    counts: Mapping[str, int] = field(default_factory=dict)
    most: int | None = None
    rows: int | None = None
    table: Callable[[Sequence[Run]], Table] | None = None
    paper: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    claims: Callable[[Sequence[Run]], list[tuple[str, bool]]] | None = None
    figure: Callable[[Sequence[Run]], str] | None = None
    image: str = ""

    @property
    def runnable(self) -> bool:
        """Whether there is something to run."""
        return self.compute is not None

    def numbers(self, runs: Sequence[Run]) -> Table:
        """Return what the table shows."""
        return (self.table or moments)(runs)

    def asked(self, method: str, count: int | None) -> range:
        """Return the numbers of the runs of a method."""
        limit = self.counts.get(method, self.most)
        wanted = self.counts.get(method, self.count) if count is None else count
        return range(wanted if limit is None else min(wanted, limit))

    @property
    def title(self) -> str:
        """Return the title."""
        return str(texts()[self.name]["title"])

    @property
    def setting(self) -> str:
        """Return how it is run here."""
        return str(texts()[self.name]["setting"])

    @property
    def notes(self) -> list[str]:
        """Return what stands below the table."""
        return list(texts()[self.name].get("notes", []))

    def reason(self, method: str, column: str = "") -> str:
        """Return why a number is not met, or a method not run; "" if nobody says."""
        for one in texts()[self.name].get("reasons", []):
            if any(key in one["of"] for key in (f"{method} | {column}", method, column)):
                return str(one["because"])
        return ""


@functools.cache
def texts() -> dict[str, Any]:
    """Read papers.toml."""
    return tomllib.loads(Path(__file__).with_name("papers.toml").read_text("utf-8"))


def moments(runs: Sequence[Run]) -> Table:
    """Return mean and standard deviation over the runs, by method and column; lists are left out."""
    found: Table = {}
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run["values"] for run in runs if run["method"] == method]
        found[method] = {}
        for column, first in own[0].items():
            if isinstance(first, (int, float)):
                found[method][column] = moment([values[column] for values in own])
    return found


def moment(values: Sequence[float]) -> Number:
    """Return mean and standard deviation; of one value no standard deviation."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def within(ours: Number, theirs: Number) -> bool:
    """Say whether our mean is within two standard deviations of theirs (ours, where they print none)."""
    sd = theirs[1] if theirs[1] is not None else ours[1] or 0.0
    return abs(ours[0] - theirs[0]) <= 2 * sd + 0.0005 + 1e-12


def pending(exhibit: Exhibit, results: Mapping[str, Any] | None, count: int | None) -> list[tuple[str, int]]:
    """Return the runs that are not among the results."""
    done = {(run["method"], run["run"]) for run in (results or {}).get("runs", [])}
    return [
        (method, number)
        for method in exhibit.methods
        for number in exhibit.asked(method, count)
        if (method, number) not in done
    ]


def complete(exhibit: Exhibit, results: Mapping[str, Any] | None) -> bool:
    """Say whether every method was run at least once: statements and drawings compare them."""
    return set(exhibit.methods) <= {one["method"] for one in (results or {}).get("runs", [])}


def run(
    exhibit: Exhibit,
    path: Path,
    *,
    count: int | None = None,
    rows: int | None = None,
    only: Sequence[str] = (),
    fresh: bool = False,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run what is missing, keeping the file up to date after every run; return all results.

    Raises
    ------
    PapersError
        The file is of other sizes, or is not ours; a method cannot be run on these rows.
    """
    assert exhibit.compute is not None
    rows = exhibit.rows if rows is None else rows
    results = load(path) if only or not fresh else None
    results = forgotten(results, only) if fresh else results
    if results is not None and results["rows"] != rows:
        raise PapersError(
            f"{path} holds runs on {results['rows'] or 'all'} rows, not {rows or 'all'}: give --rows, or run "
            "everything again with --fresh"
        )
    strange = {one["method"] for one in (results or {}).get("runs", [])} - set(exhibit.methods)
    if strange:
        raise PapersError(f"{path} holds runs of {min(strange)!r}, which is no method: run with --fresh")
    results = results or {"schema": SCHEMA, "name": exhibit.name, "rows": rows, "runs": []}
    if count is not None:
        for method in exhibit.methods:
            if (there := len(exhibit.asked(method, count))) < count:
                log(f"{exhibit.name}  {method}: {there} runs are all there are")
    for method, number in sorted(pending(exhibit, results, count), key=lambda key: key[1]):
        if only and method not in only:
            continue
        start = time.process_time()
        try:
            values = dict(exhibit.compute(method, number, rows))
        except FairkitError as error:
            raise PapersError(f"{exhibit.name}, {method}: {error}") from None
        seconds = round(time.process_time() - start, 2)
        results["runs"].append({"method": method, "run": number, "cpu_seconds": seconds, "values": _rounded(values)})
        results["runs"].sort(key=lambda one: (exhibit.methods.index(one["method"]), one["run"]))
        save(path, results)
        log(f"{exhibit.name}  {method}, run {number}: {seconds:.0f} CPU s")
    return results


def forgotten(results: dict[str, Any] | None, only: Sequence[str]) -> dict[str, Any] | None:
    """Return the results without the runs of the methods named."""
    kept = [one for one in (results or {}).get("runs", []) if one["method"] not in only]
    return {**results, "runs": kept} if results and kept else None


def load(path: Path) -> dict[str, Any] | None:
    """Read results, None where there are none."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise PapersError(f"{path} is not JSON ({error}): delete it, or run with --fresh") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise PapersError(f"{path} does not say {SCHEMA!r}: delete it, or run with --fresh")
    return found


def save(path: Path, results: Mapping[str, Any]) -> None:
    """Write results, one run a line, under a temporary name first."""
    head = {key: value for key, value in results.items() if key != "runs"}
    lines = ",\n".join(json.dumps(one) for one in results["runs"])
    write(path, f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n')


def write(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.part")
    made.write_text(text, "utf-8")
    made.replace(path)


def _rounded(value: Any) -> Any:
    """Return plain JSON values, numbers to five digits."""
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.5g}") if isinstance(value, float) else value
