"""Repair by policy on fresh splits: how often the pick passes, what it costs, and whether its chance was honest.

    FAIRKIT_DATA=... python benchmarks/repair.py [--splits 20] [--data adult,acs] [--output repair.json]

Every split retrains everything. Of each search the picks for several `--sure` are looked at, and every rule on scores
that was measured is learned from all rows and judged on the test rows too: its verdict beside its predicted chance.
Results are written after each split; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import fairkit
import fairkit.datasets
from fairkit.data.table import Table
from fairkit.errors import PowerError
from fairkit.repairing import run as running
from fairkit.repairing.refining import pick
from fairkit.statistics import Confusion, Rows

LIMIT, ACS_ROWS = 0.05, 60_000
TASKS = {
    "adult": ("demographic_parity_difference", "equal_opportunity_difference"),
    "acs": ("demographic_parity_difference", "equal_opportunity_difference"),
}
BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.94, 1.01)


def frames(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a table, and its roles."""
    if name == "adult":
        frame = fairkit.datasets.frame("adult").drop(columns=["split", "fnlwgt"])
        return frame, {"label": "income", "favorable": ">50K", "sensitive": "sex"}
    frame = fairkit.datasets.frame("acs_income")
    rows = np.random.default_rng(0).choice(len(frame), ACS_ROWS, replace=False)
    frame = frame.iloc[np.sort(rows)].reset_index(drop=True)
    frame["SEX"] = frame["SEX"].map({1: "male", 2: "female"}).astype(str)
    drop = ["row_index", "split"]
    return frame, {"label": "PINCP", "favorable": 1, "sensitive": "SEX", "drop": drop}


def one(name: str, metric: str, seed: int, **asked: Any) -> dict[str, Any]:
    """Search once, and judge everything that was measured on the test rows."""
    frame, roles = frames(name)
    data = fairkit.load_data(frame, **roles)
    rule = fairkit.Rule(metric=metric, sensitive=roles["sensitive"], maximum=LIMIT)
    seen: dict[str, Any] = {}
    plain_search, plain_finish = running.search, running._finished

    def watched_search(bench: Any, planned: Any, limits: Any, *rest: Any) -> Any:
        alternatives, queue = plain_search(bench, planned, limits, *rest)
        seen.update(bench=bench, limit=limits[0], queue=queue)
        return alternatives, queue

    def watched_finish(engine: Any, bench: Any, method: Any, test: Any, *rest: Any) -> Any:
        seen.update(test=test)
        return plain_finish(engine, bench, method, test, *rest)

    running.search, running._finished = watched_search, watched_finish
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        result = fairkit.repair(data, [rule], seed=seed, threads=1, **asked)
    except PowerError as error:
        return {"refused": str(error), "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    finally:
        running.search, running._finished = plain_search, plain_finish
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    test = Table.from_dataset(seen["test"])
    alternatives = result.search.alternatives
    looked = [
        judged(seen["bench"], one.method, test, seen["limit"])
        if found.chance is not None and found.status != "left out" and one.trainings == 0
        else None
        for one, found in zip(seen["queue"], alternatives, strict=True)
    ]
    return {
        **took,
        "before": result.before.find("accuracy").value,
        "verdict": result.after.verdict,
        "alternatives": [
            {
                "name": found.name,
                "chance": found.chance,
                "status": found.status,
                "reason": found.reason,
                "predicted": found.accuracy,
                "values": dict(found.values),
                "look": look,
            }
            for found, look in zip(alternatives, looked, strict=True)
        ],
        "picks": {str(sure): pick(alternatives, sure) for sure in (0.95, 0.9, 0.8)},
    }


def judged(bench: Any, method: Any, test: Any, limit: Any) -> dict[str, Any] | None:
    """Learn a rule from all rows, and give its verdict, number and accuracy on the test rows."""
    fitted = bench.fit(method, bench.run)
    if fitted is None or bench.fitted is None:
        return None
    said = fitted.predict(test.columns)
    chance = said.decision_probability
    chance = (said.score >= 0.5).astype(float) if chance is None else chance
    rows = Rows(outcome=test.target, decision=chance, score=None, weights=None)
    groups = test.groups[limit.split]
    totals = Confusion().collect(rows, groups.codes, len(groups.names))
    estimates = [rate().estimate(totals, np.random.default_rng(0)) for rate in limit.target.rates]
    low, high = limit.target.interval(estimates, limit.confidence)
    return {
        "verdict": limit.limit.verdict(low, high),
        "accuracy": float(np.where(test.target > 0, chance, 1 - chance).mean()),
        "disparity": limit.target.value(np.stack([one.values for one in estimates])),
    }


def told(found: list[dict[str, Any]]) -> str:
    """Say the pass rate and the accuracy lost of the picks."""
    done = [row for row in found if "refused" not in row]
    if not done:
        return f"{len(found)} splits, all refused before training: {found[0]['refused']}"
    lines = []
    for sure in done[0]["picks"]:
        picks = [row["alternatives"][row["picks"][sure]] for row in done]
        passed = sum(one["look"]["verdict"] == "pass" for one in picks)
        lost = np.mean(
            [row["before"] - one["look"]["accuracy"] for row, one in zip(done, picks, strict=True)]
        )
        chance = np.mean([one["chance"] for one in picks])
        lines.append(f"sure {sure}: predicted {chance:.3f}, {passed} of {len(done)} passed, lost {lost:.4f}")
    seconds = ", ".join(f"{key} {np.mean([row[key] for row in done]):.1f} s" for key in ("wall", "cpu"))
    return "\n  ".join([f"{len(done)} of {len(found)} splits searched; {seconds}", *lines])


def calibration(known: dict[str, list[dict[str, Any]]]) -> str:
    """Say how often rules passed by their predicted chance."""
    every = [
        (one["chance"], one["look"]["verdict"] == "pass")
        for rows in known.values()
        for row in rows
        for one in row.get("alternatives", ())
        if one["look"] is not None and not one["reason"]
    ]
    chance, passed = (np.array(values, float) for values in zip(*every, strict=True))
    lines = [f"all {len(chance)} rules: predicted {chance.mean():.3f}, passed {passed.mean():.3f}"]
    for low, high in itertools.pairwise(BINS):
        own = (chance >= low) & (chance < high)
        if own.any():
            lines.append(
                f"  {low:.2f} to {min(high, 1):.2f}: {own.sum()} rules, predicted {chance[own].mean():.3f}, "
                f"passed {passed[own].mean():.3f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the splits that are not done yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", default="adult,acs")
    parser.add_argument("--methods", default="threshold-optimizer")
    parser.add_argument("--output", type=Path, default=Path("repair.json"))
    options = parser.parse_args()
    known = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    for seed in range(options.splits):
        for name in options.data.split(","):
            for metric in TASKS[name]:
                rows = known.setdefault(f"{name} {metric}", [])
                if len(rows) > seed:
                    continue
                rows.append(one(name, metric, seed, methods=options.methods.split(",")))
                options.output.write_text(json.dumps(known), encoding="utf-8")
    for key, rows in known.items():
        print(f"{key}: {told(rows)}")
    print(calibration(known))


if __name__ == "__main__":
    main()
