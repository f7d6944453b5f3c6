"""Copies of rows beyond what a table's own entropy explains: by how often rows occur, and by columns that decide all.

Rows that are drawn independently occur about Poisson-many times each, whatever their distribution: n p of a row with
probability p. So, given that it occurs, the chance that a row occurs a number of times that d divides has an upper
bound that no distribution exceeds (`most_divisible`); for d = 2 it is 1/2. And where different rows hardly ever share
a value of some column, rows that are the same in all columns are no coincidence either.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIVISORS = range(2, 65)
FEWEST_ROWS = 10
"""So many different rows, at least, for a statement about how often they occur."""
SHARE = 0.01
"""A smaller share of copies changes no interval by more than half of a percent."""
AGREE = 0.9
"""Rows that share a column's value are copies where so large a share of the pairs is the same in all columns."""
_DEVIATIONS = 6.0
"""Standard errors above the bound: one false alarm in more than 10⁷ tables, all divisors together."""


class Occurrences(Protocol):
    """How often things occur, in a sample of them: see `fairkit.data.repeats.Repeats`."""

    counts: NDArray[np.int64]
    shift: int

    @property
    def copies(self) -> float:
        """The share that repeats an earlier one."""


class CopiedRows(NamedTuple):
    """Copies that independent rows do not have.

    Attributes
    ----------
    factor
        How many rows stand for one: intervals are narrower than they should be by its square root.
    reason
        What shows it, as the beginning of a sentence.
    """

    factor: float
    reason: str


@functools.cache
def most_divisible(divisor: int) -> float:
    """Return the largest chance, over all Poisson rates, that a count is divisible by d, given that it is at least 1.

    A mixture of rates has no larger one. The chance is smooth in the rate; a grid with steps of 1 % of it is taken.
    """
    rates = np.exp(np.linspace(math.log(1e-3), math.log(4.0 * divisor + 40), 1_200))
    counts = np.arange(1, int(rates[-1] + 12 * math.sqrt(rates[-1])) + 40)
    logs = counts * np.log(rates)[:, None] - rates[:, None] - np.array([math.lgamma(k + 1) for k in counts])
    chances = np.exp(logs)
    inside = chances[:, counts % divisor == 0].sum(axis=1) / -np.expm1(-rates)
    return float(inside.max() * 1.001)


def copied_rows(whole: Occurrences, columns: Mapping[str, Occurrences]) -> CopiedRows | None:
    """Return what shows that rows were copied; None where nothing does.

    Parameters
    ----------
    whole
        How often each row occurs.
    columns
        How often each value of a column occurs, for columns with about as many values as there are different rows.
    """
    different = len(whole.counts)
    if different < FEWEST_ROWS or whole.copies < SHARE:
        return None
    for divisor in reversed(DIVISORS):
        share, bound = float((whole.counts % divisor == 0).mean()), most_divisible(divisor)
        if share > bound + _DEVIATIONS * math.sqrt(bound * (1 - bound) / different):
            return CopiedRows(
                factor=float(divisor),
                reason=f"{share:.0%} of the different rows occur {divisor} times or a multiple of it, and of "
                f"independent rows at most {bound:.0%} do",
            )
    for name, values in columns.items():
        pairs = _pairs(values)
        agree = _pairs(whole) / pairs if pairs else 0.0
        if agree > AGREE:
            return CopiedRows(
                factor=float((whole.counts**2).sum() / whole.counts.sum()),
                reason=f"{whole.copies:.0%} of the rows are copies of another one, while different rows hardly ever "
                f"share a value of {name!r}",
            )
    return None


def _pairs(counted: Occurrences) -> float:
    """Return how many pairs are the same, estimated from the sample that was kept."""
    counts = counted.counts.astype(np.float64)
    return float((counts * (counts - 1)).sum()) / 2 * 2.0**counted.shift
