"""Data in DuckDB: the rows of a query on a database file, read once to a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fairkit
from fairkit.errors import MissingExtraError
from fairkit.sources import Address, Counting, DataSource, Records, order_notes, said

if TYPE_CHECKING:
    import pyarrow as pa

FAIRKIT_INTERFACE = 1
_BATCH = 1 << 16


class DuckDB(DataSource):
    """A query on a DuckDB file, which is opened for reading only: duckdb:loans.db?query=SELECT * FROM loans."""

    name = "duckdb"
    schemes = ("duckdb",)
    options: ClassVar[Mapping[str, str]] = {"query": "One SELECT; it takes all that follows, as it stands."}

    def open(self, address: Address) -> Records:
        """Start the query."""
        import pyarrow as pa

        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError("duckdb", "duckdb") from error
        path, query = Path(address.location), address.query
        if not path.is_file():
            raise fairkit.DataError(f"there is no DuckDB file {address.location!r}")
        connection = _connected(duckdb, path)
        try:
            _check(duckdb, query)
            rows = connection.sql(query)
            fields = zip(_read(rows.limit(0)).schema, rows.columns, strict=True)  # a name may stand there twice
            schema = pa.schema([field.with_name(name) for field, name in fields])
        except BaseException:
            connection.close()
            raise
        return Records(
            name=f"query on {path.name}",
            schema=schema,
            batches=_batches(connection, query),
            origin={
                "kind": self.name,
                "address": address.text,
                "query": query,
                "server": f"DuckDB {duckdb.__version__}",
            },
            notes=order_notes(query),
            close=connection.close,
            counting=Counting("duckdb", query, lambda text: _read(connection.sql(text)).read_all()),
        )

    @classmethod
    def example(cls, folder: Path) -> str | None:
        """Make a database of two people."""
        try:
            import duckdb
        except ImportError:
            return None
        with duckdb.connect(str(folder / "people.db")) as connection:
            connection.sql("CREATE TABLE people AS SELECT 'f' AS sex, 1 AS hired UNION ALL SELECT 'm', 0")
        return f"duckdb:{folder / 'people.db'}?query=FROM people ORDER BY sex"


def _connected(duckdb: Any, path: Path) -> Any:
    """Open the file so that nothing is written, and nothing else is read or fetched; it may be open twice."""
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    try:
        return duckdb.connect(str(path), read_only=True, config=settings)
    except duckdb.Error as error:
        raise fairkit.DataError(f"the DuckDB file {path.name!r} cannot be opened: {said(error)}") from None


def _check(duckdb: Any, query: str) -> None:
    """Refuse what is no single SELECT."""
    statements = duckdb.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise fairkit.DataError("the query on DuckDB is not one SELECT; ask for rows, in one statement")


def _batches(connection: Any, query: str) -> Iterator[pa.RecordBatch]:
    yield from _read(connection.sql(query))


def _read(rows: Any) -> Any:
    """Return a reader of a query's rows; its name was another one before DuckDB 2."""
    return (getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader)(_BATCH)


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer DuckDB."""
    return [DuckDB]
