"""The first pass over a table: everything that must be known before the model is run. Parts of a table add up."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import (
    as_arrow,
    as_numbers,
    cells,
    codes_of,
    decoded,
    missing_cells,
    present_rows,
    ready_codes,
)
from fairkit.data.column_summary import Sheet, lookalikes
from fairkit.data.digest import TableDigest
from fairkit.data.duplicate_rows import DistinctRows, Repeats, RowCopies
from fairkit.data.groups import GroupCoder, probabilities_of, quartile_edges, rows_where
from fairkit.data.hashing import words_of
from fairkit.data.roles import HIGHEST, LARGEST, SMALL_GROUPS, Sensitive, reference_of, same_value, value_text
from fairkit.errors import DataError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit.support.timings import ahead, threads

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.duplicate_rows import CopiedRows
    from fairkit.data.roles import Roles
    from fairkit.data.source import Source

BATCH_ROWS = 65_536
MAX_GROUP_VALUES = 20
"""A numeric sensitive column with more distinct values than this is binned at its quartiles."""

MAX_CLASSES = 1_000
_LEAST_WEIGHT, _MOST_WEIGHT = 1e-90, 1e90  # their cubes are numbers

Bins = Mapping[str, "Sensitive"]
"""Each way to split people, with the bins that numeric columns get."""


Total = Callable[..., Any]
"""Adds up what ``function(source, start, *shared)`` returns for the pieces of a table: see `fairkit.engines`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one pass over the table found: digest, sizes, label values.

    `rows` have a weight where there are weights; of those, `unlabelled` counts the rows without a label, `missing` the
    rows without a group by sensitive column, and `complete` those that have a label and a group in every one.
    `values` has the distinct values, with their rows, of the label and of the columns of which they were asked for
    (see `Dataset.note`); None for a column with too many. `warnings` are what a reader must know of the rows
    before the numbers. `strata` has the rows of each stratum by the column inside which groups are compared;
    `clusters` is the number of clusters (or of queries), exact below 4,096, where their column is named.
    `sheet` has each column's type, missing cells and dates. `unordered` is the same for the same rows in any
    order: a hint, no evidence. `copied` is what shows that rows are copies, where no column of clusters says
    so.
    """

    sha256: str
    rows: int
    dropped_rows: int
    groups: Mapping[str, Mapping[str, int]]
    label_values: tuple[Any, ...]
    label_range: tuple[float, float] | None
    notes: tuple[str, ...]
    missing: Mapping[str, int] = field(default_factory=dict)
    complete: int = 0
    values: Mapping[str, Mapping[Any, int] | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    joined: Mapping[str, Any] = field(default_factory=dict)
    strata: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clusters: int | None = None
    sheet: Sheet = field(default_factory=Sheet)
    unordered: str = ""
    copied: CopiedRows | None = None
    unlabelled: int = 0
    part_shares: tuple[float, ...] = ()  # of labelled rows in the parts that `labelled` by=COL names


class Tally:
    """What the rows of a part of a table add to the profile; ``+`` joins with the part that comes next."""

    def __init__(
        self,
        columns: Sequence[str],
        roles: Roles,
        bins: Bins,
        *,
        table: str,
        start: int = 0,
        noted: Sequence[str] = (),
        apart: Sequence[str] = (),
        matches: Any = None,
    ) -> None:
        self.roles, self.table = roles, table
        self.digest = TableDigest(columns, start)
        self.copies = RowCopies.of(columns)
        self.sheet = Sheet()
        self.own, self.matches = list(columns), matches
        self.coders = {
            s.name: GroupCoder(bins[s.name], roles.missing, counts_from=roles.counts_from) for s in roles.sensitive
        }
        self.strata = {s.name: GroupCoder(bins[s.name], "group", "stratum") for s in roles.within}
        parts = roles.labelled.columns if roles.labelled is not None and roles.labelled.kind == "by" else ()
        self.parts = [GroupCoder(Sensitive(parts, (None,) * len(parts)), "group", "part") for _ in (0, 1) if parts]
        self.ids, self.unnamed = Repeats(), 0
        self.used, self.complete, self.unlabelled = 0, 0, 0
        self.labels: Counter[Any] = Counter()
        self.noted: dict[str, Counter[Any]] = {name: Counter() for name in noted}
        self.label_low, self.label_high = math.inf, -math.inf
        self.weight_high = 0.0
        self.label_numeric = False
        self._apart, self._known = tuple(apart), tuple(dict.fromkeys([*roles.columns, *noted]))
        self._counting = None if roles.query is not None else self._counter(self._apart or self._known)

    @property
    def units(self) -> str | None:
        """The column whose values are the independent units: clusters, or queries; None: rows are."""
        return self.roles.cluster or self.roles.query

    def digested(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches, each after it was added to the digest."""
        for arrow in batches:
            self.digest.update(arrow if self.matches is None else arrow.select(self.own))
            yield arrow

    def add(self, arrow: pa.RecordBatch) -> None:
        """Add the next rows to all but the digest."""
        names = zip(arrow.schema.names, arrow.columns, strict=True)
        codes = {name: codes for name, column in names if (codes := ready_codes(column)) is not None}
        matching = arrow if self.matches is None else arrow.select(self.own)
        self.copies.update(matching, {name: codes[name] for name in matching.schema.names if name in codes})
        self.sheet.add(arrow)
        if self.matches is not None:
            self.matches = self.matches + self.matches.of(arrow)
        while self._counting is not None and not self._counting.add(arrow, codes):
            self.learn_counted()
            self._counting = None if self._counting.columns == self._known else self._counter(self._known)
        if self._counting is None:
            self._learn(arrow)

    def learn_counted(self) -> None:
        """Learn from the rows that were counted."""
        if self._counting is not None and self._counting.rows:
            self._learn(*self._counting.table())

    @property
    def distinct(self) -> DistinctRows | None:
        """The distinct rows that were asked for, where all rows were counted; else only what is learned is counted."""
        counting = self._counting
        return counting if counting is not None and counting.columns == self._apart else None

    def _counter(self, columns: tuple[str, ...]) -> DistinctRows | None:
        return DistinctRows(columns, self.roles.cluster) if columns else None

    def _learn(self, arrow: pa.RecordBatch, times: NDArray[np.int64] | None = None) -> None:
        """Learn what the columns with a role hold from rows, each of which stands for so many equal ones."""
        keep = present_rows(arrow, [self.roles.weights])
        used = arrow if keep.all() else arrow.filter(as_arrow(keep))
        times = None if times is None else times[keep]
        complete = present_rows(used, self.roles.needed)
        self.used += used.num_rows if times is None else int(times.sum())
        self.complete += rows_where(complete, times)
        for coder in (*self.coders.values(), *self.strata.values()):
            coder.learn(used, times)
        for name, counts in self.noted.items():
            _count(counts, used.column(used.schema.names.index(name)), times)
        if self.units is not None:
            ids = decoded(used.column(used.schema.names.index(self.units)))
            absent = missing_cells(ids)
            self.unnamed += rows_where(absent, times)
            named = ids.filter(as_arrow(~absent)) if absent.any() else ids
            self.ids.update(words_of(named), times if times is None else times[~absent])
        if self.roles.sensitive_probability:
            probabilities_of(used, self.roles, self.table, times)
        if self.roles.label is not None:
            has_label = present_rows(used, [self.roles.label])
            for coder in self.parts[:1]:
                coder.learn(used, times)
            self.unlabelled += rows_where(~has_label, times)
            if not has_label.all():
                used = used.filter(as_arrow(has_label))
            left = times if times is None else times[has_label]
            for coder in self.parts[1:]:
                coder.learn(used, left)
            _count(self.labels, used.column(used.schema.names.index(self.roles.label)), left)
            self._add_label(cells(used, self.roles.label), left)
        if self.roles.weights is not None:
            self._check_weights(cells(used, self.roles.weights), times)

    def __add__(self, right: Tally) -> Tally:
        joined = copy.copy(self)
        for name in ("digest", "copies", "sheet", "used", "complete", "unlabelled", "ids", "unnamed"):
            setattr(joined, name, getattr(self, name) + getattr(right, name))
        joined.matches = None if self.matches is None else self.matches + right.matches
        joined.coders, joined.strata, joined.parts = copy.deepcopy((self.coders, self.strata, self.parts))
        mine, theirs = ([*t.coders.values(), *t.strata.values(), *t.parts] for t in (joined, right))
        for coder, other in zip(mine, theirs, strict=True):
            coder.merge(other)
        joined.labels = _both(self.labels, right.labels)
        joined.noted = {name: _both(counts, right.noted[name]) for name, counts in self.noted.items()}
        joined.label_low = min(self.label_low, right.label_low)
        joined.label_high = max(self.label_high, right.label_high)
        joined.weight_high = max(self.weight_high, right.weight_high)
        joined.label_numeric = self.label_numeric or right.label_numeric
        left, last = self.distinct, right.distinct
        joined._counting = None if left is None or last is None else left + last
        return joined

    def _add_label(self, label: NDArray[Any], times: NDArray[np.int64] | None) -> None:
        if label.dtype.kind in "if" and len(label):
            self.label_numeric = True
            if not np.isfinite(label).all():
                self._refuse_infinite(str(self.roles.label), rows_where(~np.isfinite(label), times))
            self.label_low = min(self.label_low, float(label.min()))
            self.label_high = max(self.label_high, float(label.max()))

    def _check_weights(self, cells: NDArray[Any], times: NDArray[np.int64] | None) -> None:
        name, weights = str(self.roles.weights), as_numbers(cells)
        if weights is None or weights.dtype.kind not in "if":
            raise DataError(f"{self.table}: the weights column {name!r} holds text; weights are numbers")
        if not np.isfinite(weights).all():
            self._refuse_infinite(name, rows_where(~np.isfinite(weights), times))
        if len(weights) and weights.min() < 0:
            raise DataError(
                f"{self.table}: {rows_where(weights < 0, times)} weights in column {name!r} are negative; "
                "weights are 0 or more"
            )
        self.weight_high = max(self.weight_high, float(weights.max(initial=0.0)))

    def _check_weight_scale(self, table: str) -> None:
        """Refuse weights that add up to nothing, or whose cubes no floating-point number holds."""
        name, high = self.roles.weights, self.weight_high
        if name is not None and not high > 0:
            raise DataError(f"{table}: every weight in column {name!r} is 0, so that no row counts")
        if name is not None and not _LEAST_WEIGHT <= high <= _MOST_WEIGHT:
            raise DataError(
                f"{table}: the largest weight in column {name!r} is {high:.3g}; multiply the column by a "
                f"constant so that it is between {_LEAST_WEIGHT:g} and {_MOST_WEIGHT:g}"
            )

    def _refuse_infinite(self, column: str, count: int) -> None:
        raise DataError(
            f"{self.table}: column {column!r} holds {count} infinite numbers; replace them or remove the rows"
        )

    def profile(self, table: str, notes: Sequence[str]) -> Profile:
        """Check the whole table, named `table`, and return its profile; the coders can then encode."""
        if self.digest.rows == 0:
            raise DataError(f"{table} has a header but no rows")
        joined = {} if self.matches is None else self.matches.told(table)
        if self.used == self.unlabelled and self.roles.label is not None:
            raise DataError(
                f"{table}: none of the {self.used} rows has a label; leave `label` out to measure what needs none"
            )
        if self.used == 0:
            raise DataError(f"{table}: none of the {self.digest.rows} rows has a weight")
        self._check_weight_scale(table)
        classes: tuple[Any, ...] = ()
        if len(self.labels) <= MAX_CLASSES:
            classes = tuple(sorted(self.labels, key=lambda v: (isinstance(v, str), v)))
        outcomes = {} if self.roles.label is None else {self.roles.label: self.labels}
        self._check_label(classes, table)
        for coder in (*self.coders.values(), *self.strata.values()):
            coder.finish(table)
        self._check_references(table)
        return Profile(
            sha256=self.digest.hexdigest(),
            rows=self.used,
            dropped_rows=self.digest.rows - self.used,
            groups={name: coder.sizes() for name, coder in self.coders.items()},
            label_values=classes,
            label_range=(self.label_low, self.label_high) if self.label_numeric else None,
            notes=(
                *notes,
                *(
                    f"{coder.joined} groups of {name} are one group, '{SMALL_GROUPS}': groups of fewer than "
                    f"{coder.counts_from} rows have no numbers of their own."
                    for name, coder in self.coders.items()
                    if coder.joined
                ),
            ),
            missing={name: coder.unknown for name, coder in self.coders.items() if coder.unknown},
            complete=self.complete,
            joined=joined,
            warnings=(
                *([] if self.matches is None else self.matches.warnings(table)),
                *self.copies.warnings([str(self.units)]),
                *self._lookalikes(classes),
            ),
            values={n: dict(c) if len(c) <= MAX_CLASSES else None for n, c in {**outcomes, **self.noted}.items()},
            strata={name: coder.sizes() for name, coder in self.strata.items()},
            clusters=self._clusters(table),
            sheet=self.sheet,
            unordered=f"{self.copies.total:016x}",
            copied=self.copies.copied if self.units is None else None,
            unlabelled=self.unlabelled,
            part_shares=self._part_shares(table),
        )

    def _part_shares(self, table: str) -> tuple[float, ...]:
        """Return the share of labelled rows in each part of a `by` design, in the order of its coder's names."""
        if not self.parts:
            return ()
        self.parts[0].finish(table)
        shares = self.parts[0].shares_of(self.parts[1])
        if not shares.all():
            empty = self.parts[0].names[int(np.argmin(shares))]
            raise DataError(
                f"{table}: no row of {empty!r} has an outcome, so that none was drawn there; say `labelled` selective "
                "where nobody drew the rows, or leave these rows out"
            )
        return tuple(shares.tolist())

    def _lookalikes(self, classes: Sequence[Any]) -> list[str]:
        """Say which groups, strata and values of the label look the same and are not."""
        named = {
            c.column: c.ordered() for coder in (*self.coders.values(), *self.strata.values()) for c in coder.columns
        }
        if self.roles.label is not None:
            named[self.roles.label] = [value for value in classes if isinstance(value, str)]
        for name, counts in self.noted.items():
            named.setdefault(name, [value for value in counts if isinstance(value, str)][:MAX_CLASSES])
        return [text for column, names in named.items() for text in lookalikes(column, names)]

    def _clusters(self, table: str) -> int | None:
        if self.units is None:
            return None
        count, role = self.ids.distinct, "cluster" if self.roles.query is None else "query"
        if self.unnamed:
            raise DataError(
                f"{table}: {self.unnamed:,} rows have no value in the `{role}` column {self.units!r}, so that nobody "
                "knows what they depend on; give each one a value, its own where it stands alone"
            )
        if count < 2:
            raise DataError(
                f"{table}: the `{role}` column {self.units!r} has {'one value' if count else 'no values'}: "
                "if all rows depend on each other, nothing can be said about their noise; name another column"
            )
        return count

    def _check_references(self, table: str) -> None:
        for text in self.roles.reference:
            column, group = reference_of(text, list(self.coders))
            names = self.coders[column].names
            if group not in (*names, LARGEST, HIGHEST):
                hint = did_you_mean(group, names, what=f"groups of {column!r}")
                raise DataError(f"{table}: `reference` {text!r} names a group that has no rows. {hint}")

    def _check_label(self, classes: Sequence[Any], table: str) -> None:
        name = self.roles.label
        if name is None:
            return
        if len(classes) == 1:
            raise DataError(
                f"{table}: the label column {name!r} holds one value only, {value_text(classes[0])!r}; "
                "an audit needs rows with different outcomes"
            )
        favorable = self.roles.favorable
        if favorable is None or any(same_value(value, favorable) for value in classes):
            return
        texts = [value_text(value) for value in classes]
        hint = did_you_mean(str(favorable), texts, what=f"values of {name!r}")
        raise DataError(f"{table}: the label column {name!r} never has the favorable value {favorable!r}. {hint}")


def _count(counts: Counter[Any], column: pa.Array, times: NDArray[np.int64] | None) -> None:
    """Count the values of a column, until there are too many; NaN is a missing value."""
    if len(counts) <= MAX_CLASSES:
        codes = codes_of(column)
        cells = codes.cells
        for code, count in zip(*codes.counted(times), strict=True):
            value = cells[code]
            counts[None if isinstance(value, float) and math.isnan(value) else value] += count


def _both(one: Counter[Any], other: Counter[Any]) -> Counter[Any]:
    joined = Counter(one)
    if len(joined) <= MAX_CLASSES:
        joined.update(other)
    return joined


def take_tally(
    source: Source, roles: Roles, bins: Bins, total: Total, noted: Sequence[str] = (), apart: Sequence[str] = ()
) -> Tally:
    """Make the first pass over a table, and again where a column of a CSV file turns out to be wider."""
    tally: Tally = widened(source, lambda: total(tally_of, source, roles, bins, noted, apart))
    return tally


def widened(source: Source, read: Callable[[], Any]) -> Any:
    """Read a table, and again where a column turns out to be wider, or to be left out."""
    while True:
        try:
            return read()
        except DataError as error:
            if not source.widen(f"{error}\n{error.__cause__}"):
                raise


def tally_of(
    source: Source, start: int, roles: Roles, bins: Bins, noted: Sequence[str] = (), apart: Sequence[str] = ()
) -> Tally:
    """Make the first pass over a piece of a table, whose first row is number `start`."""
    source.check_read(roles.audited(noted))
    part = source.parts[0] if source.parts else None
    columns: Sequence[str] = getattr(part, "own", source.columns)  # the digest is that of the table itself
    matches = getattr(part, "matches", None)
    counted = getattr(part, "counted", None)
    tally = Tally(
        columns,
        roles,
        bins,
        table=source.name,
        start=start,
        noted=noted,
        apart=apart if counted is None else (),
        matches=None if matches is None else matches(),
    )
    if counted is not None:  # each row stands for equal ones: what is not in them is known already
        counted(tally)
    batches = source.batches(source.columns, BATCH_ROWS, coded=True)
    for batch in ahead("read", tally.digested(batches), threads(source.parts)):
        tally.add(batch)
    tally.learn_counted()
    return tally


def total_here(function: Callable[..., Any], source: Source, *shared: Any) -> Any:
    """Run a function of a source and its first row on the whole table, in this process."""
    return function(source, 0, *shared)


def choose_bins(source: Source, roles: Roles) -> tuple[Bins, list[str]]:
    """Bin numeric sensitive columns that have many values, at the quartiles of the first rows; say so."""
    bins, notes = {}, []
    for split in (*roles.sensitive, *roles.within):
        binned = split
        for column, edges in zip(split.columns, split.edges, strict=True):
            if edges is not None or str(source.types.get(column)) == "string":
                continue
            found = quartile_edges(_head(source, column), MAX_GROUP_VALUES)
            if found is None:
                continue
            binned = binned.with_edges(column, found)
            shown = ":".join([column, *(value_text(edge) for edge in found)])
            notes.append(f"{split.name}: numeric with many values, binned at the quartiles of its first rows ({shown})")
        bins[split.name] = binned
    return bins, notes


def _head(source: Source, column: str) -> NDArray[Any]:
    """Return a column's first `BATCH_ROWS` cells, however the table is cut."""
    parts, rows = [np.empty(0)], 0
    for batch in source.batches([column], BATCH_ROWS):
        parts.append(cells(batch, column)[: BATCH_ROWS - rows])
        rows += len(parts[-1])
        if rows == BATCH_ROWS:
            break
    return np.concatenate(parts[1:] or parts)
