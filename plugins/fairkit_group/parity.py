"""The distance between the score distributions of groups, as a finding with its histograms and curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import Estimate
from fairkit.statistics import ScoreTable
from fairkit_group.curves import curves
from fairkit_group.ranking import Distances, dependent_distances, distances

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit_group.about import About

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
    known = np.isfinite(gaps.values)
    worst = int(np.argmax(np.where(known, gaps.values, -1)))
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
        lambda confidence: _largest_distance(gaps, confidence),
        groups=about.group_values(gaps.values, low, high),
        evidence=evidence,
        caveats=about.caveats.of(Estimate(gaps.values, lambda z: (low, high), gaps.sizes, doubts)),
    )


def _largest_distance(found: Distances, confidence: float) -> tuple[float, float]:
    """The largest distance: the upper end from each group alone, the lower end from all at once."""
    joint = confidence ** (1 / max(int(np.isfinite(found.values).sum()), 1))
    return float(np.nanmax(found.limits(joint)[0])), float(np.nanmax(found.limits(confidence)[1]))
