"""From tables of decisions to counts: one pass, in batches, without keeping rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.roles import Sensitive, require_columns
from fairkit.errors import DataError
from fairkit_watch.settings import POOLED, WatchSettings, read_day
from fairkit_watch.split_codes import SplitCoder
from fairkit_watch.sums import RowSums
from fairkit_watch.totals import Increments, whole
from fairkit_watch.values import UNKNOWN, binary, days_of, text_ids, usable_numbers

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
    """What a table adds."""

    increments: Increments = field(default_factory=dict)  # counts by day, split and group
    rows: int = 0  # how many decisions
    ungrouped: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[pa.Table]] = field(default_factory=dict)


class Counter:
    """Counts tables of decisions."""

    def __init__(self, settings: WatchSettings, *, labels: bool) -> None:
        self.settings, self.labels = settings, labels
        self.later = labels and settings.horizon > 0

    def count(self, source: Source, day: str | None, check_day: Callable[[str], None]) -> Counted:
        """Count a table."""
        columns = self.settings.columns
        fixed = None if day is None or day in source.columns else read_day(day).isoformat()
        labelled = self.labels and (not self.later or columns.label in source.columns)
        named = [day if fixed is None else None, columns.decision, columns.label if labelled else None]
        named.append(columns.id if self.later else None)
        splits = tuple(Sensitive.parse(text, source.columns) for text in self.settings.sensitive)
        keys = tuple(name for name in named if name)
        numbers = [name for name in (columns.weights, columns.score) if name]
        require_columns([*keys, *numbers], source.columns, role="watched", table=source.name)
        everything = tuple(dict.fromkeys([*keys, *(name for split in splits for name in split.columns), *numbers]))
        state = _State(self, source.name, fixed, day, splits, labelled and columns.label is not None)
        for batch in source.batches(everything, ROWS):
            weights = usable_numbers(batch, columns.weights, source.name, "weight", least=0.0)
            score = usable_numbers(batch, columns.score, source.name, "score")
            state.take(batch, RowSums.of_rows(weights, score), check_day)
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
        self.splits = [SplitCoder(split, self.settings.missing) for split in splits]
        self.found = Counted(ungrouped={split.name: 0 for split in splits})

    def take(self, batch: pa.RecordBatch, sums: RowSums, check_day: Callable[[str], None]) -> None:
        """Count one batch of rows."""
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
            batch.column(columns.decision), favorable, self.table, "decision", columns.decision, guessed=guessed
        )
        if (yes == UNKNOWN).any():
            raise DataError(
                f"{self.table}: {int((yes == UNKNOWN).sum()):,} of {n:,} rows have no decision in "
                f"{columns.decision!r}; leave them out"
            )
        outcome = np.full(n, UNKNOWN, np.int64)
        if self.labelled and columns.label:
            outcome = binary(batch.column(columns.label), columns.favorable, self.table, "label", columns.label)
        coded = [(POOLED, [POOLED], np.zeros(n, np.int64))]
        for split in self.splits:
            names, codes = split.codes(batch)
            self.found.ungrouped[split.name] += int((codes < 0).sum())
            coded.append((split.name, names, codes))
        for name, groups, codes in coded:
            self._add(name, groups, codes, days, day_of, (yes, outcome), sums)
        if self.later:
            self._keep(batch, days, day_of, yes, outcome, sums.weights, coded[1:])

    def _add(
        self,
        split: str,
        groups: Sequence[str],
        codes: Codes,
        days: Sequence[str],
        day_of: Codes,
        values: tuple[Codes, Codes],
        sums: RowSums,
    ) -> None:
        """Add one split's counts by day and group."""
        yes, outcome = values
        inside = codes >= 0
        if not inside.all():
            codes, day_of, yes, outcome = codes[inside], day_of[inside], yes[inside], outcome[inside]
            sums = sums.inside(inside)
        index = day_of * len(groups) + codes
        cells = len(days) * len(groups)
        joint = (index * 3 + outcome) * 2 + yes
        counts = np.bincount(joint, sums.weights, cells * 6).reshape(cells, 3, 2)
        squares = moments = None
        if sums.squares is not None:
            squares = np.bincount(joint, sums.squares, cells * 6).reshape(cells, 3, 2)
        if sums.moments is not None:
            moments = np.stack([np.bincount(index, term, cells) for term in sums.moments], axis=1)
        rows = np.bincount(index, minlength=cells)
        for cell in np.flatnonzero(rows).tolist():
            added = _parts(counts[cell], now=self.labels and not self.later)
            if squares is not None:
                doubled = _parts(squares[cell], now=self.labels and not self.later)
                added |= {key * 2: value for key, value in doubled.items()}
            if moments is not None:
                added["m"] = moments[cell]
            added_to = (
                self.found.increments.setdefault(days[cell // len(groups)], {})
                .setdefault(split, {})
                .setdefault(groups[cell % len(groups)], {})
            )
            for key, numbers in added.items():
                added_to[key] = [
                    a + b for a, b in zip(added_to.get(key, [0.0] * len(numbers)), numbers.tolist(), strict=True)
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


def _parts(counts: Array, *, now: bool) -> dict[str, Array]:
    """Return one cell's counts, [outcome 0, 1, unknown][no, yes], as parts; outcomes only if they count now."""
    found = {"d": counts.sum(axis=0)}
    if now:
        found["c"] = counts[:2].ravel()
        if counts[UNKNOWN].any():
            found["u"] = counts[UNKNOWN]
    return found
