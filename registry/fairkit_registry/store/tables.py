"""Statements on the index; each runs inside the caller's transaction."""

from __future__ import annotations

import getpass
import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from fairkit.errors import did_you_mean
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_registry import jsonio
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.jsonio import canonical, fingerprint
from fairkit_registry.store.index import Alias, AliasPolicy, Version, read_alias, read_version

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    from fairkit_registry.blobs import BlobStore, Staged
    from fairkit_registry.jsonio import Reference


VERSION_ROWS = "SELECT v.*, b.size FROM versions v JOIN blobs b ON b.digest = v.model "


def insert_version(
    connection: sqlite3.Connection,
    blobs: BlobStore,
    name: str,
    model: Staged,
    certificates: Sequence[Staged],
    *,
    filename: str,
    parent: tuple[str, int] | None,
    tags: Sequence[str],
    notes: str,
    origin: str | None = None,
    action: str = "add",
) -> Version:
    """Add the next version of a model: its files, its row, its event."""
    at = now()
    digests = list(dict.fromkeys(certificate.digest for certificate in certificates))
    keep(connection, blobs, model, "model")
    for one in {certificate.digest: certificate for certificate in certificates}.values():
        keep(connection, blobs, one, "certificate")
    number = connection.execute(
        "SELECT coalesce(max(version), 0) + 1 FROM versions WHERE name = ?", (name,)
    ).fetchone()[0]
    labels = sorted(set(tags))
    parent_name, parent_version = parent or (None, None)
    connection.execute(
        "INSERT INTO versions (name, version, model, filename, parent_name, parent_version, notes, tags, "
        "origin, added_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(name, number, model.digest, filename, parent_name, parent_version, notes),
            *(canonical(labels).decode("utf-8"), origin, at),
        ),
    )
    for digest in digests:
        own(connection, name, number, digest, at)
    body = {
        "version": number,
        "model": model.digest,
        "filename": filename,
        "parent": None if parent is None else f"{parent_name}@{parent_version}",
        "notes": notes,
        "tags": labels,
        "origin": origin,
        "certificates": digests,
    }
    append(connection, action, name, body, at=at)
    return find_version(connection, name, number)


def keep(connection: sqlite3.Connection, blobs: BlobStore, staged: Staged, kind: str) -> None:
    """Move a file into the store and note it: first the file, then the row, so that no row lacks its file."""
    blobs.keep(staged)
    connection.execute(
        "INSERT INTO blobs (digest, size, kind) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING",
        (staged.digest, staged.size, kind),
    )


def own(connection: sqlite3.Connection, name: str, version: int, digest: str, at: str) -> None:
    """Note that a certificate belongs to a version."""
    connection.execute(
        "INSERT INTO certificates (name, version, digest, added_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (name, version, digest) DO NOTHING",
        (name, version, digest, at),
    )


def attach(connection: sqlite3.Connection, blobs: BlobStore, version: Version, certificate: Staged, at: str) -> None:
    """Attach a certificate to a version that exists: its file, its rows, its event."""
    keep(connection, blobs, certificate, "certificate")
    own(connection, version.name, version.version, certificate.digest, at)
    body = {"version": version.version, "certificate": certificate.digest}
    append(connection, "certify", version.name, body, at=at)


def set_alias(connection: sqlite3.Connection, name: str, alias: str, policy: AliasPolicy, at: str) -> Alias:
    """Make an alias of a model that exists, or give it another policy: its row, its event."""
    connection.execute(
        "INSERT INTO aliases (name, alias, policy, changed_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (name, alias) DO UPDATE SET policy = excluded.policy, changed_at = excluded.changed_at",
        (name, alias, canonical(policy.to_dict()).decode("utf-8"), at),
    )
    append(connection, "alias", name, {"alias": alias, "policy": policy.to_dict()}, at=at)
    return find_aliases(connection, name, alias)[0]


def pinned(connection: sqlite3.Connection, text: str) -> tuple[str, int | None]:
    """Return name and number of what a reference means; no number means the newest."""
    wanted = jsonio.parse(text)
    return wanted.name, wanted.version if wanted.alias is None else holder(connection, wanted)


def list_models(connection: sqlite3.Connection, aliases: Sequence[Alias]) -> list[dict[str, Any]]:
    """Return what `Registry.models` says."""
    listed = []
    for row in connection.execute(
        "SELECT name, count(*) AS versions, max(version) AS newest FROM versions GROUP BY name ORDER BY name"
    ):
        listed.append(
            {**row, "aliases": {alias.alias: alias.version for alias in aliases if alias.name == row["name"]}}
        )
    return listed


def find_versions(
    connection: sqlite3.Connection, name: str, number: int | None = None, *, limit: int | None = None
) -> list[Version]:
    """Return the versions of a model, the newest first, or the one with a number."""
    rows = connection.execute(
        VERSION_ROWS + "WHERE v.name = ? AND (? IS NULL OR v.version = ?) ORDER BY v.version DESC LIMIT ?",
        (name, number, number, -1 if limit is None else limit),
    ).fetchall()
    if not rows:
        refuse_unknown(connection, name, number)
    owned: dict[int, list[str]] = {}
    for row in connection.execute(
        "SELECT version, digest FROM certificates WHERE name = ? AND version BETWEEN ? AND ? ORDER BY added_at, digest",
        (name, rows[-1]["version"], rows[0]["version"]),
    ):
        owned.setdefault(row["version"], []).append(row["digest"])
    return [read_version(row, tuple(owned.get(row["version"], ()))) for row in rows]


def find_version(connection: sqlite3.Connection, name: str, number: int | None = None) -> Version:
    """Return a version, or the newest one without a number; see `find_versions`."""
    return find_versions(connection, name, number, limit=1)[0]


def find_aliases(connection: sqlite3.Connection, name: str | None = None, alias: str | None = None) -> list[Alias]:
    """Return the aliases of a model, or of all; or the one with a name."""
    rows = connection.execute(
        "SELECT * FROM aliases WHERE (? IS NULL OR name = ?) AND (? IS NULL OR alias = ?) ORDER BY name, alias",
        (name, name, alias, alias),
    )
    return [read_alias(row) for row in rows]


def holder(connection: sqlite3.Connection, wanted: Reference) -> int:
    """Return the number of the version that an alias points to."""
    rows = {
        row["alias"]: row["version"]
        for row in connection.execute("SELECT alias, version FROM aliases WHERE name = ?", (wanted.name,))
    }
    if wanted.alias not in rows:
        find_version(connection, wanted.name)  # an unknown model has another message
        hint = did_you_mean(str(wanted.alias), rows, what=f"aliases of {wanted.name}")
        raise RegistryError(f"{wanted.name} has no alias {wanted.alias!r}. {hint}")
    number = rows[str(wanted.alias)]
    if number is None:
        raise RegistryError(
            f"{wanted} points to no version yet; `fairkit registry promote {wanted.name}@VERSION {wanted.alias}` "
            "points it to one"
        )
    return int(number)


def refuse_unknown(connection: sqlite3.Connection, name: str, number: int | None = None) -> NoReturn:
    """Say that there is no such model or version, and what there is."""
    newest = connection.execute("SELECT max(version) FROM versions WHERE name = ?", (name,)).fetchone()[0]
    if newest is not None:
        raise RegistryError(f"there is no version {number} of {name}; its versions go from 1 to {newest}")
    names = [row[0] for row in connection.execute("SELECT DISTINCT name FROM versions")]
    raise RegistryError(f"the registry has no model {name!r}. {did_you_mean(name, names, what='models')}")


@dataclass(slots=True)
class Replayed:
    """Versions, certificates and aliases as the log tells them."""

    versions: dict[str, Any] = field(default_factory=dict)
    owned: set[tuple[str, int, str]] = field(default_factory=set)
    aliases: dict[str, Any] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    detached: set[tuple[str, int, str]] = field(default_factory=set)

    def add(self, event: Event) -> None:
        """Do an event again."""
        body, name = event.body, str(event.name)
        if event.action in ("add", "import"):
            self.versions[f"{name}@{body['version']}"] = (
                *(body["model"], body["filename"], body["parent"], body["notes"], tuple(body["tags"])),
                *(body["origin"], event.at),
            )
            self.owned |= {(name, body["version"], digest) for digest in body["certificates"]}
        elif event.action == "certify":
            self.owned.add((name, body["version"], body["certificate"]))
            self.detached.discard((name, body["version"], body["certificate"]))
        elif event.action == "detach":
            self.owned.discard((name, body["version"], body["certificate"]))
            self.detached.add((name, body["version"], body["certificate"]))
        elif event.action == "alias":
            record = self.aliases.get(f"{name}@{body['alias']}", (None, None, None, None))
            # an older version of the program wrote fewer conditions, each of which has a default
            policy = AliasPolicy.from_dict(body["policy"]).to_dict()
            self.aliases[f"{name}@{body['alias']}"] = (policy, *record[1:3], event.at)
        elif event.action in ("revoke", "lock", "served"):  # earlier versions kept lists and statements of watches
            self.lists |= {body[key] for key in ("list", "lock", "file") if key in body}
        elif event.action == "remove-alias":
            self.aliases.pop(f"{name}@{body['alias']}", None)
        elif event.action in ("promote", "demote"):
            policy = self.aliases.get(f"{name}@{body['alias']}", (None,))[0]
            self.aliases[f"{name}@{body['alias']}"] = (policy, body["version"], body["certificate"], event.at)

    def blobs(self) -> set[str]:
        """Return the digests of all files that the log refers to."""
        return (
            {version[0] for version in self.versions.values()}
            | {digest for _, _, digest in self.owned | self.detached}
            | self.lists
        )


def replayed(chain: Iterable[Event]) -> Replayed:
    """Do events again, the oldest first."""
    state = Replayed()
    for event in chain:
        state.add(event)
    return state


def differences(connection: sqlite3.Connection, state: Replayed, name: str | None = None) -> Iterator[str]:
    """Yield a sentence for each row that is not as the log says."""
    yield from _different("version", state.versions, _versions(connection, name))
    yield from _different("alias", state.aliases, _aliases(connection, name))
    rows = connection.execute(
        "SELECT name, version, digest FROM certificates WHERE ? IS NULL OR name = ?", (name, name)
    )
    stored = {tuple(row) for row in rows}
    for owner, version, digest in sorted(state.owned ^ stored):
        is_attached = (owner, version, digest) in state.owned
        where = "the log but not in the tables" if is_attached else "the tables but not in the log"
        yield f"certificate {digest[:12]} of {owner}@{version} is in {where}"


UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What a row or an event raises that does not have the form that this program writes."""


def unreadable(error: Exception) -> str:
    """Say that something in the database has no form that this program writes."""
    return f"an event or a row does not have the form that it should have ({error!r})"


def _versions(connection: sqlite3.Connection, name: str | None) -> dict[str, Any]:
    versions = {}
    for row in connection.execute(VERSION_ROWS + "WHERE ? IS NULL OR v.name = ?", (name, name)):
        version = read_version(row)
        versions[version.reference] = (
            *(version.model, version.filename, version.parent, version.notes, version.tags),
            *(version.origin, version.added_at),
        )
    return versions


def _aliases(connection: sqlite3.Connection, name: str | None) -> dict[str, Any]:
    return {
        f"{alias.name}@{alias.alias}": (alias.policy.to_dict(), alias.version, alias.certificate, alias.changed_at)
        for alias in find_aliases(connection, name)
    }


def _different(what: str, logged: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    for key in sorted(set(logged) | set(stored)):
        if key not in stored:
            yield f"{what} {key} is in the log but not in the tables"
        elif key not in logged:
            yield f"{what} {key} is in the tables but not in the log"
        elif logged[key] != stored[key]:
            yield f"{what} {key} was changed: the tables do not say what the log says"


# The append-only log: what was done, when, by whom, chained by hash.


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
    previous: str  # the digest of the event before it
    digest: str  # its own: SHA-256 over the canonical JSON of the rest

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
