"""What group metrics cost: 1,000,000 rows, 10 groups, predictions given, in turn with fairlearn's MetricFrame.

    OMP_WAIT_POLICY=passive python benchmarks/group_speed.py [--rows 1000000] [--groups 10] [--repeat 5]

``decisions`` has every metric of hard decisions with its intervals, ``scores`` those and the score metrics
(log loss, Brier score, ROC-AUC, distances of distributions). ``totals and findings`` is the auditor on arrays;
``audit`` is all of `fairkit.audit` with the predictions as columns of a table in memory.
"""

from __future__ import annotations

import argparse
import functools
import operator
import statistics as st
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import fairkit
from fairkit import plugins
from fairkit.auditors import AuditContext
from fairkit.data.dataset import BATCH_ROWS
from fairkit.models.scorer import Predictions
from fairkit.settings import ModelOptions

GROUPS_COLUMN = "group"


def make_columns(rows: int, groups: int, *, distinct: int | None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    group = rng.integers(0, groups, rows)
    merit = rng.standard_normal(rows) + group / groups
    score = 1 / (1 + np.exp(-merit))
    if distinct is not None:
        score = np.round(score * distinct) / distinct
    outcome = (merit + rng.standard_normal(rows) > 0.5).astype(np.int64)
    return {GROUPS_COLUMN: group, "outcome": outcome, "decision": (score > 0.5).astype(np.int64), "score": score}


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def auditor_on_arrays(columns: dict[str, np.ndarray], *, scores: bool) -> Callable[[], list[fairkit.Finding]]:
    """The group auditor's measure and findings on batches of arrays, with the model's part done before."""
    data = fairkit.load_data(columns, label="outcome", favorable=1, sensitive=[GROUPS_COLUMN])
    scorer = fairkit.PredictedColumns(decision="decision").bind(data, ModelOptions())
    plugin = plugins.load("group")
    auditor = plugin.auditors[0]()
    context = AuditContext(dataset=data, scorer=scorer, metrics=plugin.metrics)
    decision = columns["decision"].astype(float)
    parts = []
    for start in range(0, len(decision), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        score = columns["score"][part] if scores else None
        parts.append((_batch(columns, part), Predictions(decision=decision[part], score=score)))
    data.learn()  # groups are known before

    def run() -> list[fairkit.Finding]:
        totals = [auditor.measure(batch, predictions, context) for batch, predictions in parts]
        return auditor.findings(functools.reduce(operator.add, totals), context)

    return run


def _batch(columns: dict[str, np.ndarray], part: slice) -> Any:
    """Rows as the auditor gets them, without a table behind."""
    rows = len(columns["outcome"][part])
    kind = type("Rows", (SimpleNamespace,), {"__len__": lambda self: rows})
    return kind(
        groups={GROUPS_COLUMN: columns[GROUPS_COLUMN][part]},
        favorable=columns["outcome"][part] == 1,
        label=columns["outcome"][part],
        weights=None,
        clusters=None,
        strata={},
        probabilities={},
        queries=None,
    )


def whole_audit(columns: dict[str, np.ndarray], *, scores: bool) -> Callable[[], fairkit.Report]:
    import pyarrow as pa

    table = pa.table(columns)
    model = fairkit.PredictedColumns(decision="decision", score="score" if scores else None)

    def run() -> fairkit.Report:
        data = fairkit.load_data(table, label="outcome", favorable=1, sensitive=[GROUPS_COLUMN], name="table")
        return fairkit.audit(model, data)

    return run


def metric_frame(columns: dict[str, np.ndarray]) -> Callable[[], Any]:
    """Four metrics without any interval."""
    import fairlearn.metrics as flm
    from sklearn.metrics import accuracy_score

    metrics = {
        "accuracy": accuracy_score,
        "selection_rate": flm.selection_rate,
        "true_positive_rate": flm.true_positive_rate,
        "false_positive_rate": flm.false_positive_rate,
    }

    def run() -> Any:
        frame = flm.MetricFrame(
            metrics=metrics,
            y_true=columns["outcome"],
            y_pred=columns["decision"],
            sensitive_features=columns[GROUPS_COLUMN],
        )
        return frame.difference(), frame.ratio()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-fairlearn", action="store_true")
    options = parser.parse_args()
    continuous = make_columns(options.rows, options.groups, distinct=None)
    rounded = make_columns(options.rows, options.groups, distinct=1_000)
    work: dict[str, Callable[[], Any]] = {
        "decisions: totals and findings": auditor_on_arrays(continuous, scores=False),
        "scores, 1,001 distinct: totals and findings": auditor_on_arrays(rounded, scores=True),
        "scores, all distinct: totals and findings": auditor_on_arrays(continuous, scores=True),
        "decisions: audit": whole_audit(continuous, scores=False),
        "scores, all distinct: audit": whole_audit(continuous, scores=True),
    }
    if not options.no_fairlearn:
        work["fairlearn MetricFrame, 4 metrics, no interval"] = metric_frame(continuous)
    for run in list(work.values())[:5]:
        run()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(options.repeat):
        for name, run in work.items():
            if "fairlearn" not in name or len(times[name]) < 3:
                times[name].append(seconds(run))
    print(f"{options.rows} rows, {options.groups} groups; seconds, median and range of {options.repeat}")
    frame = st.median(times.get("fairlearn MetricFrame, 4 metrics, no interval", [float("nan")]))
    for name, taken in times.items():
        middle = st.median(taken)
        print(f"{name:<48}{middle:9.3f}   {min(taken):.3f} to {max(taken):.3f}   {frame / middle:8.1f} times")


if __name__ == "__main__":
    main()
