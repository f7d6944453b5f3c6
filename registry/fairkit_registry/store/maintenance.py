"""Looking after a registry: is everything as it was written, and what is left over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.certificate import check_subject
from fairkit_registry.store import events, tables
from fairkit_registry.store.records import read_version

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from fairkit_registry.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `check` looked at and found.

    Attributes
    ----------
    problems
        Sentences; empty when all is well.
    notes
        What is harmless: leftovers that `gc` removes.
    blobs, size
        How many blobs were hashed again, and their bytes.
    versions, events
        How many versions and events were followed.
    head
        Digest of the newest event. Who keeps it elsewhere can tell later whether the log was rewritten.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]
    blobs: int
    size: int
    versions: int
    events: int
    head: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "clean": not self.problems,
            "problems": list(self.problems),
            "notes": list(self.notes),
            "blobs": self.blobs,
            "bytes": self.size,
            "versions": self.versions,
            "events": self.events,
            "head": self.head,
        }


def check(registry: Registry, *, head: str | None = None) -> CheckResult:
    """Hash every blob again, follow every reference, walk the chain of events, and replay it.

    The tables must be exactly what the log says was done: a row that was changed behind the
    registry's back is found even where the log itself was left alone.

    Parameters
    ----------
    registry
        The registry.
    head
        Digest of an event that was noted down earlier; it must still be in the chain.
    """
    problems = registry.index.damage()
    with registry.index.read() as connection:
        known = {row["digest"]: row["size"] for row in connection.execute("SELECT digest, size FROM blobs")}
        subjects = [tuple(row) for row in connection.execute(_SUBJECTS)]
        versions = connection.execute("SELECT count(*) FROM versions").fetchone()[0]
        log = list(events.walk(connection))
        chain = [entry for entry in log if isinstance(entry, events.Event)]
        problems += [entry for entry in log if isinstance(entry, str)]
        problems += _replay(connection, chain)
    if head is not None and head not in {event.digest for event in chain}:
        problems.append(
            f"the event {head} is no longer in the log: the log was rewritten, or this is another registry"
        )
    damage = {digest: list(_blob_problems(registry, digest, size)) for digest, size in known.items()}
    problems += [text for texts in damage.values() for text in texts]
    for reference, certificate, model in subjects:
        if not damage[certificate]:
            problems += _subject_problems(registry, reference, certificate, model)
    return CheckResult(
        problems=tuple(problems),
        notes=tuple(_leftovers(registry)),
        blobs=len(known),
        size=sum(known.values()),
        versions=versions,
        events=len(chain),
        head=chain[-1].digest if chain else events.GENESIS,
    )


_SUBJECTS = (
    "SELECT c.name || '@' || c.version, c.digest, v.model FROM certificates c "
    "JOIN versions v ON v.name = c.name AND v.version = c.version"
)


def _blob_problems(registry: Registry, digest: str, size: int) -> Iterator[str]:
    problem = registry.blobs.problem(digest)
    if problem is not None:
        yield problem
    elif registry.blobs.path(digest).stat().st_size != size:
        yield f"blob {digest} has another size than the index says ({size} bytes)"


def _subject_problems(registry: Registry, reference: str, certificate: str, model: str) -> Iterator[str]:
    try:
        check_subject(
            registry.certificate(certificate), model, where=f"certificate {certificate[:12]} of {reference}"
        )
    except (CertificateError, RegistryError) as error:
        yield str(error)


def _leftovers(registry: Registry) -> Iterator[str]:
    found = list(registry.blobs.digests())  # before the rows: others may be adding
    with registry.index.read() as connection:
        known = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
    for digest in found:
        if digest not in known:
            yield f"blob {digest} belongs to nothing; `fairkit registry gc` removes it"
    for path in registry.blobs.abandoned():
        yield f"{path} was left by a process that did not finish; `fairkit registry gc` removes it"
    for path in registry.blobs.strays():
        yield f"{path} is no file of the registry"


def _replay(connection: sqlite3.Connection, chain: list[events.Event]) -> Iterator[str]:
    """Rebuild versions, certificates and aliases from the log, and compare them with the tables."""
    versions: dict[str, Any] = {}
    owned: set[tuple[str, int, str]] = set()
    aliases: dict[str, Any] = {}
    for event in chain:
        body, name = event.body, str(event.name)
        if event.action in ("add", "import"):
            versions[f"{name}@{body['version']}"] = (
                *(body["model"], body["filename"], body["parent"], body["notes"], tuple(body["tags"])),
                *(body["origin"], event.at),
            )
            owned |= {(name, body["version"], digest) for digest in body["certificates"]}
        elif event.action == "certify":
            owned.add((name, body["version"], body["certificate"]))
        elif event.action == "alias":
            held = aliases.get(f"{name}@{body['alias']}", (None, None, None))
            aliases[f"{name}@{body['alias']}"] = (body["policy"], *held[1:])
        elif event.action == "remove-alias":
            aliases.pop(f"{name}@{body['alias']}", None)
        elif event.action == "promote":
            policy = aliases.get(f"{name}@{body['alias']}", (None,))[0]
            aliases[f"{name}@{body['alias']}"] = (policy, body["version"], body["certificate"])
    yield from _differences("version", versions, _table_versions(connection))
    yield from _differences("alias", aliases, _table_aliases(connection))
    rows = connection.execute("SELECT name, version, digest FROM certificates")
    stored = {tuple(row) for row in rows}
    for name, version, digest in sorted(owned ^ stored):
        where = (
            "the log but not in the tables"
            if (name, version, digest) in owned
            else "the tables but not in the log"
        )
        yield f"certificate {digest[:12]} of {name}@{version} is in {where}"


def _table_versions(connection: sqlite3.Connection) -> dict[str, Any]:
    found = {}
    for row in connection.execute(tables.VERSION_ROWS):
        one = read_version(row)
        found[one.reference] = (
            *(one.model, one.filename, one.parent, one.notes, one.tags),
            *(one.origin, one.added_at),
        )
    return found


def _table_aliases(connection: sqlite3.Connection) -> dict[str, Any]:
    return {
        f"{one.name}@{one.alias}": (one.policy.to_dict(), one.version, one.certificate)
        for one in tables.find_aliases(connection, None)
    }


def _differences(what: str, logged: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    for key in sorted(set(logged) | set(stored)):
        if key not in stored:
            yield f"{what} {key} is in the log but not in the tables"
        elif key not in logged:
            yield f"{what} {key} is in the tables but not in the log"
        elif logged[key] != stored[key]:
            yield f"{what} {key} was changed: the tables do not say what the log says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What `gc` removed (or would remove): files and bytes."""

    files: tuple[str, ...]
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"files": list(self.files), "bytes": self.size}


def gc(registry: Registry, *, dry_run: bool = False) -> Removed:
    """Remove files that nothing refers to: leftovers of processes that were killed.

    It holds the write lock, so a file that another process has just moved into the store has its row
    already, or is not there yet. Temporary files go when they are a day old.

    Raises
    ------
    RegistryError
        The registry is locked or cannot be written.
    """
    removed: list[str] = []
    size = 0
    with registry.index.write() as connection:
        known = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
        loose = [registry.blobs.path(digest) for digest in registry.blobs.digests() if digest not in known]
        for path in (*loose, *registry.blobs.abandoned()):
            size += _remove(path, removed, dry_run=dry_run)
    return Removed(files=tuple(removed), size=size)


def _remove(path: Path, removed: list[str], *, dry_run: bool) -> int:
    with suppress(OSError):
        size = path.stat().st_size
        if not dry_run:
            path.unlink()
        removed.append(str(path))
        return size
    return 0
