"""Intervals of all disparities that hold together: the distribution of the largest statistic, from the totals.

Every disparity's interval is a function of its confidence. One confidence c is sought for all, such that all intervals
hold at once with the audit's confidence (min-p; Westfall & Young 1993). A column's confusion cells are drawn around
what was seen, with the covariance of the sums; each draw gives every rate's largest studentised difference between two
groups and the confidence at which its interval would just miss. That is exact about the dependence between rates. Other
metrics and other columns are taken as independent, which is on the safe side for normal deviations (Royen 2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import Spread, guarded, largest_studentised, pairwise_quantile, two_sided
from fairkit.limits import bisected
from fairkit.metrics import Estimate
from fairkit.statistics import ScoreTable
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_dependent import STRATA_BUCKETS, effective_clusters, noise_of, too_few
from fairkit_group.calibration import curves
from fairkit_group.ranking import Distances, dependent_distances, distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.statistics import Sums
    from fairkit_group.finding_writer import About
    from fairkit_group.stratified import Pairs, Pooled

    Array = NDArray[np.float64]


DRAWS = 10_000
_CHUNK = 250
_STEP = 1e-4
_TAILS = 10.0 ** -np.linspace(0.3, 5.5, 24)
JOINT = ("equalized_odds_difference", "equalized_odds_ratio", "gap_max", "gap_rms", "statistical_parity_ks")
"""Disparities besides differences and ratios of one metric that the statement covers."""


@dataclass(frozen=True, slots=True)
class Family:
    """The disparities of one sensitive column and class."""

    cells: Sums | None  # totals of the confusion cells by group; None without decisions
    rates: Sequence[Metric]  # the metrics that are functions of the cells
    others: int  # how many metrics, or distances, besides


def joint_confidence(families: Sequence[Family], confidence: float, rng: np.random.Generator) -> float:
    """Return the confidence at which each interval is taken so that all hold at once."""
    drawn = [_least_confidence(f.cells, f.rates, rng) for f in families if f.cells is not None and f.rates]
    others = sum(family.others for family in families)
    count = others + sum(len(family.rates) for family in families)
    bonferroni = 1 - (1 - confidence) / max(count, 1)

    def together(level: float) -> float:
        return math.prod(float((part <= level).mean()) for part in drawn) * level**others

    if together(bonferroni) < confidence:
        return bonferroni
    return bisected(lambda level: together(level) < confidence, confidence, bonferroni, 40)[1]


def _least_confidence(cells: Sums, rates: Sequence[Metric], rng: np.random.Generator) -> Array:
    """Return for each draw the confidence at which every rate's intervals between groups just hold, shape [draws]."""
    slopes = np.stack([_slopes(metric, cells.first) for metric in rates])  # [M, G, 4]
    values, vectors = np.linalg.eigh(cells.second)
    # a square root of the cells' covariance: draws of the cells are root · N(0, I)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    pull = np.einsum("mgi,gij->mgj", slopes, root)
    error = (pull**2).sum(axis=2)  # [M, G]
    groups = error.shape[1]
    quantiles = np.array([pairwise_quantile(groups, guarded(1 - tail)) for tail in _TAILS])
    confidences = []
    for start in range(0, DRAWS, _CHUNK):
        draws = rng.standard_normal((min(_CHUNK, DRAWS - start), groups, 4))
        moved = np.nan_to_num(np.einsum("mgj,rgj->rmg", pull, draws))
        squares = np.broadcast_to(error, moved.shape).reshape(-1, groups)
        largest = largest_studentised(moved.reshape(-1, groups), squares).reshape(len(draws), -1).max(axis=1)
        # the confidence whose pairwise quantile is the largest standardised difference
        confidences.append(1 - np.exp(np.interp(largest, quantiles, np.log(_TAILS))))
    return np.concatenate(confidences)


def _slopes(metric: Metric, sums: Array) -> Array:
    """Return the derivative of a metric in each of the sums, shape [G, 4]."""
    step = _STEP * np.maximum(sums.sum(axis=1, keepdims=True), 1.0)
    parts = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for cell in range(sums.shape[1]):
            shift = np.zeros_like(sums)
            shift[:, cell] = step[:, 0]
            parts.append((metric.compute(sums + shift) - metric.compute(sums - shift)) / (2 * step[:, 0]))
    return np.stack(parts, axis=1)


def covered(finding: Finding) -> bool:
    """Tell whether the simultaneous statement is about a finding."""
    named = finding.metric.endswith(("_difference", "_ratio")) or finding.metric in JOINT
    return finding.sensitive is not None and named and finding.interval_at is not None


def marked(findings: Sequence[Finding], level: float) -> list[Finding]:
    """Return findings with their simultaneous interval, and whether the disparity survives in it."""
    return [_marked(finding, level) if covered(finding) else finding for finding in findings]


def _marked(finding: Finding, level: float) -> Finding:
    pair = finding.interval_at(level) if finding.interval_at is not None else None
    if pair is None:
        return finding
    survives = pair[1] < 1 if finding.metric.endswith("_ratio") else pair[0] > 0
    evidence: dict[str, Any] = {
        "simultaneous_interval": list(pair),
        "simultaneous_level": level,
        "survives": bool(survives),
    }
    return replace(finding, evidence={**finding.evidence, **evidence})


# The distance between score distributions inside strata, standardised to each group's own strata.


_LEVELS = 150


def distances_within(table: ScoreTable, strata: int, buckets: ScoreTable | None) -> tuple[Distances, dict[int, str]]:
    """Measure how far a group's scores are from those that everybody in its strata has.

    Beside the distances: why a group's interval is not to be trusted, by its place.

    In a stratum F_as - F_s = (1 - p_as)(F_as - F_rest,s), whose deviation from the truth is (1 - p_as) times that of
    two independent samples: about c_s B_s(F_s(z)) with a Brownian bridge B_s and
    c_s² = (1 - p_as)² (1 / n_as + 1 / n_rest,s). The sum over strata with weights w_s, which are taken as given, has
    the covariance Σ w_s² c_s² (F_s(min) - F_s F_s'): that of one bridge of the size C² = Σ w_s² c_s² at the mean of
    the F_s, less a covariance of the F_s. Its largest deviation is then stochastically at most C times Kolmogorov's
    (Anderson 1955): the limits hold, and are wide where strata have different scores. With one stratum it is
    `fairkit_group.ranking.distances`.
    """
    mass, squares = (part.sum(axis=2).reshape(len(part), strata, -1) for part in (table.mass, table.squares))
    size, square = mass.sum(axis=0), squares.sum(axis=0)
    everybody, rest = size.sum(axis=1, keepdims=True), size.sum(axis=1, keepdims=True) - size
    used = (size > 0) & (rest > 0)
    sizes = np.where(used, size, 0.0)
    total = sizes.sum(axis=0)
    with np.errstate(all="ignore"):
        weights = sizes / total
        factors = np.where(used, weights / size, 0.0), np.where(used, weights / everybody, 0.0)
        step = (mass * factors[0]).sum(axis=1) - np.einsum("us,sg->ug", mass.sum(axis=2), factors[1])
        gap = np.abs(np.cumsum(step, axis=0))
        rest_square = square.sum(axis=1, keepdims=True) - square
        noise = (weights * rest / everybody) ** 2 * (square / size**2 + rest_square / rest**2)
        scale = np.sqrt(np.where(used, noise, 0.0).sum(axis=0))
        rows = total**2 / np.where(used, square, 0.0).sum(axis=0)
        hidden = (mass * np.where(used, 1.0, 0.0)).sum(axis=1)[table.mixed] / total
    values = np.where(total > 0, gap.max(axis=0, initial=0.0), np.nan)
    doubts: dict[int, str] = {}
    if buckets is not None:
        scale, doubts = _stretched(buckets, factors, scale)
    bound = 0.0 if table.exact else float(np.nanmax(hidden, initial=0.0))
    return Distances(values, scale, table.values[gap.argmax(axis=0)], bound, rows), doubts


def _stretched(buckets: ScoreTable, factors: tuple[Array, Array], scale: Array) -> tuple[Array, dict[int, str]]:
    """Stretch the limits of independent rows by the largest noise that buckets show at any score."""
    strata, groups = factors[0].shape
    mass = buckets.mass.sum(axis=2).reshape(-1, strata, groups, STRATA_BUCKETS)
    below = np.cumsum(mass, axis=0)[:: max(len(mass) // _LEVELS, 1)]
    size = mass.sum(axis=0)  # [S, G, B]
    stretched, doubts = scale.copy(), {}
    for group in range(groups):
        group_factors, base = factors[0][:, group], factors[1][:, group]
        with np.errstate(all="ignore"):
            mean = np.nan_to_num(below[:, :, group].sum(axis=2) / size[:, group].sum(axis=1))  # F_as
            pull = np.einsum("s,zsb->zb", group_factors, below[:, :, group] - mean[:, :, None] * size[:, group])
            all_below, everybody = below.sum(axis=2), size.sum(axis=1)
            whole = np.nan_to_num(all_below.sum(axis=2) / everybody.sum(axis=1))  # F_s
            pull = pull - np.einsum("s,zsb->zb", base, all_below - whole[:, :, None] * everybody)
        there: NDArray[np.bool_] = np.asarray(size[group_factors > 0].any(axis=(0, 1)))
        counted = size[group_factors > 0][:, group].sum(axis=0)
        noise = noise_of(pull, np.tile(there, (len(pull), 1)))
        largest = float(np.sqrt(np.nanmax(noise.variance, initial=0.0)))
        if scale[group] > 0:
            stretched[group] = scale[group] * max(largest / (0.5 * scale[group]), 1.0)
        doubt = too_few(int(there.sum()), float(effective_clusters(counted)))
        if doubt:
            doubts[group] = doubt
    return stretched, doubts


# Disparities from pooled pairs of groups: the largest difference, the smallest ratio, the smallest odds ratio.


def quantiles(pairs: int, confidence: float) -> tuple[float, float]:
    """Return the factors for the inner end, joint over all pairs (Šidák), and for the outer end, of a pair alone."""
    inner = two_sided(guarded(confidence) ** (1 / max(pairs, 1)))
    return inner, inner if pairs == 1 else two_sided(confidence)


def joint_quantile(pairs: int, confidence: float) -> float:
    """Return the factor with which all pairs hold at once."""
    return quantiles(pairs, confidence)[0]


def largest_difference(pairs: Pairs, confidence: float) -> Spread:
    """Return the largest pooled |difference| of a pair, with the interval of `fairkit.intervals`."""
    if not len(pairs):
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(len(pairs), confidence)
    near, far = pairs.difference_limits(inner), pairs.difference_limits(outer)
    return Spread(
        float(np.abs(pairs.differences).max()),
        max(float(np.maximum(near[0], -near[1]).max()), 0.0),
        float(np.maximum(far[1], -far[0]).max()),
    )


def smallest_ratio(pairs: Pairs, confidence: float) -> Spread:
    """Return the smallest pooled ratio of a pair, in [0, 1]; NaN where a number is negative or all are 0."""
    least, most = pairs.values.min(axis=0), pairs.values.max(axis=0)
    usable = most > 0
    if not usable.any() or (least < 0).any():
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(int(usable.sum()), confidence)
    near, far = pairs.ratio_limits(inner)[1], pairs.ratio_limits(outer)[0]
    return Spread(
        float((least[usable] / most[usable]).min()),
        max(float(far[:, usable].min()), 0.0),
        min(float(near[:, usable].min()), 1.0),
    )


@dataclass(frozen=True, slots=True)
class Odds:
    """Pooled odds ratios of pairs of groups, with the factors that the freedom of their variances asks for."""

    groups: NDArray[np.intp]  # shape [2, P]
    pooled: Pooled
    stretch: Callable[[float], float | Array]

    def __len__(self) -> int:
        return len(self.groups[0])

    def limits(self, z: float) -> tuple[Array, Array]:
        """Return their limits for a normal quantile."""
        return self.pooled.limits(self.stretch(z))


def smallest_odds(odds: Odds, confidence: float) -> Spread:
    """Return the smallest odds ratio, of either order of a pair, in [0, 1]."""
    if not len(odds):
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(len(odds), confidence)
    near, far, value = odds.limits(inner), odds.limits(outer), odds.pooled.value
    with np.errstate(divide="ignore"):
        return Spread(
            float(np.minimum(value, 1 / value).min()),
            float(np.minimum(far[0], 1 / far[1]).min()),
            min(1.0, float(np.minimum(near[1], 1 / near[0]).min())),
        )


def worst_of(values: Sequence[float] | Array) -> int:
    """Return the place of the largest absolute value; 0 where there is none."""
    return int(np.argmax(np.abs(np.nan_to_num(np.asarray(values))))) if len(values) else 0


# The distance between the score distributions of groups, as a finding with its histograms and curves.


CHART_BINS = 40


def parity_of_scores(
    about: About, table: ScoreTable, buckets: ScoreTable | None = None, labelled: ScoreTable | None = None
) -> Finding:
    """Return the largest distance of a group's scores from those of all rows (statistical_parity_ks).

    Curves are of the rows that have an outcome; None: there are none.
    """
    gaps = distances(table)
    doubts: dict[int, str] = {}
    if isinstance(buckets, ScoreTable):
        gaps, doubts = dependent_distances(gaps, buckets)
    is_known = np.isfinite(gaps.values)
    worst = int(np.argmax(np.where(is_known, gaps.values, -1)))
    edges, mass = table.histogram(CHART_BINS)
    evidence: dict[str, Any] = {
        "group": about.names[worst],
        "at_score": float(gaps.at[worst]),
        "histogram": {
            "edges": [float(edge) for edge in edges],
            "groups": {name: mass[:, i].tolist() for i, name in enumerate(about.names)},
        },
    }
    if isinstance(labelled, ScoreTable):
        evidence |= curves(labelled, about.names, about.confidence)
    if not table.exact:
        evidence["discretisation_bound"] = gaps.bound
    low, high = gaps.limits(about.confidence)
    return about.finding(
        "statistical_parity_ks",
        "lower",
        float(gaps.values[worst]),
        lambda confidence: largest_distance(gaps, confidence),
        groups=about.group_values(gaps.values, low, high),
        evidence=evidence,
        caveats=about.caveats.of(Estimate(gaps.values, lambda z: (low, high), gaps.sizes, doubts)),
    )


def largest_distance(found: Distances, confidence: float) -> tuple[float, float]:
    """Return the largest distance: the upper end from each group alone, the lower end from all at once."""
    joint = confidence ** (1 / max(int(np.isfinite(found.values).sum()), 1))
    return float(np.nanmax(found.limits(joint)[0])), float(np.nanmax(found.limits(confidence)[1]))
