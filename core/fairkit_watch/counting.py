"""From tables of decisions to counts: one pass, in batches, without keeping rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.groups import MAX_GROUPS, ColumnCoder
from fairkit.data.roles import MISSING_GROUP, Sensitive, require_columns
from fairkit.errors import DataError
from fairkit_watch.settings import POOLED, WatchSettings, read_day
from fairkit_watch.totals import Increments, whole
from fairkit_watch.values import UNKNOWN, binary, days_of, text_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.source import Source

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]

ROWS = 262_144
"""Rows of one batch."""


@dataclass(slots=True)
class Counted:
    """What a table adds.

    Attributes
    ----------
    increments
        Counts by day, split and group.
    rows
        How many decisions.
    ungrouped
        By split: the rows without a sensitive value, where such rows are left out.
    pending
        By day: tables with the rows whose outcome comes later.
    """

    increments: Increments = field(default_factory=dict)
    rows: int = 0
    ungrouped: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[pa.Table]] = field(default_factory=dict)


class Counter:
    """Counts tables of decisions.

    Parameters
    ----------
    settings
        Of the watch.
    labels
        Whether outcomes are needed at all.
    """

    def __init__(self, settings: WatchSettings, *, labels: bool) -> None:
        self.settings, self.labels = settings, labels
        self.later = labels and settings.horizon > 0

    def count(self, source: Source, day: str | None, check_day: Callable[[str], None]) -> Counted:
        """Count a table.

        Parameters
        ----------
        source
            The table.
        day
            A column's name, or one day for all rows.
        check_day
            Raises where a day is out of the period.

        Raises
        ------
        DataError
            A column is missing, or a value cannot be used; the message says which, and in how many rows.
        """
        columns = self.settings.columns
        fixed = None if day is None or day in source.columns else read_day(day).isoformat()
        named = [day if fixed is None else None, columns.decision, columns.score, columns.weights]
        if self.labels and columns.label in source.columns:
            named.append(columns.label)
        if self.labels and not self.later:
            named.append(columns.label)
        if self.later:
            named.append(columns.id)
        splits = [Sensitive.parse(text, source.columns) for text in self.settings.sensitive]
        wanted = [name for name in dict.fromkeys(named) if name]
        require_columns(wanted, source.columns, role="watched", table=source.name)
        state = _State(self, source.name, fixed, day, splits, self.labels and columns.label in wanted)
        everything = list(dict.fromkeys([*wanted, *(c for split in splits for c in split.columns)]))
        for batch in source.batches(everything, ROWS):
            state.take(batch, check_day)
        if fixed is not None and fixed not in state.found.increments:
            check_day(fixed)
            state.found.increments[fixed] = {POOLED: {POOLED: {"d": [0, 0]}}}
        state.found.increments = whole(state.found.increments)
        return state.found


class _State:
    """Counting of one table."""

    def __init__(
        self,
        counter: Counter,
        table: str,
        fixed: str | None,
        day: str | None,
        splits: Sequence[Sensitive],
        labelled: bool,
    ) -> None:
        self.settings, self.labels, self.later = counter.settings, counter.labels, counter.later
        self.table, self.fixed, self.day, self.labelled = table, fixed, day, labelled
        self.splits = [_SplitCoder(split, self.settings.missing) for split in splits]
        self.found = Counted(ungrouped={split.name: 0 for split in splits})

    def take(self, batch: pa.RecordBatch, check_day: Callable[[str], None]) -> None:
        """Count one batch."""
        n = batch.num_rows
        if n == 0:
            return
        self.found.rows += n
        columns = self.settings.columns
        if self.fixed is not None:
            days, day_of = [self.fixed], np.zeros(n, np.int64)
        else:
            days, day_of = days_of(batch.column(self.day), self.table, str(self.day))
        for one in days:
            check_day(one)
        favorable = columns.favorable if columns.favorable_decision is None else columns.favorable_decision
        guessed = columns.favorable_decision is None
        yes = binary(
            batch.column(columns.decision),
            favorable,
            self.table,
            "decision",
            columns.decision,
            guessed=guessed,
        )
        if (yes == UNKNOWN).any():
            raise DataError(
                f"{self.table}: {int((yes == UNKNOWN).sum()):,} of {n:,} rows have no decision in "
                f"{columns.decision!r}; "
                "leave them out"
            )
        outcome = np.full(n, UNKNOWN, np.int64)
        if self.labelled and columns.label:
            outcome = binary(
                batch.column(columns.label), columns.favorable, self.table, "label", columns.label
            )
        weights = self._numbers(batch, columns.weights, "weight", least=0.0)
        score = self._numbers(batch, columns.score, "score")
        coded = [(POOLED, [POOLED], np.zeros(n, np.int64))]
        for split in self.splits:
            names, codes = split.codes(batch)
            self.found.ungrouped[split.name] += int((codes < 0).sum())
            coded.append((split.name, names, codes))
        for name, groups, codes in coded:
            self._add(name, groups, codes, days, day_of, (yes, outcome, weights, score))
        if self.later:
            self._keep(batch, days, day_of, yes, outcome, weights, coded[1:])

    def _numbers(
        self, batch: pa.RecordBatch, column: str | None, what: str, least: float = -np.inf
    ) -> Array | None:
        if column is None:
            return None
        values = as_numpy(batch.column(column))
        if values.dtype.kind not in "ifb":
            raise DataError(f"{self.table}: the {what} column {column!r} holds text; it takes numbers")
        values = values.astype(np.float64)
        bad = ~np.isfinite(values) | (values < least)
        if bad.any():
            raise DataError(
                f"{self.table}: {int(bad.sum()):,} of {len(values):,} rows have no usable {what} in {column!r}; "
                "leave them out"
            )
        return values

    def _add(
        self,
        split: str,
        groups: Sequence[str],
        codes: Codes,
        days: Sequence[str],
        day_of: Codes,
        values: tuple[Codes, Codes, Array | None, Array | None],
    ) -> None:
        """Add one split's counts by day and group."""
        yes, outcome, weights, score = values
        inside = codes >= 0
        if not inside.all():
            codes, day_of, yes, outcome = codes[inside], day_of[inside], yes[inside], outcome[inside]
            weights = None if weights is None else weights[inside]
            score = None if score is None else score[inside]
        index = day_of * len(groups) + codes
        cells = len(days) * len(groups)
        counts = np.bincount((index * 3 + outcome) * 2 + yes, weights, cells * 6).reshape(cells, 3, 2)
        squares = None
        if weights is not None:
            squares = np.bincount((index * 3 + outcome) * 2 + yes, weights**2, cells * 6).reshape(cells, 3, 2)
        moments = None if score is None else _moments(index, cells, score, weights)
        rows = np.bincount(index, minlength=cells)
        for cell in np.flatnonzero(rows).tolist():
            added = _parts(counts[cell], now=self.labels and not self.later)
            if squares is not None:
                doubled = _parts(squares[cell], now=self.labels and not self.later)
                added |= {key * 2: value for key, value in doubled.items()}
            if moments is not None:
                added["m"] = moments[cell]
            sums = (
                self.found.increments.setdefault(days[cell // len(groups)], {})
                .setdefault(split, {})
                .setdefault(groups[cell % len(groups)], {})
            )
            for key, numbers in added.items():
                sums[key] = [
                    a + b for a, b in zip(sums.get(key, [0.0] * len(numbers)), numbers.tolist(), strict=True)
                ]

    def _keep(
        self,
        batch: pa.RecordBatch,
        days: Sequence[str],
        day_of: Codes,
        yes: Codes,
        outcome: Codes,
        weights: Array | None,
        coded: Sequence[tuple[str, list[str], Codes]],
    ) -> None:
        """Keep what is needed until the outcome is known: id, groups, decision; nothing else."""
        import pyarrow as pa

        ids = text_ids(batch.column(self.settings.columns.id), self.table, str(self.settings.columns.id))
        columns = {"id": ids, "decision": pa.array(yes == 1), "label": pa.array(outcome.astype(np.int8))}
        if weights is not None:
            columns["weight"] = pa.array(weights)
        for i, (_, names, codes) in enumerate(coded):
            places = pa.array(codes.astype(np.int32), mask=codes < 0)
            columns[f"group{i}"] = pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string()))
        table = pa.table(columns)
        for number, day in enumerate(days):
            part = table if len(days) == 1 else table.filter(pa.array(day_of == number))
            if part.num_rows:
                self.found.pending.setdefault(day, []).append(part)


class _SplitCoder:
    """Codes one split's groups, numbered as they appear; -1 where a row has none."""

    def __init__(self, split: Sensitive, missing: str) -> None:
        self.name, self.missing = split.name, missing
        self.columns = [ColumnCoder(c, e) for c, e in zip(split.columns, split.edges, strict=True)]
        self.places: dict[str, int] = {}

    def codes(self, batch: pa.RecordBatch) -> tuple[list[str], Codes]:
        """Return the groups' names so far, and each row's place among them."""
        parts = [column.codes(batch) for column in self.columns]
        shape = [len(column.index) for column in self.columns]
        joint = np.ravel_multi_index(parts, shape)
        size = int(np.prod(shape))
        if size > MAX_GROUPS * 10:
            raise DataError(
                f"the sensitive column {self.name!r} has more than {MAX_GROUPS:,} groups; is it an identifier? "
                "Bin it (column:edge:edge) or leave it out"
            )
        names = [list(column.index) for column in self.columns]
        lookup = np.full(size, -1, np.int64)
        for cell in np.flatnonzero(np.bincount(joint, minlength=size)).tolist():
            own = [name[i] for name, i in zip(names, np.unravel_index(cell, shape), strict=True)]
            if self.missing == "drop" and MISSING_GROUP in own:
                continue
            lookup[cell] = self.places.setdefault(" & ".join(own), len(self.places))
        return list(self.places), lookup[joint]


def _parts(counts: Array, *, now: bool) -> dict[str, Array]:
    """Return one cell's counts, [outcome 0, 1, unknown][no, yes], as parts; outcomes only if they count now."""
    found = {"d": counts.sum(axis=0)}
    if now:
        found["c"] = counts[:2].ravel()
        if counts[UNKNOWN].any():
            found["u"] = counts[UNKNOWN]
    return found


def _moments(place: Codes, cells: int, score: Array, weights: Array | None) -> Array:
    w = np.ones_like(score) if weights is None else weights
    terms = (w, w**2, w * score, w**2 * score, w**2 * score**2)
    return np.stack([np.bincount(place, term, cells) for term in terms], axis=1)
