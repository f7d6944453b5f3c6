"""Statements on the index that several operations share; each runs inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fairkit.errors import did_you_mean
from fairkit_registry import names
from fairkit_registry.errors import RegistryError
from fairkit_registry.jsonio import canonical
from fairkit_registry.store import events
from fairkit_registry.store.records import Alias, Version, read_alias, read_version

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from fairkit_registry.blobs import BlobStore, Staged
    from fairkit_registry.names import Reference

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
    at = events.now()
    digests = list(dict.fromkeys(one.digest for one in certificates))
    keep(connection, blobs, model, "model")
    for one in {one.digest: one for one in certificates}.values():
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
    events.append(connection, action, name, body, at=at)
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


def attach(
    connection: sqlite3.Connection, blobs: BlobStore, version: Version, certificate: Staged, at: str
) -> None:
    """Attach a certificate to a version that exists: its file, its rows, its event."""
    keep(connection, blobs, certificate, "certificate")
    own(connection, version.name, version.version, certificate.digest, at)
    body = {"version": version.version, "certificate": certificate.digest}
    events.append(connection, "certify", version.name, body, at=at)


def detach(connection: sqlite3.Connection, version: Version, certificate: str, reason: str, at: str) -> None:
    """Take a certificate off a version: its row, and an event. The file stays, as the log refers to it."""
    connection.execute(
        "DELETE FROM certificates WHERE name = ? AND version = ? AND digest = ?",
        (version.name, version.version, certificate),
    )
    body = {"version": version.version, "certificate": certificate, "reason": reason}
    events.append(connection, "detach", version.name, body, at=at)


def pinned(connection: sqlite3.Connection, text: str) -> tuple[str, int | None]:
    """Return name and number of what a reference means; no number means the newest."""
    wanted = names.parse(text)
    return wanted.name, wanted.version if wanted.alias is None else holder(connection, wanted)


def find_version(connection: sqlite3.Connection, name: str, number: int | None) -> Version:
    """Return a version, or the newest one without a number.

    Raises
    ------
    RegistryError
        There is no such model or version.
    """
    row = connection.execute(
        VERSION_ROWS + "WHERE v.name = ? AND (? IS NULL OR v.version = ?) ORDER BY v.version DESC LIMIT 1",
        (name, number, number),
    ).fetchone()
    if row is None:
        refuse_unknown(connection, name, number)
    owned = connection.execute(
        "SELECT digest FROM certificates WHERE name = ? AND version = ? ORDER BY added_at, digest",
        (name, row["version"]),
    )
    return read_version(row, tuple(one["digest"] for one in owned))


def find_aliases(connection: sqlite3.Connection, name: str | None) -> list[Alias]:
    """Return the aliases of a model, or of all."""
    rows = connection.execute(
        "SELECT * FROM aliases WHERE ? IS NULL OR name = ? ORDER BY name, alias", (name, name)
    )
    return [read_alias(row) for row in rows]


def holder(connection: sqlite3.Connection, wanted: Reference) -> int:
    """Return the number of the version that an alias points to.

    Raises
    ------
    RegistryError
        There is no such alias, or it points to nothing yet.
    """
    rows = {
        row["alias"]: row["version"]
        for row in connection.execute("SELECT alias, version FROM aliases WHERE name = ?", (wanted.name,))
    }
    if wanted.alias not in rows:
        if not connection.execute("SELECT 1 FROM versions WHERE name = ? LIMIT 1", (wanted.name,)).fetchone():
            refuse_unknown(connection, wanted.name)
        hint = did_you_mean(str(wanted.alias), rows, what=f"aliases of {wanted.name}")
        raise RegistryError(f"{wanted.name} has no alias {wanted.alias!r}. {hint}")
    number = rows[str(wanted.alias)]
    if number is None:
        raise RegistryError(
            f"{wanted} points to no version yet; `fairkit registry promote {wanted.name}@VERSION "
            f"{wanted.alias}` "
            "points it to one"
        )
    return int(number)


def refuse_unknown(connection: sqlite3.Connection, name: str, number: int | None = None) -> NoReturn:
    """Say that there is no such model or version, and what there is.

    Raises
    ------
    RegistryError
        Always.
    """
    newest = connection.execute("SELECT max(version) FROM versions WHERE name = ?", (name,)).fetchone()[0]
    if newest is not None:
        raise RegistryError(f"there is no version {number} of {name}; its versions go from 1 to {newest}")
    known = [row[0] for row in connection.execute("SELECT DISTINCT name FROM versions")]
    raise RegistryError(f"the registry has no model {name!r}. {did_you_mean(name, known, what='models')}")
