"""The engine ``sql``: a database counts equal rows; here each distinct one is measured, as often as its count says."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.auditing.measure import measure
from fairkit.data.duplicates import copied_rows
from fairkit.data.profile import tally_of
from fairkit.data.source import Source
from fairkit.engines.base import Told, nobody
from fairkit.engines.local import Doubled, LocalEngine
from fairkit.errors import RowsNeededError
from fairkit_sql.counted import Counts, counted_part, score_bins

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.data.duplicates import CopiedRows
    from fairkit.data.parts import Types
    from fairkit.data.profile import Tally
    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.settings import ModelOptions

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
            known = {name for scorer in job.scorers for name in scorer.columns}
            raw = tuple(name for reader in job.readers for name in reader.columns if name not in known)
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
            dataclasses.replace(one, inconclusive=one.inconclusive or note, notes=(*one.notes, note))
            if one.metric.startswith(tuple(stems))
            else one
            for one in findings
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
