"""A table whose rows are counted where they lie: what is asked of it, and the pieces that stand for its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.clusters import KEY
from fairkit.data.profile import BATCH_ROWS
from fairkit.data.snapshot import plain_rows
from fairkit.errors import DataError, RowsNeededError
from fairkit_sql.cells import Bins, Cells, Coding, check_known, counted
from fairkit_sql.clusters import bucket_of, standing_for
from fairkit_sql.files import counting_of, read_alike
from fairkit_sql.relation import relation_of

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Types
    from fairkit.data.roles import Roles, Sensitive
    from fairkit.data.source import Source
    from fairkit.settings import ModelOptions
    from fairkit_sql.relation import Relation

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
        names = {f"k{place}": self.relation.table[name] for place, name in enumerate(columns)}
        found = self.relation.fetch(self.relation.table.select(**names).limit(min(rows, BATCH_ROWS)))
        arrays = [found.column(name).combine_chunks() for name in names]
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
        return batch is not None and all(len(np.unique(as_numpy(one))) <= FEW for one in batch.columns)


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
        edges = {column: known for column, known in edges_of(splits).items() if column not in others}
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
        for known, cells in self.cells.items():
            if set(columns) <= set(known):
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
        found = self.part.relation.fetch(table.agg(ids=ids.nunique(), missing=ids.isnull().sum()))
        ids_count, missing = (int(found.column(name)[0].as_py() or 0) for name in ("ids", "missing"))
        if missing:
            raise DataError(
                f"{self.part.name}: {missing:,} rows have no value in the `cluster` column {column!r}, so that nobody "
                "knows what they depend on; give each one a value, its own where it stands alone"
            )
        self.cluster = column, ids_count
        buckets = bucket_of(ids, KEY, self.part.relation.dialect)
        cells = self._counted(columns, replace(self.coding, expressions={column: buckets}))
        place = cells.rows.column_names.index(column)
        standing = standing_for(cells.rows.column(place))
        self.cells[columns] = Cells(cells.rows.set_column(place, column, standing), cells.counts)


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
