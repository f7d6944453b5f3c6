"""`fairkit packs`: the renderings for laws, and the state of their clauses."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit_cli import options as opt
from fairkit_cli.packs import find_pack, installed
from fairkit_cli.terminal.output import INCONCLUSIVE, PASSED, echo, print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    help="Renderings for laws: what they are, and which clauses apply.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)
Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME...", help="Packs; without any: all.", show_default=False)
]


@app.callback(invoke_without_command=True)
def packs(ctx: typer.Context, output_format: opt.TableFormat = "table") -> None:
    """List the renderings for laws: name, law, source, edition, and the day on which the source was checked."""
    if ctx.invoked_subcommand is not None:
        return
    found, failures = installed()
    if output_format == "json":
        print_json([pack.to_dict() for pack in found.values()])
    for pack in found.values() if output_format == "table" else ():
        echo(
            f"{pack.name}  {pack.title}",
            f"    {pack.law}",
            f"    {pack.source}, checked {pack.checked}, status {pack.to_dict()['status'] or 'unknown'}",
            f"    facts: {', '.join(fact.key for fact in pack.facts) or 'none'}",
        )
    for failure in failures:
        say(failure)


@app.command("status")
def status(
    names: Names = None,
    *,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit code 3 where a clause is overdue, or lacks its source or its mark: for releases."
        ),
    ] = False,
    output_format: opt.TableFormat = "table",
) -> None:
    """List every clause by the day until which its check counts: state today, mark, what may change it."""
    from fairkit_cli.options.data import today

    rows = sorted(clauses(names, today()), key=lambda row: (row["recheck_by"], row["pack"]))
    if output_format == "json":
        print_json(rows)
    else:
        for row in rows:
            odd = [*(["OVERDUE"] if row["overdue"] else []), *(f"LACKS {word}" for word in row["lacks"])]
            said = f"{row['recheck_by']}  {row['pack']}  {row['clause']}: {row['today']} ({row['mark'] or 'no mark'})"
            echo("  ".join([said, *odd]))
        echo(*dict.fromkeys(f"may change  {row['pack']}: {what}" for row in rows for what in row["watch"]))
    raise typer.Exit(INCONCLUSIVE if strict and any(row["overdue"] or row["lacks"] for row in rows) else PASSED)


def clauses(names: Sequence[str] | None, day: str) -> list[dict[str, Any]]:
    """Return a record for each clause of the packs named, or of all."""
    from fairkit.plugins.finding import pack_plugins

    if names:
        chosen = [find_pack(name) for name in names]
    else:
        found, failures = installed()
        chosen = list(found.values())
        for failure in failures:
            say(failure)
    form, today = pack_plugins()[1], datetime.date.fromisoformat(day)
    return [{"pack": pack.name, **record} for pack in chosen for record in form.clauses(pack, today)]
