"""`fairkit ask plan` and `fairkit ask names`: sizes from a pilot, and the lists of names with their balance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import echo, print_json
from fairkit_correspondence.commands.lines import balance_lines


def plan(
    pilot: Annotated[Path, typer.Argument(metavar="PILOT.parquet", help="A pilot's answers.")],
    *,
    sensitive: Annotated[
        str | None,
        opt.option("--sensitive", "COL", "The column of groups. Default: the one that the file names."),
    ] = None,
    answer: Annotated[str, opt.option("--answer", "COL", "The column of answers in [0, 1].")] = "answer",
    assignments: opt.Assignments = None,
    limit: Annotated[float, opt.option("--limit", "X", "The difference that matters, in [0, 1].")] = 0.05,
    truth: Annotated[float, opt.option("--truth", "X", "The true difference to plan for.")] = 0.0,
    power: Annotated[float, opt.option("--power", "P", "The chance of a verdict.")] = 0.8,
    names: Annotated[int, opt.option("--names", "N", "Names a group.", min=2)] = 40,
    output_format: opt.TableFormat = "table",
) -> None:
    """Say how many documents and calls decide a limit, from a pilot's answers."""
    from fairkit.data.loading import load_data
    from fairkit.parameters.declare import parse_parameters, split_assignment
    from fairkit_cli.subject import carried_by
    from fairkit_correspondence.parameters import Parameters
    from fairkit_correspondence.planning import documents_needed, names_needed
    from fairkit_correspondence.reading import pilot_of

    column = sensitive or next(iter(carried_by(str(pilot)).get("sensitive", ())), None)
    if column is None:
        raise ParameterError("which column holds the groups? Name it with --sensitive COL")
    told = dict(split_assignment(text) for text in assignments or ())
    told = {key.removeprefix("correspondence."): value for key, value in told.items()}
    parameters = parse_parameters(Parameters, told, owner="correspondence")
    data = load_data(pilot, sensitive=[column], predictions={"answer": answer})
    spread, groups, contexts = pilot_of(data, parameters)
    rows = []
    for each in (1, 2, 4, 8):
        found = documents_needed(spread, names, each * contexts, limit=limit, truth=truth, power=power)
        calls = None if found is None else found * contexts * groups * each
        rows.append({"names_per_document": each, "documents": found, "calls": calls})
    record = {
        "interaction": spread.interaction, "answer": spread.answer, "name": spread.name, "limit": limit, "truth": truth,
        "power": power, "names": names, "names_needed": names_needed(spread, limit), "sizes": rows,
    }  # fmt: skip
    if output_format == "json":
        print_json(record)
        return
    echo(
        f"variances: document x group {spread.interaction:.4f}, answer {spread.answer:.4f}, names {spread.name:.4f}",
        f"limit {limit:g}, true difference {truth:g}, {power:.0%} chance, {contexts} contexts, {groups} groups, "
        f"{names} names a group ({record['names_needed']} are needed)",
        *(
            f"  {row['names_per_document']} names on each document: "
            + (
                f"{row['documents']:,} documents, {row['calls']:,} calls"
                if row["documents"]
                else "not decidable"
            )
            for row in rows
        ),
    )


def names(
    source: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A CSV file of names, or a published list by name.")
    ] = None,
    *,
    column: Annotated[str, opt.option("--column", "COL", "The column that holds the group.")] = "group",
    output_format: opt.TableFormat = "table",
) -> None:
    """List the published lists of names with their licences, or print how alike the groups of a list are."""
    from fairkit_correspondence.stimuli import LISTS, balance, read_names

    if source is None:
        if output_format == "json":
            print_json(
                {name: {"licence": one.licence, "files": dict(one.files)} for name, one in LISTS.items()}
            )
            return
        for name, one in LISTS.items():
            echo(f"{name}: {one.about}", f"  licence: {one.licence}", *(f"  {url}" for url in one.files))
        return
    found = balance(read_names(source, Path(), None, column))
    if output_format == "json":
        print_json(found)
    else:
        echo("Means by group; these names differ in more than group:", *balance_lines(found))
