"""The rows of a query as an expression: what is asked about them is built of expressions, never of text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.data.sources import records_source
from fairkit.errors import DataError, FairkitError, MissingExtraError
from fairkit.sources import Counting, Records, said

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.source import Source

ROWS = "fairkit_rows"
"""What the rows of the query are called where they are counted."""

_WITH = re.compile(r"\s*WITH\s", re.IGNORECASE)


def ibis() -> Any:
    """Return the library."""
    try:
        import ibis
        import ibis.formats.pyarrow
    except ImportError as error:  # itself, or what its extra for DuckDB brings
        raise MissingExtraError("ibis-framework", "sql") from error
    return ibis


class Relation(Protocol):
    """Rows that an engine counts."""

    table: Any  # they, as an ibis table
    dialect: str  # the name that ibis gives to the engine

    def fetch(self, expression: Any) -> pa.Table:
        """Return the rows of an expression over `table`."""
        ...


def relation_of(counting: Any, schema: pa.Schema, name: str) -> Relation:
    """Return rows as a relation."""
    if isinstance(counting, Counting):
        return Query(counting, schema, name)
    return Bound(counting, name)


class Query:
    """The rows of a SELECT; what is asked about them is compiled to the SQL of its engine."""

    def __init__(self, counting: Counting, schema: pa.Schema, name: str) -> None:
        self._counting, self._name, self.dialect = counting, name, counting.dialect
        self.table = ibis().table(_types(schema), name=ROWS)

    def fetch(self, expression: Any) -> pa.Table:
        """See `Relation.fetch`."""
        try:
            return self._counting.run(self.compiled(expression))
        except FairkitError:
            raise
        except Exception as error:  # whatever the library of the engine raises
            raise DataError(f"the rows of {self._name} cannot be counted: {said(error)}") from None

    def compiled(self, expression: Any) -> str:
        """Return the SELECT, over the rows of the query, that an expression is."""
        text = compiled(expression, self._counting.dialect)
        query = f"WITH {ROWS} AS (\n{self._counting.query}\n)"
        return f"{query},\n{text[found.end() :]}" if (found := _WITH.match(text)) else f"{query}\n{text}"


@contextlib.contextmanager
def without_statistics(connection: Any) -> Iterator[None]:
    """Have a DuckDB connection compare each value.

    The statistics of Parquet files know no NaN: with them DuckDB holds ``isnan(x)`` for false in every row.
    """
    setting = "disabled_optimizers"
    (before,) = connection.execute(f"SELECT current_setting('{setting}')").fetchone()
    chosen = ",".join(dict.fromkeys([*filter(None, before.split(",")), "statistics_propagation"]))
    connection.execute(f"SET {setting} = '{chosen}'")
    try:
        yield
    finally:
        connection.execute(f"SET {setting} = '{before}'")


class Bound:
    """An ibis table, which knows its engine."""

    def __init__(self, table: Any, name: str) -> None:
        self.table, self._name, self.dialect = table, name, str(table.get_backend().name)

    def fetch(self, expression: Any) -> pa.Table:
        """See `Relation.fetch`."""
        duckdb = self.table.get_backend().con if self.dialect == "duckdb" else None
        try:
            with contextlib.nullcontext() if duckdb is None else without_statistics(duckdb):
                return expression.to_pyarrow()
        except Exception as error:  # whatever the library of the engine raises
            raise DataError(f"the rows of {self._name} cannot be counted: {said(error)}") from None


def source_of(table: Any, name: str) -> Source:
    """Return an ibis table as a table that can be counted, or read, once."""
    schema = table.schema().to_pyarrow()
    origin = {"kind": "ibis", "address": f"ibis:{table.get_name() if hasattr(table, 'get_name') else 'table'}"}
    records = Records(
        name=name,
        schema=schema,
        batches=_Batches(table),
        origin=origin | {"server": table.get_backend().name},
        counting=table,
    )
    return records_source(records)


class _Batches:
    """The rows of an ibis table, asked for when the first is read."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_pyarrow_batches())


def compiled(expression: Any, dialect: str) -> str:
    """Return the SQL of an expression; names are quoted by the compiler, values are its literals."""
    return str(ibis().to_sql(expression, dialect=dialect))


def _types(schema: pa.Schema) -> Any:
    """Return the columns' types as ibis names them; it is told of columns only that it knows."""
    import pyarrow as pa

    found = {}
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if str(getattr(kind, "type_name", "")).lower() in ("numeric", "decimal"):
            kind = pa.decimal128(38, 9)
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        with contextlib.suppress(Exception):  # a column whose type it does not know is in no expression
            found[field.name] = ibis().dtype(kind)
    return ibis().schema(found)
