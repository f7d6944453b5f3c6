"""A runner of `coverage.py`: fairlearn's MetricFrame with its bootstrap of 200 draws."""

from __future__ import annotations

import json
import sys
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


def answer(request: dict[str, Any]) -> dict[str, Any]:
    columns = {name: np.asarray(values) for name, values in request["columns"].items()}
    name, kind = request["metric"], request["comparison"]
    function = {**DECIDED, **SCORED}.get(name)
    randomized = name in DECIDED and set(np.unique(columns["decision"])) - {0.0, 1.0}
    if function is None or "cluster" in columns or kind == "distance" or randomized:
        return {"unsupported": True}
    tail = (1 - request["confidence"]) / 2
    group = columns.get("group", np.zeros(len(columns["outcome"]), int))
    weights = {"sample_weight": columns["weight"]} if "weight" in columns else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame = MetricFrame(
                metrics=function,
                y_true=columns["outcome"],
                y_pred=columns["decision" if name in DECIDED else "score"],
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
            }[kind]()
            low, high = (float(np.asarray(end)) for end in pair)
        except (ValueError, ZeroDivisionError):
            return {"low": None, "high": None}
    known = np.isfinite([low, high])
    return {"low": low if known[0] else None, "high": high if known[1] else None}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], **answer(asked)}), flush=True)
