"""What keeps a verdict from being made on a number of groups: few rows, no value, an interval in doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fairkit.metrics import Estimate


@dataclass(frozen=True, slots=True)
class Caveats:
    """The groups that an estimate is about."""

    names: list[str]  # of the groups; one group that is called all where there is no sensitive column
    rows: list[int]  # of the groups; one group that is called all where there is no sensitive column
    least: int  # with fewer rows a group makes a finding inconclusive
    grouped: bool  # whether there is a sensitive column

    def of(self, estimate: Estimate) -> tuple[list[str], str | None]:
        """Say which groups are small, have no value or an interval in doubt, and whether a verdict must wait."""
        notes = [*self._small(estimate), *self._doubted(estimate)]
        undefined = [self.names[i] for i in np.flatnonzero(~np.isfinite(estimate.values))]
        if undefined and self.grouped:
            notes.append(
                f"Not defined, and left out of the comparison: {_some(undefined)} (no rows that the rate is over)."
            )
        return [*estimate.notes, *notes], " ".join(notes) or None

    def _small(self, estimate: Estimate) -> list[str]:
        """Name the groups with too few rows, in all or in the number's denominator."""
        least = self.least
        sizes = [float(rows) for rows in self.rows]
        if estimate.sizes is not None:
            known = np.where(np.isfinite(estimate.sizes), np.round(estimate.sizes, 6), np.inf)
            sizes = [min(rows, float(size)) for rows, size in zip(sizes, known, strict=True)]
        if not self.grouped:
            short, rows = sizes[0] < least, self.rows[0]
            of = "" if rows < least else f" of {rows}, that the number is over (effective ones under weights)"
            return [f"There are {min(sizes[0], rows):.0f} rows only{of} (min_group is {least})."] if short else []
        few = [i for i, rows in enumerate(self.rows) if rows < least]
        thin = [
            i for i, size in enumerate(sizes) if size < least and i not in few and math.isfinite(estimate.values[i])
        ]
        notes = []
        if few:
            notes.append(
                f"Groups with fewer than {least} rows: {_some([f'{self.names[i]} ({self.rows[i]})' for i in few])}."
            )
        if thin:
            shown = _some([f"{self.names[i]} ({sizes[i]:.0f} of {self.rows[i]})" for i in thin])
            notes.append(
                f"Groups with fewer than {least} rows that the number is over (effective ones under weights): {shown}."
            )
        return notes

    def _doubted(self, estimate: Estimate) -> list[str]:
        """Say whose interval is not to be trusted, and why."""
        reasons: dict[str, list[str]] = {}
        for place, reason in estimate.doubts.items():
            reasons.setdefault(reason, []).append(self.names[place])
        where = "The interval of {} is" if self.grouped else ""
        start = where or "The interval is"
        return [
            f"{start.format(_some(names))} not trusted: {reason}; no verdict is made from it."
            for reason, names in reasons.items()
        ]


def _some(names: Sequence[str]) -> str:
    """Return up to five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
