"""Intervals of all disparities that hold together: the distribution of the largest statistic, from the totals.

Every disparity's interval is a function of its confidence. One confidence c is sought for all, such that all intervals
hold at once with the audit's confidence (min-p; Westfall & Young 1993). A column's confusion cells are drawn around
what was seen, with the covariance of the sums; each draw gives every rate's largest studentised difference between two
groups and the confidence at which its interval would just miss. That is exact about the dependence between rates. Other
metrics and other columns are taken as independent, which is on the safe side for normal deviations (Royen 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import guarded, pairwise_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.statistics import Sums

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

    low, high = confidence, bonferroni
    if together(high) < confidence:
        return bonferroni
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if together(middle) < confidence else (low, middle)
    return high


def _least_confidence(cells: Sums, rates: Sequence[Metric], rng: np.random.Generator) -> Array:
    """Return for each draw the confidence at which every rate's intervals between groups just hold, shape [draws]."""
    slopes = np.stack([_slopes(metric, cells.first) for metric in rates])  # [M, G, 4]
    values, vectors = np.linalg.eigh(cells.second)
    # a square root of the cells' covariance: draws of the cells are root · N(0, I)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    pull = np.einsum("mgi,gij->mgj", slopes, root)
    error = (pull**2).sum(axis=2)  # [M, G]
    groups = error.shape[1]
    a, b = np.triu_indices(groups, 1)
    both = np.sqrt(error[:, a] + error[:, b])
    usable = np.isfinite(both) & (both > 0)
    both = np.where(usable, both, np.inf)
    quantiles = np.array([pairwise_quantile(groups, guarded(1 - tail)) for tail in _TAILS])
    confidences = []
    for start in range(0, DRAWS, _CHUNK):
        draws = rng.standard_normal((min(_CHUNK, DRAWS - start), groups, 4))
        moved = np.nan_to_num(np.einsum("mgj,rgj->rmg", pull, draws))
        largest = (np.abs(moved[:, :, a] - moved[:, :, b]) / both).max(axis=(1, 2))
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
    told: dict[str, Any] = {
        "simultaneous_interval": list(pair),
        "simultaneous_level": level,
        "survives": bool(survives),
    }
    return replace(finding, evidence={**finding.evidence, **told})
