"""A runner of `coverage_study.py`: Wilson's intervals, Newcombe's differences and Student's means, with scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

Answer = tuple[float | None, float | None, bool]


def answer(metric: str, comparison: str, confidence: float, columns: dict[str, Any]) -> Answer | None:
    group = columns.get("group", np.zeros(len(columns["outcome"]))).astype(int)
    if {"weight", "cluster"} & set(columns):
        return None
    if metric == "selection_rate" and set(np.unique(columns["decision"])) <= {0.0, 1.0}:
        counts = [columns["decision"][group == g] for g in range(group.max() + 1)]
        ends = [stats.binomtest(int(d.sum()), len(d)).proportion_ci(confidence, method="wilson") for d in counts]
        if comparison == "level":
            return float(ends[0].low), float(ends[0].high), False
        if comparison == "difference" and len(counts) == 2:
            p, q = counts[0].mean(), counts[1].mean()
            low = p - q - np.hypot(p - ends[0].low, ends[1].high - q)
            high = p - q + np.hypot(ends[0].high - p, q - ends[1].low)
            return float(max(low, -high, 0.0)), float(max(high, -low)), False
        return None
    losses = {
        "mean_absolute_error": lambda y, s: np.abs(y - s),
        "mean_squared_error": lambda y, s: (y - s) ** 2,
        "brier_score": lambda y, s: (y - s) ** 2,
        "log_loss": lambda y, s: -np.log(np.clip(np.where(y > 0.5, s, 1 - s), 2.2e-16, 1)),
        "selection_rate": lambda y, s: s,
    }
    if metric in losses and comparison == "level":
        values = losses[metric](columns["outcome"], columns["decision" if metric == "selection_rate" else "score"])
        half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        return float(values.mean() - half), float(values.mean() + half), False
    return None
