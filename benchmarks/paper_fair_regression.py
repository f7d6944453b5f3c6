"""Agarwal, Dudík, Wu: Fair Regression (ICML 2019): frontiers of loss against statistical parity, oracles, calls."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import fair_regression_frontiers as frontiers
import numpy as np
from fair_regression_data import load
from frontier_drawing import Mark, Series, panels
from papers_kit import Exhibit, Table, find

from fairkit.mitigators import Run
from fairkit.mitigators import Table as Rows
from fairkit_fair_regression.plugin import FairRegression

NAME, TITLE = (
    "fair-regression",
    "Fair Regression: Quantitative Definitions and Reduction-Based Algorithms (Agarwal et al., ICML 2019)",
)
SETS = {
    name: frontiers.SETS[name]
    for name in ("adult", "adult, 2,000 rows", "law school", "law school, 2,000 rows", "communities & crime")
}
FILES = {"adult": "adult", "law school": "law_school_fair_regression", "communities & crime": "communities_crime"}
AT = (0.159, 0.111, 0.044)
"""The disparities of the points that are known of the paper's figure 1 on Adult (fair classification, trees)."""
LEVELS = tuple(float(f"{value:.3g}") for value in np.geomspace(0.25, 0.01, 8))
ORACLES = {
    "CS, linear": ("hinge", "linear"),
    "CS, classifier of (x, z)": ("cs", "logistic"),
    "LS, linear": ("ls", "linear"),
    "LS, trees": ("ls", "xgboost"),
    "LR, linear": ("loss", "logistic"),
    "LR, trees": ("loss", "xgboost"),
}


def compute(method: str, number: int, rows: int | None) -> dict[str, Any]:
    """Train every method on one split of one data set."""
    name, own = SETS[method]
    find(FILES[name])
    wanted = min(own or rows or 10**9, rows or 10**9)
    problem = load(name, number, None if wanted == 10**9 else wanted)
    levels, found = list(LEVELS), []
    for learner in frontiers.LEARNERS[problem.loss]:
        if learner == "xgboost" and frontiers.is_small(method):
            continue  # as in the paper: trees overfit a thousand rows
        found += frontiers.ours(problem, learner, levels)
        if problem.loss == "logistic":
            found += frontiers.classification(problem, learner, [0.2, 0.1, 0.05, 0.02])
    found += frontiers.cost_sensitive(problem, levels[::2]) if frontiers.is_small(method) else []
    found += frontiers.seo(problem) if problem.loss == "squared" else []
    kept = (*(f"{part}_{what}" for part in ("train", "test") for what in ("loss", "disparity")), "oracle_calls")
    rows_kept = [
        {"method": row["method"], "bound": row["bound"]} | {key: row[key] for key in kept if key in row}
        for row in found
    ]
    return {"points": rows_kept}


def loss_of(data: str, row: Mapping[str, Any], part: str = "test") -> float:
    """Return log-loss, or root mean squared error."""
    return row[f"{part}_loss"] if data.startswith("adult") else row[f"{part}_loss"] ** 0.5


def table(runs: Sequence[Mapping]) -> Table:
    """Return loss and disparity without bounds, and the loss that frontiers have at given disparities."""
    found: Table = {}
    for run in runs:
        data, points = run["method"], run["values"]["points"]
        for method in dict.fromkeys(row["method"] for row in points):
            own = [row for row in points if row["method"] == method]
            if method.startswith("ours"):  # a frontier starts at the learner without bounds
                own += [row for row in points if row["method"] == method.replace("ours", "unconstrained")]
            row = found.setdefault(f"{data}: {method}", {})
            if len(own) == 1:
                row["loss"], row["SP"] = (loss_of(data, own[0]), None), (own[0]["test_disparity"], None)
                continue
            losses, gaps = (np.array(x) for x in ([loss_of(data, p) for p in own], [p["test_disparity"] for p in own]))
            order = np.argsort(gaps)
            for at in AT:
                if gaps.min() <= at <= gaps.max():
                    value = float(np.interp(at, gaps[order], envelope(gaps[order], losses[order])))
                    row[f"loss at SP {at:g}"] = (value, None)
    return found


def envelope(gaps: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Return the lower convex envelope of a frontier at its own points (mixtures reach it)."""
    out = losses.astype(float).copy()
    for k in range(len(gaps)):
        for i in range(k + 1):
            for j in range(k, len(gaps)):
                if gaps[j] > gaps[i]:
                    share = (gaps[k] - gaps[i]) / (gaps[j] - gaps[i])
                    out[k] = min(out[k], (1 - share) * losses[i] + share * losses[j])
    return out


def figure(runs: Sequence[Mapping]) -> str:
    """Draw test and training frontiers, and oracle calls by slack."""
    drawn = []
    for part in ("test", "train"):
        for run in runs:
            drawn.append(panel(run["method"], run["values"]["points"], part))
    calls = []
    for run in runs:
        for method in dict.fromkeys(row["method"] for row in run["values"]["points"]):
            own = [r for r in run["values"]["points"] if r["method"] == method and r.get("oracle_calls") and r["bound"]]
            if len(own) > 1 and method.startswith("ours"):
                marks = sorted(Mark(r["bound"], None, r["oracle_calls"], None) for r in own)
                calls.append(Series(f"{run['method']}: {method.partition(', ')[2]}", marks))
    drawn.append((calls, "calls of the oracle", "slack", "calls up to this bound"))
    return panels(drawn, columns=max(1, len(runs)), shared=True)


def panel(data: str, points: Sequence[Mapping], part: str):
    """Return one data set's panel: relative loss against disparity."""
    least = min(loss_of(data, row, part) for row in points if row["method"].startswith("unconstrained"))
    series = []
    for method in dict.fromkeys(row["method"] for row in points):
        own = [row for row in points if row["method"] == method]
        marks = sorted(Mark(row[f"{part}_disparity"], None, loss_of(data, row, part) - least, None) for row in own)
        series.append(Series(method.replace(", ", " "), marks, line=len(own) > 1))
    return series, f"{data}, {part}", "statistical parity (KS)", "loss above the best unconstrained"


def claims(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of figure 1."""
    out = []
    for run in runs:
        data, points = run["method"], run["values"]["points"]
        free = {r["method"].partition(", ")[2]: r for r in points if r["method"].startswith("unconstrained")}
        for learner, start in free.items():
            least = min(r["test_disparity"] for r in points if r["method"] == f"ours, {learner}")
            out.append(
                (
                    f"{data}, {learner}: the reduction takes SP from {start['test_disparity']:.3f} to {least:.3f}.",
                    least <= 0.5 * start["test_disparity"],
                )
            )
        out += beyond_seo(data, points)
    return out


def beyond_seo(data: str, points: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Compare the linear frontier with SEO at SEO's parity."""
    seo = next((row for row in points if row["method"] == "SEO"), None)
    own = [row for row in points if row["method"] in ("ours, linear", "unconstrained, linear")]
    if seo is None:
        return []
    inside = [loss_of(data, row) for row in own if row["test_disparity"] <= seo["test_disparity"] + 0.01]
    best = min(inside, default=np.inf)
    return [
        (
            f"{data}: no worse than SEO at its parity (SP {seo['test_disparity']:.3f}: RMSE {best:.4f}, SEO "
            f"{loss_of(data, seo):.4f}).",
            best <= loss_of(data, seo) + 0.0005,
        )
    ]


def oracle_time(method: str, number: int, rows: int | None) -> dict[str, float]:
    """Return the CPU seconds of one call of an oracle, in a run on law school (LR: on Adult)."""
    oracle, learner = ORACLES[method]
    name = "adult" if oracle == "loss" else "law school"
    find(FILES[name])
    problem = load(name, number, 2 * (rows or 1_000))  # half of them train
    values = {
        "tolerance": 0.05,
        "loss": problem.loss,
        "label_range": problem.label_range,
        "oracle": oracle,
        "settings": frontiers.TREES if learner == "xgboost" else {},
        "iterations": 15,
    }
    start = time.process_time()
    table = Rows.from_dataset(problem.train, "binary" if name == "adult" else "regression")
    model = FairRegression.with_values(values).fit(table, Run(learner=learner, threads=1))
    return {"CPU s a call": (time.process_time() - start) / model.details["oracle_calls_of_run"]}


def _slowest(runs: Sequence[Mapping]) -> bool:
    times = {m: np.mean([r["values"]["CPU s a call"] for r in runs if r["method"] == m]) for m in ORACLES}
    return bool(times["CS, linear"] > 2 * max(times["LS, linear"], times["LR, linear"]))


EXHIBITS = [
    Exhibit(
        name="fair-regression.figure1",
        also=("fair-regression.figure2", "fair-regression.figure3"),
        methods=tuple(SETS),
        compute=compute,
        table=table,
        paper={
            "adult: unconstrained, xgboost": {"loss": (0.2974, 0.008), "SP": (0.270, 0.015)},
            "adult: fairlearn, xgboost": {
                "loss at SP 0.159": (0.3101, 0.004),
                "loss at SP 0.111": (0.3213, 0.004),
                "loss at SP 0.044": (0.3421, 0.004),
            },
        },
        claims=claims,
        figure=figure,
    ),
    Exhibit(
        name="fair-regression.table1",
        methods=tuple(ORACLES),
        compute=oracle_time,
        count=3,
        rows=1_000,
        claims=lambda runs: [("cost-sensitive oracles are several times as slow as the others.", _slowest(runs))],
    ),
]
