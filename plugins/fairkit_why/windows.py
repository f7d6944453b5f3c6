"""The change of a gap between two tables: who applies, what happens to people who are alike, and another model.

With G(t, f) the gap of model f on table t the change G(1, 1) - G(0, 0) is the sum of

    rows:   ½ [G(1, 0) - G(0, 0) + G(1, 1) - G(0, 1)]
    model:  ½ [G(0, 1) - G(0, 0) + G(1, 1) - G(1, 0)]

and what rows carry, or a gap in outcomes, is divided in each group by the table's rows as "group" and "reference": what
is left between people who are alike in columns, and the rest, which is who applies.
"""

from __future__ import annotations

from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING

import numpy as np

from fairkit_why.changes import change_of
from fairkit_why.comparison import FEWEST
from fairkit_why.gaps import Why
from fairkit_why.parameters import allowed_columns
from fairkit_why.people import People
from fairkit_why.unexplained import Comparison, unexplained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.results.comparisons import Change
    from fairkit_why.comparison import Pair
    from fairkit_why.parameters import Parameters
    from fairkit_why.people import Collected

    Array = NDArray[np.float64]

MOST_ROWS = 100_000
"""Rows of either table on which people who are alike are compared: of more, the first by hash."""


class Windows:
    """Two tables, and one model or each table's own."""

    def __init__(
        self, chosen: Parameters, totals: Sequence[Sequence[Collected]], contexts: Sequence[Sequence[AuditContext]]
    ) -> None:
        self.chosen, self.contexts = chosen, contexts
        self.people = [[People(total) for total in row] for row in totals]
        self.why = [Why(chosen, contexts[t][0], self.people[t][0]) for t in (0, 1)]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """In which people are alike."""
        context = self.contexts[0][0]
        sensitive = {column for split in context.dataset.roles.sensitive for column in split.columns}
        read = () if self.why[0].recorded else context.scorer.columns
        return allowed_columns(self.chosen, context) or tuple(name for name in read if name not in sensitive)

    def changes(self) -> Iterator[Change]:
        """Yield the change of every gap and its parts."""
        first = self.why[0].pairs()
        later = {(p.sensitive, p.group, p.reference): p for p in self.why[1].pairs(first)}
        number = "score" if self.contexts[0][0].scorer.task == "regression" else "decision"
        for pair in first:
            other = later.get((pair.sensitive, pair.group, pair.reference))
            if other is not None and min(len(r) for p in (pair, other) for r in p.rows) >= FEWEST:
                yield from self._of_number((pair, other), number)
                yield from self._of_outcomes((pair, other))

    def _said(self, table: int, name: str) -> list[Array] | None:
        """Return each model's predictions for a table's rows, in the order of the first model's people."""
        people = self.people[table]
        values = [one.number(name) for one in people]
        if any(one is None for one in values):
            return None
        ordered = [p.in_table_order(v) for p, v in zip(people, values, strict=True) if v is not None]
        return [one[people[0].order] for one in ordered]

    def _of_number(self, pairs: tuple[Pair, Pair], name: str) -> Iterator[Change]:
        said = [self._said(table, name) for table in (0, 1)]
        if said[0] is None or said[1] is None:
            return
        of = "prediction" if name == "score" else "decision"
        old, new = said[0][0], said[1][-1]
        before, after = self._gap(pairs[0], old), self._gap(pairs[1], new)
        yield change_of(pairs[0], before[0], after[0], hypot(before[1], after[1]), of=of)
        middle = [np.mean(one, axis=0) for one in (said[0], said[1])]
        yield from self._rows(pairs, middle, of, "decided" if of == "decision" else "predicted")
        if len(said[0]) > 1:
            moved = [self._gap(p, s[1] - s[0]) for p, s in zip(pairs, said, strict=True) if s is not None]
            half = hypot(moved[0][1], moved[1][1]) / 2
            yield change_of(pairs[0], 0.0, (moved[0][0] + moved[1][0]) / 2, half, of=of, part="the model")

    def _of_outcomes(self, pairs: tuple[Pair, Pair]) -> Iterator[Change]:
        """Divide the change of the gap in outcomes, where both tables have them."""
        values = [self.people[table][0].number("outcome") for table in (0, 1)]
        if values[0] is None or values[1] is None:
            return
        ends = [self._gap(p, v) for p, v in zip(pairs, values, strict=True) if v is not None]
        yield change_of(pairs[0], ends[0][0], ends[1][0], hypot(ends[0][1], ends[1][1]), of="outcome")
        yield from self._rows(pairs, [v for v in values if v is not None], "outcome", "the outcome")

    def _rows(self, pairs: tuple[Pair, Pair], values: Sequence[Array], of: str, what: str) -> Iterator[Change]:
        """Yield what rows carry: who applies, and where it can be told, what happens to people who are alike."""
        ends = [self._gap(pair, value) for pair, value in zip(pairs, values, strict=True)]
        whole, half = ends[1][0] - ends[0][0], hypot(ends[0][1], ends[1][1])
        # what a model decides is a function of the rows: only between people alike in some columns can it differ
        told = bool(self.chosen.allowed) or of == "outcome" or self.why[0].recorded
        alike = self._alike(pairs, values) if told and self.columns else None
        if alike is None:
            yield change_of(pairs[0], 0.0, whole, half, of=of, part="the rows" if told else "who applies")
            return
        yield change_of(pairs[0], 0.0, whole - alike[0], alike[2], of=of, part="who applies")
        yield change_of(pairs[0], 0.0, alike[0], alike[1], of=of, part=f"{what} given the rows")

    def _gap(self, pair: Pair, values: Array) -> tuple[float, float]:
        """Return the gap of numbers of all rows of a table, and its half width."""
        confidence = self.contexts[0][0].confidence
        gap, _, noise = pair.gap((values[pair.rows[0]], values[pair.rows[1]]), 1.0)
        return gap, float(noise.half_width(confidence)[0])

    def _alike(self, pairs: tuple[Pair, Pair], values: Sequence[Array]) -> tuple[float, float, float] | None:
        """Return the change of the gap between people who are alike, its half width, and that of the rest.

        None where people have no counterpart.
        """
        parts = []
        for side in (0, 1):
            rows = [pair.rows[side][:MOST_ROWS] for pair in pairs]
            tables = [(self.people[t][0], mine, values[t][mine]) for t, mine in enumerate(rows)]
            later = np.repeat([False, True], [len(mine) for mine in rows])
            names = "the later table", "the earlier table"
            remainder = unexplained(Comparison.of(tables, later, self.columns, names)).toward_group
            if remainder.refused is not None:
                return None
            low, high = remainder.interval(self.contexts[0][0].confidence)
            half = (high - low) / 2
            parts.append((remainder.value, half, half * remainder.explained / remainder.error))
        first, second = parts
        return first[0] - second[0], hypot(first[1], second[1]), hypot(first[2], second[2])
