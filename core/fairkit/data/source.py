"""A table that can be read again and again, in batches, as a stream of Arrow batches with plain types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fairkit.data.parts import ChosenPart, CsvPart, Part
from fairkit.data.plain import plain
from fairkit.errors import DataError
from fairkit.sources.secrets import masked

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_RAGGED = re.compile(r"CSV parse error: ((?:Row #\d+: )?[^:]*)")  # what follows is the row
_TWICE = re.compile(r"CSV file contained multiple columns named (.*)")
_CONVERSION = re.compile(r"In CSV column #(\d+)(?: \('(.*?)'\))?: .*conversion error", re.DOTALL)


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

    @property
    def columns(self) -> list[str]:
        """The columns' names, in the table's order."""
        return list(self.types)

    def batches(self, columns: Sequence[str], rows: int, *, coded: bool = False) -> Iterator[pa.RecordBatch]:
        """Read the columns in batches of at most `rows` rows, in order, as plain types.

        Plain types are string, int64, float64 and bool; with `coded` text with few values is a dictionary of strings.
        """
        for part in self.parts:
            yield from self._part_batches(part, list(dict.fromkeys(columns)), rows, coded=coded)

    def _part_batches(self, part: Part, columns: list[str], rows: int, *, coded: bool) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            for batch in part.read(columns, rows, self.types):
                for start in range(0, batch.num_rows, rows):
                    yield plain(self._widened(batch.slice(start, rows)), self.name, coded=coded)
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
        """Make the column that a CSV conversion error names one type wider; False if it names none."""
        found = _CONVERSION.search(message)
        if found is None or not any(isinstance(getattr(part, "part", part), CsvPart) for part in self.parts):
            return False
        import pyarrow as pa

        column = found.group(2) or self.columns[int(found.group(1))]
        steps = {pa.null(): pa.int64(), pa.int64(): pa.float64()}
        wider = steps.get(self.types[column], pa.string())
        if self.types.get(column) == wider:
            return False
        self.types[column] = wider  # the reader looks here
        return True

    def _where(self, part: Part) -> str:
        return self.name if len(self.parts) == 1 else f"{self.name}, part {part.name}"

    def _widened(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast columns that are narrower in this part to the whole table's type."""
        import pyarrow as pa

        if all(field.type == self.types[field.name] for field in batch.schema):
            return batch
        arrays = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            wanted = self.types[name]
            wanted = wanted.value_type if pa.types.is_dictionary(wanted) else wanted
            numbers = pa.types.is_floating(wanted) and pa.types.is_integer(column.type)
            arrays.append(column.cast(wanted) if numbers or pa.types.is_null(column.type) else column)
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


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
