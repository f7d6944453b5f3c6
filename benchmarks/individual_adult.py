"""Adult, 45,222 rows x 41: the exact solver against dense blocked evaluations, in turn.

Needs FAIRKIT_DATA, a folder with adult.parquet. Run with OMP_WAIT_POLICY=passive on a quiet machine:

    OMP_WAIT_POLICY=passive python benchmarks/individual_adult.py --repeats 5
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from fairkit_similarity.learn import subspace
from fairkit_similarity.transport import Support

EPSILONS = (1.0, 0.4, 0.1, 0.01, 0.001)
DENSE_EVALUATIONS = 12


def adult():
    """The encoding of the BuDRO paper: five numbers, four one-hot columns, male, white."""
    import pandas as pd

    frame = pd.read_parquet(Path(os.environ["FAIRKIT_DATA"]) / "adult.parquet")
    frame = frame.dropna(subset=["occupation", "native-country", "workclass"])
    columns = {
        name: frame[name].to_numpy(float)
        for name in ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    }
    for name in ("workclass", "marital-status", "occupation", "relationship"):
        columns[name] = frame[name].to_numpy(object)
    columns["male"] = (frame["sex"] == "Male").to_numpy(float)
    columns["white"] = (frame["race"] == "White").to_numpy(float)
    return columns, (frame["income"] == ">50K").to_numpy(int)


def losses(features, labels):
    import lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=300, learning_rate=0.05, n_jobs=2, verbose=-1)
    score = np.clip(model.fit(features, labels).predict_proba(features)[:, 1], 1e-6, 1 - 1e-6)
    return np.stack([-np.log(1 - score), -np.log(score)])


def dense_evaluation(z, values, labels, eta, block=1_024):
    """One M(η) by matrix products, a block of queries at a time."""
    square = (z**2).sum(axis=1)
    total = 0.0
    for start in range(0, len(z), block):
        part = slice(start, start + block)
        far = square[part, None] + square[None] - 2.0 * z[part] @ z.T
        far *= -eta
        far += values[labels[part]]
        total += far.max(axis=1).sum()
    return total / len(z)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    columns, labels = adult()
    metric = subspace(columns, ["male", "white"])
    features = metric.encoder.encode(columns)
    z, values = metric.transform(columns), losses(features, labels)
    print(f"{features.shape[0]:,} rows x {features.shape[1]} features, z has {z.shape[1]} columns")
    Support(z[:5_000]).losses(values[:, :5_000], labels[:5_000]).solve(0.1)  # compile, or load the cache
    print(f"{'epsilon':>8} {'wall s':>7} {'cpu s':>6} {'dense x12':>9} {'ratio':>6} {'eta':>8} {'gap':>8} "
          f"{'bounds':>8} {'evaluations':>11} {'looks/row':>9}")  # fmt: skip
    for epsilon in EPSILONS:
        walls, cpus, denses = [], [], []
        for _ in range(repeats):
            wall, cpu = time.perf_counter(), time.process_time()
            solution = Support(z).losses(values, labels).solve(epsilon, tolerance=1e-6)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            wall = time.perf_counter()
            dense = dense_evaluation(z, values, labels, solution.eta)
            denses.append(DENSE_EVALUATIONS * (time.perf_counter() - wall))
        assert abs(dense + solution.eta * epsilon - solution.value) < 1e-8
        ratio = np.median(np.array(denses) / np.array(walls))
        baseline = values[labels, np.arange(len(z))].mean()
        print(
            f"{epsilon:8g} {np.median(walls):7.2f} {np.median(cpus):6.2f} {np.median(denses):9.1f} {ratio:6.0f} "
            f"{solution.eta:8.3f} {solution.value - baseline:8.4f} {solution.value - solution.lower_bound:8.1e} "
            f"{solution.evaluations:11.2f} {solution.looks / len(z):9.0f}"
        )


if __name__ == "__main__":
    main()
