"""Copies of rows beyond what a table's own entropy explains: by how often rows occur, and by columns that decide all.

Rows that are drawn independently occur about Poisson-many times each, whatever their distribution: the chance that one
that occurs does so a number of times that d divides has an upper bound (`MOST_DIVISIBLE`), 1/2 for d = 2. And where
different rows hardly ever share a value of some column, rows that are the same in all columns are no coincidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIVISORS = range(2, 65)
# in 1e-5, by divisor from 2 on
_MOST = (
    50051, 33367, 25026, 20369, 17623, 15806, 14505, 13515, 12727, 12079, 11531, 11058, 10644, 10276, 9947, 9648,
    9374, 9126, 8895, 8680, 8482, 8297, 8124, 7960, 7807, 7661, 7525, 7394, 7269, 7152, 7041, 6934, 6832, 6734,
    6639, 6548, 6463, 6381, 6301, 6223, 6149, 6079, 6008, 5941, 5878, 5812, 5754, 5694, 5638, 5582, 5529, 5476,
    5426, 5375, 5329, 5278, 5236, 5190, 5148, 5106, 5061, 5025, 4985,
)  # fmt: skip
MOST_DIVISIBLE = {divisor: 1e-5 * bound for divisor, bound in zip(DIVISORS, _MOST, strict=True)}
"""For each divisor d the largest chance, over all mixtures of Poisson rates, that a count of at least 1 is divisible by
d, times 1.001; the tests compute it."""
FEWEST_ROWS = 10  # different ones
SHARE = 0.01
"""A smaller share of copies changes no interval by more than half of a percent."""
AGREE = 0.9
"""Rows that share a column's value are copies where so large a share of the pairs is the same in all columns."""
_DEVIATIONS = 6.0
"""Standard errors above the bound: one false alarm in more than 10⁷ tables, all divisors together."""


class CopiedRows(NamedTuple):
    """Copies that independent rows do not have."""

    factor: float  # how many rows stand for one: intervals are narrower than they should be by its square root
    reason: str  # what shows it, as the beginning of a sentence

    def bounds(self, value: float) -> dict[str, Any]:
        """Return evidence for a finding: its verdict must hold for the interval of the rows counted once, too."""
        wider = math.sqrt(self.factor)
        return {"low": value, "high": value, "stretch": wider, "reason": self.reason, "binding": True}

    @property
    def sentence(self) -> str:
        """What shows it, and what it does to intervals, without the full stop."""
        return (
            f"Rows are copies of others: {self.reason}. Intervals take all rows for different people, and are about "
            f"{math.sqrt(self.factor):.2g} times too narrow if they are not"
        )

    def told(self, setting: str | None) -> str:
        """Return the sentence of a report."""
        about = "they were said to be independent" if setting else "no verdict depends on them"
        return f"{self.sentence}; {about}."


def copied_rows(counts: NDArray[np.int64], pairs: float, columns: Mapping[str, float]) -> CopiedRows | None:
    """Return what shows that rows were copied; None where nothing does."""
    different, copies = len(counts), 1 - len(counts) / max(int(counts.sum()), 1)
    if different < FEWEST_ROWS or copies < SHARE:
        return None
    for divisor in reversed(DIVISORS):
        share, bound = float((counts % divisor == 0).mean()), MOST_DIVISIBLE[divisor]
        if share > bound + _DEVIATIONS * math.sqrt(bound * (1 - bound) / different):
            return CopiedRows(
                factor=float(divisor),
                reason=f"{share:.0%} of the different rows occur {divisor} times or a multiple of it, and of "
                f"independent rows at most {bound:.0%} do",
            )
    for name, shared in columns.items():
        if shared and pairs / shared > AGREE:
            return CopiedRows(
                factor=float((counts**2).sum() / counts.sum()),
                reason=f"{copies:.0%} of the rows are copies of another one, while different rows hardly ever "
                f"share a value of {name!r}",
            )
    return None
