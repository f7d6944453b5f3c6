"""Addresses of tables, ``scheme:location?option=value&query=...``: read once, and refused where they hold a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from fairkit.errors import DataError
from fairkit.sources.secrets import holds_secret

QUERY = "query"
"""The option that takes all that follows, as it stands."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_HOST = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:/\[\]]*)(?::(?P<port>\d{1,5}))?")
_KEPT_OUT = (
    "the address of the data holds what looks like a password, a key or a token; leave it out, and put it into the "
    "environment, where the library of the source looks for it (see the page on sources)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a table is. It holds no secret: those come from the environment.

    What follows ``?`` are options by name, percent-decoded, but ``query`` comes last and takes the rest as it stands. A
    query without any blank is percent-decoded, too.
    """

    scheme: str  # in lower case, such as "s3"
    location: str  # between the scheme and the options, without "//", as it was written
    options: Mapping[str, str] = field(default_factory=dict)
    slashes: bool = True  # whether "//" followed the scheme

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address.

        Raises
        ------
        DataError
            It is none, or it holds a user with a password. The message never shows it.
        """
        match = _SCHEME.match(text)
        if match is None:
            raise DataError("the data has no address: it begins with a scheme, such as s3://")
        rest, _, tail = text[match.end() :].partition("?")
        slashes = rest.startswith("//")
        location = rest.removeprefix("//")
        authority, _, behind = location.partition("/")
        if ":" in authority and authority.index(":") < location.rfind("@") and (slashes or "//" in location):
            raise DataError(_KEPT_OUT)
        if "//" in behind and holds_secret("//" + behind.partition("//")[2]):
            raise DataError(_KEPT_OUT)
        return cls(match[1].lower(), location, _options(tail), slashes)

    @property
    def text(self) -> str:
        """The address without its options: what messages and reports show."""
        return f"{self.scheme}:{'//' if self.slashes else ''}{self.location}"

    @property
    def bucket(self) -> str:
        """The location up to its first slash."""
        return self.location.partition("/")[0]

    @property
    def key(self) -> str:
        """The location behind its first slash."""
        return self.location.partition("/")[2]

    @property
    def query(self) -> str:
        """The query.

        Raises
        ------
        DataError
            There is none, or it holds what looks like a secret.
        """
        query = self.options.get(QUERY, "").strip().removesuffix(";").strip()
        if not query:
            raise DataError(f"{self.text} needs a query: {self.text}?query=SELECT ...")
        if holds_secret(query):
            raise DataError(
                f"the query on {self.text} holds what looks like a password, a key or a token, and a report names the "
                "query; make a view of it in the database, and ask that"
            )
        return query

    def host(self) -> tuple[str | None, str | None, int | None]:
        """Return user, host and port of a location such as ``user@host:port/name``; None for what it does not name.

        Raises
        ------
        DataError
            It is none of that form. The message does not show it: it may hold a password.
        """
        match = _HOST.fullmatch(self.bucket)
        if match is None or "@" in self.key:
            raise DataError(
                f"the address {self.scheme}://... is not of the form {self.scheme}://user@host:port/name; a password "
                "never stands in it"
            )
        port = match["port"]
        return match["user"], match["host"] or None, None if port is None else int(port)

    def check_options(self, allowed: Mapping[str, str]) -> None:
        """Refuse options that a source does not have; they are not shown: one may be a token."""
        if not set(self.options) <= set(allowed):
            have = ", ".join(allowed) or "none"
            raise DataError(
                f"the address {self.text} has an option that {self.scheme}: sources do not have (they have: {have}); "
                "keys, tokens and passwords never stand in an address: put them into the environment"
            )


def scheme_of(text: str) -> str | None:
    """Return the scheme that a text begins with, in lower case; None for a path."""
    found = _SCHEME.match(text)
    return None if found is None else found[1].lower()


def _options(tail: str) -> dict[str, str]:
    options: dict[str, str] = {}
    while tail:
        if tail.startswith(f"{QUERY}="):
            item, tail = tail, ""
        else:
            item, _, tail = tail.partition("&")
        name, _, value = item.partition("=")
        if name in options:
            raise DataError("the address of the data names one of its options twice")
        whole = name == QUERY and re.search(r"\s", value) is not None
        options[name] = value if whole else unquote(value)
    return options


_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)


def order_notes(query: str) -> tuple[str, ...]:
    """Return the note that a report gets where a query may give its rows in another order next time."""
    if _ORDERED.search(query):
        return ()
    return (
        "The query has no ORDER BY: the digest is of the rows in the order of this reading, and another reading may "
        "have another digest.",
    )
