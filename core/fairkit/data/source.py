"""A table that can be read again and again, in batches, as a stream of Arrow batches with plain types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.arrow_types import as_arrow, as_numpy, plain
from fairkit.data.parts import ChosenPart, Part, PartOf
from fairkit.data.text_files import FLAGS, CsvPart
from fairkit.errors import DataError
from fairkit.sources.address import masked
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.parts import Types


_RAGGED = re.compile(r"CSV parse error: ((?:Row #\d+: )?[^:]*)")  # what follows is the row
_TWICE = re.compile(r"CSV file contained multiple columns named (.*)")
_CONVERSION = re.compile(r"In CSV column #(\d+)(?: \('(.*?)'\))?: .*conversion error", re.DOTALL)
_AS_TEXT = re.compile(r"leading zeros|invalid value '-?[0-9]+'")
_UNFIT = re.compile(r": column ('.*?'|\".*?\") (?:cannot be read as|holds bytes|has )", re.DOTALL)
MOST_CELLS, FEWEST_ROWS = 1 << 22, 1 << 10
"""A batch of a wide table has fewer rows: so many cells, and not fewer rows than this."""


@dataclass(slots=True)
class Source:
    """A table that can be read again and again, in batches, without holding it in memory.

    `types` may widen while CSV files are read for the first time: a column that began with whole
    numbers and goes on with text is text.
    """

    name: str  # what reports call the table
    types: dict[str, pa.DataType]  # every column's type, in the table's order
    parts: tuple[Part, ...]  # its parts, in order
    counts: tuple[int, ...] | None = None  # the rows of every part, once they are known
    origin: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences that reports keep beside the data
    unread: dict[str, str] = field(default_factory=dict)  # why a column that the table has is not read, by name

    @property
    def columns(self) -> list[str]:
        """The columns' names, in the table's order."""
        return list(self.types)

    def batches(self, columns: Sequence[str], rows: int, *, coded: bool = False) -> Iterator[pa.RecordBatch]:
        """Read the columns in batches of at most `rows` rows and `MOST_CELLS` cells, in order, as plain types.

        Plain types are string, int64, float64 and bool; with `coded` text with few values is a dictionary of strings.
        """
        self.check_read(columns)
        names = list(dict.fromkeys(columns))
        rows = min(rows, max(MOST_CELLS // max(len(names), 1), FEWEST_ROWS))
        for part in self.parts:
            yield from self._part_batches(part, names, rows, coded=coded)

    def _part_batches(self, part: Part, columns: list[str], rows: int, *, coded: bool) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            for batch in part.read(columns, rows, self.types):
                for start in range(0, batch.num_rows, rows):
                    yield plain(batch.slice(start, rows), self.name, coded=coded, types=self.types)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise unreadable(self._where(part), error, "") from error

    def close(self) -> None:
        """Close connections to databases whose rows are counted there; rows that were read stay."""
        for part in self.parts:
            close = getattr(getattr(part, "part", part), "close", None)
            if close is not None:
                close()

    def of(self, part: Part) -> Source:
        """Return one part as a table of its own, with the whole table's types."""
        return Source(self._where(part), self.types, (part,))

    def split(self, most: int) -> Source:
        """Cut large Parquet files at their row groups into parts of about `most` rows."""
        parts = [piece for part in self.parts for piece in (part.split(most) if hasattr(part, "split") else [part])]
        return self if len(parts) == len(self.parts) else replace(self, parts=tuple(parts), counts=None)

    def chosen(self, masks: Sequence[NDArray[np.bool_]], name: str) -> Source:
        """Return the table of some rows: a mask for each part."""
        chosen = tuple(ChosenPart(part, mask) for part, mask in zip(self.parts, masks, strict=True))
        return Source(name, self.types, chosen)

    def widen(self, message: str) -> bool:
        """Read a column, which an error names, as a wider type; else leave it out. False if it names none."""
        import pyarrow as pa

        match = _CONVERSION.search(message)
        if match is not None and any(isinstance(getattr(part, "part", part), CsvPart) for part in self.parts):
            column = match.group(2) or self.columns[int(match.group(1))]
            kind = self.types.get(column)
            steps = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
            if kind != pa.string():
                self.types[column] = pa.string() if _AS_TEXT.search(message) else steps.get(kind, pa.string())
                return True
            return self.leave_out(column, f"{self.name}: column {column!r} holds bytes that are no UTF-8 text")
        unfit = _UNFIT.search(message)
        if unfit is None:
            return False
        column = ast.literal_eval(unfit.group(1))
        kind = self.types.get(column)
        if kind is not None and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
            self.types[column] = pa.string()
            return True
        return self.leave_out(column, message.partition("\n")[0])

    def spell(self, columns: Iterable[str], *, apart: bool = False) -> bool:
        """Read columns of CSV files as they are spelled, not as numbers or flags; return whether any is read otherwise.

        With `apart` those only in which one number has two spellings: groups 1.1 and 1.10 are two.
        """
        import pyarrow as pa

        files = [part for part in (getattr(part, "part", part) for part in self.parts) if isinstance(part, CsvPart)]
        kinds = (
            [pa.float64()] if apart or all(file.flags == FLAGS[:1] for file in files) else [pa.float64(), pa.bool_()]
        )
        changed = [
            name
            for name in columns
            if files and self.types.get(name) in kinds and name in files[0].found.names
            if not apart or any(file.spells_apart(name) for file in files)
        ]
        self.types |= dict.fromkeys(changed, pa.string())
        return bool(changed)

    def leave_out(self, column: str, reason: str) -> bool:
        """Read a column, or the columns of a list, no longer; False where there is none."""
        gone = [name for name in self.types if name == column or name.startswith(f"{column}[")]
        for name in gone:
            del self.types[name]
        if gone or column not in self.unread:
            self.unread |= dict.fromkeys([column, *gone], reason)
            self.notes += (f"The column {column!r} was not read, and nothing is said of it: {reason}.",)
        return bool(gone)

    def check_read(self, columns: Iterable[str | None]) -> None:
        """Refuse columns that are not read, and say why."""
        for name in columns:
            if name in self.unread:
                raise DataError(self.unread[name])

    def _where(self, part: Part) -> str:
        return self.name if len(self.parts) == 1 else f"{self.name}, part {part.name}"


def unreadable(name: str, error: Exception, form: str) -> DataError:
    """Say in one line what Arrow found."""
    text = masked(str(error).strip().splitlines()[0])
    ragged = _RAGGED.search(text)
    if ragged is not None:
        return DataError(
            f"{name} is not a rectangular CSV table: {ragged.group(1)}. "
            "Quote cells that hold commas, and give every row the same number of cells."
        )
    repeated = _TWICE.search(text)
    if repeated is not None:
        return DataError(f"{name}: two columns have the name {repeated.group(1)!r}; rename one")
    return DataError(f"{name} cannot be read{form}: {text.rpartition('input source ')[2]}")


def check_names(name: str, schema: pa.Schema) -> None:
    """Refuse a table with two columns of one name."""
    if len(set(schema.names)) != len(schema.names):
        twice = next(column for column in schema.names if schema.names.count(column) > 1)
        raise DataError(f"{name}: two columns have the name {twice!r}; rename one")


# Columns of lists, such as embeddings: the list column `emb` of length 3 is read as `emb[0]`, `emb[1]`, `emb[2]`.


_PLACE = re.compile(r"(.*)\[(\d+)\]", re.DOTALL)


def list_columns(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of each list by its name, in order: ``{"emb": ["emb[0]", "emb[1]"]}``.

    Only names whose places are 0, 1, ... without gaps count, and no name of a column.
    """
    lists: dict[str, dict[int, str]] = {}
    for column in columns:
        parts = _PLACE.fullmatch(column)
        if parts is not None and column == f"{parts[1]}[{int(parts[2])}]":
            lists.setdefault(parts[1], {})[int(parts[2])] = column
    return {
        name: [places[index] for index in range(len(places))]
        for name, places in lists.items()
        if max(places) == len(places) - 1 and name not in columns
    }


def spread(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Put the columns of a list in the place of its name; other names stay as they are."""
    lists = list_columns(columns)
    return [column for name in names for column in lists.get(name, [name])]


def shortened(names: Sequence[str], most: int | None = None) -> str:
    """Join names for a message, at most `most`, the columns of a list as ``emb[0] to emb[767]``."""
    lists = list_columns(names)
    of = {column: name for name, places in lists.items() for column in places if len(places) > 2}
    shown = [f"{of[name]}[0] to {lists[of[name]][-1]}" if name in of else name for name in names]
    distinct = list(dict.fromkeys(shown))
    more = f", ... ({len(names)} in all)" if most is not None and len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


def with_lists(parts: Sequence[Part], table: str) -> tuple[tuple[Part, ...], dict[str, str]]:
    """Return parts whose columns of lists of numbers are columns of numbers, as many as the first list has.

    Beside them: by column of lists that have no such length, why.
    """
    lengths: dict[str, int] = {}
    torn: dict[str, str] = {}
    names = [field.name for field in parts[0].schema() if is_list(field.type)]
    for part in parts:
        for name in names:
            if name not in lengths and name not in torn:
                try:
                    lengths |= _lengths(part, [name])
                except DataError as error:
                    torn[name] = str(error)
    if not lengths:
        return tuple(parts), torn
    wide = tuple(ListPart(part, lengths) for part in parts)
    check_names(table, wide[0].schema())
    return wide, torn


@dataclass(frozen=True, slots=True)
class ListPart(PartOf):
    """A part with columns of lists, each read as a column for each place."""

    lengths: Mapping[str, int]  # the length of the lists, by column

    def schema(self) -> pa.Schema:
        """Return the schema with a column of numbers for each place of a list."""
        import pyarrow as pa

        fields = []
        for column in self.part.schema():
            if column.name not in self.lengths:
                fields.append(column)
                continue
            kind = column.type.value_type if is_list(column.type) else column.type  # as it is: text in one part
            fields += [pa.field(f"{column.name}[{index}]", kind) for index in range(self.lengths[column.name])]
        return pa.schema(fields)

    def split(self, most: int) -> list[ListPart]:
        """Cut as the other part is cut."""
        pieces = self.part.split(most) if hasattr(self.part, "split") else [self.part]
        return [ListPart(piece, self.lengths) for piece in pieces]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        import pyarrow as pa

        of = {f"{name}[{index}]": name for name, length in self.lengths.items() for index in range(length)}
        stored = list(dict.fromkeys(of.get(column, column) for column in columns))
        start = 0
        for batch in self.part.read(stored, rows, types):
            known = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in stored:
                if name in self.lengths:
                    known |= self._places(known[name], name, start)
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([known[column] for column in columns], names=list(columns))

    def _places(self, lists: Any, name: str, start: int) -> dict[str, Any]:
        """Return the columns of one list column, whose first row is number `start`."""
        import numpy as np
        import pyarrow as pa

        length = self.lengths[name]
        _check(lists, length, f"{self.name}: column {name!r}", start)
        cells = lists.flatten()
        if pa.types.is_float16(cells.type):
            cells = cells.cast(pa.float32())
        matrix = np.ascontiguousarray(as_numpy(cells).reshape(-1, length).T)
        return {f"{name}[{index}]": as_arrow(row) for index, row in enumerate(matrix)}


def _check(lists: Any, length: int, where: str, start: int) -> None:
    """Refuse lists that are missing, of another length, or that lack a number, and name the first one."""
    import numpy as np
    import pyarrow.compute as pc

    if lists.null_count:
        row = int(np.flatnonzero(as_numpy(lists.is_null()))[0])
        raise DataError(
            f"{where} has no list in row {start + row} (from 0); fill it in, or leave the row out of the file"
        )
    sizes = as_numpy(pc.list_value_length(lists))
    if (sizes != length).any():
        row = int(np.flatnonzero(sizes != length)[0])
        raise DataError(
            f"{where} has lists of different lengths: {length} numbers in the table's first list, {sizes[row]} in row "
            f"{start + row} (from 0); give all lists one length, or leave the column out of the file"
        )
    cells = lists.flatten()
    if cells.null_count:
        index = int(np.flatnonzero(as_numpy(cells.is_null()))[0])
        raise DataError(
            f"{where} has an empty cell at place {index % length} of the list in row {start + index // length} "
            "(both from 0); fill it in, or leave the row out of the file"
        )


def is_list(kind: pa.DataType) -> bool:
    """Tell whether cells are lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    return bool(types.is_integer(kind.value_type) or types.is_floating(kind.value_type))


def _first(part: Part, name: str) -> pa.RecordBatch | None:
    """Read the first row."""
    import pyarrow as pa

    try:
        return next(iter(part.read([name], 1, {})), None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise unreadable(part.name, error, "") from error


def _lengths(part: Part, names: Sequence[str]) -> dict[str, int]:
    """Return the length of the lists by column: as the schema says, else that of the first list, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths, schema = {}, part.schema()
    for name in names:
        kind = schema.field(name).type if name in schema.names else pa.null()
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size
        else:
            first = _first(part, name) if is_list(kind) else None
            if first is None or not first.num_rows:
                continue
            length = pc.list_value_length(first.column(0))[0].as_py()
        if length is None:
            raise DataError(
                f"{part.name}: column {name!r} has no list in row 0 (from 0); fill it in, or leave the row out of the "
                "file"
            )
        if not length:
            raise DataError(f"{part.name}: the lists of column {name!r} are empty; leave the column out of the file")
        lengths[name] = length
    return lengths
