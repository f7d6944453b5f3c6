"""The append-only log: what was done, when, by whom, chained by hash."""

from __future__ import annotations

import getpass
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit.support.records import record_of
from fairkit_registry.errors import TamperedError
from fairkit_registry.jsonio import canonical, fingerprint

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

GENESIS = "0" * 64
"""What the first event names as its predecessor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change of the registry."""

    seq: int  # its number, from 1 without gaps
    at: str  # when, UTC
    action: str
    name: str | None  # the model it is about
    body: dict[str, Any]  # what was done; enough to rebuild the tables from the log
    previous: str  # the digest of the event before it, and its own: SHA-256 over the canonical JSON of the rest
    digest: str  # the digest of the event before it, and its own: SHA-256 over the canonical JSON of the rest

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)


def now() -> str:
    """Return the time in UTC, to the millisecond, as text that sorts."""
    return text_of(datetime.now(UTC))


def text_of(time: datetime) -> str:
    """Return a time in UTC as `now` writes it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return "unknown"


def _digest(event: Event) -> str:
    """Return the digest that the event should have: over everything in it but the digest itself."""
    return fingerprint(record_of(event, without={"digest"}))


def newest(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return the number and the digest of the newest event; 0 and `GENESIS` before the first."""
    row = connection.execute("SELECT seq, digest FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return (0, GENESIS) if row is None else (row["seq"], row["digest"])


def append(connection: sqlite3.Connection, action: str, name: str | None, body: dict[str, Any], *, at: str) -> str:
    """Add an event to the end of the chain, inside the caller's write transaction; return its digest."""
    last, previous = newest(connection)
    seq = last + 1
    body = {**body, "by": _who()}
    event = Event(seq=seq, at=at, action=action, name=name, body=body, previous=previous, digest="")
    digest = _digest(event)
    connection.execute(
        "INSERT INTO events (seq, at, action, name, body, previous, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (seq, at, action, name, canonical(body).decode("utf-8"), previous, digest),
    )
    return digest


def read(connection: sqlite3.Connection, name: str | None = None, *, limit: int | None = None) -> list[Event]:
    """Return the events of a model (or all), the newest first."""
    rows = connection.execute(
        "SELECT * FROM events WHERE ? IS NULL OR name = ? ORDER BY seq DESC LIMIT ?",
        (name, name, -1 if limit is None else limit),
    )
    return [_event(row) for row in rows]


def _event(row: sqlite3.Row) -> Event:
    return Event(
        seq=row["seq"],
        at=row["at"],
        action=row["action"],
        name=row["name"],
        body=json.loads(row["body"]),
        previous=row["previous"],
        digest=row["digest"],
    )


def digests(connection: sqlite3.Connection) -> list[str]:
    """Return the digest of every event, the oldest first, after hashing the whole chain again.

    The bodies are hashed as they are stored, without parsing: a few microseconds for each event.
    """
    chain: list[str] = []
    previous = GENESIS
    for row in connection.execute("SELECT * FROM events ORDER BY seq"):
        parts = {key: json.dumps(row[key], ensure_ascii=False) for key in ("action", "at", "name", "previous", "seq")}
        text = (
            f'{{"action":{parts["action"]},"at":{parts["at"]},"body":{row["body"]},"name":{parts["name"]},'
            f'"previous":{parts["previous"]},"seq":{parts["seq"]}}}'
        )
        whole = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == row["digest"]
        if row["seq"] != len(chain) + 1 or row["previous"] != previous or not whole:
            raise TamperedError(
                f"event {len(chain) + 1} of the registry's log is missing or was changed; `fairkit registry check` "
                "lists all damage. Restore index.sqlite from a backup; nothing was changed"
            )
        previous = row["digest"]
        chain.append(previous)
    return chain


def of_model(connection: sqlite3.Connection, name: str | None) -> Iterator[Event]:
    """Yield the events of a model (or all), the oldest first."""
    rows = connection.execute("SELECT * FROM events WHERE ? IS NULL OR name = ? ORDER BY seq", (name, name))
    return map(_event, rows)


def walk(connection: sqlite3.Connection) -> Iterator[Event | str]:
    """Walk the chain from its beginning: each event, and a sentence for each link that does not hold."""
    previous, expected = GENESIS, 1
    for row in connection.execute("SELECT * FROM events ORDER BY seq"):
        if row["seq"] != expected:
            yield f"event {expected} is missing from the log (the next one is {row['seq']})"
        try:
            event = _event(row)
            digest = _digest(event)
        except ValueError:  # NaN, too
            yield f"event {row['seq']} was changed: its body is not JSON"
            previous, expected = row["digest"], row["seq"] + 1
            continue
        if event.previous != previous:
            yield f"event {event.seq} does not follow the event before it: the chain of hashes is broken"
        if digest != event.digest:
            yield f"event {event.seq} ({event.action} {event.name}) was changed: it no longer has its digest"
        yield event
        previous, expected = event.digest, event.seq + 1
