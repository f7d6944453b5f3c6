"""Two groups and a yes or no in strata: Mantel and Haenszel's pooled ratios, and the tests that go with them.

A stratum's table is [[a, b], [c, d]]: yes and no of the first group, then of the second. Counts may be weighted, or
fractional; strata without rows of both groups add nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits.chisquare import chi_square_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its statistic, its degrees of freedom, and the chance of at least that statistic if all is equal."""

    __test__ = False  # not one of pytest's

    statistic: float
    degrees: int
    p_value: float

    @classmethod
    def chi_square(cls, statistic: float, degrees: int) -> Test:
        """Return a test whose statistic is chi-square under the hypothesis."""
        return cls(statistic, degrees, chi_square_tail(statistic, degrees) if degrees > 0 else math.nan)


@dataclass(frozen=True, slots=True)
class Pooled:
    """A ratio pooled over strata; `log_error` is the standard error of its logarithm."""

    value: float
    log_error: float

    def limits(self, z: float) -> tuple[float, float]:
        """Return the limits for a normal quantile."""
        with np.errstate(all="ignore"):
            step = np.exp(z * self.log_error)
            return float(self.value / step), float(self.value * step)


def usable(tables: Array) -> NDArray[np.bool_]:
    """Return the strata, shape [S], with rows of both groups."""
    return np.asarray((tables.sum(axis=2) > 0).all(axis=1))


def odds_ratio(tables: Array, effective: Array | None = None) -> Pooled:
    """Pool the odds ratio (Mantel & Haenszel 1959) with the variance of Robins, Breslow & Greenland (1986).

    The variance holds for few large strata and for many small ones.
    """
    value = _ratio_of_odds(tables)
    counts = tables if effective is None else effective
    a, b, c, d = (counts[:, i, j] for i in (0, 1) for j in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        n = a + b + c + d
        # ψ = Σ R_s / Σ S_s with R = a d / n and S = b c / n; P = (a + d) / n, Q = (b + c) / n
        r, s = _per(a * d, n), _per(b * c, n)
        p, q = _per(a + d, n), _per(b + c, n)
        total_r, total_s = r.sum(), s.sum()
        # Var log ψ = Σ PR / (2 R²) + Σ (PS + QR) / (2 R S) + Σ QS / (2 S²)
        variance = (
            (p * r).sum() / (2 * total_r**2)
            + (p * s + q * r).sum() / (2 * total_r * total_s)
            + (q * s).sum() / (2 * total_s**2)
        )
        return Pooled(value, float(np.sqrt(variance)))


def _ratio_of_odds(tables: Array) -> float:
    a, b, c, d = (tables[:, i, j] for i in (0, 1) for j in (0, 1))
    n = tables.sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(_per(a * d, n).sum(), _per(b * c, n).sum()))


def equal_odds(tables: Array, *, tarone: bool = True) -> Test:
    """Test that the odds ratio is the same in all strata (Breslow & Day 1980, eq. 4.30).

    Strata where every row says the same tell nothing about it and are left out.
    """
    informative = usable(tables) & (tables.sum(axis=1) > 0).all(axis=1)
    tables = tables[informative]
    degrees = len(tables) - 1
    common = _ratio_of_odds(tables)
    if degrees < 1 or not (math.isfinite(common) and common > 0):
        return Test(math.nan, max(degrees, 0), math.nan)
    first, yes = tables[:, 0].sum(axis=1), tables[:, :, 0].sum(axis=1)
    n = tables.sum(axis=(1, 2))
    fitted = _fitted(first, yes, n, common)
    cells = [fitted, first - fitted, yes - fitted, n - first - yes + fitted]
    # of the first cell given the margins and ψ: 1 / (1/A + 1/B + 1/C + 1/D)
    variance = 1 / sum(1 / cell for cell in cells)
    off = tables[:, 0, 0] - fitted
    statistic = float((off**2 / variance).sum())
    if tarone:
        # Tarone (1985): less (Σ (a - A))² / Σ Var
        statistic -= float(off.sum() ** 2 / variance.sum())
    return Test.chi_square(max(statistic, 0.0), degrees)


def _fitted(first: Array, yes: Array, n: Array, common: float) -> Array:
    """Return the first cell of the tables with the same margins and a given odds ratio, shape [S].

    The root of (1 - ψ) A² + (n - m - t + ψ (m + t)) A - ψ m t = 0 that lies between the margins, written so that no
    digits cancel.
    """
    half = n - first - yes + common * (first + yes)
    root = np.sqrt(half**2 + 4 * (1 - common) * common * first * yes)
    return np.asarray(2 * common * first * yes / (half + root))


def _per(part: Array, whole: Array) -> Array:
    """Divide; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(whole, dtype=np.float64), where=whole > 0)
