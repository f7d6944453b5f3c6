"""Accuracy and disparity of adversarial debiasing on public data, for several tolerances.

FAIRKIT_DATA=folder python benchmarks/adversarial_debiasing.py adult sex demographic_parity --seeds 2
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import fairkit
from fairkit.data.table import Table
from fairkit.mitigators import Run
from fairkit_adversarial_debiasing.groups import LABELS
from fairkit_adversarial_debiasing.plugin import AdversarialDebiasing

DATA = {
    "adult": {"label": "income", "favorable": ">50K", "drop": ["split", "fnlwgt"]},
    "compas": {
        "label": "two_year_recid",
        "favorable": 0,
        "features": [*("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree")],
    },
    "credit_default": {"label": "default_payment_next_month", "favorable": 0, "drop": ["ID"]},
}
TOLERANCES = (0.02, 0.05, 0.1)
FEWEST = 60
"""Groups with fewer test rows are not counted."""


def disparity(chosen, rows, constraint):
    """Return the largest difference of two groups' rates over all columns."""
    gaps = [0.0]
    for groups in rows.groups.values():
        large = [code for code, size in enumerate(groups.sizes()) if size >= FEWEST]
        for label in LABELS[constraint]:
            of = np.ones(len(rows), bool) if label is None else rows.target == label
            gaps.append(np.ptp([chosen[of & (groups.codes == code)].mean() for code in large]))
    return max(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=DATA)
    parser.add_argument("sensitive")
    parser.add_argument("constraint", choices=LABELS)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    path = Path(os.environ["FAIRKIT_DATA"]) / f"{given.data}.parquet"
    data = fairkit.load_data(path, sensitive=given.sensitive.split(","), **DATA[given.data])
    table = Table.from_dataset(data)
    found = []
    for seed in range(given.seeds):
        order = np.random.default_rng(seed).permutation(len(table))
        test, train = table.take(order[: len(table) // 5]), table.take(order[len(table) // 5 :])
        methods = [
            AdversarialDebiasing(AdversarialDebiasing.Parameters(constraint=given.constraint, tolerance=tolerance))
            for tolerance in TOLERANCES
        ]
        start = time.process_time()
        models = AdversarialDebiasing.fit_together(methods, train, Run(seed=seed, threads=1))
        seconds = time.process_time() - start
        for model in models:
            chosen = model.predict(test.columns).decision_probability
            found.append(((chosen == test.target).mean(), disparity(chosen, test, given.constraint), seconds))
    means = np.array(found).reshape(given.seeds, len(TOLERANCES), 3).mean(0)
    for tolerance, (accuracy, gap, seconds) in zip(TOLERANCES, means, strict=True):
        print(f"tolerance {tolerance:g}: accuracy {accuracy:.4f}, disparity {gap:.4f}, {seconds:.1f} CPU s for all")


if __name__ == "__main__":
    main()
