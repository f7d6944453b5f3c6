"""The page around the content: one file with its style and its script."""

from __future__ import annotations

import base64
import hashlib
import html
from importlib.resources import files

from fairkit_cli.render.markup import Content, Markup, clean, tag
from fairkit_cli.verifier.bundle import page as verifier_page
from fairkit_cli.verifier.bundle import what_if

_PANEL = 'class="whatif"'
"""In a page that needs the panel's script."""


def page(title: str, body: Content, *, verifier: bool = False) -> str:
    """Return a whole document.

    Its policy forbids the browser to load anything, and to run any script but the page's own. With `verifier` it holds
    the page that checks certificates, for readers who have the certificate and no fairkit.
    """
    style, script = (
        files("fairkit_cli.render").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    inner = tag("main", body)
    scripts = [script, *([what_if()] if _PANEL in inner else [])]
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
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
    content = tag("body", inner, _footer(None, holding=verifier), tip, running)
    return f'<!doctype html>\n<html lang="en">{head}{content}</html>\n'


def linked_page(title: str, body: Content, *, root: str, feed: str | None = None) -> str:
    """Return a document of a site, which shares its style and its script with the others.

    Parameters
    ----------
    title, body
        As for `page`.
    root
        The way from this document to the site's root, such as ``../../``.
    feed
        The site's feed, from the root.
    """
    allowed = "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src data:"
    feed_link = (
        None
        if feed is None
        else tag("link", rel="alternate", type="application/atom+xml", href=root + feed, title="Events")
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=allowed),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        Markup(f"<title>{html.escape(clean(title))}</title>"),
        tag("link", rel="stylesheet", href=f"{root}site.css"),
        feed_link,
    )
    tip = tag("div", id="tip", role="status", aria_live="polite", hidden=True)
    content = tag("body", tag("main", body), _footer(root), tip, tag("script", src=f"{root}site.js"))
    return f'<!doctype html>\n<html lang="en">{head}{content}</html>\n'


VERIFIER = "verify.html"
"""The page of a site that checks certificates."""


def _footer(root: str | None, *, holding: bool = False) -> Markup:
    """Say how anybody can check evidence: by the site's page, one inside this page, or one that the command writes."""
    offline = "It runs offline, in your browser; nothing leaves your computer."
    if holding:
        content = "data:text/html;base64," + base64.b64encode(verifier_page().encode()).decode()
        link = tag("a", "Save the page that checks certificates", href=content, download=VERIFIER)
        return tag(
            "footer", tag("p", link, f", and give it the certificate's file. {offline}", class_="muted")
        )
    if root is None:
        how: Content = [
            tag("code", f"fairkit verify --page {VERIFIER}"),
            f" writes a page that does it. {offline}",
        ]
        return tag("footer", tag("p", "Signed evidence can be checked by anybody: ", how, class_="muted"))
    link = tag("a", "Check a certificate yourself", href=root + VERIFIER)
    return tag("footer", tag("p", link, f". {offline}", class_="muted"))
