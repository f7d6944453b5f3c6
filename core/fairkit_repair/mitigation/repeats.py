"""Retraining: how far the numbers go when the same method is trained again on rows drawn anew, with another seed.

The intervals of an audit are about the rows that a model is measured on, with the model held fixed. What another
training would give is in none of them. Here the training rows are drawn anew with replacement (a bootstrap) for each
repeat, and the test rows stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import FairkitError, ParameterError
from fairkit.settings import DEFAULT_AUDITORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairkit.data.table import Table
    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One number over several trainings."""

    metric: str  # as in the finding
    sensitive: str | None  # as in the finding
    values: tuple[float, ...]  # the saved model's first, then those of the models trained again

    @property
    def deviation(self) -> float:
        """The standard deviation over trainings."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            "values": list(self.values),
            "mean": float(np.mean(self.values)),
            "standard_deviation": self.deviation,
            "low": min(self.values),
            "high": max(self.values),
        }


def check_repeats(repeats: int) -> None:
    """Refuse a number of trainings that cannot be."""
    if repeats < 1:
        raise ParameterError(f"repeats={repeats} is below 1; 1 trains once, 5 shows how far retraining goes")


def drawn_anew(table: Table, seed: int) -> Table:
    """Return as many rows, drawn with replacement."""
    rng = np.random.default_rng([seed, *b"repeats"])
    return table.take(rng.integers(0, len(table), len(table)))


def retrained(
    repeats: int, seed: int, table: Table, first: Report, train: Callable[[Table, int], Report]
) -> tuple[tuple[Repeated, ...], tuple[str, ...]]:
    """Train again and again."""
    reports, notes = [first], []
    for turn in range(1, repeats):
        try:
            reports.append(train(drawn_anew(table, seed + turn), seed + turn))
        except FairkitError as error:
            notes.append(f"Training {turn + 1} of {repeats}, on rows drawn anew, failed: {error}")
    return (gathered(reports) if len(reports) > 1 else ()), tuple(notes)


def gathered(reports: Sequence[Report]) -> tuple[Repeated, ...]:
    """Return every group metric that all reports have, over all classes."""
    tables = [
        {
            (f.metric, f.sensitive): f.value
            for f in report.findings
            if f.auditor in DEFAULT_AUDITORS and f.value is not None and "class" not in f.parameters
        }
        for report in reports
    ]
    return tuple(
        Repeated(metric=metric, sensitive=sensitive, values=tuple(table[metric, sensitive] for table in tables))
        for metric, sensitive in tables[0]
        if all((metric, sensitive) in table for table in tables)
    )
