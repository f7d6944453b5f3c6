"""The folder of a registry: its index is compared with its log, and its log with what is remembered outside of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_registry.blobs import BlobStore, Staged, chunks
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.evidence.certificate import check_subject, read_file
from fairkit_registry.store import events, index
from fairkit_registry.store.heads import Head, Heads
from fairkit_registry.store.index import Index
from fairkit_registry.store.tables import UNREADABLE, Replayed, differences, replayed, unreadable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@contextmanager
def staging_in(blobs: BlobStore) -> Iterator[Staging]:
    """Collect files under temporary names; what was not kept at the end is removed."""
    staging = Staging(blobs)
    try:
        yield staging
    finally:
        for one in staging.all:
            one.discard()


class Staging:
    """Remembers what it staged, so that whatever is not kept is removed."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.all: list[Staged] = []

    def file(self, path: Path) -> Staged:
        """Copy a file."""
        try:
            handle = path.open("rb")
        except OSError as error:
            raise RegistryError(f"cannot read {path}: {error.strerror or error}") from None
        with handle:
            return self.take(self.blobs.stage(chunks(handle)))

    def certificate(self, path: Path, model: str) -> Staged:
        """Copy a certificate, if it is one and is about the model."""
        raw = read_file(path)
        check_subject(raw, model, where=str(path))
        return self.take(self.blobs.stage([raw]))

    def take(self, staged: Staged) -> Staged:
        """Remember a staged file, so that it is removed if it is not kept."""
        self.all.append(staged)
        return staged


INDEX_FILE = "index.sqlite"
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a row that somebody has changed may end with."""


class RegistryFolder:
    """Index, files and remembered heads of an open registry; the parameters are those of `Registry`."""

    def __init__(
        self, path: Path, witnesses: Sequence[str | Path], *, create: bool, timeout: float, trusting: bool
    ) -> None:
        self.path = path
        self.blobs = BlobStore(self.path / "blobs")
        self.heads = Heads(self.path, witnesses)
        self.notes: list[str] = []
        file = self.path / INDEX_FILE
        new = create and not file.is_file()
        if new:
            self._make(file)
        # before the index is read: it may go on meanwhile, and never goes back
        remembered = [] if trusting else self.heads.read(new=new)
        self.index = Index(file, timeout=timeout)
        try:
            if not trusting:
                self._compare(remembered)
        except BaseException:
            self.index.close()
            raise
        self.index.committed = self.remember

    def _make(self, file: Path) -> None:
        """Make the index of a new registry."""
        if self.path.is_dir() and any(entry.name != "blobs" for entry in self.path.iterdir()):
            raise RegistryError(f"{self.path} is a folder with other files in it; name a new or empty folder")
        index.check_not_lost(file)
        index.create(file, self.blobs.temporary)
        if any(path.exists() for path in self.heads.own):
            self.notes.append(
                f"a registry was in {self.path} before and is gone; this is a new one, which knows nothing of it"
            )
            self.heads.forget()

    def _compare(self, remembered: Sequence[Head]) -> None:
        """Refuse a log that does not continue what is remembered; remember one that does."""
        for text in self.index.foreign_schema():
            raise TamperedError(f"the index of {self.path} was changed from outside: {text}. Restore it from a backup")
        with self.index.read() as connection:
            digests = events.digests(connection)
        for head in remembered:
            head.check(digests, self.path)
        if not self.heads.complete or any(head.events < len(digests) for head in remembered):
            self._keep(Head(events=len(digests), digest=[events.GENESIS, *digests][-1]))

    def remember(self, *, force: bool = False) -> None:
        """Write the newest event to where it is remembered; with `force` also where a later one was remembered."""
        with self.index.read() as connection:
            number, digest = events.newest(connection)
        self._keep(Head(events=number, digest=digest), force=force)

    def _keep(self, head: Head, *, force: bool = False) -> None:
        problem = self.heads.remember(head, force=force)
        if problem is not None:
            self.notes.append(f"the newest event of {self.path} cannot be remembered outside of it: {problem}")

    def confirm(self, connection: sqlite3.Connection, name: str | None = None) -> Replayed:
        """Compare the rows about a model (or all) with the log, and return what the log says."""
        try:
            state = replayed(events.of_model(connection, name))
            found = list(differences(connection, state, name))
        except UNREADABLE as error:
            found = [unreadable(error)]
        for text in found:
            raise TamperedError(
                f"the index of {self.path} was changed from outside: {text}. `fairkit registry check` lists all "
                "damage; restore index.sqlite from a backup"
            )
        return state

    @contextmanager
    def read(self, name: str | None = None) -> Iterator[sqlite3.Connection]:
        """Run a block in one read transaction, after the rows about a model (or all) are confirmed in it."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            yield connection

    @contextmanager
    def write(self, name: str | None = None) -> Iterator[sqlite3.Connection]:
        """Run a block in one write transaction, after the rows about a model (or all) are confirmed in it."""
        with self.index.write() as connection:
            self.confirm(connection, name)
            yield connection

    def close(self, error: BaseException | None) -> None:
        """Close the index; where an error may come from a changed row, raise a RegistryError with the damage."""
        try:
            if isinstance(error, _MISREAD) and not isinstance(error, FairkitError):
                problems = self.index.damage()
                if problems:  # else it is a bug of ours
                    raise RegistryError(f"{problems[0]}; restore the registry from a backup or from exports") from error
        finally:
            self.index.close()
