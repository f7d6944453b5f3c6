"""Calibration in every group: mean score against outcome rate, and the largest gap of cumulative differences."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.intervals import share_limits, two_sided
from fairkit.limits import bisected, heavy, student, tilted, unseen, widened
from fairkit.metrics import HEAVY, Estimate, Headline, Mean, Metric, Term
from fairkit.statistics import Rows, Statistic, Sums
from fairkit.support.lazy_dataclass import dataclass
from fairkit_group.ranking import SCORES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.results.findings import Better
    from fairkit.statistics import ScoreTable

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
        return score_of(rows) - rows.outcome


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
        be off by 1 (`fairkit.limits.widened`).
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

    return sum(bisected(lambda x: below(x) < 1 - tail, 0.2, 12.0, 60)) / 2


CALIBRATION: list[type[Metric]] = [CalibrationInTheLarge, Ecce]


# R²: the squared error against the target's variance, with limits that hold for small groups.


_SMALLEST = float(np.finfo(np.float64).eps)
_POWERS = [(i, j) for j in range(4) for i in range(7 - 2 * j)]  # of the target and of the squared error
_COLUMNS = ((0, 0), (1, 0), (2, 0), (0, 1))


@dataclass(frozen=True, slots=True)
class ErrorSums(Sums):
    """Sums of (1, target, target², squared error), and what variance and skewness of R² are made from."""

    powers: Array  # Σ w² y^i e^(2j) for i + 2j ≤ 6, shape [G, 16]
    most: Array  # the largest squared error of any row, shape [1]


class ErrorPowers(Statistic):
    """Sums of powers of the target and of the squared error."""

    key = "powers of errors"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> ErrorSums:
        """Sum by group."""
        y = rows.outcome - rows.origin
        e2 = rows.expected(_squared_errors)
        if rows.members is None:
            e4, e6 = e2**2, e2**3
        else:
            e4, e6 = rows.expected(lambda r: _squared_errors(r) ** 2), rows.expected(lambda r: _squared_errors(r) ** 3)
        errors = (np.ones_like(y), e2, e4, e6)
        weights = rows.weights

        def total(parts: Array) -> Array:
            return np.asarray(np.bincount(groups, parts, n_groups), dtype=np.float64)

        targets = [np.ones_like(y)]
        for _ in range(6):
            targets.append(targets[-1] * y)

        square = 1.0 if weights is None else weights**2
        powers = np.stack([total(square * (targets[i] * errors[j])) for i, j in _POWERS], axis=1)
        if weights is None:
            first = np.stack([powers[:, _POWERS.index(column)] for column in _COLUMNS], axis=1)
        else:
            first = np.stack([total(weights * (targets[i] * errors[j])) for i, j in _COLUMNS], axis=1)
        pairs = [[_POWERS.index((a[0] + b[0], a[1] + b[1])) for b in _COLUMNS] for a in _COLUMNS]
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)
        most = np.array([e2.max()]) if len(e2) else np.zeros(1)
        return ErrorSums(count, first, powers[:, np.array(pairs)], powers, most)


def score_of(rows: Rows) -> Array:
    """Return the scores of rows that have them."""
    if rows.score is None:
        raise ValueError("this metric needs scores")
    return rows.score


def _squared_errors(rows: Rows) -> Array:
    return (score_of(rows) - rows.outcome) ** 2


class R2Score(Metric):
    """One minus the squared error over the target's variance in the group."""

    name: ClassVar[str] = "r2_score"
    term: ClassVar[Term | None] = Term(
        "explained variance", "How much better the predictions are than the mean; 1 is perfect, 0 is no better."
    )
    headline: ClassVar[Headline] = Headline(performance=7, column=9)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (-np.inf, 1.0)
    meaning: ClassVar[str] = "0: no better than the group's mean; 1: every prediction is right."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    tasks: ClassVar[frozenset[Task]] = frozenset({"regression"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "extreme"})

    def contributions(self, rows: Rows) -> Array:
        """Return (1, target, target², squared error), the target from an origin amid the data."""
        target = rows.outcome - rows.origin
        return np.column_stack([np.ones_like(target), target, target**2, _squared_errors(rows)])

    @property
    def statistic(self) -> Statistic:
        """The sums of the contributions, and of their products."""
        return ErrorPowers()

    def compute(self, sums: Array) -> Array:
        """Compare the squared error with that of the mean."""
        variance = sums[..., 2] - sums[..., 1] ** 2 / sums[..., 0]
        rounding = 16 * _SMALLEST * sums[..., 2]  # a constant target has no variance but may leave this much
        return np.asarray(1 - sums[..., 3] / np.where(variance > rounding, variance, np.nan))

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute R² in every group with limits on the scale of log(1 - R²).

        A row moves log(error / variance) by ψ = e² / mean(e²) - (y - mean)² / variance. Its variance and skewness
        give the limits, as for a gamma variable (`tilted`), with half the degrees of freedom of a mean: two
        variances are estimated. Unseen rows with the largest error widen the lower end. Heavy tails put the
        interval in doubt.
        """
        if not isinstance(totals, ErrorSums):
            raise TypeError("the totals of r2_score are not those of its statistic")
        with np.errstate(all="ignore"):
            value = self.compute(totals.first)
            n = totals.first[:, 0] ** 2 / totals.powers[:, 0]
            square, cube = _influence(totals)
            skewness = np.where(square > 0, cube / square**1.5, 0.0)
            error = np.sqrt(square * n / np.maximum(n - 1, 1)) / totals.first[:, 0]
            tail = _tail_of_errors(totals)
            largest = totals.most[0] / (totals.first[:, 3] / totals.first[:, 0])  # over the mean squared error

        def limits(z: float) -> tuple[Array, Array]:
            with np.errstate(all="ignore"):
                down, up = tilted(skewness / 1.5, student(z, n / 2))
                share = unseen(n, z)  # of rows with the largest error, which moves their targets too
                hidden = np.log1p(share * largest) - np.log1p(share * largest * np.clip(1 - value, 0, 1))
                more = widened(error * up, hidden, tail / 1.3, n)
                return 1 - (1 - value) * np.exp(more), 1 - (1 - value) * np.exp(-error * down)

        shaky = heavy(1.25 * skewness, n) | heavy(tail / 1.4, n)
        doubts = dict.fromkeys(np.flatnonzero(shaky & np.isfinite(value)).tolist(), HEAVY)
        for index in np.flatnonzero(value >= 1).tolist():
            doubts[index] = "no prediction is wrong, so that nothing tells how large errors are"
        return Estimate(value, limits, sizes=n, doubts=doubts)


def _influence(totals: ErrorSums) -> tuple[Array, Array]:
    """Return Σ w² ψ² and Σ w² ψ³, group by group: ψ is a polynomial in the target and the squared error."""
    mass, y, yy, ee = (totals.first[:, i] for i in range(4))
    mean, mse = y / mass, ee / mass
    variance = yy / mass - mean**2
    psi = {(0, 0): -(mean**2) / variance, (1, 0): 2 * mean / variance, (2, 0): -1 / variance, (0, 1): 1 / mse}
    two = _product(psi, psi)
    sums = {power: totals.powers[:, index] for index, power in enumerate(_POWERS)}
    influence = []
    for polynomial in (two, _product(two, psi)):
        influence.append(np.sum([factor * sums[power] for power, factor in polynomial.items()], axis=0))
    return influence[0], influence[1]


def _product(one: dict[tuple[int, int], Array], two: dict[tuple[int, int], Array]) -> dict[tuple[int, int], Array]:
    result: dict[tuple[int, int], Array] = {}
    for (i, j), a in one.items():
        for (k, m), b in two.items():
            result[i + k, j + m] = result.get((i + k, j + m), 0.0) + a * b
    return result


def _tail_of_errors(totals: ErrorSums) -> Array:
    """Return the skewness of the mean squared error."""
    n, e2, e4, e6 = (totals.powers[:, _POWERS.index((0, j))] for j in range(4))
    m = e2 / n
    square = e4 - n * m**2
    return np.asarray(np.where(square > 0, (e6 - 3 * m * e4 + 2 * n * m**3) / square**1.5, 0.0))


# Small versions of each group's ROC and calibration curves, for charts: a function of the score table.


ROC_POINTS = 33
"""At most this many points of a curve are kept; the area is computed from the whole table."""

CALIBRATION_BINS = 10


def curves(table: ScoreTable, names: Sequence[str], confidence: float) -> dict[str, Any]:
    """Return the curves of every group as plain values."""
    return {
        "roc_band": roc_bands(table, confidence),
        "roc": dict(zip(names, roc_points(table.mass), strict=True)),
        "calibration": dict(zip(names, calibration(table, confidence), strict=True)),
    }


def roc_points(mass: Array) -> list[list[list[float]]]:
    """Thin each group's ROC curve to points about evenly spaced along it; none where an outcome is missing."""
    result: list[list[list[float]]] = []
    for counts in mass.transpose(1, 0, 2):
        path = np.concatenate([np.zeros((1, 2)), np.cumsum(counts[::-1], axis=0)])
        if not (path[-1] > 0).all():
            result.append([])
            continue
        path /= path[-1]
        places = np.searchsorted(path.sum(axis=1) / 2, np.linspace(0, 1, ROC_POINTS) - 1e-12)
        keep = np.unique(np.minimum(places, len(path) - 1))
        result.append([[round(x, 5), round(y, 5)] for x, y in path[keep].tolist()])
    return result


def roc_bands(table: ScoreTable, confidence: float) -> list[float]:
    """Return half widths of a band around each group's ROC curve: in false and in true positive rates.

    Each outcome's score distribution is within sqrt(log(2 / α') / (2 n)) of its own (Massart 1990) with confidence
    1 - α', the root of the confidence: together they hold the curve (Campbell 1994). Cells of scores hide nothing at
    the points that are shown.
    """
    mass, squares = table.mass.sum(axis=0), table.squares.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.sqrt(np.log(2 / (1 - np.sqrt(confidence))) / (2 * mass**2 / squares))
    is_known = (mass > 0).all(axis=1, keepdims=True)
    return [round(part, 5) for part in np.where(is_known, np.minimum(half, 1), 1.0).ravel().tolist()]


def calibration(table: ScoreTable, confidence: float) -> list[list[dict[str, Any]]]:
    """Compare the mean score with the observed share, in ten bins of each group's scores."""
    values, mass = table.middles, table.mass
    place = np.clip((values * CALIBRATION_BINS).astype(np.int64), 0, CALIBRATION_BINS - 1)
    bins = (place == np.arange(CALIBRATION_BINS)[:, None]).astype(np.float64)
    rows = mass.sum(axis=2)
    parts = (rows, mass[:, :, 1], rows * values[:, None], table.squares.sum(axis=2))
    weight, favorable, scores, square = ((bins @ part).T for part in parts)
    filled = np.nonzero(weight > 0)
    share = favorable[filled] / weight[filled]
    low, high = share_limits(share, weight[filled] ** 2 / square[filled], two_sided(confidence))
    result: list[list[dict[str, Any]]] = [[] for _ in weight]
    columns = (filled[0], scores[filled] / weight[filled], share, low, high, weight[filled])
    for group, score, observed, least, most, rows_of in zip(*(part.tolist() for part in columns), strict=True):
        result[group].append(
            {
                "score": round(score, 5),
                "observed": round(observed, 5),
                "interval": [round(least, 5), round(most, 5)],
                "weight": round(rows_of, 3),
            }
        )
    return result
