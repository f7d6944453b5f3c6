"""Default parameters on five data sets from 1,000 to 200,000 rows: nothing is set but the data.

    python benchmarks/fairgbm_defaults.py [--seeds 5] [--only german]

Asked for: the test FNR gap below .03, or below half of LightGBM's within its interval, at an accuracy loss of at
most .01.
"""

from __future__ import annotations

import argparse

import numpy as np
from fairgbm_common import line, load, rates, split

from fairkit.mitigators import Run
from fairkit_repair.mitigation.choose import find_mitigator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="german,compas,credit_default,adult,acs_income")
    parser.add_argument("--set", nargs="*", default=[])
    chosen = parser.parse_args()
    method = find_mitigator("fairgbm").with_values(dict(pair.split("=") for pair in chosen.set))
    line("data", "train rows", "gap LightGBM", "gap FairGBM", "half width", "acc LightGBM", "acc FairGBM", "loss", "")
    for name in chosen.only.split(","):
        table = load(name, 200_000)
        found = []
        for seed in range(chosen.seeds):
            train, test = split(table, seed)
            before = rates(method.baseline(train, Run(seed=seed)), test)
            after = rates(method.fit(train, Run(seed=seed)), test)
            found.append((before.gap, after.gap, after.half_width, before.accuracy, after.accuracy))
        mean = np.mean(found, axis=0)
        loss = mean[3] - mean[4]
        near = mean[1] < 0.03 or mean[1] - mean[2] < mean[0] / 2
        line(name, len(train), *mean.tolist(), loss, "met" if near and loss <= 0.01 else "MISSED")


if __name__ == "__main__":
    main()
