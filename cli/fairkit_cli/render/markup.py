"""HTML from Python calls: every text is escaped, so that a column called ``<script>`` shows as text."""

from __future__ import annotations

import html
from collections.abc import Iterable

from fairkit.support.escaping import visible

_VOID = frozenset({"meta", "br", "hr", "col", "link", "input", "wbr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Markup | None | Iterable["Content"]


def tag(element: str, /, *content: Content, **attributes: str | bool | None) -> Markup:
    """Return an element."""
    parts = [element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(written if value is True else f'{written}="{html.escape(clean(str(value)))}"')
    head = f"<{' '.join(parts)}>"
    return Markup(head) if element in _VOID else Markup(f"{head}{join(content)}</{element}>")


def join(content: Content) -> Markup:
    """Return pieces one after the other, escaped as in `tag`."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html.escape(clean(content), quote=False))
    return Markup("".join(join(part) for part in content))


def name_of(text: str) -> Markup:
    """Return a name that came with the data, kept apart from the direction of the text around it."""
    return tag("bdi", text)


def clean(text: str) -> str:
    """Show characters that act or cannot be seen as escapes; line feeds and tabs are spaces on a page."""
    return visible(text.replace("\t", " "), lines=True)
