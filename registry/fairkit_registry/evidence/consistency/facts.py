"""What is known about a metric's name: who measures it, its range, and what it is made of."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from fairkit_registry.evidence.declared import metrics

OVER_CLASSES = ("class_gap_rms", "class_gap_mean", "class_gap_max")
"""Made of the numbers of all classes: these findings have no groups of their own."""

OVER_ALL_ROWS = frozenset(
    {
        "accuracy",
        "selection_rate",
        "mean_prediction",
        "log_loss",
        "brier_score",
        "mean_absolute_error",
        "mean_squared_error",
    }
)
"""Means over every row of a group: over all rows they are the mean of the groups, weighted by their rows."""

BETWEEN_GROUPS = OVER_ALL_ROWS | {
    "true_positive_rate",
    "false_positive_rate",
    "true_negative_rate",
    "false_negative_rate",
    "precision",
}
"""Means over rows: over all rows they lie between the smallest and the largest of the groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What holds for every finding of one name."""

    low: float  # the range of its value
    high: float  # the range of its value
    better: str  # `lower`, `higher` or `none`
    kind: str = ""
    base: str | None = None  # the metric of the groups' values


@functools.cache
def facts() -> dict[str, Fact]:
    """Return the facts about metrics, by the metric's name, for the plugins that are installed."""
    by_metric: dict[str, Fact] = {}
    for name, (low, high, better, alias) in metrics().items():
        spread = high - low if math.isfinite(high - low) else math.inf
        by_metric[name] = Fact(low=low, high=high, better=better, kind="value")
        difference = Fact(low=0, high=spread, better="lower", kind="difference", base=name)
        ratio = Fact(low=0, high=1, better="higher", kind="ratio", base=name)
        by_metric |= {f"{stem}_difference": difference for stem in (name, alias) if stem}
        by_metric |= {f"{stem}_ratio": ratio for stem in (name, alias) if stem}
        by_metric[f"{name}_group_min"] = Fact(low=low, high=high, better=better, kind="smallest", base=name)
        by_metric[f"{name}_group_max"] = Fact(low=low, high=high, better=better, kind="largest", base=name)
    difference, ratio = Fact(low=0, high=1, better="lower"), Fact(low=0, high=1, better="higher")
    by_metric |= dict.fromkeys(("equalized_odds_difference", "gap_max", "gap_rms", *OVER_CLASSES), difference)
    by_metric["equalized_odds_ratio"] = ratio
    by_metric["statistical_parity_ks"] = Fact(low=0, high=1, better="lower", kind="largest")
    by_metric["worst_group_loss"] = Fact(low=0, high=math.inf, better="lower", kind="largest")
    return by_metric
