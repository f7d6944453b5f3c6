"""Functions of the whole score distribution: ROC-AUC and the Kolmogorov-Smirnov distance to everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.intervals import guarded, kolmogorov_quantile, share_limits, student, two_sided
from fairkit.limits import mean_limits, unseen
from fairkit.metrics import Estimate, Headline, Metric, Term
from fairkit.statistics import Scores, ScoreTable, Statistic
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_dependent import SCORE_BUCKETS, doubts_of, effective_clusters, noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.findings import Better

    Array = NDArray[np.float64]

SCORES = Scores()

_LEAST_STRETCH = 1.0
_LEVEL = 0.95
_LEVELS = 150

SCARCE = 30
"""Below so many rows of the rarer outcome the limits of the area suppose nothing about the scores."""


class RocAuc(Metric):
    """The chance that a favorable outcome scores above an unfavorable one, ties counting one half."""

    name: ClassVar[str] = "roc_auc"
    term: ClassVar[Term | None] = Term(
        "ranking", "The chance that a qualified person scores above an unqualified one; 0.5 is a coin."
    )
    headline: ClassVar[Headline] = Headline(performance=3)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0.5: the score ranks at random; 1: it ranks perfectly."
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    ranks: ClassVar[bool] = True
    citation: ClassVar[str] = "DeLong, DeLong & Clarke-Pearson (1988), Biometrics 44(3)"

    @property
    def statistic(self) -> Statistic:
        """The score table."""
        return SCORES

    def compute(self, sums: Array) -> Array:
        """Return the area from masses [U, G, 2] (scores increasing, outcome last)."""
        negative, positive = sums[..., 0], sums[..., 1]
        # mid-ranks: P(s₀ < s) + P(s₀ = s) / 2
        below = np.cumsum(negative, axis=0) - negative / 2
        return np.asarray((positive * below).sum(axis=0) / (positive.sum(axis=0) * negative.sum(axis=0)))

    def estimate(self, totals: ScoreTable, rng: np.random.Generator) -> Estimate:
        """Compute the area in every group from DeLong's variance, as a share of an effective number of rows.

        The area is the mean place of the rarer outcome's scores among the other's, hence in [0, 1], and its
        variance is at most A(1 - A) over the number of the rarer outcome (Birnbaum & Klose 1957): n' = A(1 - A) /
        variance rows are never fewer than those. The limits are a share's with n' rows and Student's degrees of
        freedom, widened by what unseen rows of the rarer outcome could add, and never wider than those of a share
        with as many rows as the rarer outcome has. With fewer than `SCARCE` of these the last stand alone: they
        hold for every distribution. Under unequal weights the limits reach as far as those of a mean of the
        placements at least, whose tails may be heavy. What cells of scores hide is added to both ends.
        """
        mass, squares = totals.mass, totals.squares
        negative, positive = mass[..., 0], mass[..., 1]
        n0, n1 = negative.sum(axis=0), positive.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            area = self.compute(mass)
            fewest = np.minimum(n0**2 / squares[..., 0].sum(axis=0), n1**2 / squares[..., 1].sum(axis=0))
            variance, skewness, degrees = _delong(mass, squares, area)
            rows = np.where(variance > 0, area * (1 - area) / variance, np.inf)
            each = squares / mass
            least = np.where(mass > 0, each, np.inf).min(axis=(0, 2), initial=np.inf)
            weighted = np.where(mass > 0, each, 0.0).max(axis=(0, 2), initial=0.0) > least * (1 + 1e-9)
        hidden = _hidden(totals)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = share_limits(area, fewest, z)
            some = np.where(weighted, np.fmin(fewest, degrees + 1), fewest)
            with np.errstate(divide="ignore", invalid="ignore"):
                effective = np.clip(rows * (z / student(z, some)) ** 2, fewest, 1e12)
                inner = share_limits(area, effective, z)
                share = unseen(fewest, z)
                down = ((area - inner[0]) ** 4 + (share * area) ** 4) ** 0.25
                up = ((inner[1] - area) ** 4 + (share * (1 - area)) ** 4) ** 0.25
                # few rows of much weight make a long tail, and most samples lack them
                ends = mean_limits(area, np.sqrt(variance), skewness, some, (0 * area, 0 * area + 1), z)
                down = np.where(weighted, np.fmax(down, area - ends[0]), down)
                up = np.where(weighted, np.fmax(up, ends[1] - area), up)
            many = fewest >= SCARCE
            low = np.where(many, np.maximum(area - down, low), low)
            high = np.where(many, np.minimum(area + up, high), high)
            return np.clip(low - hidden, 0, 1), np.clip(high + hidden, 0, 1)

        return Estimate(area, limits, sizes=fewest)

    def influence(self, mass: Array, scores: Array) -> Array:
        """Return how far a row pulls the area: its place among the other outcome's scores, less the area."""
        negative, positive = mass[..., 0], mass[..., 1]
        n0, n1 = negative.sum(axis=0), positive.sum(axis=0)
        area = self.compute(mass)
        placed1 = (np.cumsum(negative, axis=0) - negative / 2) / n0
        placed0 = 1 - (np.cumsum(positive, axis=0) - positive / 2) / n1
        return np.stack([(placed0 - area) / n0, (placed1 - area) / n1], axis=2)

    @staticmethod
    def bound(totals: ScoreTable) -> float:
        """Bound the error from cells of scores, in the worst group."""
        return float(np.nanmax(_hidden(totals), initial=0.0))


def _delong(mass: Array, squares: Array, area: Array) -> tuple[Array, Array, Array]:
    """Return the area's variance, skewness and degrees of freedom from score tables, shapes [G].

    The variance is that of either outcome's placements (DeLong, DeLong & Clarke-Pearson 1988). A row of much weight
    pulls the area to itself: its square is divided by 1 less its share of the weight (HC2; MacKinnon & White 1985),
    which without weights gives DeLong's n - 1.
    """
    sums = mass.sum(axis=0)
    below = np.cumsum(mass, axis=0) - mass / 2
    placed = np.stack([1 - below[..., 1] / sums[:, 1], below[..., 0] / sums[:, 0]], axis=2)
    share = np.nan_to_num(squares / mass) / sums  # of one row of a place, by its weight on average
    pull = (placed - area[:, None]) ** 2 * squares / sums**2 / np.maximum(1 - share, 0.1)
    step = (placed - area[:, None]) * share
    variance = pull.sum(axis=(0, 2))
    fourth = (pull * step**2).sum(axis=(0, 2))
    skewness = (pull * step).sum(axis=(0, 2)) / variance**1.5
    return variance, skewness, np.maximum(3 * variance**2 / fourth - 1, 1)  # of degrees, as `noise_of` counts them


def _hidden(totals: ScoreTable) -> Array:
    """Bound how far each group's area may be from the one of all distinct scores, shape [G].

    Pairs of unequal outcome within a cell count one half and may be worth 0 or 1; all other pairs are exact.
    """
    groups = totals.mass.shape[1]
    if totals.exact:
        return np.zeros(groups)
    negative, positive = totals.mass[..., 0], totals.mass[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = (negative * positive)[totals.mixed].sum(axis=0)
        return np.asarray(np.nan_to_num(pairs / (2 * negative.sum(axis=0) * positive.sum(axis=0))))


@dataclass(frozen=True, slots=True)
class Distances:
    """Each group's Kolmogorov-Smirnov distance to everybody, with the parts of its interval."""

    values: Array  # max over z of |P[f ≥ z | a] - P[f ≥ z]|, shape [G], in [0, 1]
    scale: Array  # (1 - share) · sqrt(1 / n_a + 1 / n_rest): what Kolmogorov's quantile is multiplied by, shape [G]
    at: Array  # the score where the distance is reached, shape [G]
    bound: float
    sizes: Array  # the number of rows of each group, effective under weights, shape [G]

    def limits(self, confidence: float) -> tuple[Array, Array]:
        """Return limits for each group alone, from Smirnov's two-sample limit distribution."""
        half = kolmogorov_quantile(confidence) * self.scale
        return np.maximum(self.values - half, 0), np.minimum(self.values + half + self.bound, 1)


def distances(totals: ScoreTable) -> Distances:
    """Measure statistical parity of scores (Agarwal, Dudík & Wu 2019, definition 1).

    With p_a the group's share, F_a - F = (1 - p_a)(F_a - F_rest): the deviation of the empirical difference
    from the true one is (1 - p_a) times a two-sample Kolmogorov-Smirnov deviation. A group without weight has no
    distance (NaN), and neither has one that is everybody.
    """
    mass, squares = (part[..., 0] + part[..., 1] for part in (totals.mass, totals.squares))
    size, everybody = mass.sum(axis=0), mass.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        distribution = np.cumsum(mass, axis=0) / size
        gap = np.abs(distribution - (np.cumsum(mass.sum(axis=1)) / everybody)[:, None])
        rest = everybody - size
        effective = size**2 / squares.sum(axis=0)
        effective_rest = rest**2 / (squares.sum() - squares.sum(axis=0))
        # √(n m / (n + m)) sup |F_a - F_rest| has Kolmogorov's law in the limit (Smirnov 1939)
        scale = (rest / everybody) * np.sqrt(1 / effective + 1 / effective_rest)
    bound = 0.0
    if not totals.exact:
        inside = (mass / np.maximum(size, 1e-300))[totals.mixed]
        bound = float(np.nanmax(inside, initial=0.0))
    values = np.where((size > 0) & (rest > 0), gap.max(axis=0), np.nan)
    return Distances(values, scale, totals.values[gap.argmax(axis=0)], bound, effective)


def dependent_distances(measured: Distances, buckets: ScoreTable) -> tuple[Distances, dict[int, str]]:
    """Return distances with the noise that rows of one cluster make together.

    At every score the deviation of a group's distribution from everybody's is a mean over buckets; the limits of
    independent rows are stretched by the largest ratio of its standard error to the largest one that those have.
    """
    groups = len(measured.values)
    mass = buckets.mass.sum(axis=2).reshape(len(buckets.values), groups, SCORE_BUCKETS)
    size = mass.sum(axis=(0, 2))
    share = size / size.sum()
    largest = np.zeros(groups)
    noises = []
    below = np.cumsum(mass, axis=0)[:: max(len(mass) // _LEVELS, 1)]  # the noise changes slowly along the scores
    for group in range(groups):
        with np.errstate(all="ignore"):
            below_group, rest = below[:, group], below.sum(axis=1) - below[:, group]
            level, level_of_rest = below_group.sum(axis=1) / size[group], rest.sum(axis=1) / (size.sum() - size[group])
            pull = (below_group - level[:, None] * mass[:, group].sum(axis=0)) / size[group]
            away = mass.sum(axis=(0, 1)) - mass[:, group].sum(axis=0)
            pull = pull - (rest - level_of_rest[:, None] * away) / (size.sum() - size[group])
        noise = noise_of((1 - share[group]) * pull, np.tile(mass[:, group].any(axis=0), (len(pull), 1)))
        largest[group] = np.sqrt(np.nanmax(noise.variance, initial=0.0))
        noises.append(float(noise.buckets[0]) if len(noise.buckets) else 0.0)
    with np.errstate(all="ignore"):  # an empirical distribution's deviation has at most half of the scale
        factor = np.maximum(np.nan_to_num(largest / (0.5 * measured.scale), nan=1.0), _LEAST_STRETCH)
    # the standard error has the freedom of so many buckets
    usual = two_sided(guarded(_LEVEL))
    effective = effective_clusters(mass.sum(axis=0))
    factor = factor * student(usual, np.maximum(np.minimum(noises, effective), 2)) / two_sided(_LEVEL)
    doubts = doubts_of(noises, effective)
    return replace(measured, scale=measured.scale * factor), doubts
