"""Decisions that a database counts by day: cells of equal rows and their sums; no row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.snapshot import plain_rows
from fairkit.errors import DataError, RowsNeededError
from fairkit_watch.sums import MOMENTS, RowSums

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.roles import Sensitive
    from fairkit.data.source import Source
    from fairkit_sql.counted import CountedPart

_QUARTERS_SINCE = 1973
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class CountedColumns:
    """What a watch reads of a table."""

    keys: tuple[str, ...]  # the columns whose own values count: that of the day, of decisions, of outcomes
    splits: tuple[Sensitive, ...]
    day: str | None = None
    weights: str | None = None
    score: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns by which equal rows are found, each once."""
        return tuple(dict.fromkeys([*self.keys, *(name for split in self.splits for name in split.columns)]))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns whose sums are needed."""
        return tuple(name for name in (self.weights, self.score) if name is not None)

    @property
    def everything(self) -> tuple[str, ...]:
        """All columns, each once."""
        return tuple(dict.fromkeys([*self.names, *self.numbers]))


def counted_cells(source: Source, columns: CountedColumns) -> tuple[pa.RecordBatch, RowSums]:
    """Return the cells of equal rows, their columns named as the table's, and the sums of each."""
    from fairkit_sql.counted import counted_part

    part = counted_part(source, columns.day)
    if part is None:
        raise RowsNeededError(f"{source.name} cannot be counted by SQL: no database holds it")
    return _Query(part, columns).cells()


class _Query:
    """One ``GROUP BY`` over a table, and what its answer says."""

    def __init__(self, part: CountedPart, columns: CountedColumns) -> None:
        from fairkit_sql.cells import check_known

        self.part, self.columns = part, columns
        self.relation, self.table = part.relation, part.relation.table
        check_known(self.relation, columns.everything)
        self._zone: str | None = None

    def cells(self) -> tuple[pa.RecordBatch, RowSums]:
        """Run it."""
        from fairkit_sql.cells import MOST_CELLS

        keys = self._keys()
        asked = self.table.group_by(**keys).agg(rows=self.table.count(), **self._measures())
        answer = self.relation.fetch(asked.limit(MOST_CELLS + 1))
        if answer.num_rows > MOST_CELLS:
            raise RowsNeededError(
                f"{self.part.name} has more than {MOST_CELLS:,} distinct rows in the columns "
                f"{', '.join(self.columns.names)}"
            )
        sums = self._sums(answer)
        arrays = {name: answer.column(key) for name, key in zip(self.columns.names, keys, strict=True)}
        if self._zone is not None:
            arrays[str(self.columns.day)] = self._local_days(arrays[str(self.columns.day)], self._zone)
        import pyarrow as pa

        rows = plain_rows(pa.table(arrays), self.part.name).combine_chunks()
        batches = rows.to_batches()
        return (batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)), sums

    def _keys(self) -> dict[str, Any]:
        from fairkit_sql.cells import Coding, keys_of
        from fairkit_sql.counted import edges_of

        others = {name for name in self.columns.keys if not any(name in s.columns for s in self.columns.splits)}
        edges = {name: cut for name, cut in edges_of(self.columns.splits).items() if name not in others}
        days = {} if self.columns.day is None else {self.columns.day: self._day(self.columns.day)}
        coding = Coding(edges, {}, days, self.relation.dialect != "sqlite")
        return keys_of(self.table, self.columns.names, coding)

    def _day(self, name: str) -> Any:
        """Return the expression of each row's day, from dates, times, or text that begins with a day."""
        column = self.table[name]
        kind = column.type()
        if kind.is_string():
            return column.substr(0, 10)
        if not kind.is_timestamp():
            return column
        if any(name in split.columns for split in self.columns.splits):
            raise RowsNeededError(f"the day column {name!r} has times and is a sensitive column, too")
        if kind.timezone is not None and self.part.files:
            self._zone = kind.timezone
            return column.cast("timestamp").bucket(minutes=15)  # zones are whole quarters of an hour apart
        if kind.timezone is not None:
            raise RowsNeededError(
                f"the day column {name!r} has times with a zone, and which day one is of hangs on it; "
                "let the query make days of them, as in (time AT TIME ZONE 'UTC')::date AS day"
            )
        return column.date()

    def _local_days(self, quarters: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
        """Return the days, in their zone, of quarters of an hour in UTC."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first = pc.min(quarters).as_py()
        if first is not None and first.year < _QUARTERS_SINCE:
            raise RowsNeededError(
                f"the day column {self.columns.day!r} has times before {_QUARTERS_SINCE}, when zones were not whole "
                "quarters of an hour apart"
            )
        local = quarters.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
        return pc.utf8_slice_codeunits(local.cast(pa.string()), 0, 10)

    def _measures(self) -> dict[str, Any]:
        """Return the sums of each cell, and how many of its rows have no usable weight or score."""
        measures: dict[str, Any] = {}
        weight = self._number(self.columns.weights, "weight", "bad_weight", measures, least=0.0)
        score = self._number(self.columns.score, "score", "bad_score", measures)
        if weight is not None:
            measures |= {"w": weight.sum(), "ww": (weight * weight).sum()}
        if score is not None:
            both = score if weight is None else weight * score
            twice = score if weight is None else weight * weight * score
            measures |= {"wx": both.sum(), "wwx": twice.sum(), "wwxx": (both * both).sum()}
        return measures

    def _number(self, name: str | None, what: str, bad: str, measures: dict[str, Any], least: float = -_LARGEST) -> Any:
        """Return a column of numbers with 0 where it has none that is usable, and have those counted."""
        if name is None:
            return None
        column = self.table[name]
        kind = column.type()
        if kind.is_boolean():
            number = column.ifelse(1.0, 0.0)
        elif kind.is_numeric():
            number = column.cast("float64")
        else:
            raise DataError(f"{self.part.name}: the {what} column {name!r} holds text; it takes numbers")
        usable = column.notnull() & (number >= least) & (number <= _LARGEST)
        if kind.is_floating() and self.relation.dialect != "sqlite":
            usable = usable & ~column.isnan()  # of which engines say that it is more than any number, or less
        measures[bad] = usable.ifelse(0, 1).sum()
        return usable.ifelse(number, 0.0)

    def _sums(self, answer: pa.Table) -> RowSums:
        rows = _floats(answer, "rows")
        for name, what in ((self.columns.weights, "weight"), (self.columns.score, "score")):
            if name is not None and (bad := int(_floats(answer, f"bad_{what}").sum())):
                raise DataError(
                    f"{self.part.name}: {bad:,} of {int(rows.sum()):,} rows have no usable {what} in {name!r}; "
                    "leave them out"
                )
        weights = squares = moments = None
        if self.columns.weights is not None:
            weights, squares = _floats(answer, "w"), _floats(answer, "ww")
        if self.columns.score is not None:
            first = (rows, rows) if weights is None or squares is None else (weights, squares)
            moments = (*first, *(_floats(answer, name) for name in ("wx", "wwx", "wwxx")))
            assert len(moments) == MOMENTS  # noqa: S101 -- as for single rows
        return RowSums(rows, weights, squares, moments)


def _floats(answer: pa.Table, name: str) -> Any:
    """Return a column of the answer as doubles."""
    import pyarrow as pa

    return as_numpy(answer.column(name).cast(pa.float64()).combine_chunks())
