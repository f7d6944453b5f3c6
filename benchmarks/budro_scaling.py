"""How the cost of a BuDRO round grows: ACSIncome, 10,000 to 160,000 rows.

    FAIRKIT_DATA=... OMP_WAIT_POLICY=passive python benchmarks/budro_scaling.py [--rounds 20] [--sizes 10000,40000]

Seconds are CPU seconds of the process (all threads), which a busy machine hardly changes, and wall seconds. A round is
what the worst case takes, in every one of 20 rounds (4 of the first 10 search all rows, 1 in 10 later), and its tree;
"candidates" is the time that the lists of nearest rows take, once. The slope is that of log seconds on log rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import fairkit
from fairkit.mitigators import Table
from fairkit_budro.boosting import BoostingRows, BoostingSettings, train
from fairkit_budro.geometry import find_geometry
from fairkit_budro.plans import ExactPlan, Fixed, Support
from fairkit_repair.learners import encoder_for


def acs(rows: int) -> Table:
    """The first rows, which are in random order; sex and race are sensitive."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("FAIRKIT_DATA", default)) / "acs_income.parquet"
    data = pq.read_table(path).slice(0, rows)
    # codes are categories: class of worker, marital status, relationship, sex, race
    for name in ("COW", "MAR", "RELP", "SEX", "RAC1P"):
        place = data.column_names.index(name)
        data = data.set_column(place, name, data[name].cast("string"))
    given = {"label": "PINCP", "favorable": 1, "sensitive": ["SEX", "RAC1P"], "drop": ["row_index", "split"]}
    return Table.from_dataset(fairkit.load_data(data, name="ACSIncome", **given))


class Timed:
    """A plan that notes what its rounds cost."""

    def __init__(self, plan: ExactPlan) -> None:
        self.plan, self.seconds = plan, {"all": [], "near": []}

    def __call__(self, values):
        cpu, wall = time.process_time(), time.perf_counter()
        found = self.plan(values)
        self.seconds[found.searched].append((time.process_time() - cpu, time.perf_counter() - wall))
        return found


def measure(rows: int, rounds: int) -> dict[str, float]:
    table = acs(rows)
    geometry = find_geometry(table, "subspace", 0.1)
    labels = table.target.astype(np.int64)
    support = Support(geometry.metric.transform(geometry.columns))
    mass = np.full(rows, 1 / rows)
    fixed = Fixed(support=support, labels=labels, mass=mass, epsilon=0.1, classes=2)
    encoder = encoder_for("xgboost", table)
    data = BoostingRows(matrix=encoder.transform(table.columns), labels=labels, mass=mass, factors=np.ones(2))
    params = {"objective": "binary:logistic", "base_score": 0.5, "tree_method": "hist", "max_depth": 10, "eta": 0.02}
    plan = Timed(ExactPlan(fixed))
    cpu, wall = time.process_time(), time.perf_counter()
    train(data, plan, BoostingSettings(rounds=rounds, params=params))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    first, *later = plan.seconds["all"]
    exact, near = np.mean(later, axis=0), np.mean(plan.seconds["near"] or [(0.0, 0.0)], axis=0)
    lists = np.maximum(np.array(first) - exact, 0.0)
    return {
        "distinct": len(support.first),
        "columns": support.z.shape[1],
        "candidates": lists[0],
        "exact round": exact[0],
        "near round": near[0],
        "round": (cpu - lists[0]) / rounds,
        "wall round": (wall - lists[1]) / rounds,
        "steady round": 0.1 * exact[0] + 0.9 * near[0],
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Print a line for each size, and the slopes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sizes", default="10000,20000,40000,80000,160000")
    given = parser.parse_args()
    sizes = [int(text) for text in given.sizes.split(",")]
    measure(5_000, 3)  # compile, or load the cache
    found = []
    for place, rows in enumerate(sizes):
        found.append(measure(rows, given.rounds))
        if not place:
            print(f"{'rows':>8}" + "".join(f"{name:>13}" for name in found[0]))
        print(f"{rows:8,}" + "".join(f"{value:13.3f}" for value in found[-1].values()), flush=True)
    if len(sizes) > 1:
        for name in ("candidates", "exact round", "near round", "round", "wall round", "steady round"):
            seconds = [max(one[name], 1e-9) for one in found]
            slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
            print(f"{name}: n^{slope:.2f}")


if __name__ == "__main__":
    main()
