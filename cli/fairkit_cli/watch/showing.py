"""`fairkit watch show`: all statements about the decisions so far, as a table, JSON, a page or OpenMetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.terminal.output import exit_code, record_text, say, write
from fairkit_cli.watch.adding import AsOf, read_as_of
from fairkit_cli.watch.begin import State

if TYPE_CHECKING:
    from fairkit_watch.results import WatchSnapshot
    from fairkit_watch.watch import Watch


@opt.expanded
def show(
    state: State,
    *,
    as_of: AsOf = None,
    output_format: Annotated[str, opt.formats("table", "json", "html")] = "table",
    output: opt.Output = None,
) -> None:
    """Show a watch. Exit code by the policy at this look: 0 pass, 1 fail, 3 undecided."""
    from fairkit.support.files import check_writable
    from fairkit_watch.watch import Watch

    if output is not None:
        check_writable(output)
    day = read_as_of(as_of)
    with Watch.open(state, write=False) as watch:
        snapshot = watch.look(day)
        write(lambda terminal: _text(watch, snapshot, output_format, terminal), output)
        if (watch.book.folder / "heartbeats.jsonl").exists():
            say("note: heartbeats.jsonl holds signed daily statements of an earlier version, which are not read")
    raise typer.Exit(exit_code("inconclusive" if snapshot.verdict == "undecided" else snapshot.verdict))


def _text(watch: Watch, snapshot: WatchSnapshot, output_format: str, terminal: bool) -> str:
    if output_format == "json":
        return record_text(snapshot.to_dict())
    if output_format == "html":
        return _page(watch, snapshot)
    from fairkit_cli.pages.watch import watch_page
    from fairkit_cli.render.text import text_page

    return text_page(watch_page(snapshot), terminal=terminal)


def _page(watch: Watch, snapshot: WatchSnapshot) -> str:
    from fairkit_cli.pages.watch import Shares, watch_page
    from fairkit_cli.render.html import html_page
    from fairkit_cli.render.svg import warm
    from fairkit_watch.snapshot import courses, weekly_shares

    data = watch.data
    shares = {name: Shares(*weekly_shares(data, split), split.groups) for name, split in data.splits.items() if name}
    with warm():
        drawn = courses(watch.judge, data) if data.days else ()
        return html_page(watch_page(snapshot, drawn, shares))
