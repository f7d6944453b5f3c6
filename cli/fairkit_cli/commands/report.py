"""`fairkit report`: a page from certificates that are checked first."""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.packs import find_pack, installed, read_facts_file, rendered
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, echo, print_json, record_text, say, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.packs import Rendering
    from fairkit_cli.evidence import Shown
    from fairkit_cli.pages.watch import Monitoring
    from fairkit_watch.watch import Watch


def report(
    certificates: Annotated[list[Path], typer.Argument(metavar="CERT", help="Certificates, from `fairkit certify`.")],
    keys: Annotated[
        list[Path] | None,
        opt.option("--key", "PUB", "Public key that you trust (repeatable). Without one no signature is checked."),
    ] = None,
    pack: Annotated[
        str | None,
        opt.option("--pack", "NAME", "Fill this law's rendering from one certificate: `fairkit packs` lists them."),
    ] = None,
    facts: Annotated[
        Path | None,
        opt.option("--facts", "FILE", "A TOML file with what no tool can know; with --pack. What lacks is a gap."),
    ] = None,
    watched: Annotated[
        Path | None,
        opt.option(
            "--watch",
            "FOLDER",
            "A watch of the newest certificate's model: adds what came since, to a pack where it asks for monitoring.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="With --pack: exit code 3 where an item is not answered, or its clause is not law on the audit's date "
            "and today, is overdue for a check, or was not compared with the official text.",
        ),
    ] = False,
    accept_status: Annotated[
        str | None,
        opt.option(
            "--accept-status",
            "STATE,STATE",
            "With --strict: let clauses pass that are later (not yet applicable), adopted, stayed or proposed.",
        ),
    ] = None,
    accept_unread: Annotated[
        str | None,
        opt.option(
            "--accept-unread",
            "PERSON",
            "With --strict: let clauses pass that were not compared with the official text; the page names the person.",
        ),
    ] = None,
    output_format: Annotated[
        str, opt.formats("html", "markdown: with --pack", "csv: the tables, with --pack", "json: with --pack")
    ] = "html",
    output: opt.Output = None,
) -> None:
    """Make a page from one or several certificates: versions over time, two models. Each is checked first.

    A page from evidence that does not hold says so in red, and the exit code is 1. With --pack it is what a law asks
    for, item by item, with what held on the audit's date and what holds today; an item that is not answered is a
    visible gap, and with --strict the exit code is 3.
    """
    from fairkit_cli.evidence import read_evidence

    if pack is None and (facts is not None or strict or output_format != "html"):
        raise ParameterError(
            "--facts, --strict, --format markdown, --format csv and --format json belong to --pack NAME"
        )
    if pack is not None and len(certificates) != 1:
        raise ParameterError("--pack renders one certificate; name one")
    accepted = _accepted(accept_status, accept_unread, strict=strict)
    chosen = None if pack is None else find_pack(pack)
    if chosen is not None and watched is not None and all(item.table != "monitoring" for item in chosen.items):
        raise ParameterError(
            f"the pack {chosen.name!r} has no item about a watch: leave --watch out, or name eu-ai-act-monitoring"
        )
    stated = {} if chosen is None else read_facts_file(chosen, facts)
    shown = read_evidence(certificates, keys or ())
    if chosen is None:
        from fairkit_cli.options.data import today
        from fairkit_cli.pages.certificates import evidence_page
        from fairkit_cli.render.html import html_page

        monitoring = None if watched is None else monitored(watched, shown[-1])
        text, complete = html_page(evidence_page(shown, monitoring, today=today())), True
    else:
        from fairkit_cli.text.packs import complete as all_answered

        watch = None
        if watched is not None:
            with _watch_of(watched, shown[0]) as one:
                watch = one.look(None).to_dict()
        made = rendered(chosen, shown[0], stated, accepted, watch)
        text, complete = _written(made, shown[0], output_format), all_answered(made)
    write(lambda _: text, output)
    code = told(shown)
    raise typer.Exit(INCONCLUSIVE if code == PASSED and strict and not complete else code)


def monitored(folder: Path, newest: Shown) -> Monitoring:
    """Return a page's monitoring section for a watch of a certificate's model."""
    from fairkit_cli.pages.watch import monitoring
    from fairkit_watch.records import courses

    with _watch_of(folder, newest) as watch:
        state = watch.look(None)
        return monitoring(state, courses(watch.judge, watch.data) if watch.data.days else ())


@contextlib.contextmanager
def _watch_of(folder: Path, newest: Shown) -> Iterator[Watch]:
    """Open a watch, if it is about what a certificate certifies."""
    from fairkit_watch.watch import Watch

    with Watch.open(folder, write=False) as watch:
        settings = watch.book.settings
        model_digest, certificate = newest.certificate.model_sha256, newest.certificate.sha256
        if certificate != settings.certificate and (model_digest is None or model_digest != settings.sha256):
            about = f"the model {settings.sha256[:16]}" if settings.sha256 else "no model that it knows the digest of"
            raise ParameterError(
                f"the watch {str(folder)!r} is about {about}, and not about what {newest.name} certifies"
            )
        yield watch


def _accepted(states: str | None, unread_by: str | None, *, strict: bool) -> dict[str, str]:
    """Read what a person accepts of the clauses: states, and ``unread`` with the person's name."""
    if (states is not None or unread_by is not None) and not strict:
        raise ParameterError("--accept-status and --accept-unread belong to --strict")
    if unread_by is not None and not unread_by.strip():
        raise ParameterError("--accept-unread takes the name of the person who accepts")
    named = {state.strip(): "" for state in (states or "").split(",") if state.strip()}
    if "unread" in named:
        raise ParameterError("--accept-status takes states of clauses; --accept-unread PERSON is for the others")
    return named | ({} if unread_by is None else {"unread": unread_by})


def _written(made: Rendering, shown: Shown, output_format: str) -> str:
    """Return a rendering in a format, after a word about each gap and each clause that cannot be rested on."""
    from fairkit_cli.pages.certificates import checked_banner
    from fairkit_cli.pages.report import pack_page
    from fairkit_cli.render.text import markdown_page
    from fairkit_cli.text.packs import flags_of, pack_csv, pack_record

    page = pack_page(made, [checked_banner(shown)])
    for gap in made.gaps:
        say(f"not answered: {gap}")
    for flag in flags_of(made):
        if not flag.accepted:
            say(f"{flag.severity}: {flag.clause}: {flag.text}")
    if output_format == "html":
        from fairkit_cli.render.html import html_page

        return html_page(page)
    if output_format == "json":
        return record_text(pack_record(made, shown.state))
    return pack_csv(made) if output_format == "csv" else markdown_page(page)


def told(shown: Sequence[Shown]) -> int:
    """Say on standard error what the checks said, and return the exit code."""
    for evidence in shown:
        if not evidence.signed:
            say(f"{evidence.name}: {evidence.state[0].lower()}{evidence.state[1:]}")
    return FAILED if any(evidence.failed for evidence in shown) else PASSED


# `fairkit packs`: the renderings for laws, and the state of their clauses.


app = typer.Typer(
    help="Renderings for laws: what they are, and which clauses apply.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def packs(ctx: typer.Context, output_format: opt.TableFormat = "table") -> None:
    """List the renderings for laws: name, law, source, edition, and the day on which the source was checked."""
    if ctx.invoked_subcommand is not None:
        return
    chosen, failures = installed()
    if output_format == "json":
        print_json([pack.to_dict() for pack in chosen.values()])
    for pack in chosen.values() if output_format == "table" else ():
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
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Packs; without any: all.", show_default=False)
    ] = None,
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
