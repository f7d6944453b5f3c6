"""How the certificate grows with the rows: full solves, sampled queries at 1,000,000 rows, and the plot.

OMP_WAIT_POLICY=passive python benchmarks/individual_scaling.py --plot docs/images/individual-scaling.svg
OMP_WAIT_POLICY=passive python benchmarks/individual_scaling.py --million
FAIRKIT_DATA=... OMP_WAIT_POLICY=passive python benchmarks/individual_scaling.py --acs
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np

from fairkit_similarity.interval import spread
from fairkit_similarity.learn import subspace
from fairkit_similarity.transport import Support

SIZES = (12_500, 25_000, 50_000, 100_000, 200_000)


def people(n, seed=0):
    """Like Adult: 5 numbers, two of them skewed, and four categories: 35 columns, all rows distinct."""
    world, rng = np.random.default_rng(seed), np.random.default_rng([seed, n])  # one population for all n
    numbers = rng.normal(size=(n, 5))
    numbers[:, 3] = np.where(rng.random(n) < 0.08, np.abs(rng.normal(size=n)) * 6, -0.15)
    numbers[:, 4] = np.where(rng.random(n) < 0.05, 4 + rng.normal(size=n), -0.2)
    parts, effect = [numbers], 0.9 * numbers[:, 0] + 0.6 * numbers[:, 1] + 0.5 * numbers[:, 3]
    for size in (7, 6, 12, 5):
        share = world.dirichlet(np.full(size, 0.8))
        code = rng.choice(size, n, p=share)
        parts.append(np.eye(size)[code])
        effect = effect + world.normal(size=size)[code]
    score = 1 / (1 + np.exp(-(effect - np.quantile(effect, 0.75)) - 0.5 * np.sin(3 * numbers).sum(axis=1)))
    labels = (rng.random(n) < score).astype(int)
    score = np.clip(score, 1e-6, 1 - 1e-6)
    return np.concatenate(parts, axis=1), np.stack([-np.log(1 - score), -np.log(score)]), labels


def timed(z, values, labels, epsilon, rows=None):
    wall, cpu = time.perf_counter(), time.process_time()
    solution = Support(z).losses(values, labels, rows=rows).solve(epsilon, tolerance=1e-6)
    return solution, time.perf_counter() - wall, time.process_time() - cpu


def scaling(plot, most):
    sizes = [n for n in SIZES if n <= most]
    found = {}
    for epsilon in (0.1, 0.01):
        for n in sizes:
            solution, wall, cpu = timed(*people(n), epsilon)
            found[epsilon, n] = cpu
            print(f"epsilon {epsilon:g}, {n:>9,} rows: {wall:7.2f} s, {cpu:7.2f} cpu s, eta {solution.eta:.3f}, "
                  f"{solution.evaluations:.2f} evaluations, {solution.looks / n:.0f} looks", flush=True)  # fmt: skip
        if 200_000 in sizes:
            exponent = np.log(found[epsilon, 200_000] / found[epsilon, 50_000]) / np.log(4.0)
            print(f"epsilon {epsilon:g}: growth exponent 50,000 to 200,000 rows: {exponent:.2f}")
    if plot:
        draw(plot, sizes, found)


def draw(path, sizes, found):
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fairkit"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 3.6))
    for epsilon, mark in ((0.1, "o"), (0.01, "s")):
        axes.loglog(sizes, [found[epsilon, n] for n in sizes], marker=mark, label=f"exact, ε = {epsilon:g}")
    first = found[0.1, sizes[0]]
    axes.loglog(sizes, [first * (n / sizes[0]) ** 2 for n in sizes], "k:", label="growth n² (all pairs)")
    axes.loglog(sizes, [first * (n / sizes[0]) for n in sizes], "k--", label="growth n")
    axes.set(xlabel="rows", ylabel="processor seconds", title="Exact performance gap, 35 columns, 2 cores")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def million():
    z, values, labels = people(1_000_000)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(z), 20_000, replace=False))
    timed(z[:5_000], values[:, :5_000], labels[:5_000], 0.1)
    wall = time.perf_counter()
    solution, _, cpu = timed(z, values, labels, 0.1, rows)
    sure = spread(solution, rng)
    wall = time.perf_counter() - wall
    low, high = sure.interval(0.95)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"1,000,000 rows, 20,000 asked: {wall:.1f} s, {cpu:.1f} cpu s, peak {peak:.2f} GiB")
    print(f"gap {sure.gap:.4f}, standard error {sure.error:.5f}, 95 % interval [{low:.4f}, {high:.4f}], "
          f"upper bound {sure.upper_bound(0.95):.4f}")  # fmt: skip


def acs(n=200_000):
    import lightgbm
    import pandas as pd

    frame = pd.read_parquet(Path(os.environ["FAIRKIT_DATA"]) / "acs_income.parquet").iloc[:n]
    names = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
    columns = {name: frame[name].to_numpy(float) for name in names}
    labels = frame["PINCP"].to_numpy(int)
    X = frame[names].to_numpy(float)
    model = lightgbm.LGBMClassifier(n_estimators=300, learning_rate=0.05, n_jobs=2, verbose=-1).fit(X, labels)
    score = np.clip(model.predict_proba(X)[:, 1], 1e-6, 1 - 1e-6)
    wall = time.perf_counter()
    z = subspace(columns, ["SEX"]).transform(columns)
    print(f"metric: {time.perf_counter() - wall:.1f} s")
    support = Support(z)
    for epsilon in (0.1, 0.01):
        for name, problem in (
            ("restricted-dro", lambda: support.losses(np.stack([-np.log(1 - score), -np.log(score)]), labels)),
            ("dif", lambda: support.outputs(np.log(score / (1 - score)))),
        ):
            wall = time.perf_counter()
            solution = problem().solve(epsilon, tolerance=1e-6)
            sure = spread(solution, np.random.default_rng(0))
            wall = time.perf_counter() - wall
            print(f"{name}, epsilon {epsilon:g}, {n:,} rows: {wall:.1f} s, value {sure.gap:.4f}, "
                  f"standard error {sure.error:.5f}, {solution.looks / n:.0f} looks/row", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot")
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--acs", action="store_true")
    given = parser.parse_args()
    if given.million:
        million()
    elif given.acs:
        acs()
    else:
        timed(*people(5_000), 0.1)
        scaling(given.plot, given.most)


if __name__ == "__main__":
    main()
