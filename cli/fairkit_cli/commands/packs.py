"""`fairkit packs`: the renderings for laws, the state of their clauses, and whether their sources have changed."""

from __future__ import annotations

import datetime
import functools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.packs import find_pack, installed
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, echo, print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.clauses import Validity
    from fairkit.packs import PackFile

app = typer.Typer(
    help="Renderings for laws: what they are, which clauses apply, what has changed.",
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
            f"    {pack.source}, checked {pack.validity.checked}, status {pack.validity.status or 'unknown'}",
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
            "--strict",
            help="Exit code 3 where a clause is overdue, or lacks its source or its mark: for releases.",
        ),
    ] = False,
    output_format: opt.TableFormat = "table",
) -> None:
    """List every clause by the day until which its check counts: state today, mark, what may change it."""
    from fairkit_cli.options.about import today

    day = datetime.date.fromisoformat(today())
    listed = [(pack, item.clause, item.validity) for pack in _chosen(names) for item in pack.items]
    listed.sort(key=lambda one: (one[2].recheck_by, one[0].name))
    rows = [_status_row(pack, clause, validity, day) for pack, clause, validity in listed]
    if output_format == "json":
        print_json([asdict(row) for row in rows])
    else:
        echo(*(row.line for row in rows))
        echo(
            *dict.fromkeys(f"may change  {pack.name}: {one.what}" for pack, _, v in listed for one in v.watch)
        )
    raise typer.Exit(INCONCLUSIVE if strict and any(row.overdue or row.lacks for row in rows) else PASSED)


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A clause in `fairkit packs status`: its state today, and what its check lacks."""

    recheck_by: str
    pack: str
    clause: str
    today: str
    mark: str | None
    checked: str
    overdue: bool
    lacks: tuple[str, ...]
    watch: tuple[str, ...]

    @property
    def line(self) -> str:
        """The row in a line of text."""
        odd = [*(["OVERDUE"] if self.overdue else []), *(f"LACKS {word}" for word in self.lacks)]
        said = f"{self.recheck_by}  {self.pack}  {self.clause}: {self.today} ({self.mark or 'no mark'})"
        return "  ".join([said, *odd])


def _status_row(pack: PackFile, clause: str, validity: Validity, day: datetime.date) -> StatusRow:
    required = {"status": validity.status, "source": validity.sources, "mark": validity.mark}
    state = validity.on(day)
    return StatusRow(
        recheck_by=validity.recheck_by.isoformat(),
        pack=pack.name,
        clause=clause,
        today="applies" if state == "applies" else validity.say(state),
        mark=validity.mark,
        checked=validity.checked.isoformat(),
        overdue=day > validity.recheck_by and pack.kept_until is None,
        lacks=tuple(word for word, value in required.items() if not value),
        watch=tuple(one.what for one in validity.watch),
    )


@app.command("drift")
def drift(names: Names = None, *, output_format: opt.TableFormat = "table") -> None:
    """Fetch every source, and compare the quoted words and the text's digest with those of the pack.

    Exit code 0: all are the same; 1: one has changed; 3: none has changed, and one could not be verified. No other
    command of packs uses the network.
    """
    from fairkit_cli.drift import drift_of, fetched

    fetch = functools.cache(fetched)
    found = [(pack.name, drift_of(item, fetch)) for pack in _chosen(names) for item in pack.items]
    if output_format == "json":
        print_json([{"pack": name, **asdict(one)} for name, one in found])
    else:
        for name, one in found:
            echo(f"{one.result:16}  {name}  {one.clause}: {one.reason} ({one.address or 'no source'})")
    results = {one.result for _, one in found}
    code = INCONCLUSIVE if "could not verify" in results else PASSED
    raise typer.Exit(FAILED if "changed" in results else code)


def _chosen(names: Sequence[str] | None) -> list[PackFile]:
    if names:
        return [find_pack(name) for name in names]
    found, failures = installed()
    for failure in failures:
        say(failure)
    return list(found.values())
