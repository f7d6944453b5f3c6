"""The registry's SQLite file: schema, migrations, transactions."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from fairkit.support.files import explain, record_of, sync_folder
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_registry.errors import RegistryError, TamperedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


APPLICATION_ID = 0x66616972  # "fair"
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE blobs (
        digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
        size INTEGER NOT NULL CHECK (size >= 0),
        kind TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE versions (
        name TEXT NOT NULL,
        version INTEGER NOT NULL CHECK (version >= 1),
        model TEXT NOT NULL REFERENCES blobs (digest),
        filename TEXT NOT NULL,
        parent_name TEXT,
        parent_version INTEGER,
        notes TEXT NOT NULL,
        tags TEXT NOT NULL,
        origin TEXT,
        added_at TEXT NOT NULL,
        PRIMARY KEY (name, version),
        FOREIGN KEY (parent_name, parent_version) REFERENCES versions (name, version)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX versions_by_model ON versions (model);
    CREATE INDEX versions_by_origin ON versions (name, origin) WHERE origin IS NOT NULL;

    CREATE TABLE certificates (
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest TEXT NOT NULL REFERENCES blobs (digest),
        added_at TEXT NOT NULL,
        PRIMARY KEY (name, version, digest),
        FOREIGN KEY (name, version) REFERENCES versions (name, version)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE aliases (
        name TEXT NOT NULL,
        alias TEXT NOT NULL,
        policy TEXT NOT NULL,
        version INTEGER,
        certificate TEXT REFERENCES blobs (digest),
        changed_at TEXT NOT NULL,
        PRIMARY KEY (name, alias),
        FOREIGN KEY (name, version) REFERENCES versions (name, version)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY CHECK (seq >= 1),
        at TEXT NOT NULL,
        action TEXT NOT NULL,
        name TEXT,
        body TEXT NOT NULL,
        previous TEXT NOT NULL,
        digest TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE INDEX events_by_name ON events (name, seq);
    CREATE TRIGGER events_stay BEFORE UPDATE ON events
        BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;
    CREATE TRIGGER events_remain BEFORE DELETE ON events
        BEGIN SELECT RAISE (ABORT, 'the event log is append-only'); END;
    """,
)
"""Each entry takes the schema from version i to i+1; entries are only ever appended."""


def statements(script: str) -> Iterator[str]:
    """Split a script, because `executescript` would commit the transaction it stands in."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending
            pending = ""


SCHEMA = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


@functools.cache
def own_schema(migrations: tuple[str, ...]) -> dict[str, str]:
    """Return the SQL of every table, index and trigger that these migrations (all that there are) make."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        upgrade(connection)
        return dict(connection.execute(SCHEMA).fetchall())
    finally:
        connection.close()


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that a file has seen."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring the schema to the newest version in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[schema_version(connection) :]:  # another process may have been faster
            for statement in statements(step):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()  # nothing where SQLite has rolled back by itself, as on a full disk
        raise


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
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise RegistryError(
            f"the registry needs SQLite {oldest} or newer; this Python has {sqlite3.sqlite_version}: use a newer Python"
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
    temporary = scratch / f"index-{os.urandom(8).hex()}.sqlite"
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            # Set here, where nobody else is: turning WAL on later would fail beside other processes.
            connection.execute("PRAGMA journal_mode = WAL")
            upgrade(connection)
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
        if self._connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise RegistryError(f"{self.path} is the database of another program, not of a fairkit registry")
        version = schema_version(self._connection)
        if version > len(MIGRATIONS):
            raise RegistryError(
                f"{self.path} was written by a newer fairkit (schema {version}; this one knows "
                f"{len(MIGRATIONS)}): upgrade fairkit"
            )
        if version < len(MIGRATIONS):
            upgrade(self._connection)

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
            present = dict(connection.execute(SCHEMA).fetchall())
        expected = own_schema(MIGRATIONS)
        odd = sorted(name for name in {*present, *expected} if present.get(name) != expected.get(name))
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


# What the registry keeps about versions and aliases, as frozen values.


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasPolicy:
    """The conditions of an alias; by default a certificate by a trusted key, and no key is trusted.

    `fairkit_registry.promotion.conditions` makes of each that is asked for an object that judges.
    """

    keys: tuple[str, ...] = ()  # PEM of the public keys whose certificates count
    data: tuple[str, ...] = ()  # SHA-256 of the tables that the audit may have been made on; empty: any
    data_keys: tuple[str, ...] = ()  # PEM of keys of which one must have signed the table
    rules: tuple[Mapping[str, Any], ...] = ()
    confidence: float = 0.95  # the least confidence of the intervals that rules are judged by
    max_age_days: float | None = None  # how old (by the signed `auditedAt`) the certificate may be; None: any age
    min_rows: int | None = None  # the least number of audited rows in every group; None: any
    settings: Mapping[str, Any] = field(default_factory=dict)  # what the audit must have been told, by name
    plain: bool = False  # rows of a batch are shown to stay apart; every output is audited, every input fed
    locked: bool = False  # policy, table and settings were locked before the model came
    unseen: bool = False  # the rows were sealed by a key of `data_keys` before the model came
    no_worse: tuple[str, ...] = ()  # metrics not significantly worse than the current version's
    checks: tuple[str, ...] = ()  # names of promotion checks (from plugins) that must be installed and agree
    open: bool = False  # true asks for nothing: a place for work in progress
    gone: tuple[str, ...] = ()  # conditions of an earlier version that no check is left for: nothing passes

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self, without=() if self.gone else ("gone",))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also what an earlier version wrote: what it asked for and is gone, refuses."""
        absent = [name for name in _ALWAYS if name not in record]
        if absent:
            raise TypeError(f"the policy of an alias does not say {', '.join(absent)}")
        names = {each.name for each in dataclasses.fields(cls)}
        fields = {
            _FORMER.get(key, key): tuple(item) if isinstance(item, list) else item for key, item in record.items()
        }
        empty: tuple[Any, ...] = (None, False, (), {})
        unknown = {key for key, value in fields.items() if not (key in names or value in empty or (key, value) == _ONE)}
        arguments: dict[str, Any] = {key: fields[key] for key in fields if key in names}
        return cls(**arguments | {"gone": tuple(sorted({*arguments.get("gone", ()), *unknown}))})


_ALWAYS = ("rules", "keys", "max_age_days", "data", "no_worse", "confidence", "checks", "open")
"""Conditions that every version wrote: without one it is no policy."""
_ONE = ("machines", 1)
_FORMER = {"pre_registered": "locked"}
"""Conditions that have another name since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a model."""

    name: str  # the model's
    version: int  # from 1 without gaps, never changed
    model: str  # the SHA-256 of the ONNX file
    size: int  # its bytes
    filename: str  # what the file was called when it was added
    parent: str | None  # the version it was made from, as `name@version`; None where nobody said
    tags: tuple[str, ...]  # what the user wanted to remember
    notes: str
    origin: str | None  # the version in another registry that this one was imported from, else None
    added_at: str  # when, UTC
    certificates: tuple[str, ...] = ()  # the SHA-256 of each certificate file, in the order they were attached

    @property
    def reference(self) -> str:
        """The version as the user writes it: ``credit@3``."""
        return f"{self.name}@{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"sha256" if name == "model" else name: value for name, value in record_of(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A name that points to a version, and the policy a version must meet to be pointed to.

    `version` and `certificate` are None until something was promoted.
    """

    name: str
    alias: str
    policy: AliasPolicy
    version: int | None
    certificate: str | None
    changed_at: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "alias": self.alias,
            "version": self.version,
            "certificate": self.certificate,
            "policy": self.policy.to_dict(),
            "changed_at": self.changed_at,
        }


def read_version(row: sqlite3.Row, certificates: tuple[str, ...] = ()) -> Version:
    """Make a version of a row of `versions` joined with its blob's size."""
    parent = None if row["parent_name"] is None else f"{row['parent_name']}@{row['parent_version']}"
    same = ("name", "version", "model", "size", "filename", "notes", "origin", "added_at")
    return Version(
        **{key: row[key] for key in same}, parent=parent, tags=tuple(json.loads(row["tags"])), certificates=certificates
    )


def read_alias(row: sqlite3.Row) -> Alias:
    """Make an alias of a row of `aliases`."""
    return Alias(
        name=row["name"],
        alias=row["alias"],
        policy=AliasPolicy.from_dict(json.loads(row["policy"])),
        version=row["version"],
        certificate=row["certificate"],
        changed_at=row["changed_at"],
    )
