"""Markup that escapes what it is given, and the document around a page."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from importlib.resources import files

from fairkit.support.escaping import visible
from fairkit_cli.verifier.bundle import page as verifier_page
from fairkit_cli.verifier.bundle import script_digest, what_if

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


_PANEL = 'class="whatif"'
"""In a page that needs the panel's script."""


def page(title: str, body: Content, *, verifier: bool = False) -> str:
    """Return a whole document.

    Its policy forbids the browser to load anything, and to run any script but the page's own. With `verifier` it holds
    the page that checks certificates, for readers who have the certificate and no fairkit.
    """
    style, script = (files("fairkit_cli.render").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    inner = tag("main", body)
    scripts = [script, *([what_if()] if _PANEL in inner else [])]
    digests = " ".join(map(script_digest, scripts))
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src {digests}; img-src data:"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=allowed),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        Markup(f"<title>{html.escape(clean(title))}</title>"),
        Markup(f"<style>{style}</style>"),
    )
    tip = tag("div", id="tip", role="status", aria_live="polite", hidden=True)
    running = [Markup(f"<script>{each}</script>") for each in scripts]
    content = tag("body", [inner, _footer(holding=verifier)], tip, running)
    return f'<!doctype html>\n<html lang="en">{head}{content}</html>\n'


VERIFIER = "verify.html"
"""The page that checks certificates."""


def _footer(*, holding: bool) -> Markup:
    """Say how anybody can check evidence: by a page inside this page, or one that the command writes."""
    offline = "It runs offline, in your browser; nothing leaves your computer."
    if holding:
        content = "data:text/html;base64," + base64.b64encode(verifier_page().encode()).decode()
        link = tag("a", "Save the page that checks certificates", href=content, download=VERIFIER)
        told: Content = [link, f", and give it the certificate's file. {offline}"]
    else:
        command = tag("code", f"fairkit verify --page {VERIFIER}")
        told = ["Signed evidence can be checked by anybody: ", command, f" writes a page that does it. {offline}"]
    return tag("footer", tag("p", told, class_="muted"))
