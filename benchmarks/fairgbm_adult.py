"""UCI Adult, original split, sex constrained but not a feature, FNR constraint, 200 trees.

python benchmarks/fairgbm_adult.py [--seeds 5]
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fairgbm_common import ROLES, folder, line, rates

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_repair.mitigation.choose import find_mitigator


def part(name: str) -> Table:
    table = pq.read_table(folder() / "adult.parquet")
    table = table.filter(pc.equal(table["split"], name))
    roles = ROLES["adult"] | {"drop": ["split", "sex"]}
    return Table.from_dataset(fairkit.load_data(table, name=name, **roles))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[])
    chosen = parser.parse_args()
    train, test = part("train"), part("test")
    line("seed", "accuracy", "TPR ratio", "gap", "acc LightGBM", "ratio LightGBM")
    found = []
    for seed in range(chosen.seeds):
        # a seed changes LightGBM's draws only where it draws: rows and columns of every tree
        values = {"n_estimators": 200, "lightgbm.bagging_fraction": 0.9, "lightgbm.bagging_freq": 1}
        method = find_mitigator("fairgbm").with_values(values | dict(pair.split("=") for pair in chosen.set))
        after = rates(method.fit(train, Run(seed=seed)), test)
        before = rates(method.baseline(train, Run(seed=seed)), test)
        row = [after.accuracy, ratio(after), after.gap, before.accuracy, ratio(before)]
        found.append(row)
        line(seed, *row)
    line("ours, mean", *np.mean(found, axis=0).tolist())
    line("authors", 0.872, 0.961)
    line("asked for", 0.865, 0.92)


def ratio(found) -> float:
    recall = 1 - found.fnr
    return float(recall.min() / recall.max())


if __name__ == "__main__":
    main()
