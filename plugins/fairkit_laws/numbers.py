"""Numbers that the laws and the courts use, from counts: impact ratios, exact tests, standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairkit.errors import MissingExtraError

MOST_BOSCHLOO = 250_000
"""Boschloo's test is computed up to so many tables of two groups (their rows multiplied); it takes long for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A group against the reference."""

    ratio: float | None  # rate over the reference's rate; None where that is 0
    interval: tuple[float, float] | None  # of the ratio, at the report's confidence; None where a group has no interval
    fisher: float  # two-sided p-values; `boschloo` is None for large groups
    boschloo: float | None  # two-sided p-values; `boschloo` is None for large groups
    deviations: float | None
    more: int  # how many more selections of the group would lift the ratio to four fifths, the others kept


def ratio(rate: float, reference: float) -> float | None:
    """Return a rate over another; None where that is 0."""
    return None if reference == 0 else rate / reference


def ratio_interval(
    numerator: tuple[float, tuple[float, float] | None], denominator: tuple[float, tuple[float, float] | None]
) -> tuple[float, float] | None:
    """Return the interval of a ratio of two independent rates, each with its own (Donner & Zou 2012)."""
    import numpy as np

    from fairkit.intervals import ratio_limits

    if numerator[1] is None or denominator[1] is None or denominator[0] == 0:
        return None
    low, high = np.array([numerator[1][0], denominator[1][0]]), np.array([numerator[1][1], denominator[1][1]])
    place = (np.array([0], dtype=np.intp), np.array([1], dtype=np.intp))
    down, up = ratio_limits(np.array([numerator[0], denominator[0]]), lambda _: (low, high), 0.0, *place)
    return float(down[0]), float(up[0])


def deviations(selected: int, rows: int, other_selected: int, other_rows: int) -> float | None:
    """Return the difference of two shares in standard deviations of the pooled two-sample binomial.

    (p₁ - p₂) / sqrt(p (1 - p) (1/n₁ + 1/n₂)), as enforcement agencies compute it. The cases on two or three standard
    deviations, Castaneda v. Partida, 430 U.S. 482, and Hazelwood School District v. United States, 433 U.S. 299 (both
    1977), are about one sample against a known share of the population.
    """
    pooled = (selected + other_selected) / (rows + other_rows)
    variance = pooled * (1 - pooled) * (1 / rows + 1 / other_rows)
    return None if variance == 0 else (selected / rows - other_selected / other_rows) / math.sqrt(variance)


def more_selections(selected: int, rows: int, reference: float, share: float = 0.8) -> int:
    """Return how many more selections lift a group's rate to a share of the reference's rate; 0 where it is there."""
    return max(math.ceil(share * reference * rows - selected - 1e-9), 0)


def exact_tests(selected: int, rows: int, other_selected: int, other_rows: int) -> tuple[float, float | None]:
    """Return the two-sided p-values of Fisher's and of Boschloo's exact test of equal rates.

    Fisher's adds up all tables that are no likelier; Boschloo's is twice the smaller one-sided value.
    """
    try:
        from scipy.stats import boschloo_exact, fisher_exact
    except ImportError as error:
        raise MissingExtraError("scipy", "packs") from error
    counts = [[selected, other_selected], [rows - selected, other_rows - other_selected]]
    fisher = float(fisher_exact(counts)[1])
    small = rows * other_rows <= MOST_BOSCHLOO and 0 < selected + other_selected < rows + other_rows
    return fisher, float(boschloo_exact(counts).pvalue) if small else None
