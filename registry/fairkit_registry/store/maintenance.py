"""Looking after a registry: is everything as it was written, and what is left over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.certificate import check_subject
from fairkit_registry.store import events
from fairkit_registry.store.tables import UNREADABLE, differences, replayed, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairkit_registry.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `check` looked at and found."""

    problems: tuple[str, ...]  # sentences; empty when all is well
    notes: tuple[str, ...]  # what is harmless: leftovers that `gc` removes
    blobs: int  # how many blobs were hashed again, and their bytes
    size: int  # how many blobs were hashed again, and their bytes
    versions: int  # how many versions and events were followed
    events: int  # how many versions and events were followed
    head: str  # digest of the newest event. Who keeps it elsewhere can tell later whether the log was rewritten

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


def check(registry: Registry, *, head: str | None = None, remembered: bool = True) -> CheckResult:
    """Hash every blob again, follow every reference, walk the chain of events, and replay it.

    The tables must be exactly what the log says was done: a row that was changed behind the
    registry's back is found even where the log itself was left alone.
    """
    problems = [*registry.folder.index.damage(), *registry.folder.index.foreign_schema()]
    with registry.folder.index.read() as connection:
        sizes = {row["digest"]: row["size"] for row in connection.execute("SELECT digest, size FROM blobs")}
        subjects = [tuple(row) for row in connection.execute(_SUBJECTS)]
        versions = connection.execute("SELECT count(*) FROM versions").fetchone()[0]
        log = list(events.walk(connection))
        chain = [entry for entry in log if isinstance(entry, events.Event)]
        problems += [entry for entry in log if isinstance(entry, str)]
        try:
            problems += differences(connection, replayed(chain))
        except UNREADABLE as error:
            problems.append(unreadable(error))
    if remembered:
        problems += _forgotten(registry, [event.digest for event in chain])
    if head is not None and head not in {event.digest for event in chain}:
        problems.append(f"the event {head} is no longer in the log: the log was rewritten, or this is another registry")
    damage = {digest: list(_blob_problems(registry, digest, size)) for digest, size in sizes.items()}
    problems += [text for texts in damage.values() for text in texts]
    for reference, certificate, model in subjects:
        if not damage[certificate]:
            problems += _subject_problems(registry, reference, certificate, model)
    return CheckResult(
        problems=tuple(problems),
        notes=tuple(_leftovers(registry)),
        blobs=len(sizes),
        size=sum(sizes.values()),
        versions=versions,
        events=len(chain),
        head=chain[-1].digest if chain else events.GENESIS,
    )


def _forgotten(registry: Registry, digests: list[str]) -> list[str]:
    """Say which of the remembered heads the log does not continue."""
    problems = []
    try:
        remembered = registry.folder.heads.read()
    except RegistryError as error:
        return [str(error)]
    for one in remembered:
        try:
            one.check(digests, registry.path)
        except RegistryError as error:
            problems.append(str(error))
    return problems


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
        check_subject(registry.certificate(certificate), model, where=f"certificate {certificate[:12]} of {reference}")
    except (CertificateError, RegistryError) as error:
        yield str(error)


def _leftovers(registry: Registry) -> Iterator[str]:
    found = list(registry.blobs.digests())  # before the rows: others may be adding
    with registry.folder.index.read() as connection:
        known = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
    for digest in found:
        if digest not in known:
            yield (
                f"blob {digest} belongs to nothing: an interrupted process left it, or the index is older than the "
                "files. `fairkit registry check --gc` removes it once the head is known to be the newest"
            )
    for path in registry.blobs.abandoned():
        yield f"{path} was left by a process that did not finish; `fairkit registry check --gc` removes it"
    for path in registry.blobs.strays():
        yield f"{path} is no file of the registry"


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
    """
    removed: list[str] = []
    size = 0
    with registry.folder.index.write() as connection:
        known = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
        # what the log refers to stays, whatever was done to the tables
        known |= registry.folder.confirm(connection).blobs()
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
