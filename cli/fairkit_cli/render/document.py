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
    running = [Markup(f"<script>{each}</script>") for each in scripts]
    styled = Markup(f"<style>{style}</style>")
    return _document(title, allowed, styled, [inner, _footer(None, holding=verifier)], running)


def linked_page(title: str, body: Content, *, root: str) -> str:
    """Return a document of a site, which shares its style, its script and its feed with the others."""
    allowed = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src data:"
    links = [
        tag("link", rel="stylesheet", href=f"{root}site.css"),
        tag("link", rel="alternate", type="application/atom+xml", href=root + FEED, title="Events"),
    ]
    script = tag("script", src=f"{root}site.js")
    return _document(title, allowed, links, [tag("main", body), _footer(root)], script)


def _document(title: str, allowed: str, style: Content, body: Content, scripts: Content) -> str:
    """Return a document; `allowed` is the policy by which a browser loads and runs things."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=allowed),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        Markup(f"<title>{html.escape(clean(title))}</title>"),
        style,
    )
    tip = tag("div", id="tip", role="status", aria_live="polite", hidden=True)
    content = tag("body", body, tip, scripts)
    return f'<!doctype html>\n<html lang="en">{head}{content}</html>\n'


FEED = "feed.xml"
"""The feed of a site's events."""
VERIFIER = "verify.html"
"""The page of a site that checks certificates."""


def _footer(root: str | None, *, holding: bool = False) -> Markup:
    """Say how anybody can check evidence: by the site's page, one inside this page, or one that the command writes."""
    offline = "It runs offline, in your browser; nothing leaves your computer."
    if holding:
        content = "data:text/html;base64," + base64.b64encode(verifier_page().encode()).decode()
        link = tag("a", "Save the page that checks certificates", href=content, download=VERIFIER)
        told: Content = [link, f", and give it the certificate's file. {offline}"]
    elif root is None:
        command = tag("code", f"fairkit verify --page {VERIFIER}")
        told = ["Signed evidence can be checked by anybody: ", command, f" writes a page that does it. {offline}"]
    else:
        told = [tag("a", "Check a certificate yourself", href=root + VERIFIER), f". {offline}"]
    return tag("footer", tag("p", told, class_="muted"))
