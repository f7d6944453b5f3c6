"""Columns from another table: each row takes those of the row with its key, or none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.arrow_types import as_arrow, as_numpy, decoded, plain
from fairkit.data.parts import ParquetPart, PartOf
from fairkit.data.profile import BATCH_ROWS, take_tally, total_here
from fairkit.data.roles import Joined, Roles, column_named, require_columns, value_text
from fairkit.data.sources import open_source
from fairkit.errors import DataError
from fairkit.sources.interface import is_address
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.parts import Part, Types
    from fairkit.data.source import Source


@dataclass(frozen=True, slots=True)
class Lookup:
    """Another table by key. It is held in memory, once in each process; a file is read again where it is needed."""

    name: str  # what messages call the table
    pairs: tuple[tuple[str, str], ...]  # the key: each column here with the one there
    columns: tuple[str, ...]  # the columns that are taken
    sha256: str  # the digest of the table's content
    origin: Any = field(repr=False)  # the file's path, or the table that was opened

    @classmethod
    def of(cls, data: Any, on: Sequence[str], columns: Sequence[str], table: str, named: Sequence[str]) -> Self:
        """Open the other table and check its key."""
        pairs = tuple(_pair(column_named(text, columns), columns) for text in on)
        source = open_source(data, "the joined table")
        require_columns([here for here, _ in pairs], columns, role="key", table=table)
        require_columns([there for _, there in pairs], source.columns, role="key", table=source.name)
        keys = {there for _, there in pairs}
        both = [name for name in source.columns if name in columns and name not in keys]
        doubtful = [name for name in both if name in named]
        if doubtful:
            raise DataError(
                f"the column {doubtful[0]!r} is in {table} and in {source.name}: which one is meant? Leave it "
                "out of one of them"
            )
        taken = tuple(name for name in source.columns if name not in keys and name not in columns)
        if not taken:
            raise DataError(f"{source.name} has no column besides its key that {table} does not have")
        tally = take_tally(source, Roles(), {}, total_here)
        here = isinstance(data, str | Path) and not is_address(str(data))
        origin = str(Path(data).resolve()) if here else _Held(source)
        result = cls(source.name, pairs, taken, tally.digest.hexdigest(), origin)
        result.index  # noqa: B018 -- refuses keys that are missing or there twice
        return result

    @property
    def role(self) -> Joined:
        """What the certificate says about it."""
        return Joined(
            on=tuple(here if here == there else f"{here}={there}" for here, there in self.pairs), sha256=self.sha256
        )

    @property
    def index(self) -> Index:
        """The table in memory."""
        return _read(self.origin, self.name, self.pairs, self.columns)

    def places(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return for each row the row of the other table with its key, shape [n]; -1 where there is none."""
        return self.index.find([decoded(batch.column(batch.schema.names.index(here))) for here, _ in self.pairs])

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns that are taken."""
        return {name: self.index.table.column(name).type for name in self.columns}


@dataclass(frozen=True)
class Index:
    """A table with the place of every key. Keys are compared exactly, as they are spelled: "0012" is not 12."""

    table: pa.Table  # the columns that are taken, and one row more, at the end, in which all is missing
    name: str  # what messages call it
    numbers: tuple[NDArray[Any], NDArray[np.int64]] | None  # keys of numbers in order, with their places
    places: Mapping[Any, int]  # the places of all other keys, as text

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return int(self.table.num_rows) - 1

    @functools.cached_property
    def texts(self) -> Mapping[Any, int]:
        """The places of all keys, as text."""
        if self.numbers is None:
            return self.places
        return {value_text(key): row for key, row in zip(*(number.tolist() for number in self.numbers), strict=True)}

    def find(self, keys: Sequence[pa.Array]) -> NDArray[np.int64]:
        """Return the places of keys, shape [n]; -1 where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        absent = keys[0].is_null(nan_is_null=True)
        zero = pa.scalar(0, keys[0].type) if _is_number(keys[0]) else None
        cells = None if zero is None else as_numpy(pc.if_else(absent, zero, keys[0]))
        if self.numbers is not None and cells is not None:
            known, order = self.numbers
            cells, whole = _exact(cells) if cells.dtype != known.dtype else (cells, True)
            at = np.minimum(np.searchsorted(known, cells), len(known) - 1)
            return np.where((known[at] == cells) & whole & ~as_numpy(absent), order[at], -1)
        found = (self.texts.get(key, -1) for key in _texts(keys))
        return np.fromiter(found, dtype=np.int64, count=len(keys[0]))

    def take(self, places: NDArray[np.int64], columns: Sequence[str]) -> list[pa.Array]:
        """Return columns at the places; all is missing at -1."""
        at = as_arrow(np.where(places < 0, self.rows, places))
        return [self.table.column(name).chunk(0).take(at) for name in columns]


@dataclass(frozen=True, slots=True)
class Matches:
    """How many rows have a match in the other table, and which of its rows are used; ``+`` joins with other rows."""

    lookup: Lookup
    rows: int = 0  # all rows
    found: int = 0  # those with a match
    used: NDArray[np.bool_] | None = None

    def of(self, batch: pa.RecordBatch) -> Matches:
        """Count the rows of a batch that has the key's columns."""
        places = self.lookup.places(batch)
        used = np.zeros(self.lookup.index.rows, dtype=bool)
        used[places[places >= 0]] = True
        return Matches(self.lookup, len(places), int((places >= 0).sum()), used)

    def __add__(self, right: Matches) -> Matches:
        both = [used for used in (self.used, right.used) if used is not None]
        used = both[0] | both[-1] if both else None
        return Matches(self.lookup, self.rows + right.rows, self.found + right.found, used)

    def told(self, table: str) -> dict[str, Any]:
        """Return the join's part of a report."""
        lookup = self.lookup
        if not self.found:
            here, there = lookup.pairs[0]
            raise DataError(
                f"{table}: none of the {self.rows:,} rows has its {here!r} among the {lookup.index.rows:,} values of "
                f"{there!r} in {lookup.name}; are the keys spelled the same?"
            )
        return {
            "name": lookup.name,
            "sha256": lookup.sha256,
            "on": list(lookup.role.on),
            "columns": list(lookup.columns),
            "rows": lookup.index.rows,
            "used": 0 if self.used is None else int(self.used.sum()),
            "matched": self.found,
            "unmatched": self.rows - self.found,
        }

    def warnings(self, table: str) -> list[str]:
        """Say how many rows have no match."""
        without = self.rows - self.found
        if not without:
            return []
        lookup = self.lookup
        return [
            f"{without:,} of {self.rows:,} rows of {table} have no match in {lookup.name} by "
            f"{', '.join(lookup.role.on)}: {', '.join(lookup.columns[:6])} are missing there."
        ]


@dataclass(frozen=True, slots=True)
class JoinedPart(PartOf):
    """A part of a table with columns of another one."""

    lookup: Lookup
    own: tuple[str, ...]

    def schema(self) -> pa.Schema:
        """Return the part's own schema with the columns that are taken."""
        import pyarrow as pa

        more = [pa.field(name, kind) for name, kind in self.lookup.types().items()]
        return pa.schema([*self.part.schema(), *more])

    def matches(self) -> Matches:
        """Return the counter of matched rows."""
        return Matches(self.lookup)

    @property
    def around(self) -> Callable[[Part], Part]:
        """What makes such a part of another one."""
        return functools.partial(JoinedPart, lookup=self.lookup, own=self.own)

    def split(self, most: int) -> list[JoinedPart]:
        """Cut as the part itself is cut."""
        cut = self.part.split(most) if isinstance(self.part, ParquetPart) else [self.part]
        return [JoinedPart(piece, self.lookup, self.own) for piece in cut]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches and look their keys up."""
        import pyarrow as pa

        keys = [here for here, _ in self.lookup.pairs]
        mine = list(dict.fromkeys([*(name for name in columns if name in self.own), *keys]))
        taken = [name for name in columns if name not in self.own]
        own_types = {name: kind for name, kind in types.items() if name in self.own}
        for batch in self.part.read(mine, rows, own_types):
            arrays = {name: batch.column(index) for index, name in enumerate(mine)}
            if taken:
                key = plain(batch.select(keys), self.name, types=types)
                arrays |= dict(zip(taken, self.lookup.index.take(self.lookup.places(key), taken), strict=True))
            yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))


def looked_up(data: Any, on: Sequence[str] | str | None, source: Source, named: Sequence[str | None]) -> Lookup:
    """Open the other table of a join; see `Lookup.of`."""
    if data is None or not on:
        argument = "`on`" if data is None else "`join`"
        raise DataError(f"{argument} is given alone: a join needs the other table (`join`) and the key column (`on`)")
    keys = [on] if isinstance(on, str) else list(on)
    parts = {part.split(":")[0] for text in named if text for part in (text, *text.split("+"))}
    return Lookup.of(data, keys, source.columns, source.name, sorted(parts))


def joined(source: Source, lookup: Lookup) -> Source:
    """Return a table with the columns of another one."""
    columns = tuple(source.columns)
    parts = tuple(JoinedPart(part, lookup, columns) for part in source.parts)
    return replace(source, types={**source.types, **lookup.types()}, parts=parts, counts=None)


def _pair(text: str, columns: Sequence[str]) -> tuple[str, str]:
    here, equals, there = (text, "", "") if text in columns else text.partition("=")
    if not here or (equals and not there):
        raise DataError(
            f"`on` {text!r} is not understood; write COLUMN, or COLUMN=OTHER where the other table says OTHER"
        )
    return here, there or here


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A table that is no file here; each is itself only, so that its index is kept."""

    source: Source


@functools.lru_cache(maxsize=4)
def _read(origin: str | _Held, name: str, pairs: tuple[tuple[str, str], ...], columns: tuple[str, ...]) -> Index:
    source = origin.source if isinstance(origin, _Held) else open_source(origin)
    return _index(source, name, pairs, columns)


def _index(source: Source, name: str, pairs: Sequence[tuple[str, str]], columns: Sequence[str]) -> Index:
    import pyarrow as pa
    import pyarrow.compute as pc

    there = [column for _, column in pairs]
    take_tally(source, Roles(), {}, total_here)  # settles the types of CSV columns
    batches = list(source.batches([*there, *columns], BATCH_ROWS))
    if not batches:
        raise DataError(f"{name} has a header but no rows")
    whole = pa.Table.from_batches(batches)
    keys = [whole.column(column).combine_chunks() for column in there]
    for key, column in zip(keys, there, strict=True):
        gaps = pc.sum(key.is_null(nan_is_null=True)).as_py()
        if gaps:
            raise DataError(f"{name}: {gaps:,} rows have no value in the key column {column!r}; remove these rows")
    table = whole.select(list(columns))
    empty = pa.Table.from_arrays([pa.nulls(1, field.type) for field in table.schema], schema=table.schema)
    table = pa.concat_tables([table, empty]).combine_chunks()
    if len(keys) == 1 and _is_number(keys[0]):
        cells, exact = _exact(as_numpy(keys[0]))
        cells = cells if np.all(exact) else as_numpy(keys[0])
        order = np.argsort(cells, kind="stable").astype(np.int64)
        sorted_cells = cells[order]
        twice = sorted_cells[1:][sorted_cells[1:] == sorted_cells[:-1]]
        if len(twice):
            raise _twice(name, there, value_text(twice[0].item()), len(np.unique(twice)))
        return Index(table, name, (sorted_cells, order), {})
    places: dict[Any, int] = {}
    repeated: dict[Any, None] = {}
    for index, text in enumerate(_texts(keys)):
        if places.setdefault(text, index) != index:
            repeated[text] = None
    if repeated:
        raise _twice(name, there, str(next(iter(repeated))), len(repeated))
    return Index(table, name, None, places)


def _texts(keys: Sequence[pa.Array]) -> Iterator[Any]:
    """Return keys as text, those of several columns as tuples; None where one is missing."""
    lists = [key.to_pylist() for key in keys]
    lists = [cells if isinstance(next((c for c in cells if c is not None), ""), str) else
             [None if c is None else value_text(c) for c in cells] for cells in lists]  # fmt: skip
    return iter(lists[0]) if len(lists) == 1 else zip(*lists, strict=True)


def _is_number(key: pa.Array) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(key.type) or pa.types.is_floating(key.type))


def _exact(cells: NDArray[Any]) -> tuple[NDArray[np.int64], Any]:
    """Return numbers as whole numbers, and which of them are."""
    if cells.dtype.kind == "i":
        return cells, True
    whole = (np.abs(cells) < 2**63) & (cells == np.floor(cells))
    return np.where(whole, cells, 0).astype(np.int64), whole


def _twice(name: str, columns: Sequence[str], example: str, count: int) -> DataError:
    return DataError(
        f"{name}: {count:,} keys are there more than once, such as {', '.join(columns)} = {example}: which of "
        "their rows is meant? Keep one row for each key"
    )
