"""A runner of `coverage.py`: Wilson's intervals, Newcombe's differences and Student's means, with scipy."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from scipy import stats


def answer(request: dict[str, Any]) -> dict[str, Any]:
    columns = {name: np.asarray(values, float) for name, values in request["columns"].items()}
    name, kind, level = request["metric"], request["comparison"], request["confidence"]
    group = columns.get("group", np.zeros(len(columns["outcome"]))).astype(int)
    if {"weight", "cluster"} & set(columns):
        return {"unsupported": True}
    if name == "selection_rate" and set(np.unique(columns["decision"])) <= {0.0, 1.0}:
        counts = [columns["decision"][group == g] for g in range(group.max() + 1)]
        ends = [stats.binomtest(int(d.sum()), len(d)).proportion_ci(level, method="wilson") for d in counts]
        if kind == "level":
            return {"low": float(ends[0].low), "high": float(ends[0].high)}
        if kind == "difference" and len(counts) == 2:
            p, q = counts[0].mean(), counts[1].mean()
            low = p - q - np.hypot(p - ends[0].low, ends[1].high - q)
            high = p - q + np.hypot(ends[0].high - p, q - ends[1].low)
            return {"low": float(max(low, -high, 0.0)), "high": float(max(high, -low))}
        return {"unsupported": True}
    losses = {
        "mean_absolute_error": lambda y, s: np.abs(y - s),
        "mean_squared_error": lambda y, s: (y - s) ** 2,
        "brier_score": lambda y, s: (y - s) ** 2,
        "log_loss": lambda y, s: -np.log(np.clip(np.where(y > 0.5, s, 1 - s), 2.2e-16, 1)),
        "selection_rate": lambda y, s: s,
    }
    if name in losses and kind == "level":
        values = losses[name](columns["outcome"], columns["decision" if name == "selection_rate" else "score"])
        half = stats.t.ppf(0.5 + level / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        return {"low": float(values.mean() - half), "high": float(values.mean() + half)}
    return {"unsupported": True}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"id": asked["id"], **answer(asked)}), flush=True)
