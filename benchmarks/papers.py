"""Every table and figure of the five papers beside what fairkit gives.

    FAIRKIT_DATA=... python benchmarks/papers.py [budro.table1 fairgbm ...] [--list] [--runs N] [--rows N] [--fresh]

A name is an exhibit, or a paper for all of its exhibits; without names everything that is missing is run, and the page
docs/reference/papers.md is written from the results.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from pathlib import Path

from papers_kit import Exhibit, PapersError, complete, load, pending, run, write
from papers_page import page, printed

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
MODULES = ("paper_budro", "paper_sensei", "paper_fairgbm", "paper_rto", "paper_fair_regression")


def papers() -> list[tuple[str, str, list[Exhibit]]]:
    """Return short name, title and exhibits of each paper."""
    found = [importlib.import_module(name) for name in MODULES]
    return [(module.NAME, module.TITLE, list(module.EXHIBITS)) for module in found]


def chosen(names: list[str], known: list[tuple[str, str, list[Exhibit]]]) -> list[Exhibit]:
    """Return the exhibits that names stand for.

    Raises
    ------
    PapersError
        A name is unknown.
    """
    everything = [one for _, _, exhibits in known for one in exhibits]
    by_name = {name: [one] for one in everything for name in (one.name, *one.also)}
    by_name |= {name: exhibits for name, _, exhibits in known}
    for name in names:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, n=3)
            hint = f"Did you mean {', '.join(near)}?" if near else "See --list."
            raise PapersError(f"there is no exhibit {name!r}. {hint}")
    wanted = [one for name in names for one in by_name[name]] if names else everything
    return list({one.name: one for one in wanted}.values())


def listed(known: list[tuple[str, str, list[Exhibit]]], results: Path) -> str:
    """Return a line for every exhibit."""
    out = []
    for _, title, exhibits in known:
        out.append(title)
        for one in exhibits:
            state = one.setting.partition(":")[0].lower() if one.setting.startswith("Data not") else "nothing to run"
            if one.runnable:
                missing = len(pending(one, load(results / f"{one.name}.json"), None))
                state = f"{missing} runs missing" if missing else "complete"
            out.append(f"  {one.name:28} {state:18} {one.title}")
    return "\n".join(out)


def arguments(given: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="papers.py", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="budro, budro.table1, ...; default: all")
    parser.add_argument("--list", action="store_true", help="list the exhibits, and run nothing")
    parser.add_argument("--page", action="store_true", help="print and write the page from results, and run nothing")
    parser.add_argument("--runs", type=int, help="random splits (fairgbm: configurations) of every method")
    parser.add_argument("--rows", type=int, help="use a random sample of so many rows")
    parser.add_argument("--only", nargs="*", default=[], metavar="METHOD", help="run these methods only")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where reference/papers.md and images/ are written")
    options = parser.parse_args(given)
    for name in ("runs", "rows"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name}={value}: give a number from 1 on")
    return options


def work(options: argparse.Namespace, known: list[tuple[str, str, list[Exhibit]]]) -> None:
    """Run, print, draw, and write the page."""
    wanted = chosen(options.names, known)
    methods = list(dict.fromkeys(method for exhibit in wanted for method in exhibit.methods))
    for name in options.only:
        if name not in methods:
            raise PapersError(f"there is no method {name!r}; there are {', '.join(methods)}")
    for exhibit in wanted:
        path = options.results / f"{exhibit.name}.json"
        if exhibit.runnable and not options.page:
            run(exhibit, path, count=options.runs, rows=options.rows, only=options.only, fresh=options.fresh)
        print(printed(exhibit, load(path)), flush=True)
    write_page(known, options.results, options.docs)


def write_page(known: list[tuple[str, str, list[Exhibit]]], results: Path, docs: Path) -> None:
    """Draw the figures and write the page from what the results hold."""
    found, images = {}, {}
    for _, _, exhibits in known:
        for one in exhibits:
            found[one.name] = load(results / f"{one.name}.json")
            if one.figure is not None and complete(one, found[one.name]):
                image = f"papers-{one.name.replace('.', '-')}.svg"
                write(docs / "images" / image, one.figure(found[one.name]["runs"]))
                images[one.name] = f"../images/{image}"
    write(docs / "reference" / "papers.md", page(known, found, images))


def main(given: list[str] | None = None) -> int:
    """Return the exit code."""
    options = arguments(given)
    try:
        known = papers()
        if options.list:
            print(listed(known, options.results))
        else:
            work(options, known)
    except PapersError as error:
        print(f"papers.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
