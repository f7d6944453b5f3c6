"""Distinct rows with their counts: the expression that an engine runs, and the table that it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy
from fairkit.data.digest import TableDigest
from fairkit.data.snapshot import plain_rows
from fairkit.errors import RowsNeededError
from fairkit_sql.relation import ibis

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit_sql.relation import Relation

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

    low: float  # the range; what is beyond is in the outermost bins
    high: float  # the range; what is beyond is in the outermost bins
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
        raw = {f"k{place}": table[name] for place, name in enumerate(columns)}
        cells = table.group_by(**raw).agg(**{COUNT: table.count()})
        keys = keys_of({name: cells[key] for key, name in zip(raw, columns, strict=True)}, columns, coding)
        return cells.group_by(**keys).agg(**{COUNT: cells[COUNT].sum().cast("int64")}).limit(most + 1)
    values: dict[str, Any] = {}
    for place, name in enumerate(columns):
        if name in coding.bins and name not in coding.expressions and name not in coding.edges:
            number = table[name].cast("float64")
            values |= {f"m{place}": number.mean(), f"l{place}": number.min(), f"h{place}": number.max()}
    keys = keys_of(table, columns, coding)
    return table.group_by(**keys).agg(**values, **{COUNT: table.count()}).limit(most + 1)


def keys_of(table: Any, columns: Sequence[str], coding: Coding) -> dict[str, Any]:
    """Return the expressions that tell rows apart, by names made of the columns' places."""
    keys: dict[str, Any] = {}
    for place, name in enumerate(columns):
        column = table[name]
        if name in coding.expressions:
            keys[f"k{place}"] = coding.expressions[name]
        elif name in coding.edges:
            keys[f"k{place}"] = _binned(_number(column, coding), coding.edges[name])
        elif name in coding.bins:
            keys |= {f"{key}{place}": one for key, one in _scored(_number(column, coding), coding.bins[name]).items()}
        else:
            keys[f"k{place}"] = column
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
    below = [(number < edge, ibis().literal(one, "float64")) for edge, one in
             zip(edges, (float(np.nextafter(edges[0], -np.inf)), *edges), strict=False)]  # fmt: skip
    missing = (number.isnull(), ibis().null("float64"))
    return ibis().cases(missing, *below, else_=ibis().literal(float(edges[-1]), "float64"))


def _scored(column: Any, bins: Bins) -> dict[str, Any]:
    """Return the keys of a score: its step, the thresholds below it, and its own value where it is near one."""
    number = column.cast("float64")
    width = (bins.high - bins.low) / STEPS
    keys = {"s": ((number - bins.low) / width).floor().clip(0, STEPS).cast("int64")}
    for place, cut in enumerate(bins.cuts):
        reach = NEAR * max(abs(cut), NEAR)
        near = (number >= cut - reach) & (number <= cut + reach)
        keys |= {
            f"t{place}_": (number >= cut - reach).cast("int64"),
            f"u{place}_": near.ifelse(number, ibis().null("float64")),
        }
    return keys


def counted(relation: Relation, columns: Sequence[str], coding: Coding, name: str, most: int = MOST_CELLS) -> Cells:
    """Count equal rows."""
    check_known(relation, columns)
    found = relation.fetch(expression_of(relation.table, columns, coding, most))
    if found.num_rows > most:
        raise RowsNeededError(f"{name} has more than {most:,} distinct rows in the columns {', '.join(columns)}")
    return _cells(found, columns, coding, name)


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
    for place, column in enumerate(columns):
        if column in coding.bins:
            mean, low, high = (found.column(f"{key}{place}").cast(pa.float64()) for key in "mlh")
            read[column] = pc.min_element_wise(pc.max_element_wise(mean, low), high)
        else:
            read[column] = found.column(f"k{place}")
    arrays = [one.combine_chunks() for one in read.values()]
    rows = plain_rows(pa.Table.from_arrays(arrays, names=list(read)), name)
    order = _order(rows)
    return Cells(rows.take(order), counts[as_numpy(order)])


def _order(rows: pa.Table) -> Any:
    """Return an order of distinct rows that hangs on their values only; -0 and 0, NaN and nothing are the same."""
    import pyarrow.compute as pc

    if not rows.column_names:
        return as_arrow(np.arange(rows.num_rows))
    keys = [(f"{place}", "ascending") for place in range(len(rows.column_names))]
    renamed = rows.rename_columns([key for key, _ in keys])
    return pc.sort_indices(renamed, sort_keys=keys)
