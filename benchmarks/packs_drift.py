"""Whether the words of each clause still stand at its source: ``python benchmarks/packs_drift.py [NAME ...]``.

Exit code 0: all are the same; 1: one has changed; 3: none has changed, and one could not be verified.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, Literal

from fairkit_cli.commands.report import clauses
from fairkit_cli.options.data import today

Result = Literal["same", "changed", "could not verify"]
LARGEST = 30_000_000
"""Bytes that are read of a page."""
SECONDS = 20.0
_TEXTS = ("text/html", "text/plain", "text/xml", "application/xml", "application/xhtml+xml")
_UNSPOKEN = ("script", "style", "noscript", "template")


class UnreadableSourceError(Exception):
    """A source that gave no text; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A clause held against its source."""

    clause: str
    address: str | None
    result: Result  # whether the quoted words, and where it is known the digest of the whole text, are as they were
    reason: str  # why, in words
    sha256: str | None = None


def drift_of(clause: Mapping[str, Any], fetch: Callable[[str], str]) -> Drift:
    """Compare a clause with its first source: the quoted words first, then the digest of the text."""
    name, address, quote = clause["clause"], clause["address"], clause["quote"]
    if address is None or quote is None:
        lack = "no source is named" if address is None else "no words are quoted to compare"
        return Drift(clause=name, address=address, result="could not verify", reason=lack)
    try:
        text = normalised(fetch(address))
    except UnreadableSourceError as error:
        return Drift(clause=name, address=address, result="could not verify", reason=str(error))
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    result: Result = "same"
    reason = "the quoted words are there"
    if normalised(quote) not in text:
        result, reason = "changed", "the quoted words are not there any more"
    elif clause["text_sha256"] not in (None, digest):
        result, reason = "changed", "the quoted words are there; the text around them has another digest"
    return Drift(clause=name, address=address, result=result, reason=reason, sha256=digest)


def normalised(text: str) -> str:
    """Return a text's words alone: compatibility forms, straight quotation marks, plain hyphens, small, one space."""
    plain = unicodedata.normalize("NFKC", text)
    plain = re.sub("[\u2018\u2019\u02bc]", "'", re.sub("[\u201c\u201d\u00ab\u00bb]", '"', plain))
    plain = re.sub("[\u2010-\u2015\u2212]", "-", plain).replace("\u00ad", "")
    return " ".join(plain.casefold().split())


def fetched(address: str) -> str:
    """Return the text of a page."""
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if not address.startswith(("https://", "http://")):
        raise UnreadableSourceError(f"{address} is no web address")
    request = Request(address, headers={"User-Agent": "fairkit", "Accept": ", ".join(_TEXTS)})
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            kind = answer.headers.get_content_type()
            raw = answer.read(LARGEST + 1)
            charset = answer.headers.get_content_charset() or "utf-8"
    except HTTPError as error:
        raise UnreadableSourceError(f"the server answered {error.code} {error.reason}") from None
    except (URLError, OSError, ValueError) as error:
        raise UnreadableSourceError(f"not reached: {getattr(error, 'reason', None) or error}") from None
    if kind not in _TEXTS:
        raise UnreadableSourceError(f"a file of type {kind}, which is not read")
    if len(raw) > LARGEST:
        raise UnreadableSourceError(f"more than {LARGEST:,} bytes")
    try:
        text = raw.decode(charset)
    except (LookupError, ValueError):
        raise UnreadableSourceError(f"its text is not {charset}") from None
    return text if kind == "text/plain" else _spoken(text)


class _Spoken(HTMLParser):
    """Collects the text of a page that a reader sees."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._silent += tag in _UNSPOKEN

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _UNSPOKEN and self._silent > 0

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


def _spoken(text: str) -> str:
    parser = _Spoken()
    parser.feed(text)
    parser.close()
    return " ".join(parser.parts)


def main(names: list[str]) -> int:
    """Print every clause, and return the exit code."""
    fetch = functools.cache(fetched)
    drifts = [(row["pack"], drift_of(row, fetch)) for row in clauses(names, today())]
    for name, one in drifts:
        print(f"{one.result:16}  {name}  {one.clause}: {one.reason} ({one.address or 'no source'})")
    results = {one.result for _, one in drifts}
    return 1 if "changed" in results else 3 if "could not verify" in results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
