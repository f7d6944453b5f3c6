"""Distinct rows with their counts: the expression that an engine runs, and the table that it gives."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.arrow_types import as_arrow, as_numpy
from fairkit.data.digest import TableDigest
from fairkit.data.hashing import BUCKETS, KEY, buckets_of
from fairkit.data.parts import ParquetPart
from fairkit.data.snapshot import plain_rows
from fairkit.data.sources import FilledPart, records_source
from fairkit.errors import DataError, FairkitError, MissingExtraError, RowsNeededError
from fairkit.sources import Counting, Records, said
from fairkit.sources.interface import StoredFile
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.source import Source


MOST_CELLS = 1 << 21
"""So many distinct rows at most travel."""

STEPS = 1_000
"""Scores of too many values are put into so many bins, and one for the highest score."""

NEAR = 1e-6
"""Scores that are nearer to a threshold, relative to it, may fall on its other side by rounding."""

COUNT = "n"


@dataclass(frozen=True, slots=True)
class Bins:
    """How a column of scores is cut where it has too many values: into equal steps, and at thresholds."""

    low: float  # what is below is in the first bin
    high: float  # what is above is in the last
    cuts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Coding:
    """How columns are read where their own values are not needed."""

    edges: Mapping[str, tuple[float, ...]]  # by binned column, the edges: each row has a number of its bin
    bins: Mapping[str, Bins]  # by column of scores, its bins: the rows of a bin have their mean
    expressions: Mapping[str, Any]  # by column, what stands for its values: the buckets of clusters
    nan: bool = True  # whether the engine's numbers may be no number
    few: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """Distinct rows, in an order of their own, with their counts."""

    rows: pa.Table  # plain columns
    counts: NDArray[np.int64]  # how often each occurs, shape [U]

    @property
    def total(self) -> int:
        """How many rows there are."""
        return int(self.counts.sum())

    def having(self, bit: int) -> Any:
        """Return which rows have a count with a binary digit, as an Arrow array."""
        return as_arrow((self.counts >> bit) & 1 == 1)

    def digest(self) -> str:
        """Return a digest of rows and counts: the same for the same rows, in whatever order and engine."""
        name = COUNT
        while name in self.rows.column_names:
            name += "'"
        digest = TableDigest([*self.rows.column_names, name])
        counted = self.rows.append_column(name, as_arrow(self.counts))
        for batch in counted.combine_chunks().to_batches():
            digest.update(batch)
        return hashlib.sha256(f"counted rows {digest.hexdigest()}".encode()).hexdigest()


def expression_of(table: Any, columns: Sequence[str], coding: Coding, most: int = MOST_CELLS) -> Any:
    """Return the expression of distinct rows and their counts: a ``GROUP BY``, or two, and one row too many at most."""
    if coding.few and not coding.bins and not coding.expressions:
        raw = {f"k{position}": table[name] for position, name in enumerate(columns)}
        cells = table.group_by(**raw).agg(**{COUNT: table.count()})
        keys = keys_of({name: cells[key] for key, name in zip(raw, columns, strict=True)}, columns, coding)
        return cells.group_by(**keys).agg(**{COUNT: cells[COUNT].sum().cast("int64")}).limit(most + 1)
    values: dict[str, Any] = {}
    for index, name in enumerate(columns):
        if name in coding.bins and name not in coding.expressions and name not in coding.edges:
            number = table[name].cast("float64")
            values |= {f"m{index}": number.mean(), f"l{index}": number.min(), f"h{index}": number.max()}
    keys = keys_of(table, columns, coding)
    return table.group_by(**keys).agg(**values, **{COUNT: table.count()}).limit(most + 1)


def keys_of(table: Any, columns: Sequence[str], coding: Coding) -> dict[str, Any]:
    """Return the expressions that tell rows apart, by names made of the columns' places."""
    keys: dict[str, Any] = {}
    for index, name in enumerate(columns):
        column = table[name]
        if name in coding.expressions:
            keys[f"k{index}"] = coding.expressions[name]
        elif name in coding.edges:
            keys[f"k{index}"] = _binned(_number(column, coding), coding.edges[name])
        elif name in coding.bins:
            keys |= {
                f"{key}{index}": expression
                for key, expression in _scored(_number(column, coding), coding.bins[name]).items()
            }
        else:
            keys[f"k{index}"] = column
    return keys


def _number(column: Any, coding: Coding) -> Any:
    """Return a column of numbers, null where it is no number."""
    if coding.nan and column.type().is_floating():
        return column.isnan().ifelse(ibis().null(column.type()), column)
    return column


def _binned(column: Any, edges: Sequence[float]) -> Any:
    """Return a number that stands for each row's bin: an edge, and what is below the first one."""
    if not column.type().is_numeric():
        return column  # groups of text cannot be binned, and reading says so
    number = column.cast("float64")
    below = [(number < edge, ibis().literal(start, "float64")) for edge, start in
             zip(edges, (float(np.nextafter(edges[0], -np.inf)), *edges), strict=False)]  # fmt: skip
    missing = (number.isnull(), ibis().null("float64"))
    return ibis().cases(missing, *below, else_=ibis().literal(float(edges[-1]), "float64"))


def _scored(column: Any, bins: Bins) -> dict[str, Any]:
    """Return the keys of a score: its step, the thresholds below it, and its own value where it is near one."""
    number = column.cast("float64")
    width = (bins.high - bins.low) / STEPS
    keys = {"s": ((number - bins.low) / width).floor().clip(0, STEPS).cast("int64")}
    for index, cut in enumerate(bins.cuts):
        reach = NEAR * max(abs(cut), NEAR)
        near = (number >= cut - reach) & (number <= cut + reach)
        keys |= {
            f"t{index}_": (number >= cut - reach).cast("int64"),
            f"u{index}_": near.ifelse(number, ibis().null("float64")),
        }
    return keys


def counted(relation: Relation, columns: Sequence[str], coding: Coding, name: str, most: int = MOST_CELLS) -> Cells:
    """Count equal rows."""
    check_known(relation, columns)
    rows = relation.fetch(expression_of(relation.table, columns, coding, most))
    if rows.num_rows > most:
        raise RowsNeededError(f"{name} has more than {most:,} distinct rows in the columns {', '.join(columns)}")
    return _cells(rows, columns, coding, name)


def check_known(relation: Relation, columns: Sequence[str]) -> None:
    """Refuse columns that the engine does not read as fairkit does."""
    absent = [column for column in columns if column not in relation.table.columns]
    if absent:
        raise RowsNeededError(f"the column {absent[0]!r} has a type that is not counted by SQL")


def _cells(found: pa.Table, columns: Sequence[str], coding: Coding, name: str) -> Cells:
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = as_numpy(pc.cast(found.column(COUNT).combine_chunks(), pa.int64())).astype(np.int64)
    read = {}
    for index, column in enumerate(columns):
        if column in coding.bins:
            mean, low, high = (found.column(f"{key}{index}").cast(pa.float64()) for key in "mlh")
            read[column] = pc.min_element_wise(pc.max_element_wise(mean, low), high)
        else:
            read[column] = found.column(f"k{index}")
    arrays = [column.combine_chunks() for column in read.values()]
    rows = plain_rows(pa.Table.from_arrays(arrays, names=list(read)), name)
    order = _order(rows)
    return Cells(rows.take(order), counts[as_numpy(order)])


def _order(rows: pa.Table) -> Any:
    """Return an order of distinct rows that hangs on their values only; -0 and 0, NaN and nothing are the same."""
    import pyarrow.compute as pc

    if not rows.column_names:
        return as_arrow(np.arange(rows.num_rows))
    keys = [(f"{index}", "ascending") for index in range(len(rows.column_names))]
    renamed = rows.rename_columns([key for key, _ in keys])
    return pc.sort_indices(renamed, sort_keys=keys)


# Parquet files, on this machine or those of a table in a lake, counted by DuckDB in this process.


_VIEW = "fairkit_files"
_PATTERN = "*?[]{}"
"""DuckDB would look for other files where a name has one of these."""


def counting_of(parts: Sequence[Any]) -> Counting | None:
    """Return where files are counted; None where a part is something else, or the files' columns differ."""
    first = _columns(parts[0].schema())
    if any(_columns(part.schema()) != first for part in parts[1:]):
        return None
    stored = [_inner(part) for part in parts]
    paths = [part.path for part in stored if part is not None and part.groups is None]
    names = [str(path.resolve()) for path in paths if isinstance(path, Path)]
    files = [path for path in paths if isinstance(path, StoredFile)]
    if any(len(values) == len(parts) for values in (names, files)):
        return None if any(sign in name for name in names for sign in _PATTERN) else _counting(parts, names, files)
    return None


def _counting(parts: Sequence[Any], names: list[str], files: list[StoredFile]) -> Counting:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError("duckdb", "duckdb") from error
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")  # what a time with a zone is cast to
    if names:
        connection.read_parquet(names, hive_partitioning=False).create_view(_VIEW)
    else:
        connection.register(_VIEW, _dataset(parts, files))

    def run(text: str) -> pa.Table:
        with without_statistics(connection):
            rows = connection.sql(text)
            result = (getattr(rows, "to_arrow_table", None) or rows.fetch_arrow_table)()
        for file in files:
            file.check()
        return result

    return Counting("duckdb", "SELECT * FROM fairkit_files", run)


def _inner(part: Any) -> ParquetPart | None:
    """Return the file of a part, which may lack columns of its table."""
    inner = part.inner if isinstance(part, FilledPart) else part
    return inner if isinstance(inner, ParquetPart) else None


def _dataset(parts: Sequence[Any], files: Sequence[StoredFile]) -> Any:
    """Return files of a table as a dataset of Arrow: what a file lacks has one value in all its rows, or is missing."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    schema, form = parts[0].schema(), ds.ParquetFileFormat()
    fragments = []
    for part, file in zip(parts, files, strict=True):
        constants = dict(part.constants) if isinstance(part, FilledPart) else {}
        conditions = [pc.field(name) == pc.scalar(value) for name, value in constants.items() if value is not None]
        same = functools.reduce(operator.and_, conditions) if conditions else None
        fragments.append(form.make_fragment(file.path, file.filesystem, partition_expression=same))
    return ds.FileSystemDataset(fragments, schema, form, files[0].filesystem)


def read_alike(schema: pa.Schema) -> pa.Schema:
    """Return the columns that DuckDB reads as fairkit does: text, whole numbers, doubles and floats, flags and days."""
    import pyarrow as pa

    def alike(kind: pa.DataType) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
        is_simple = any(test(kind) for test in tests) or pa.types.is_date32(kind)
        return is_simple or pa.types.is_float32(kind) or pa.types.is_float64(kind)

    return pa.schema([f for f in schema if alike(f.type)])


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


# Buckets of clusters, by a keyed hash that the engine computes.


_PRIME = 2**31 - 1

_DIGITS = {
    "duckdb": ("md5",),
    "postgres": ("md5",),
    "snowflake": ("md5",),
    "pyspark": ("md5",),
    "databricks": ("md5",),
    "bigquery": ("md5", "to_hex"),
    "trino": ("to_utf8", "md5", "to_hex"),
}
"""The functions that lead from a text to the digits of its MD5, by engine."""


def bucket_of(column: Any, key: int, dialect: str) -> Any:
    """Return the expression of each row's bucket, in [0, `BUCKETS`) for whole numbers, as three digits for others.

    Whole numbers go through a polynomial of degree three modulo a prime: of any four ids the
    buckets are independent. Others go through MD5 with the key before the text.
    """
    if column.type().is_integer():
        draws = random.Random(key)  # noqa: S311 -- a hash family's coefficients
        number = column.cast("int64") % _PRIME
        number = (number + _PRIME) % _PRIME
        hashed: Any = ibis().literal(draws.randrange(1, _PRIME), "int64")
        for _ in range(3):
            hashed = (hashed * number + draws.randrange(_PRIME)) % _PRIME
        return hashed % BUCKETS
    if dialect not in _DIGITS:
        raise RowsNeededError(f"clusters are named by text, and {dialect} has no function to hash it")
    text = ibis().literal(f"{key:016x}") + column.cast("string")
    for name in _DIGITS[dialect]:
        text = _function(name)(text)
    return text.substr(0, 3)


def _function(name: str) -> Any:
    """Return a function of the engine, of one text."""

    def function(text: str) -> str:  # type: ignore[empty-body]
        """Stand for it."""

    return ibis().udf.scalar.builtin(function, name=name, signature=(("string",), "string"))


def standing_for(buckets: Any, key: int = KEY) -> Any:
    """Return ids that fall into given buckets when they are read: an int64 column in the place of `bucket_of`'s."""
    import pyarrow as pa

    if pa.types.is_integer(buckets.type):
        places = as_numpy(buckets.combine_chunks()).astype(np.int64)
    else:
        places = np.array([int(text, 16) >> 2 for text in buckets.to_pylist()], dtype=np.int64)
    return pa.chunked_array([as_arrow(_ids(key)[places])])


def _ids(key: int) -> Any:
    """Return an id for every bucket."""
    result = np.full(BUCKETS, -1, dtype=np.int64)
    start, step = 0, 1 << 15
    while (result < 0).any():
        ids = np.arange(start, start + step, dtype=np.int64)
        places = buckets_of(as_arrow(ids), key)
        result[places[::-1]] = ids[::-1]
        start += step
    return result


# The rows of a query as an expression: what is asked about them is built of expressions, never of text.


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
        return f"{query},\n{text[match.end() :]}" if (match := _WITH.match(text)) else f"{query}\n{text}"


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

    types = {}
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if str(getattr(kind, "type_name", "")).lower() in ("numeric", "decimal"):
            kind = pa.decimal128(38, 9)
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        with contextlib.suppress(Exception):  # a column whose type it does not know is in no expression
            types[field.name] = ibis().dtype(kind)
    return ibis().schema(types)
