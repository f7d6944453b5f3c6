"""A table that can be read again and again, in batches, as a stream of Arrow batches with plain types."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.arrow_types import plain
from fairkit.data.parts import ChosenPart, Part
from fairkit.data.text_files import FLAGS, CsvPart
from fairkit.errors import DataError
from fairkit.sources.address import masked
from fairkit.support.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


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
