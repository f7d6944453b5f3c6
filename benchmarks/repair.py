"""Repair by policy on fresh splits: how often the pick passes, what it costs, and whether its chance was honest.

    FAIRKIT_DATA=... python benchmarks/repair.py [--splits 20] [--data adult,acs] [--output repair.json]

Every split retrains everything. Results are written after each split; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import fairkit
import fairkit.datasets
from fairkit.errors import PowerError

LIMIT, ACS_ROWS = 0.05, 60_000
TASKS = {
    "adult": ("demographic_parity_difference", "equal_opportunity_difference"),
    "acs": ("demographic_parity_difference", "equal_opportunity_difference"),
}


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
    """Search once, and look once."""
    frame, roles = frames(name)
    data = fairkit.load_data(frame, **roles)
    rule = fairkit.Rule(metric=metric, sensitive=roles["sensitive"], maximum=LIMIT)
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        result = fairkit.repair(data, [rule], seed=seed, threads=1, **asked)
    except PowerError as error:
        return {"refused": str(error), "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    picked = result.search.choice
    chances = [
        {"chance": one.chance, "accuracy": one.accuracy, "method": one.method}
        for one in result.search.measured
    ]
    return {
        "method": picked.name,
        "chance": picked.chance,
        "predicted_accuracy": picked.accuracy,
        "verdict": result.after.verdict,
        "disparity": result.after.find(metric, roles["sensitive"]).value,
        "accuracy": result.after.find("accuracy").value,
        "before": result.before.find("accuracy").value,
        "alternatives": chances,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
    }


def told(found: list[dict[str, Any]]) -> str:
    """Say the pass rate, the accuracy lost, and the calibration."""
    done = [row for row in found if "refused" not in row]
    if not done:
        return f"{len(found)} splits, all refused before training: {found[0]['refused']}"
    passed = np.array([row["verdict"] == "pass" for row in done])
    lost = np.array([row["before"] - row["accuracy"] for row in done])
    chance = np.array([row["chance"] for row in done])
    seconds = ", ".join(f"{key} {np.mean([row[key] for row in done]):.1f} s" for key in ("wall", "cpu"))
    return (
        f"{len(done)} of {len(found)} splits searched: {passed.mean():.0%} passed (predicted {chance.mean():.3f}), "
        f"accuracy {np.mean([row['accuracy'] for row in done]):.4f}, lost {lost.mean():.4f}; {seconds}"
    )


def main() -> None:
    """Run the splits that are not done yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", default="adult,acs")
    parser.add_argument("--sure", default="0.95,0.9,0.77")
    parser.add_argument("--output", type=Path, default=Path("repair.json"))
    options = parser.parse_args()
    known = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    for seed in range(options.splits):
        for name in options.data.split(","):
            for metric in TASKS[name]:
                for sure in options.sure.split(","):
                    key = f"{name} {metric} {sure}"
                    rows = known.setdefault(key, [])
                    if len(rows) > seed:
                        continue
                    rows.append(
                        one(name, metric, seed, sure=float(sure), methods=["threshold-optimizer", "rto"])
                    )
                    options.output.write_text(json.dumps(known), encoding="utf-8")
    for key, rows in known.items():
        print(f"{key}: {told(rows)}")


if __name__ == "__main__":
    main()
