"""Charts as SVG: drawn by Vega-Lite when the page is written, coloured by the page's own style."""

from __future__ import annotations

import base64
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from fairkit.errors import FairkitError
from fairkit.support.escaping import visible
from fairkit_cli.verifier.bundle import page as verifier_page
from fairkit_cli.verifier.bundle import script_digest, what_if

VEGA_LITE = "5.20"
_SVG = "http://www.w3.org/2000/svg"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_UNUSED = ("aria-roledescription", "role", "aria-hidden", "pointer-events", "font-family", "class")
_USUAL = {"opacity": "1", "stroke-width": "1", "font-size": "13px", "font-weight": "normal"}
_USUAL_OF: Mapping[str, Mapping[str, str]] = {
    "line": {"stroke": "var(--grid)", "x2": "0", "y2": "0"},
    "text": {"fill": "var(--ink)"},
}
"""What a browser and the page's style take anyway."""
_LONG = re.compile(r"-?\d+\.\d{2,}(?:e-\d+)?")
_PLACE = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")

_CONFIG: Mapping[str, Any] = {
    "background": None,
    "font": "Arial",
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "labelColor": "var(--muted)",
        "titleColor": "var(--ink)",
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 13,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "labelFlush": False,
    },
    "rule": {"stroke": "var(--line)"},
    "text": {"fill": "var(--ink)", "fontSize": 13},
}


class MissingRendererError(FairkitError, ImportError):
    """The package that draws charts is not installed."""


def _renderer() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise MissingRendererError(
            "pages with charts need the package vl-convert-python: pip install 'fairkit[html]'"
        ) from error
    _check_address_space()
    return vl_convert


_RESERVED = 72 << 30
"""Bytes of addresses that the renderer's JavaScript engine reserves, whatever it uses; without them it aborts."""


def _check_address_space() -> None:
    """Refuse to start the renderer where the system would abort it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _RESERVED:
        raise FairkitError(
            f"pages with charts reserve {_RESERVED >> 30} GiB of addresses, of which they use little, and this process "
            f"may have {limit / 2**30:.3g} GiB (ulimit -v): limit its memory in another way, or leave pages out"
        )


@contextmanager
def warm() -> Iterator[None]:
    """Start the renderer beside other work: its first chart takes half a second, each further one a tenth of it."""
    import threading

    renderer = _renderer()
    empty = {"data": {"values": []}, "mark": "point"}
    thread = threading.Thread(target=lambda: renderer.vegalite_to_svg(empty, vl_version=VEGA_LITE), daemon=True)
    thread.start()
    yield
    thread.join()


def draw(spec: Mapping[str, Any], *, title: str, class_: str = "") -> Markup:
    """Draw a Vega-Lite specification.

    Marks with a ``description`` carry it as ``data-tip``: what the page shows while one hovers over them or
    steps through them with the arrow keys. To a screen reader the chart is one image with a name; its numbers
    are in the table that stands beside it.
    """
    tips: list[str] = []
    whole = {"$schema": _SCHEMA, **_plain(spec, tips), "config": _CONFIG}
    text = _renderer().vegalite_to_svg(whole, vl_version=VEGA_LITE)
    root = ElementTree.fromstring(text)  # noqa: S314 -- the renderer's own output, without a document type
    width = root.get("width", "100")
    _tidy(root, tips)
    for key in set(root.keys()) - {"viewBox"}:
        del root.attrib[key]
    root.set("role", "img")
    root.set("tabindex", "0")
    root.set("aria-label", clean(title))
    root.set("style", f"max-width:{width}px")
    root.set("class", f"chart {class_}".strip())
    return Markup(_serialise(root))


def _plain(spec: Any, tips: list[str]) -> Any:
    """Show what acts, and put a number in place of every tip.

    The renderer escapes what it draws, but not what it says to screen readers: there it writes titles into
    expressions and attributes as they are. Axes (see `_CONFIG`) and marks without a tip therefore say nothing.
    """
    if isinstance(spec, Mapping):
        plain: dict[str, Any] = {
            key: _number(value, tips) if key == "tip" else _plain(value, tips) for key, value in spec.items()
        }
        if "mark" in plain and "description" not in plain.get("encoding", {}):
            mark = plain["mark"]
            plain["mark"] = {**({"type": mark} if isinstance(mark, str) else mark), "aria": False}
        return plain
    if isinstance(spec, list | tuple):
        return [_plain(value, tips) for value in spec]
    return visible(spec) if isinstance(spec, str) else spec


def _number(tip: str, tips: list[str]) -> str:
    tips.append(tip)
    return f"tip {len(tips) - 1}"


def _tidy(root: ElementTree.Element, tips: list[str]) -> None:
    """Turn descriptions back into tips, and drop what only the library's own runtime uses."""
    for parent in root.iter():
        for child in list(parent):
            invisible = child.get("display") == "none" or child.get("d") == ""
            if invisible or (child.get("class") == "background" and "fill" not in child.attrib):
                parent.remove(child)
    for element in root.iter():
        label = element.attrib.pop("aria-label", "")
        for key in _UNUSED:
            element.attrib.pop(key, None)
        _drop_usual(element)
        if "stroke" not in element.attrib:
            element.attrib.pop("stroke-width", None)
        for key in ("d", "transform", "x2", "y2"):
            if key in element.attrib:
                element.set(key, _LONG.sub(_tenth, element.attrib[key]))
        if label.startswith("tip ") and not element.tag.endswith("}g"):
            element.set("data-tip", clean(tips[int(label.removeprefix("tip "))]))
            if element.get("opacity") == "0":  # seen only while it is chosen: its shape need not be a circle
                _hide(element)
    _flatten(root)


def _drop_usual(element: ElementTree.Element) -> None:
    own = {**_USUAL, **_USUAL_OF.get(element.tag.removeprefix(f"{{{_SVG}}}"), {})}
    for key, usual in own.items():
        if element.get(key) == usual:
            del element.attrib[key]


def _hide(mark: ElementTree.Element) -> None:
    """Make a mark that the page's style hides, as short as can be: pages have thousands of them."""
    for key in ("fill", "stroke-width", "opacity"):
        mark.attrib.pop(key, None)
    shift = _PLACE.fullmatch(mark.attrib.pop("transform", "translate(0,0)"))
    x, y = (float(shift[1]), float(shift[2])) if shift else (0.0, 0.0)
    mark.set("d", f"M{x - 4:.4g},{y:.4g}h8")


def _flatten(parent: ElementTree.Element) -> None:
    """Take out groups that say nothing."""
    children: list[ElementTree.Element] = []
    for child in parent:
        _flatten(child)
        if child.get("transform") == "translate(0,0)":
            del child.attrib["transform"]
        empty = child.tag.endswith("}g") and not child.attrib
        children += list(child) if empty else [child]
    parent[:] = children


def _tenth(found: re.Match[str]) -> str:
    """Write a coordinate to a tenth of a pixel."""
    return f"{float(found[0]):.1f}".removesuffix(".0")


def _serialise(root: ElementTree.Element) -> str:
    for element in itertools.chain([root], root.iter()):
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True).replace(" />", "/>")


# Markup that escapes what it is given, and the document around a page.


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
        sentences: Content = [link, f", and give it the certificate's file. {offline}"]
    else:
        command = tag("code", f"fairkit verify --page {VERIFIER}")
        sentences = ["Signed evidence can be checked by anybody: ", command, f" writes a page that does it. {offline}"]
    return tag("footer", tag("p", sentences, class_="muted"))
