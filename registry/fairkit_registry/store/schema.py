"""The schema of the registry's SQLite file: its migrations, and whether a file has it."""

from __future__ import annotations

import functools
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        connection.execute("ROLLBACK")
        raise
