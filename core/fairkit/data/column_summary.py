"""The data sheet of a table: each column's type, how many cells are missing, and from when to when it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.arrow_types import as_arrow, codes_of
from fairkit.data.roles import value_text

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
            column = codes.values.take(
                as_arrow(np.flatnonzero(np.bincount(codes.places, minlength=1)[: len(codes.values)]))
            )
        extremes = pc.min_max(column)
        ends = [str(extremes[end].as_py()) for end in ("min", "max")]
        if not all(map(_DATE.match, ends)) or not pc.all(pc.match_substring_regex(column, _DATE.pattern)).as_py():
            self.mixed = True
            return
        self.first = min(self.first or ends[0][:7], ends[0][:7])
        self.last = max(self.last or ends[1][:7], ends[1][:7])

    def __add__(self, right: Self) -> ColumnSheet:
        firsts = [column.first for column in (self, right) if column.first is not None]
        lasts = [column.last for column in (self, right) if column.last is not None]
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
        for index, name in enumerate(names[:MOST_COLUMNS]):
            if name not in self.columns:
                self.columns[name] = ColumnSheet(type_word(arrow.schema.field(index).type))
            self.columns[name].add(arrow.column(index))

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
        dates = [(name, c.first, c.last) for name, c in self.columns.items() if c.type == "date"]
        if len(dates) != 1:
            return {}
        name, first, last = dates[0]
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


# Values that look the same and are not: a space at the end, another case, a letter of another alphabet.


_CONFUSABLE = str.maketrans(
    "аеорсухіјѕһԁԛԝѐёΑΒΕΖΗΙΚΜΝΟΡΤΥΧαορτυνιАВЕКМНОРСТУХІЅЈ", "aeopcyxijshdqweeABEZHIKMNOPTYXaoptuviABEKMHOPCTYXISJ"
)
"""Cyrillic and Greek letters that look like Latin ones."""
_MOST = 5
_MARKS = ".,;:!?'\"`"


def lookalikes(column: str, names: Sequence[str]) -> list[str]:
    """Return a sentence for each pair of different values of a column that a reader takes for one."""
    seen: dict[str, list[str]] = {}
    for name in names:
        seen.setdefault(_as_seen(name), []).append(name)
    sentences = [
        f"{first!a} and {second!a} of the column {column!r} look the same and are counted apart: "
        f"{_why(first, second)}. Are they one? Then write them alike in the table."
        for same in seen.values()
        for first, second in combinations(same, 2)
    ]
    rest = len(sentences) - _MOST
    return [*sentences[:_MOST], f"{rest} more pairs of values of {column!r} look the same."] if rest > 0 else sentences


def beyond_two(column: str, counts: Mapping[Any, int], favorable: Sequence[Any]) -> list[str]:
    """Return a sentence where a column of two kinds of outcomes, good and other ones, has more than two values."""
    if len(counts) < 3 or len(counts) == len(favorable):
        return []
    shown = ", ".join(f"{value_text(value)!a} in {count:,} rows" for value, count in list(counts.items())[:8])
    good = " and ".join(ascii(value_text(value)) for value in favorable[:4])
    return [
        f"{column!r} has {len(counts)} values ({shown}{', ...' if len(counts) > 8 else ''}): {good} counts as "
        f"favorable and the {len(counts) - len(favorable)} others as unfavorable. Leave out rows without an outcome."
    ]


def _as_seen(text: str) -> str:
    """Return the text as it looks: without case, spaces and invisible characters, in Latin letters."""
    shown = unicodedata.normalize("NFKC", text).translate(_CONFUSABLE)
    visible = "".join(letter for letter in shown if unicodedata.category(letter) not in ("Cf", "Cc"))
    folded = " ".join(visible.casefold().split())
    return re.sub(r"^0+(?=\d+$)", "", folded.rstrip(_MARKS).rstrip() or folded)


def _why(one: str, other: str) -> str:
    if one.casefold() == other.casefold():
        return "they differ in upper and lower case"
    if " ".join(one.split()) == " ".join(other.split()):
        return "they differ in spaces"
    if one.casefold().rstrip(_MARKS) == other.casefold().rstrip(_MARKS):
        return "they differ in a mark at the end"
    if one.lstrip("0") == other.lstrip("0"):
        return "they differ in leading zeros"
    odd = [letter for text in (one, other) for letter in text if not letter.isascii()]
    if odd:
        named = unicodedata.name(odd[0], "a character without a name")
        return f"they differ in characters, such as U+{ord(odd[0]):04X} {named}"
    return "they differ in case and spaces"
