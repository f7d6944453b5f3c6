"""The data sheet of a table: each column's type, how many cells are missing, and from when to when it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.arrow import as_arrow
from fairkit.data.codes import codes_of

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COLUMNS = 200
"""So many columns are listed; of a wider table the rest is counted."""

_DATE = re.compile(r"^\d{4}-(0[1-9]|1[0-2])-\d{2}([T ]|$)")


@dataclass(slots=True)
class ColumnSheet:
    """What the first pass notes of a column; ``+`` joins with the rows that come next.

    `first` and `last` are months, of a column of text whose cells all begin with a date as 2024-03-05; tables are read
    so that dates are such text. `mixed` is a column that has other text too.
    """

    kind: str
    missing: int = 0
    first: str | None = None
    last: str | None = None
    mixed: bool = False

    @property
    def type(self) -> str:
        """The type in a word that a reader knows."""
        return "date" if self.first is not None and not self.mixed else self.kind

    def add(self, column: pa.Array) -> None:
        """Add the next cells."""
        import pyarrow as pa
        import pyarrow.compute as pc

        floating = pa.types.is_floating(column.type)
        self.missing += pc.is_null(column, nan_is_null=True).true_count if floating else column.null_count
        if self.kind == "text" and not self.mixed and column.null_count < len(column):
            self._months(column)

    def _months(self, column: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(column.type):
            codes = codes_of(column)
            column = codes.values.take(as_arrow(np.unique(codes.places[codes.places < len(codes.values)])))
        found = pc.min_max(column)
        ends = [str(found[end].as_py()) for end in ("min", "max")]
        if not all(map(_DATE.match, ends)) or not pc.all(pc.match_substring_regex(column, _DATE.pattern)).as_py():
            self.mixed = True
            return
        self.first = min(self.first or ends[0][:7], ends[0][:7])
        self.last = max(self.last or ends[1][:7], ends[1][:7])

    def __add__(self, right: Self) -> ColumnSheet:
        firsts = [one.first for one in (self, right) if one.first is not None]
        lasts = [one.last for one in (self, right) if one.last is not None]
        return ColumnSheet(
            self.kind,
            self.missing + right.missing,
            min(firsts, default=None),
            max(lasts, default=None),
            self.mixed or right.mixed,
        )


@dataclass(slots=True)
class Sheet:
    """What the first pass notes of every column, up to `MOST_COLUMNS`; ``+`` joins with the rows that come next."""

    columns: dict[str, ColumnSheet] = field(default_factory=dict)
    more: int = 0

    def add(self, arrow: pa.RecordBatch) -> None:
        """Add the next rows."""
        names = arrow.schema.names
        self.more = max(len(names) - MOST_COLUMNS, 0)
        for place, name in enumerate(names[:MOST_COLUMNS]):
            if name not in self.columns:
                self.columns[name] = ColumnSheet(type_word(arrow.schema.field(place).type))
            self.columns[name].add(arrow.column(place))

    def __add__(self, right: Self) -> Sheet:
        joined = dict(self.columns)
        for name, column in right.columns.items():
            joined[name] = joined[name] + column if name in joined else column
        return Sheet(joined, max(self.more, right.more))

    def listed(self) -> tuple[dict[str, Any], ...]:
        """Return the columns as ``{"name", "type", "missing"}``."""
        return tuple({"name": n, "type": c.type, "missing": c.missing} for n, c in self.columns.items())

    def period(self) -> dict[str, str]:
        """Return ``{"column", "from", "to"}`` of the only column of dates, to the month; empty where it is not one.

        Two columns of dates do not say which of them is the table's period. A month gives no single row away.
        """
        found = [(name, c.first, c.last) for name, c in self.columns.items() if c.type == "date"]
        if len(found) != 1:
            return {}
        name, first, last = found[0]
        return {"column": name, "from": str(first), "to": str(last)}


def type_word(kind: pa.DataType) -> str:
    """Name an Arrow type in a word that a reader knows."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return type_word(kind.value_type)
    tests_by_word = {
        "text": (pa.types.is_string, pa.types.is_large_string),
        "whole number": (pa.types.is_integer,),
        "number": (pa.types.is_floating, pa.types.is_decimal),
        "true or false": (pa.types.is_boolean,),
        "empty": (pa.types.is_null,),
    }
    return next((word for word, tests in tests_by_word.items() if any(test(kind) for test in tests)), str(kind))
