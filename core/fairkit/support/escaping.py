"""Text from outside, shown so that it can only be read: a name in the data never acts on what shows it."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_JOINERS = "\u200c\u200d\ufe00-\ufe0f"
"""Part of words in Persian and in the languages of India, and of emoji; between ASCII letters they only deceive."""

_UNSEEN = (
    "\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# patterns are compiled where a text needs them: half a ms each
_ACTING = f"[\x00-\x1f{_UNSEEN}]|(?<![^\x00-\x7f])[{_JOINERS}]"
_ACTING_IN_LINES = f"[\x00-\x09\x0b-\x1f{_UNSEEN}]|(?<![^\x00-\x7f])[{_JOINERS}]"
_ACTING_IN_JSON = f"[{_UNSEEN}]|(?<![^\x00-\x7f])[{_JOINERS}]"
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
_MARKDOWN = r"[\\`*_\[\]<>|#&~$!]|:(?=//)|(?i:(?<=www))\."


def visible(text: object, *, lines: bool = False) -> str:
    r"""Return text in which every character that acts, or cannot be seen, is written as an escape.

    These are control characters (also those that begin terminal sequences), marks that change the direction of
    writing, characters of no width, and halves of surrogate pairs (which file names may hold). ESC becomes ``\x1b``,
    a line feed ``\n``, the override of direction ``\u202e``.
    """
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return re.sub(_ACTING_IN_LINES if lines else _ACTING, _escape, plain)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if code < 0x100:
        return _SHORT.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as JSON that is safe to print: equal when it is read again, without characters that act."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return (
        text
        if text.isascii() and "\x7f" not in text
        else re.sub(_ACTING_IN_JSON, lambda match: json.dumps(match[0])[1:-1], text)
    )


def toml_text(value: str) -> str:
    """Return a TOML string."""
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError("a name that is no valid Unicode cannot be written to a TOML file")
    quoted = json.dumps(value, ensure_ascii=False)
    return re.sub(
        _ACTING_IN_JSON,
        lambda match: f"\\u{ord(match[0]):04x}" if ord(match[0]) < 0x10000 else f"\\U{ord(match[0]):08x}",
        quoted,
    )


def markdown(text: object) -> str:
    """Return text for Markdown: it adds no headings, tables, links or HTML, and stays on one line."""
    return re.sub(_MARKDOWN, r"\\\g<0>", visible(" ".join(str(text).split())))


# Numbers for people: one way to write a value, an interval and a size, wherever they are shown.


ROUNDING = 1e-15
"""Ends of intervals are sums of numbers near 1: what is below this is rounding."""


def number(value: float | None) -> str:
    """Write a number with three places, more for small ones, fewer for large ones; None is a dash."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    value += 0.0  # no negative zero
    size = abs(value)
    if size == 0 or 0.001 <= size < 100:
        return f"{value:.3f}"
    return f"{value:.3g}"


def interval(pair: tuple[float, float] | None) -> str:
    """Write an interval, or that there is none; what is 0 but for rounding is 0."""
    if pair is None:
        return "none"
    low, high = (0.0 if abs(end) < ROUNDING else end for end in pair)
    return f"[{number(low)}, {number(high)}]"


def size(count: int) -> str:
    """Write a number of bytes."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def measured(value: float | None, pair: tuple[float, float] | None) -> str:
    """Write a value with its interval beside it, if it has one."""
    return number(value) if pair is None else f"{number(value)} {interval(pair)}"


# Names of columns as people type them: with commas, and with spaces around them.


def listed_names(text: str, *, exact: bool = False) -> list[str]:
    """Split ``a,b``: a name with a comma stands in double quotes; others keep spaces around them where `exact`."""
    matches = re.findall(r'\s*"([^"]+)"\s*(?=,|$)|([^,]+)', text)
    return [quoted or (name if exact else name.strip()) for quoted, name in matches if quoted or name.strip()]


# Tables in Markdown.


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return a table's lines and an empty one; cells are Markdown already (see `fairkit.support.escaping.markdown`)."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + " --- |" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""
