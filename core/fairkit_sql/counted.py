"""A table whose rows are counted where they lie: what is asked of it, and the pieces that stand for its rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.measure import measure
from fairkit.data.arrow_types import as_numpy
from fairkit.data.duplicate_rows import copied_rows
from fairkit.data.hashing import KEY
from fairkit.data.profile import BATCH_ROWS, tally_of
from fairkit.data.snapshot import plain_rows
from fairkit.data.source import Source
from fairkit.engines.base import Told, nobody
from fairkit.engines.local import Doubled, LocalEngine
from fairkit.errors import DataError, RowsNeededError
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_sql.cells import (
    Bins,
    Cells,
    Coding,
    bucket_of,
    check_known,
    counted,
    counting_of,
    read_alike,
    relation_of,
    standing_for,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.duplicate_rows import CopiedRows
    from fairkit.data.parts import Types
    from fairkit.data.profile import Tally
    from fairkit.data.roles import Roles, Sensitive
    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.settings import ModelOptions
    from fairkit_sql.cells import Relation


MANY = 4_096
"""With more distinct scores among the first rows than this, and than half of them, scores are put into bins."""

FEW = 256
"""With so many values of a binned column among the first rows at most, each value is counted."""

_BYTES = 2
"""Columns of wider whole numbers may have any number of values among the other rows."""


class CountedPart:
    """The rows of a relation as a part of a table: of single rows only the first ones are read.

    `files` tells whether they are those of Parquet files, which say in which zone times are.
    """

    alone = True

    def __init__(self, relation: Relation, name: str, schema: pa.Schema, *, files: bool = False) -> None:
        self.relation, self.name, self._schema, self.files = relation, name, schema, files

    def schema(self) -> pa.Schema:
        """Return the rows' schema."""
        return self._schema

    def rows(self) -> int | None:
        """Return None: they are not counted yet."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read the first rows: that is enough to choose bins and to tell what a column of scores holds."""
        check_known(self.relation, columns)
        names = {f"k{index}": self.relation.table[name] for index, name in enumerate(columns)}
        cells = self.relation.fetch(self.relation.table.select(**names).limit(min(rows, BATCH_ROWS)))
        arrays = [cells.column(name).combine_chunks() for name in names]
        yield from plain_rows(pa_table(arrays, columns), self.name).to_batches()

    def few(self, columns: Sequence[str]) -> bool:
        """Tell whether columns of whole numbers have so few values that each can be counted.

        Their type bounds how many the first rows can hide: a table may be sorted by such a column.
        """
        table = self.relation.table
        kinds = [table[column].type() for column in columns if column in table.columns]
        if not columns or len(kinds) < len(columns):
            return False
        if not all(kind.is_integer() and kind.nbytes <= _BYTES for kind in kinds):
            return False
        batch = next(self.read(columns, BATCH_ROWS, {}), None)
        return batch is not None and all(len(np.unique(as_numpy(column))) <= FEW for column in batch.columns)


def counted_part(source: Source) -> CountedPart | None:
    """Return a table as it is counted: by the database of its address, or by DuckDB where it is Parquet files.

    None where no engine has it.
    """
    part: Any = source.parts[0]
    part = getattr(part, "part", part)  # columns of lists are read place by place
    read = getattr(part, "_taken", None) is not None  # for the length of its lists: the connection is closed
    counting = None if read or len(source.parts) > 1 else getattr(part, "counting", None)
    if counting is not None:
        columns = part.received
    elif counting := counting_of(source.parts):
        columns = read_alike(part.schema())
    else:
        return None
    relation = relation_of(counting, columns, source.name)
    return CountedPart(relation, source.name, part.schema(), files=not hasattr(part, "counting"))


def pa_table(arrays: Sequence[Any], names: Sequence[str]) -> pa.Table:
    """Return a table of columns."""
    import pyarrow as pa

    return pa.Table.from_arrays(list(arrays), names=list(names))


@dataclass(slots=True)
class Counts:
    """What was counted of a table."""

    part: CountedPart  # the table
    cells: dict[tuple[str, ...], Cells] = field(default_factory=dict)
    coding: Coding = field(default_factory=lambda: Coding({}, {}, {}))  # how the columns with a role are read
    cluster: tuple[str, int] | None = None  # the column of clusters, where there is one, and how many ids it has
    sha256: str = ""  # the digest of the rows in the columns that the audit reads, but the clusters' ids

    @property
    def total(self) -> int:
        """How many rows there are."""
        return next(iter(self.cells.values())).total

    def learn(
        self, roles: Roles, splits: Iterable[Sensitive], columns: Sequence[str], scores: Mapping[str, Bins]
    ) -> None:
        """Count the columns that have a role."""
        others = {roles.label, roles.weights, roles.cluster, *(roles.predictions.columns if roles.predictions else ())}
        edges = {column: edges for column, edges in edges_of(splits).items() if column not in others}
        self.coding = Coding(edges, scores, {}, self.part.relation.dialect != "sqlite", few=self.part.few(list(edges)))
        first = tuple(name for name in columns if name != roles.cluster)
        cells = self.count(first, self.coding)
        self.sha256 = cells.digest()
        if roles.cluster is not None:
            self._count_clusters(roles.cluster, tuple(columns))

    def count(self, columns: tuple[str, ...], coding: Coding) -> Cells:
        """Count equal rows, and remember them."""
        cells = self.cells[columns] = self._counted(columns, coding)
        return cells

    def having(self, columns: Sequence[str], raw: Sequence[str]) -> Cells:
        """Return cells with some columns; `raw` are read as they are, others as their role asks."""
        if set(raw) & {*self.coding.edges, *self.coding.bins}:
            coding = replace(
                self.coding,
                edges={name: edges for name, edges in self.coding.edges.items() if name not in raw},
                bins={name: bins for name, bins in self.coding.bins.items() if name not in raw},
            )
            return self._counted(tuple(columns), coding)
        for columns_counted, cells in self.cells.items():
            if set(columns) <= set(columns_counted):
                return cells
        return self.count(tuple(columns), self.coding)

    def _counted(self, columns: tuple[str, ...], coding: Coding) -> Cells:
        cells = counted(self.part.relation, columns, coding, self.part.name)
        if self.cells and cells.total != self.total:
            raise DataError(
                f"{self.part.name} changed while it was counted: {self.total:,} rows, and then {cells.total:,}; "
                "count it when nobody writes it, or where one transaction sees one state of it"
            )
        return cells

    def _count_clusters(self, column: str, columns: tuple[str, ...]) -> None:
        """Count again with the buckets of clusters."""
        table = self.part.relation.table
        check_known(self.part.relation, [column])
        ids = table[column]
        counts = self.part.relation.fetch(table.agg(ids=ids.nunique(), missing=ids.isnull().sum()))
        ids_count, missing = (int(counts.column(name)[0].as_py() or 0) for name in ("ids", "missing"))
        if missing:
            raise DataError(
                f"{self.part.name}: {missing:,} rows have no value in the `cluster` column {column!r}, so that nobody "
                "knows what they depend on; give each one a value, its own where it stands alone"
            )
        self.cluster = column, ids_count
        buckets = bucket_of(ids, KEY, self.part.relation.dialect)
        cells = self._counted(columns, replace(self.coding, expressions={column: buckets}))
        index = cells.rows.column_names.index(column)
        standing = standing_for(cells.rows.column(index))
        self.cells[columns] = Cells(cells.rows.set_column(index, column, standing), cells.counts)


def critical(options: ModelOptions, cut: float | None, unit: bool) -> tuple[float, ...]:
    """Return the thresholds that decisions may be made by, in either direction of the scores."""
    chosen = options.threshold if options.threshold is not None else cut
    cuts = {0.5} if unit else set()
    if chosen is not None:
        cuts |= {chosen, 1 - chosen} if unit else {chosen}
    return tuple(sorted(cuts))


def score_bins(counts: CountedPart, roles: Roles, options: ModelOptions, cut: float | None) -> dict[str, Bins]:
    """Return the bins of the scores that have many values among the first rows."""
    predicted = roles.predictions
    score = None if predicted is None else predicted.score
    if predicted is None or score is None or score not in counts.relation.table.columns:
        return {}
    batch = next(counts.read([score], BATCH_ROWS, {}), None)
    numbers = np.empty(0) if batch is None else as_numpy(batch.column(0))
    if numbers.dtype.kind not in "if":
        return {}
    numbers = numbers[np.isfinite(numbers)]
    if len(np.unique(numbers)) <= max(MANY, len(numbers) // 2):
        return {}
    decided = predicted.decision or predicted.probability or predicted.predicted_class
    if not decided and options.score_kind in ("percent", "logit"):
        raise RowsNeededError(f"decisions are made of the many scores of {score!r}, which are no probabilities")
    low, high = float(numbers.min()), float(numbers.max())
    unit = low >= 0 and high <= 1 and options.score_kind != "value"
    low, high = (0.0, 1.0) if unit else (low, high)
    return {score: Bins(low, high, critical(options, cut, unit))}


def edges_of(splits: Iterable[Sensitive]) -> dict[str, tuple[float, ...]]:
    """Return the edges of the columns that are binned wherever they are split by."""
    found: dict[str, set[float]] = {}
    plain: set[str] = set()
    for split in splits:
        for column, edges in zip(split.columns, split.edges, strict=True):
            plain |= {column} if edges is None else set()
            found.setdefault(column, set()).update(edges or ())
    return {column: tuple(sorted(edges)) for column, edges in found.items() if column not in plain}


# The engine `sql`: a database counts equal rows; here each distinct one is measured, as often as its count says.


NO_COPIES = (
    "The database counted equal rows: copies are seen only in the counts of rows that are equal in the columns that "
    "the audit reads."
)
IN_BINS = (
    "The column {column!r} has too many values to count each: its rows were counted in bins, a thousandth of its range "
    "wide, with the mean of each. Numbers made from scores are near the truth, and no verdict is made from them."
)


class SqlEngine(LocalEngine):
    """Runs functions on the distinct rows of a table that a database counts (see `fairkit.engines.base.Engine`)."""

    def __init__(self, *, pulls: bool = True) -> None:
        super().__init__()
        self.pulls = pulls
        self._counts: Counts | None = None
        self._options: tuple[ModelOptions, float | None] | None = None

    def placed(self, data: Dataset, reasons: Sequence[str], options: ModelOptions, cut: float | None = None) -> Dataset:
        """See `Engine.placed`: the rows stay where they are."""
        if reasons:
            raise RowsNeededError(reasons[0])
        own = None if data.roles.join is not None else counted_part(data.source)
        if own is None:
            what = "columns of another table were joined here" if data.roles.join else "no database holds it"
            raise RowsNeededError(f"{data.name} cannot be counted by SQL: {what}")
        self._counts, self._options = Counts(own), (options, cut)
        view = copy.copy(data)
        origin = data.source.origin or {"kind": "file", "address": data.name}
        view.source = Source(data.name, data.source.types, (own,), origin=dict(origin))
        view.source.notes = (NO_COPIES,)
        return view

    def map(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Doubled:
        """See `Engine.map`: on pieces that hold the distinct rows whose counts have one binary digit."""
        counts = self._counts
        if counts is None or source.parts != (counts.part,):
            raise RowsNeededError(
                f"{source.name}: a database counts for audits and certificates of one table's predictions, and what "
                "was asked for compares, trains or scores rows; leave out `engine`, and what refuses to read rows"
            )
        types, raw = source.types, tuple[str, ...]()
        if function is tally_of:
            roles, bins, noted, *_ = shared
            types = {name: kind for name, kind in types.items() if name in roles.audited(noted)}
            options, cut = self._options or (None, None)
            assert options is not None  # noqa: S101 -- `placed` came first
            counts.learn(roles, bins.values(), list(types), score_bins(counts.part, roles, options, cut))
            source.origin = {**source.origin, "counts": _evidence(counts)}
            source.notes = (NO_COPIES, *(IN_BINS.format(column=name) for name in counts.coding.bins))
        elif function is measure:
            (job,) = shared
            columns = {name for scorer in job.scorers for name in scorer.columns}
            raw = tuple(name for reader in job.readers for name in reader.columns if name not in columns)
        else:
            raw = tuple(types)
        pieces = []
        for bit in reversed(range(counts.total.bit_length())):
            piece = PiecePart(counts, bit, raw)
            pieces.append(function(Source(source.name, types, (piece,)), 0, *shared))
            told(counts.total if bit == 0 else 0)
        return Doubled(tuple(pieces))

    def total(self, function: Callable[..., Any], source: Source, *shared: Any, told: Told = nobody) -> Any:
        """See `Engine.total`."""
        return self.map(function, source, *shared, told=told).total()

    def remarked(self, findings: list[Finding], metrics: Sequence[type[Metric]]) -> list[Finding]:
        """Return findings; those made from scores in bins decide nothing."""
        if self._counts is None or not self._counts.coding.bins:
            return findings
        note = "It was made from scores in bins; for a verdict the rows must be read."
        stems = ["statistical_parity_ks", *(m.name for m in metrics if "score" in m.needs)]
        return [
            dataclasses.replace(finding, inconclusive=finding.inconclusive or note, notes=(*finding.notes, note))
            if finding.metric.startswith(tuple(stems))
            else finding
            for finding in findings
        ]


def _evidence(counts: Counts) -> dict[str, Any]:
    """Return what a report says about how the rows were counted."""
    columns, cells = next(iter(counts.cells.items()))
    return {"columns": list(columns), "distinct": len(cells.counts), "sha256": counts.sha256}


@dataclass(frozen=True, slots=True)
class PiecePart:
    """The distinct rows whose counts have a binary digit."""

    counts: Counts  # the table
    bit: int  # the digit's place
    raw: tuple[str, ...]  # columns that are read as they are

    alone = True
    """Whether one thread has to do it all: the connection is that thread's."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.counts.part.name

    def schema(self) -> pa.Schema:
        """Return the table's schema."""
        return self.counts.part.schema()

    def rows(self) -> int | None:
        """Return None."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        cells = self.counts.having(columns, [name for name in self.raw if name in columns])
        chosen = cells.rows.select(list(columns)).filter(cells.having(self.bit))
        yield from chosen.combine_chunks().to_batches(rows)

    def counted(self, tally: Tally) -> None:
        """Give a tally what no distinct row shows: the digest, and how many ids of clusters there are."""
        # a row that occurs d times makes every count of equal rows a multiple of d, in whichever columns they are equal
        copied = copied_rows(next(iter(self.counts.cells.values())).counts, 0.0, {})
        ids = (self.counts.cluster or ("", 0))[1]
        stated: Any = TableTotals(self.counts.sha256, 0, ids, copied=copied)
        tally.digest, tally.copies, tally.ids = (copy.copy(stated) for _ in range(3))


@dataclass(slots=True)
class TableTotals:
    """Stands for digest, copies and ids of the rows: they are known of all rows together (see `Tally`)."""

    sha256: str
    rows: int
    distinct: int
    copied: CopiedRows | None = None

    @property
    def total(self) -> int:
        """A number that is the same for the same rows in any order."""
        return int(self.sha256[:16], 16)

    def update(self, rows: Sized, how: object = None) -> None:
        """Count rows."""
        self.rows += len(rows)

    def __add__(self, other: Any) -> TableTotals:
        return dataclasses.replace(self, rows=self.rows + other.rows) if isinstance(other, TableTotals) else self

    def hexdigest(self) -> str:
        """Return the digest."""
        return self.sha256

    def warnings(self, skipped: Sequence[str]) -> list[str]:
        """Return none: no row was looked at."""
        return []
