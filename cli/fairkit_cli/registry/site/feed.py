"""The feed of a registry's events (Atom, RFC 4287)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from fairkit.support.escaping import visible
from fairkit_cli.registry.site.pages import describe
from fairkit_cli.render.document import FEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.store.events import Event

MOST = 50
_EMPTY = "1970-01-01T00:00:00Z"


def feed(events: Sequence[Event], title: str, url: str) -> str:
    """Return the newest events as a feed."""
    first = events[-1].digest if events else "empty"
    head = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<id>urn:fairkit:registry:{first}</id>",
        f"<title>{_text(title)}</title>",
        f"<updated>{events[0].at if events else _EMPTY}</updated>",
        f'<link rel="self" href={quoteattr(url + FEED)}/>',
        f'<link rel="alternate" type="text/html" href={quoteattr(url + "index.html")}/>',
    ]
    return "\n".join([*head, *(_entry(one, url) for one in events[:MOST]), "</feed>", ""])


def _entry(event: Event, url: str) -> str:
    version = event.body.get("version")
    page = "index.html" if event.name is None else f"m/{event.name}/{version or 'index'}.html"
    told = "; ".join(str(text) for text in event.body.get("reasons", ()))
    return (
        f"<entry><id>urn:fairkit:event:{event.digest}</id><title>{_text(describe(event))}</title>"
        f"<updated>{event.at}</updated><author><name>{_text(str(event.body.get('by', '')))}</name></author>"
        f'<link rel="alternate" type="text/html" href={quoteattr(url + page)}/>'
        f"<summary>{_text(told or describe(event))}</summary></entry>"
    )


def _text(text: str) -> str:
    return escape(visible(text, lines=True))
