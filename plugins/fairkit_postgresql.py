"""Data in PostgreSQL: the rows of a query through ADBC, read once, in one transaction, to a snapshot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import fairkit
from fairkit.errors import MissingExtraError
from fairkit.sources import Address, Counting, DataSource, Records, check_reachable, order_notes

FAIRKIT_INTERFACE = 1
_PORT = 5432
_SETTINGS = "-c default_transaction_read_only=on -c default_transaction_isolation=repeatable\\ read"


class PostgreSQL(DataSource):
    """A query on PostgreSQL: postgresql://user@host:port/database?query=SELECT * FROM loans; see PGPASSWORD."""

    name = "postgresql"
    schemes = ("postgresql", "postgres")
    options: ClassVar[Mapping[str, str]] = {
        "sslmode": "How the server is known: verify-full, require, prefer, ...; default: PGSSLMODE.",
        "sslrootcert": "The file with the authority that signed the server's certificate; default: PGSSLROOTCERT.",
        "query": "One SELECT; it takes all that follows, as it stands.",
    }

    def open(self, address: Address) -> Records:
        """Start the query in a transaction that only reads."""
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError as error:
            raise MissingExtraError("adbc-driver-postgresql", "postgresql") from error
        uri, shown = _uri(address), _shown(address)
        query = address.query
        connection = dbapi.connect(uri)

        def counted(text: str) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetch_arrow_table()

        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_setting('server_version'), pg_current_snapshot()::text")
                version, snapshot = cursor.fetchone()
                schema = cursor.adbc_execute_schema(query)
        except BaseException:
            connection.close()
            raise

        return Records(
            name=f"query on {address.key or 'PostgreSQL'}",
            schema=schema,
            batches=_rows(connection, query),
            origin={
                "kind": self.name,
                "address": shown,
                "query": query,
                "server": f"PostgreSQL {version}",
                "snapshot": snapshot,
            },
            notes=order_notes(query),
            close=connection.close,
            counting=Counting("postgres", query, counted),
        )

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return the server, where a password that is for any server would be sent to it."""
        anywhere = bool(os.environ.get("PGPASSWORD"))
        with contextlib.suppress(OSError, UnicodeDecodeError, RuntimeError):
            file = Path(os.environ.get("PGPASSFILE") or Path.home() / ".pgpass")
            anywhere = anywhere or any(line.startswith("*:") for line in file.read_text("utf-8").splitlines())
        return address.host()[1] if anywhere else None


def _rows(connection: Any, query: str) -> Iterator[Any]:
    """Yield the batches of a query that is started when the first of them is asked for."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        yield from cursor.fetch_record_batch()


def _uri(address: Address) -> str:
    """Return the URI for libpq, which reads the password from PGPASSWORD, PGPASSFILE or ~/.pgpass."""
    user, host, port = address.host()
    if not address.slashes:
        raise fairkit.DataError("addresses of PostgreSQL are written postgresql://user@host:port/database?query=...")
    host_text = host or os.environ.get("PGHOST", "")
    if host_text and not host_text.startswith("/"):
        check_reachable(host_text, port or int(os.environ.get("PGPORT") or _PORT))
    named = "" if user is None else f"{quote(user)}@"
    where = f"{named}{host or ''}{'' if port is None else f':{port}'}/{quote(address.key)}"
    settings = {
        "connect_timeout": "8",
        "application_name": "fairkit",
        "options": _SETTINGS,
        **{name: address.options[name] for name in ("sslmode", "sslrootcert") if name in address.options},
    }
    return f"postgresql://{where}?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in settings.items())


def _shown(address: Address) -> str:
    """Return the address without its user."""
    _, host, port = address.host()
    return f"postgresql://{host or ''}{'' if port is None else f':{port}'}/{address.key}"


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer PostgreSQL."""
    return [PostgreSQL]
