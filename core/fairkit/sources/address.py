"""Addresses of tables, ``scheme:location?option=value&query=...``: read once, and refused where they hold a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from fairkit.errors import DataError, ParameterError
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass, field

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
    match = _SCHEME.match(text)
    return None if match is None else match[1].lower()


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


# Is anybody there? A host that does not answer is told about within seconds, whatever its library waits for.


PATIENCE = 8.0
"""Seconds until a host counts as unreachable, its name's look-up included."""


def check_reachable(host: str, port: int, *, patience: float = PATIENCE) -> None:
    """Open a connection and close it again."""
    import threading

    answers: list[str] = []
    asking = threading.Thread(target=_ask, args=(host.strip("[]"), port, patience, answers), daemon=True)
    asking.start()  # a thread: the look-up of a name takes no time limit
    asking.join(patience)
    reason = answers[0] if answers else f"no answer within {patience:g} s"
    if reason:
        raise DataError(
            f"{visible(host)}:{port} cannot be reached ({visible(reason)}); check the name, the port and the network"
        )


def _ask(host: str, port: int, patience: float, answers: list[str]) -> None:
    import socket

    try:
        socket.create_connection((host, port), timeout=patience).close()
    except (OSError, UnicodeError) as error:
        answers.append(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    else:
        answers.append("")


def is_loopback(host: str) -> bool:
    """Tell whether a host, with or without a port, is this machine."""
    name = urlsplit(f"//{host}").hostname or "" if not host.startswith("::") else host
    if name in ("localhost", "localhost."):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def keeps_secrets(url: str) -> bool:
    """Tell whether a secret may be sent to an address: it is https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc.rpartition("@")[2]))


# No secret is shown: foreign text loses what the environment keeps secret and what stands where passwords stand.


_SECRET_NAMES = (
    r"SECRET|TOKEN|PASSW|CREDENTIAL|ACCESS_KEY|ACCOUNT_KEY|API_?KEY|STORAGE_KEY|SAS|SIGNATURE|CONNECTION_STRING"  # noqa: S105 -- a pattern
)
_SHORTEST = 4
"""Shorter values of the environment are no secrets, and would take letters out of every message."""
_LONGEST = 300
_USERINFO = r"//[^/\s'\"]*:.*@|//[^/@\s'\"]*@|(?<!\w)[^/\s'\":]+:[^\s'\":/][^\s'\"]*@"
_WORDS = (
    r"[\w-]*(?:passw(?:or)?d|pwd|secret|token|credential|signature|api_?key|access_?key|account_?key|\bsig\b)"
    r"[\w-]*"
)
_ASSIGNED = rf"(?i)({_WORDS}['\"]?\s*(?:=>|:=|=|:(?!:))\s*)('[^']*'|\"[^\"]*\"|[^\s&;,)'\"]+)"
_WRITTEN = rf"(?i){_WORDS}(?:['\"]?\s*(?:=>|:=|=|:(?!:))\s*'|=[^\s'\"])"
"""A password in a query: a text after the word and a sign, or ``password=...`` without a blank."""


def masked(text: object) -> str:
    """Return text without the secrets of the environment, users and passwords in addresses, and assigned passwords."""
    shown = str(text)
    for value in sorted(_kept_secret(), key=len, reverse=True):
        shown = shown.replace(value, "***")
    return re.sub(_ASSIGNED, r"\1***", re.sub(_USERINFO, "//***@", shown))


def said(error: BaseException) -> str:
    """Return a library's error message as one short line that holds no secret."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    return visible(masked(text)[:_LONGEST]) or type(error).__name__


def holds_secret(text: str) -> bool:
    """Tell whether something stands in the text that a password, a key or a token is written like."""
    return re.search(_USERINFO, text) is not None or re.search(_WRITTEN, text) is not None


def _kept_secret() -> set[str]:
    return {
        value.strip()
        for name, value in os.environ.items()
        if re.search(_SECRET_NAMES, name.upper()) and len(value.strip()) >= _SHORTEST
    } | ({os.environ["PGPASSWORD"]} if os.environ.get("PGPASSWORD") else set())


# Servers of models: what their addresses may hold, and the token that goes to them and nowhere else.


TOKEN = "FAIRKIT_ENDPOINT_TOKEN"  # noqa: S105 -- the name of a variable
"""The environment variable with the token; it is sent as a header and stored nowhere."""


def check_address(url: str, example: str, queries: Collection[str] = ()) -> None:
    """Refuse what is no http address, or may hold a secret; `queries` are the parameters that it may have."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port of letters; the address is not shown, since it may hold a secret
        raise ParameterError(f"the address of the endpoint cannot be read; write {example}") from None
    sent = {key for key, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if "@" in parts.netloc or parts.fragment or sent - set(queries) or (parts.query and not sent):
        raise ParameterError(
            "the address of the endpoint holds a user, a password, a query or a fragment; leave them out, and put a "
            f"token into the environment variable {TOKEN}"
        )
    if not usable:
        raise ParameterError(f"{visible(url)} is no address of an endpoint; write {example}")


def token_for(url: str) -> str:
    """Return the environment's token where it may be sent to an address; empty without one."""
    token = os.environ.get(TOKEN, "").strip()
    if not token.isascii() or any(ord(sign) < 33 for sign in token):
        raise ParameterError(f"the token in {TOKEN} holds signs that no header can carry")
    if token and not keeps_secrets(url):
        raise ParameterError(
            f"the token in {TOKEN} is not sent to {visible(url)} without encryption; name an https:// address"
        )
    return token


def without_token(text: object) -> str:
    """Return a server's words as one short line, without the token."""
    line, token = " ".join(str(text).split()), os.environ.get(TOKEN, "").strip()
    return visible((line.replace(token, "***") if token else line)[:300]) or "no reason"
