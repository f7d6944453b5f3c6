"""From tables of decisions to counts: one pass, in batches, without keeping rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_numpy
from fairkit.data.groups import MAX_GROUPS, ColumnCoder
from fairkit.data.roles import MISSING_GROUP, Sensitive, require_columns, same_value, value_text
from fairkit.errors import DataError, ParameterError
from fairkit.intervals import guarded, two_sided
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_watch.judging import Increments, whole
from fairkit_watch.settings import POOLED, WatchSettings, read_day

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
        for day in days:
            check_day(day)
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
    result = {"d": counts.sum(axis=0)}
    if now:
        result["c"] = counts[:2].ravel()
        if counts[UNKNOWN].any():
            result["u"] = counts[UNKNOWN]
    return result


# Cells of tables as days, decisions, outcomes and ids.


UNKNOWN = 2
"""The code of an outcome that is missing."""


def _encoded(column: pa.Array) -> tuple[list[Any], Codes]:
    coded = column.dictionary_encode("encode")
    return coded.dictionary.to_pylist(), as_numpy(coded.indices).astype(np.int64)


def days_of(column: pa.Array, table: str, name: str) -> tuple[list[str], Codes]:
    """Return the days of a column of dates, times, or text that begins with a day, and each row's place in them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        raise DataError(f"{table}: the day column {name!r} holds numbers; it takes dates, such as 2026-11-21")
    if column.null_count:
        raise DataError(
            f"{table}: {column.null_count:,} of {len(column):,} rows have no day in {name!r}; leave them out"
        )
    days, codes = _encoded(pc.utf8_slice_codeunits(column, 0, 10))
    for day in days:
        try:
            read_day(day)
        except ParameterError as error:
            raise DataError(f"{table}: the day column {name!r} holds {error}") from None
    return days, codes


def binary(column: pa.Array, favorable: Any, table: str, what: str, name: str, *, guessed: bool = False) -> Codes:
    """Return 1 for the favorable value, 0 for others, `UNKNOWN` for missing ones, shape [n]."""
    values, codes = _encoded(column)
    missing = [value is None or value_text(value) == MISSING_GROUP for value in values]
    present = [value for value, gone in zip(values, missing, strict=True) if not gone]
    flags = all(any(same_value(value, flag) for flag in (0, 1)) for value in present)
    if guessed and flags:
        if favorable is not None and same_value(favorable, 0):
            raise DataError(
                f"{table}: is 0 or 1 the favorable decision in {name!r}? The favorable label is "
                f"{value_text(favorable)!r}; say which decision is: `favorable_decision`"
            )
        favorable = True
    hint = "favorable_decision" if what == "decision" else "favorable"
    if favorable is None:
        favorable = True
        if not flags:
            example = next(v for v in present if not any(same_value(v, flag) for flag in (0, 1)))
            raise DataError(
                f"{table}: the {what} column {name!r} holds {value_text(example)!r}, not only 1 and 0; say which value "
                f"is favorable: `{hint}`"
            )
    if len(present) > 1 and not any(same_value(value, favorable) for value in present):
        shown = " and ".join(repr(value_text(value)) for value in present[:3])
        raise DataError(
            f"{table}: the {what} column {name!r} holds {shown}, but never {value_text(favorable)!r}; say which value "
            f"is favorable: `{hint}`"
        )
    if len(present) > 100:
        raise DataError(
            f"{table}: the {what} column {name!r} has {len(present):,} values; it holds decisions or outcomes, "
            "such as 1 and 0"
        )
    found = np.array(
        [UNKNOWN if gone else int(same_value(v, favorable)) for v, gone in zip(values, missing, strict=True)] or [0]
    )
    return found[codes]


def text_ids(column: pa.Array, table: str, name: str) -> pa.Array:
    """Return ids as text, so that those of decisions and of labels meet."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise DataError(f"{table}: {column.null_count:,} of {len(column):,} rows have no id in {name!r}")
    if pa.types.is_floating(column.type):
        values = as_numpy(column)
        if not np.array_equal(values, np.round(values)):
            raise DataError(f"{table}: the id column {name!r} holds fractions; ids are text or whole numbers")
        column = pc.cast(column, pa.int64())
    return pc.cast(column, pa.string())


def usable_numbers(
    batch: pa.RecordBatch, column: str | None, table: str, what: str, least: float = -np.inf
) -> NDArray[np.float64] | None:
    """Return a column of weights or scores as doubles, shape [n]; None where no column is named."""
    if column is None:
        return None
    values = as_numpy(batch.column(column))
    if values.dtype.kind not in "ifb":
        raise DataError(f"{table}: the {what} column {column!r} holds text; it takes numbers")
    values = values.astype(np.float64)
    bad = ~np.isfinite(values) | (values < least)
    if bad.any():
        raise DataError(
            f"{table}: {int(bad.sum()):,} of {len(values):,} rows have no usable {what} in {column!r}; leave them out"
        )
    return values


# A gap in selection rates from totals alone: the parts of base rates, true and false positive rates.


NAMES = ("base_rate_part", "true_positive_rate_part", "false_positive_rate_part")


@dataclass(frozen=True, slots=True)
class Cells:
    """A group's shares of (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes), and how many rows."""

    counts: Array  # shape [4]; under weights scaled to the effective number of rows

    def rates(self, added: float = 0.0) -> Array:
        """Return π, t, f, shape [3], with so much added to every cell; NaN where a rate is over no rows."""
        no_no, no_yes, yes_no, yes_yes = self.counts + added
        with np.errstate(all="ignore"):
            return np.array([
                (yes_no + yes_yes) / (self.counts.sum() + 4 * added),
                yes_yes / (yes_no + yes_yes),
                no_yes / (no_no + no_yes),
            ])  # fmt: skip

    def variances(self, added: float) -> Array:
        """Return the variances of π, t, f."""
        rates = self.rates(added)
        positives = self.counts[2] + self.counts[3] + 2 * added
        negatives = self.counts[0] + self.counts[1] + 2 * added
        over = np.array([positives + negatives, positives, negatives])
        return np.asarray(rates * (1 - rates) / over)


def divided(a: Array, b: Array) -> Array:
    """Return the three parts of ``s_a - s_b`` from π, t, f of both groups, shape [3]."""
    (pi, t, f), (d_pi, d_t, d_f) = (a + b) / 2, a - b
    return np.array([d_pi * (t - f), d_t * pi, d_f * (1 - pi)])


def gradients(a: Array, b: Array) -> tuple[Array, Array]:
    """Return how the three parts change with π, t, f of a and of b, shapes [3, 3]."""
    (pi, t, f), (d_pi, d_t, d_f) = (a + b) / 2, a - b
    half = np.array([[0.0, d_pi / 2, -d_pi / 2], [d_t / 2, 0.0, 0.0], [-d_f / 2, 0.0, 0.0]])
    scale = np.diag([t - f, pi, 1 - pi])
    return half + scale, half - scale


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts with their intervals."""

    values: Array  # from the raw counts, so that they add up to the gap; shape [3]
    middles: Array  # with half a count in every cell, shape [3]
    errors: Array  # their standard errors, shape [3]

    def less(self, former: Parts) -> Parts:
        """Return how the parts changed since another period, of other rows."""
        return Parts(self.values - former.values, self.middles - former.middles, np.hypot(self.errors, former.errors))

    def interval(self, place: int, confidence: float) -> tuple[float, float]:
        """Return a part's interval, which contains its value."""
        z = two_sided(guarded(confidence))
        middle, half, value = self.middles[place], z * self.errors[place], self.values[place]
        return float(min(middle - half, value)), float(max(middle + half, value))


def parts_of(cells: tuple[Cells, Cells], design: Sequence[float] = (1.0, 1.0, 1.0)) -> Parts:
    """Divide a gap."""
    a, b = (cell.rates(0.5) for cell in cells)
    by_a, by_b = gradients(a, b)
    variance = by_a**2 @ cells[0].variances(0.5) + by_b**2 @ cells[1].variances(0.5)
    raw = divided(cells[0].rates(), cells[1].rates())
    return Parts(raw, divided(a, b), np.sqrt(variance * np.asarray(design)))


# The groups of one way to split people, as small whole numbers.


class SplitCoder:
    """Codes one split's groups, numbered as they appear; -1 where a row has none."""

    def __init__(self, split: Sensitive, missing: str) -> None:
        self.name, self.missing = split.name, missing
        self.columns = [ColumnCoder(c, e) for c, e in zip(split.columns, split.edges, strict=True)]
        self.places: dict[str, int] = {}

    def codes(self, batch: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
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
            names_here = [name[i] for name, i in zip(names, np.unravel_index(cell, shape), strict=True)]
            if self.missing == "drop" and MISSING_GROUP in names_here:
                continue
            lookup[cell] = self.places.setdefault(" & ".join(names_here), len(self.places))
        return list(self.places), lookup[joint]


# What rows add to the counts of a watch.


MOMENTS = 5
"""Sums that the mean of a score needs: Σw, Σw², Σwx, Σw²x, Σw²x²."""


@dataclass(frozen=True, slots=True)
class RowSums:
    """What each row adds to the sums."""

    weights: Array | None = None  # w, shape [n]; None where decisions have none
    squares: Array | None = None  # w², shape [n]
    moments: tuple[Array, ...] | None = None

    @classmethod
    def of_rows(cls, weights: Array | None, score: Array | None) -> RowSums:
        """Return the sums of single rows."""
        squares = None if weights is None else weights**2
        if score is None:
            return cls(weights, squares)
        w = np.ones_like(score) if weights is None else weights
        return cls(weights, squares, (w, w**2, w * score, w**2 * score, w**2 * score**2))

    def inside(self, chosen: NDArray[np.bool_]) -> RowSums:
        """Return the sums of some of the rows."""
        weights, squares = (None if values is None else values[chosen] for values in (self.weights, self.squares))
        moments = None if self.moments is None else tuple(moment[chosen] for moment in self.moments)
        return RowSums(weights, squares, moments)
