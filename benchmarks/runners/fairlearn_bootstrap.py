"""A runner of `coverage_study.py`: fairlearn's MetricFrame with its bootstrap of 200 draws."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn.metrics as skm
from fairlearn.metrics import MetricFrame, selection_rate

DRAWS = 200
DECIDED = {"selection_rate": selection_rate, "f1_score": lambda y, d, **w: skm.f1_score(y, d, zero_division=0, **w)}
SCORED = {
    "roc_auc": skm.roc_auc_score,
    "log_loss": lambda y, s, **w: skm.log_loss(y, s, labels=[0, 1], **w),
    "brier_score": skm.brier_score_loss,
    "mean_absolute_error": skm.mean_absolute_error,
    "mean_squared_error": skm.mean_squared_error,
    "r2_score": skm.r2_score,
}


Answer = tuple[float | None, float | None, bool]


def answer(metric: str, comparison: str, confidence: float, columns: dict[str, Any]) -> Answer | None:
    function = {**DECIDED, **SCORED}.get(metric)
    randomized = metric in DECIDED and set(np.unique(columns["decision"])) - {0.0, 1.0}
    if function is None or "cluster" in columns or comparison == "distance" or randomized:
        return None
    tail = (1 - confidence) / 2
    group = columns.get("group", np.zeros(len(columns["outcome"]), int))
    weights = {"sample_weight": columns["weight"]} if "weight" in columns else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame = MetricFrame(
                metrics=function,
                y_true=columns["outcome"],
                y_pred=columns["decision" if metric in DECIDED else "score"],
                sensitive_features=group,
                sample_params=weights,
                n_boot=DRAWS,
                ci_quantiles=[tail, 1 - tail],
                random_state=0,
            )
            pair = {
                "level": lambda: frame.overall_ci,
                "difference": frame.difference_ci,
                "ratio": frame.ratio_ci,
                "group_min": frame.group_min_ci,
                "group_max": frame.group_max_ci,
            }[comparison]()
            low, high = (float(np.asarray(end)) for end in pair)
        except (ValueError, ZeroDivisionError):
            return None, None, False
    known = np.isfinite([low, high])
    return low if known[0] else None, high if known[1] else None, False
