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
    about: About, table: ScoreTable, buckets: ScoreTable | None = None, *, curved: bool
) -> Finding:
    """Return the largest distance of a group's scores from those of all rows (statistical_parity_ks).

    Parameters
    ----------
    about
        The groups.
    table
        Their scores.
    buckets
        Their scores by bucket of clusters, where rows depend on each other.
    curved
        Whether there is an outcome to draw ROC curves and calibration with.
    """
    found = distances(table)
    doubts: dict[int, str] = {}
    if isinstance(buckets, ScoreTable):
        found, doubts = dependent_distances(found, buckets)
    known = np.isfinite(found.values)
    worst = int(np.argmax(np.where(known, found.values, -1)))
    edges, mass = table.histogram(CHART_BINS)
    evidence: dict[str, Any] = {
        "group": about.names[worst],
        "at_score": float(found.at[worst]),
        "histogram": {
            "edges": [float(edge) for edge in edges],
            "groups": {name: mass[:, i].tolist() for i, name in enumerate(about.names)},
        },
    }
    if curved:
        evidence |= curves(table, about.names, about.confidence)
    if not table.exact:
        evidence["discretisation_bound"] = found.bound
    low, high = found.limits(about.confidence)
    return about.finding(
        "statistical_parity_ks",
        "lower",
        float(found.values[worst]),
        lambda confidence: _largest_distance(found, confidence),
        groups=about.group_values(found.values, low, high),
        evidence=evidence,
        caveats=about.caveats.of(Estimate(found.values, lambda z: (low, high), found.sizes, doubts)),
    )


def _largest_distance(found: Distances, confidence: float) -> tuple[float, float]:
    """The largest distance: the upper end from each group alone, the lower end from all at once."""
    joint = confidence ** (1 / max(int(np.isfinite(found.values).sum()), 1))
    return float(np.nanmax(found.limits(joint)[0])), float(np.nanmax(found.limits(confidence)[1]))
