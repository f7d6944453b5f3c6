"""`fairkit registry inventory`: every model in use, with what is known, what a person states, and what is missing."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairkit.errors import ConfigError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, open_registry
from fairkit_cli.terminal.output import record_text, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.exchange.inventory import Entry

COLUMNS = (
    "tier", "model", "version", "aliases", "ended", "purpose", "owner", "exposure", "data", "limits", "rules",
    "last_validation", "monitoring", "next_review", "missing", "sha256",
)  # fmt: skip


def inventory(
    *,
    facts: Annotated[
        Path | None,
        opt.option(
            "--facts",
            "FILE",
            "A TOML file with a table for each model: purpose, owner, exposure, limits, tier (1, 2 or 3), next_review.",
        ),
    ] = None,
    watched: Annotated[
        list[Path] | None,
        opt.option("--watch", "FOLDER", "A watch of one of the models (repeatable): its newest state."),
    ] = None,
    output_format: Annotated[str, opt.formats("table", "json", "csv", "html")] = "table",
    output: opt.Output = None,
    registry: RegistryOption = None,
) -> None:
    """List every version that an alias points to: purpose, owner, data, limits, validation, monitoring, next review.

    What nobody states is listed as missing. The columns are those of practice; no law or guidance was found that
    requires them.
    """
    from fairkit.support.files import check_writable
    from fairkit_cli.options.about import today
    from fairkit_cli.packs import facts_table
    from fairkit_registry.exchange.inventory import inventory as entries_of
    from fairkit_registry.exchange.inventory import read_stated

    if output is not None:
        check_writable(output)
    states = _watches(watched or ())
    day = datetime.date.fromisoformat(today())
    with open_registry(registry) as store:
        stated = read_stated({} if facts is None else facts_table(facts), [one["name"] for one in store.models()])
        entries = entries_of(store, stated, states, today=day)
    shown = {one.monitoring for one in entries}
    for key in (key for key, state in states.items() if state not in shown):
        say(f"the watch of {key[:16]} is about no version in the inventory")
    write(lambda _: _text(entries, output_format, day), output)


def _watches(folders: Sequence[Path]) -> dict[str, str]:
    """Return a sentence about each watch, by the digest of its model, else of its certificate."""
    from fairkit_watch.watch import Watch

    statements = {}
    for folder in folders:
        with Watch.open(folder, write=False) as watch:
            snapshot, settings = watch.look(None), watch.book.settings
        key = settings.sha256 or settings.certificate
        if key is None:
            raise ConfigError(f"the watch {str(folder)!r} knows neither its model's digest nor a certificate")
        until = "no decisions yet" if snapshot.until is None else f"{snapshot.rows:,} decisions up to {snapshot.until}"
        lately = "" if not snapshot.lately else f"; broken lately: {', '.join(snapshot.lately)}"
        statements[key] = (
            f"{snapshot.verdict or 'no rules'} on {snapshot.today}, {until}, {len(snapshot.alarms)} alarms{lately}"
        )
    return statements


def _cells(one: Entry) -> list[str | int | None]:
    record = one.to_dict()
    record |= {"aliases": ", ".join(one.aliases), "ended": "; ".join(one.ended), "missing": ", ".join(one.missing)}
    if one.overdue:
        record["next_review"] = f"{one.next_review} OVERDUE"
    return [record[name] for name in COLUMNS]


def _text(entries: Sequence[Entry], output_format: str, day: datetime.date) -> str:
    if output_format == "json":
        return record_text([one.to_dict() for one in entries])
    if output_format == "csv":
        from fairkit_cli.text.spreadsheet import csv_text

        return csv_text(COLUMNS, [_cells(one) for one in entries])
    if output_format == "html":
        return _page(entries, day)
    from fairkit_cli.text.registry import columns

    short = ("tier", "model", "version", "aliases", "last_validation", "monitoring", "next_review", "missing")
    places = [COLUMNS.index(name) for name in short]
    rows = [["-" if (cell := _cells(one)[at]) in (None, "") else str(cell) for at in places] for one in entries]
    ended = [f"{one.model}@{text}" for one in entries for text in one.ended]
    return "".join(f"{line}\n" for line in (*columns(short, rows), *ended))


def _page(entries: Sequence[Entry], day: datetime.date) -> str:
    from fairkit_cli.pages.parts import Facts, Inline, Note, Page, Part, Section, Span, name_of
    from fairkit_cli.render.html import html_page

    title = f"Model inventory, {day}"
    missing = sum(bool(one.missing) for one in entries)
    about = (
        f"{len(entries)} versions, by tier; {missing} lack something. The fields are those of practice: no law or "
        "guidance was found that requires them. Purpose, owner, exposure, limits, tier and review are stated by "
        "people; the rest is read from the registry and its certificates."
    )
    parts: list[Part] = [Note(title, "title"), Note(about, "subject")]
    for entry in entries:
        stated: list[tuple[Inline, Inline]] = [
            (name.replace("_", " "), Span("not stated", "gap") if value in (None, "") else name_of(str(value)))
            for name, value in zip(COLUMNS, _cells(entry), strict=True)
            if name not in ("model", "version") and (value or name != "ended")
        ]
        parts.append(Section(f"{entry.model}@{entry.version}", [Facts(stated)]))
    return html_page(Page(title, parts))
