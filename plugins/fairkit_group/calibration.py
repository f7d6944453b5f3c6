"""Calibration in every group: mean score against outcome rate, and the largest gap of cumulative differences."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.limits.means import unseen, widened
from fairkit.metrics import Estimate, Headline, Mean, Metric, Term
from fairkit_group.ranking import SCORES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.values import Better
    from fairkit.statistics import Rows, ScoreTable, Statistic

    Array = NDArray[np.float64]

MEAN = math.sqrt(math.pi / 2)
"""Of the largest |W(t)|, t in [0, 1], of a Brownian motion."""


class CalibrationInTheLarge(Mean):
    """The mean score minus the share of favorable outcomes."""

    name: ClassVar[str] = "calibration_in_the_large"
    term: ClassVar[Term | None] = Term(
        "scores too high or too low",
        "The mean score minus the share of favorable outcomes: above 0 scores promise too much.",
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    meaning: ClassVar[str] = "0: the mean score is the outcome rate; above 0 scores promise too much, below too little."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "extreme"})

    def per_row(self, rows: Rows) -> Array:
        """Return the score minus the outcome."""
        if rows.score is None:
            raise ValueError("this metric needs scores")
        return rows.score - rows.outcome


class Ecce(Metric):
    """The largest gap of cumulative differences of scores and outcomes (ECCE-MAD)."""

    name: ClassVar[str] = "ecce"
    term: ClassVar[Term | None] = Term(
        "calibration error", "The largest range of scores by which scores and outcomes disagree."
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "lower"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0: at every score the outcome rate is the score; 0.1: a range of scores is off by it."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "extreme"})
    citation: ClassVar[str] = "Arrieta-Ibarra, Gujral, Tannen, Tygert & Xu (2022), JMLR 23(351)"

    @property
    def statistic(self) -> Statistic:
        """The score table."""
        return SCORES

    def compute(self, sums: Array) -> Array:
        """Refuse: the number needs the scores of the masses too."""
        raise NotImplementedError("ecce is a function of scores and masses")

    def estimate(self, totals: ScoreTable, rng: np.random.Generator) -> Estimate:
        """Compute max over z of |mean of (outcome - score) over scores up to z| in every group.

        The true gap at its own place is a mean: the upper end is the estimate plus its normal limit. The estimate's own
        place is chosen: the lower end takes off the quantile of a Brownian motion's largest deviation, which the noise
        of cumulative sums has. The noise is at least that of calibrated scores, Σ w² s (1 - s) / (Σ w)² (Arrieta-Ibarra
        et al. 2022): a sample without any rare outcome shows none of it. Sums of rare outcomes are skewed and jump
        by whole rows: in rows, (q² - 1) / 6 + 1/2 (Cornish & Fisher 1938) is taken off too. Unseen rows could each
        be off by 1 (`fairkit.limits.means.widened`).
        """
        mass, scores = totals.mass, totals.middles
        size = mass.sum(axis=(0, 2))
        with np.errstate(all="ignore"):
            curve = cumulative(mass, scores)
            value = np.where(size > 0, np.abs(curve).max(axis=0, initial=0.0), np.nan)
            square = ((1 - scores)[:, None] ** 2 * totals.squares[..., 1]).sum(axis=0)
            square = square + (scores[:, None] ** 2 * totals.squares[..., 0]).sum(axis=0)
            null = ((scores * (1 - scores))[:, None] * totals.squares.sum(axis=2)).sum(axis=0)
            error = np.sqrt(np.maximum(square, null)) / size
            row = totals.squares.sum(axis=(0, 2)) / size**2  # one row's weight in the mean
            rows = size**2 / totals.squares.sum(axis=(0, 2))
            hidden = np.zeros_like(size)
            if not totals.exact:
                hidden = (mass.sum(axis=2) / size)[totals.mixed].max(axis=0, initial=0.0)

        def limits(z: float) -> tuple[Array, Array]:
            quantile = brownian_quantile(2 * _upper(z))
            low = value - quantile * error - (max(quantile**2 - 1, 0) / 6 + 0.5) * row - hidden
            up = widened(z * error, unseen(rows, z) * (1 - value), np.zeros_like(value), rows)
            return np.clip(low, 0, 1), np.clip(value + up + hidden, 0, 1)

        return Estimate(value, limits, sizes=rows, inflated=(MEAN, lambda z: brownian_quantile(_upper(z))))

    def influence(self, mass: Array, scores: Array) -> Array:
        """Return how far a row pulls the sum over all scores: the noise of cumulative sums is largest there."""
        size = mass.sum(axis=(0, 2))
        off = np.stack([-scores, 1 - scores], axis=1)[:, None, :]
        last = cumulative(mass, scores)[-1]
        return np.asarray((off - last[None, :, None]) / size[None, :, None])


def cumulative(mass: Array, scores: Array) -> Array:
    """Return Σ w (outcome - score) over scores up to each, over Σ w, shape [U, G]."""
    step = mass[..., 1] * (1 - scores)[:, None] - mass[..., 0] * scores[:, None]
    with np.errstate(all="ignore"):
        return np.asarray(np.cumsum(step, axis=0) / mass.sum(axis=(0, 2)))


def _upper(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


@functools.lru_cache(maxsize=1_024)
def brownian_quantile(tail: float) -> float:
    """Return the quantile of the largest |W(t)|, t in [0, 1], of a Brownian motion: 2.241 for a tail of 0.05.

    P(max |W| ≤ x) = 4/π Σ (-1)^k / (2k + 1) exp(-(2k + 1)² π² / (8 x²)) (Feller 1971, X.5).
    """

    def below(x: float) -> float:
        terms = ((-1) ** k / (2 * k + 1) * math.exp(-(((2 * k + 1) * math.pi) ** 2) / (8 * x * x)) for k in range(40))
        return float(4 / math.pi * math.fsum(terms))

    low, high = 0.2, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 1 - tail else (low, middle)
    return (low + high) / 2


CALIBRATION: list[type[Metric]] = [CalibrationInTheLarge, Ecce]
