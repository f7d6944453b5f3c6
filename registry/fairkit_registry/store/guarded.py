"""A registry's folder, opened: its index held against its log, its log against what is remembered outside of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from fairkit.errors import FairkitError
from fairkit_registry.blobs import BlobStore
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.store import events, index
from fairkit_registry.store.heads import Head, Heads
from fairkit_registry.store.index import Index
from fairkit_registry.store.replay import UNREADABLE, Replayed, differences, replayed, unreadable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from types import TracebackType


INDEX_FILE = "index.sqlite"
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a row that somebody has changed may end with."""


class OpenRegistry:
    """A registry that is open: its index is held against what is remembered of it (see `Registry`)."""

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = False,
        timeout: float = index.BUSY_SECONDS,
        witnesses: Sequence[str | Path] = (),
        trusting: bool = False,
    ) -> None:
        self.path = Path(path)
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
            raise TamperedError(
                f"the index of {self.path} was changed from outside: {text}. Restore it from a backup"
            )
        with self.index.read() as connection:
            digests = events.digests(connection)
        for head in remembered:
            head.check(digests, self.path)
        if not self.heads.complete or any(head.events < len(digests) for head in remembered):
            self._keep(digests)

    def remember(self, *, force: bool = False) -> None:
        """Write the newest event to where it is remembered; with `force` also where a later one was remembered."""
        with self.index.read() as connection:
            number, digest = events.newest(connection)
        self._noted(self.heads.remember(Head(events=number, digest=digest), force=force))

    def _keep(self, digests: Sequence[str]) -> None:
        head = Head(events=len(digests), digest=digests[-1] if digests else events.GENESIS)
        self._noted(self.heads.remember(head))

    def _noted(self, problem: str | None) -> None:
        if problem is not None:
            self.notes.append(
                f"the newest event of {self.path} cannot be remembered outside of it: {problem}"
            )

    def confirm(self, connection: sqlite3.Connection, name: str | None = None) -> Replayed:
        """Compare the rows about a model (or all) with the log, and return what the log says.

        Raises
        ------
        TamperedError
            A row was changed, added or removed without an event.
        """
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(value, _MISREAD) and not isinstance(value, FairkitError):
                problems = self.index.damage()
                if problems:  # else it is a bug of ours
                    raise RegistryError(
                        f"{problems[0]}; restore the registry from a backup or from exports"
                    ) from value
        finally:
            self.index.close()
