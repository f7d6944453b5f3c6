"""The registry's SQLite file: schema, migrations, transactions."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairkit.support.files import explain, sync_folder
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUSY_SECONDS = 30.0
OLDEST_SQLITE = (3, 37, 0)
"""The first with STRICT tables."""


def _translate(error: sqlite3.Error, path: Path) -> RegistryError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return RegistryError(
            f"{path} is locked by another program that has been writing for long; nothing was changed. "
            "Wait until it has ended and run the command again."
        )
    if "readonly" in text or "read-only" in text:
        return RegistryError(f"{path} cannot be written: check the permissions of the registry's folder.")
    if "full" in text or "disk I/O" in text:
        return RegistryError(
            f"{path}: the disk or quota is full ({text}); nothing was changed. Free some space and run it again."
        )
    if "unable to open" in text:
        return RegistryError(f"{path} cannot be opened: check the permissions of the registry's folder.")
    if "malformed" in text or "not a database" in text:
        return RegistryError(f"{path} is damaged ({text}); restore the registry from a backup or from exports.")
    return RegistryError(f"{path}: {text}")


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise RegistryError(
            f"the registry needs SQLite {needed} or newer; this Python has {sqlite3.sqlite_version}: use a newer Python"
        )


def check_not_lost(path: Path) -> None:
    """Refuse a folder whose index is gone while the files that it listed are there.

    A new index would begin with version 1 again, and would know nothing of the versions, aliases and events that were.
    """
    left = sum(1 for _ in (path.parent / "blobs" / "sha256").glob("??/*"))
    if left:
        raise TamperedError(
            f"the index {path} is gone, and {left} files that it listed are still there: restore index.sqlite from a "
            "backup, or import your exported archives into a new registry in another folder. Nothing was changed; "
            "do not remove the files"
        )


def create(path: Path, scratch: Path) -> None:
    """Make the database file whole, or leave the one that another process made in the meantime."""
    _check_sqlite()
    temporary = scratch / f"index-{secrets.token_hex(8)}.sqlite"
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            # Set here, where nobody else is: turning WAL on later would fail beside other processes.
            connection.execute("PRAGMA journal_mode = WAL")
            schema.upgrade(connection)
        finally:
            connection.close()
        _place(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RegistryError(explain(error, "cannot make a registry in", path.parent)) from None
    except sqlite3.Error as error:
        raise _translate(error, path) from None


def _place(temporary: Path, path: Path) -> None:
    """Move the file to its name unless another process was faster."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not path.exists():
            temporary.replace(path)
    temporary.unlink(missing_ok=True)


class Index:
    """The open database of a registry.

    Readers never wait for writers and see one state of the whole (WAL). Writers queue: a write
    transaction holds the only write lock from its first statement (``BEGIN IMMEDIATE``), so that what
    it reads, such as the highest version, is still true when it writes.
    """

    def __init__(self, path: Path, *, timeout: float = BUSY_SECONDS) -> None:
        self.path = path
        self._frozen: tuple[int, int, bool] | None = None
        self.committed: Callable[[], None] | None = None
        _check_sqlite()
        if not path.is_file():
            check_not_lost(path)
            raise RegistryError(
                f"there is no registry in {path.parent}. `fairkit registry add NAME MODEL.onnx` makes one; "
                "--registry, FAIRKIT_REGISTRY and [registry] path in fairkit.toml say where."
            )
        try:
            self._connection = self._open(timeout)
            self._check_schema()
        except sqlite3.Error as error:
            raise _translate(error, path) from None

    def _open(self, timeout: float) -> sqlite3.Connection:
        uri = self.path.absolute().as_uri()
        if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK):
            return self._connect(uri + "?mode=rw", timeout)
        try:
            connection = self._connect(uri + "?mode=ro", timeout)
            connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError:
            # Without write permission a WAL database opens only beside a process that has it open, or if it
            # is taken not to change; `read` looks whether it did.
            self._frozen = self._stamp()
            connection = self._connect(uri + "?mode=ro&immutable=1", timeout)
        return connection

    def _stamp(self) -> tuple[int, int, bool]:
        """Return a stamp of the file that changes when another process writes to it."""
        state = self.path.stat()
        return state.st_mtime_ns, state.st_size, self.path.with_name(self.path.name + "-wal").exists()

    @staticmethod
    def _connect(uri: str, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = FULL")  # what was acknowledged survives a power failure
        return connection

    def _check_schema(self) -> None:
        if self._connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise RegistryError(f"{self.path} is the database of another program, not of a fairkit registry")
        version = schema.schema_version(self._connection)
        if version > len(schema.MIGRATIONS):
            raise RegistryError(
                f"{self.path} was written by a newer fairkit (schema {version}; this one knows "
                f"{len(schema.MIGRATIONS)}): upgrade fairkit"
            )
        if version < len(schema.MIGRATIONS):
            schema.upgrade(self._connection)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a block as one transaction that holds the write lock; all of it happens, or nothing."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
        except sqlite3.Error as error:
            raise _translate(error, self.path) from None
        if self.committed is not None:
            self.committed()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run a block that sees one state of the whole, whatever others write meanwhile."""
        if self._connection.in_transaction:  # a read within a write sees what the write did
            yield self._connection
            return
        try:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.rollback()
        except sqlite3.Error as error:
            raise _translate(error, self.path) from None
        if self._frozen is not None and self._stamp() != self._frozen:
            raise RegistryError(f"{self.path} was written to while it was read: run the command again")

    def foreign_schema(self) -> list[str]:
        """Say which tables, views or triggers are not those that this program makes, or are missing.

        A view in place of a table could show one row to a check and another one to what follows.
        """
        with self.read() as connection:
            found = dict(connection.execute(schema.SCHEMA).fetchall())
        own = schema.own_schema(schema.MIGRATIONS)
        odd = sorted(name for name in {*found, *own} if found.get(name) != own.get(name))
        return [f"{self.path}: {name} is not the table, index or trigger that it should be" for name in odd]

    def damage(self) -> list[str]:
        """Let SQLite check its file, and every foreign key; the problems in words."""
        with self.read() as connection:
            problems = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
            problems += [
                f"{row['table']}: a row refers to a missing row of {row['parent']}"
                for row in connection.execute("PRAGMA foreign_key_check")
            ]
        return [f"{self.path}: {text}" for text in problems]

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
