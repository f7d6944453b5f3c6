"""A runner of `coverage_study.py`: scipy's bias-corrected and accelerated bootstrap (BCa) of rows, 999 draws."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import stats


def statistic_of(name: str) -> Any:  # noqa: PLR0911 -- one for each metric
    """Return a function of (outcome, decision or score), vectorised over the last axis."""
    if name == "selection_rate":
        return lambda y, d, axis=-1: d.mean(axis=axis)
    if name == "f1_score":
        return lambda y, d, axis=-1: 2 * (y * d).sum(axis) / (y.sum(axis) + d.sum(axis))
    if name == "mean_absolute_error":
        return lambda y, s, axis=-1: np.abs(y - s).mean(axis)
    if name in ("mean_squared_error", "brier_score"):
        return lambda y, s, axis=-1: ((y - s) ** 2).mean(axis)
    if name == "log_loss":
        return lambda y, s, axis=-1: -np.log(np.clip(np.where(y > 0.5, s, 1 - s), 2.2e-16, 1)).mean(axis)
    if name == "r2_score":
        return lambda y, s, axis=-1: 1 - ((y - s) ** 2).sum(axis) / ((y - y.mean(axis, keepdims=True)) ** 2).sum(axis)
    return None


Answer = tuple[float | None, float | None, bool]


def answer(metric: str, comparison: str, confidence: float, columns: dict[str, Any]) -> Answer | None:
    function = statistic_of(metric)
    if function is None or comparison != "level" or "weight" in columns or "cluster" in columns:
        return None
    data = columns["outcome"], columns["decision" if metric in ("selection_rate", "f1_score") else "score"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            data,
            function,
            paired=True,
            vectorized=True,
            n_resamples=999,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(0),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    return low if np.isfinite(low) else None, high if np.isfinite(high) else None, False
