"""`fairkit watch show`: all statements about the decisions so far, as a table, JSON, a page or OpenMetrics."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import KeysOption, load_keys
from fairkit_cli.terminal.output import FAILED, exit_code, record_text, say, write
from fairkit_cli.watch.adding import AsOf, read_as_of
from fairkit_cli.watch.begin import State
from fairkit_cli.watch.delivery import HEARTBEATS

if TYPE_CHECKING:
    from fairkit_watch.results import WatchSnapshot
    from fairkit_watch.watch import Watch


@opt.expanded
def show(
    state: State,
    *,
    as_of: AsOf = None,
    key: KeysOption = None,
    output_format: Annotated[
        str, opt.formats("table", "json", "html", "openmetrics: a text file for Prometheus")
    ] = "table",
    output: opt.Output = None,
) -> None:
    """Show a watch. Exit code by the policy at this look: 0 pass, 1 fail, 3 undecided."""
    from fairkit.support.files import check_writable
    from fairkit_watch.watch import Watch

    if output is not None:
        check_writable(output)
    day = read_as_of(as_of)
    with Watch.open(state, write=False) as watch:
        look = watch.look(day)
        statements = heartbeats(watch.book.folder / HEARTBEATS, key)
        write(lambda terminal: _text(watch, look, statements, output_format, terminal, day), output)
    if statements is not None and statements["failed"]:
        say(statements["failed"])
        raise typer.Exit(FAILED)
    raise typer.Exit(exit_code("inconclusive" if look.verdict == "undecided" else look.verdict))


def _text(
    watch: Watch,
    look: WatchSnapshot,
    statements: dict[str, Any] | None,
    output_format: str,
    terminal: bool,
    as_of: datetime.date | None,
) -> str:
    if output_format == "openmetrics":
        from fairkit_cli.text.openmetrics import openmetrics

        moment = datetime.datetime.combine(as_of, datetime.time(), datetime.UTC) if as_of else None
        return openmetrics(look, (moment or datetime.datetime.now(datetime.UTC)).timestamp())
    if output_format == "json":
        return record_text({**look.to_dict(), "statements": statements})
    if output_format == "html":
        from fairkit_cli.html.watch import watch_page
        from fairkit_watch.snapshot import courses, weekly_shares

        data = watch.data
        shares = {name: weekly_shares(data, split) for name, split in data.splits.items() if name}
        groups = {name: split.groups for name, split in data.splits.items()}
        return watch_page(look, courses(watch.judge, data) if data.days else (), shares, groups, statements)
    from fairkit_cli.text.watch import watch_text

    return watch_text(look, statements, terminal=terminal)


def heartbeats(path: Path, keys: list[Path] | None) -> dict[str, Any] | None:
    """Return what the signed statements of a watch say; None where there are none and none were asked for."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.heartbeats import read_heartbeats
    from fairkit_watch.snapshot import missing_days

    trusted = load_keys(keys) if keys else None
    if not path.exists():
        if trusted is None:
            return None
        return {
            "count": 0,
            "first": None,
            "last": None,
            "missing_days": [],
            "keyids": [],
            "failed": f"there are no signed statements: {path} is not there",
        }
    try:
        chain = read_heartbeats(path.read_bytes(), trusted)
    except CertificateError as error:
        return {
            "count": 0,
            "first": None,
            "last": None,
            "missing_days": [],
            "keyids": [],
            "failed": str(error),
        }
    return {
        "count": len(chain),
        "first": chain[0].day if chain else None,
        "last": chain[-1].day if chain else None,
        "missing_days": list(missing_days([one.day for one in chain])),
        "keyids": sorted({keyid for one in chain for keyid in one.keyids}) if trusted else [],
        "failed": None,
    }
