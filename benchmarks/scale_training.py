"""FairGBM on XGBoost against stock XGBoost, on one machine: the ratio of runs in turn.

python benchmarks/scale_training.py --rows 1000000 --repeats 5
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import xgboost

from fairkit_fairgbm.constraints import Constraints, make_cells
from fairkit_fairgbm.trainer import TrainerSettings, TrainingRows
from fairkit_fairgbm.xgb import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(chosen.rows, chosen.columns)).astype(np.float32)
    group = rng.integers(0, 2, chosen.rows)
    chance = 1 / (1 + np.exp(-matrix[:, 0] - matrix[:, 1] * matrix[:, 2] - 0.7 * group))
    target = (rng.random(chosen.rows) < chance).astype(float)
    rows = TrainingRows(matrix, make_cells(group, target, ("a", "b")))
    params = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": 31,
        "eta": 0.1,
        "nthread": chosen.threads,
        "verbosity": 0,
    }
    settings = TrainerSettings(rounds=chosen.rounds, multiplier_rate=2.0, multiplier_cap=5.0, params=params)

    def stock() -> None:
        data = xgboost.QuantileDMatrix(matrix, target, nthread=chosen.threads)
        xgboost.train(params | {"objective": "binary:logistic"}, data, chosen.rounds)

    def fair() -> None:
        train(rows, Constraints(("fnr",), (0.0,)), settings)

    fair()  # compiles
    ratios, seconds = [], []
    for _ in range(chosen.repeats):
        times = []
        for run in (stock, fair):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        ratios.append(times[1] / times[0])
        seconds.append(times[0])
    low, high = min(ratios), max(ratios)
    print(
        f"{chosen.rows:,} rows, {chosen.rounds} rounds: stock {statistics.median(seconds):.2f} s, "
        f"FairGBM {statistics.median(ratios):.2f} times as long ({low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    main()
