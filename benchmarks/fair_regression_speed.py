"""Speed of fair regression: one best response, one whole run, and what a frontier saves.

    python benchmarks/fair_regression_speed.py [--repeats 5]

Ratios are of runs in turn on the same machine; medians, of wall time and of processor time.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from fair_regression_data import load

from fairkit.mitigators import Run, Table
from fairkit_fair_regression.plugin import FairRegression


def timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    value = function()
    return value, time.perf_counter() - wall, time.process_time() - cpu


def ratio(first, second, repeats: int) -> str:
    first(), second()
    pairs = []
    for _ in range(repeats):
        _, wall, cpu = timed(first)
        _, base_wall, base_cpu = timed(second)
        pairs.append((wall / base_wall, cpu / base_cpu, wall, base_wall))
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return (
        f"{medians[0]:6.2f} (processor {medians[1]:.2f}); {medians[2]:.3f} s against {medians[3]:.3f} s; "
        f"from {min(pairs)[0]:.2f} to {max(pairs)[0]:.2f}"
    )


def responses(repeats: int) -> None:
    """One LS best response on 20,800 rows against the learner's own fit; the target is 1.3."""
    import pandas as pd
    from fair_regression_data import law_school

    import fairkit

    frame, roles = law_school()
    table = Table.from_dataset(fairkit.load_data(pd.DataFrame(frame), **roles))
    for learner in ("linear", "lightgbm", "xgboost"):
        values = {"oracle": "ls", "label_range": (0, 1)}
        training = FairRegression.with_values(values).training(table, Run(learner=learner, threads=1))
        oracle = training._parity_oracle()
        oracle.unconstrained()
        rng = np.random.default_rng(0)
        multipliers = np.zeros(4 * 40)
        multipliers[rng.integers(0, 160, 6)] = 0.2
        found = ratio(
            lambda oracle=oracle, multipliers=multipliers: oracle.respond(multipliers),
            lambda training=training: training.learner.fit_values(training.matrix, training.labels, None),
            repeats,
        )
        print(f"LS best response / plain fit, {len(table):,} rows, {learner}: {found}")


def run(repeats: int) -> None:
    """Adult, logistic, ε = .05: at most 25 oracle calls, and at most 30 fits' time."""
    problem = load("adult")
    table = Table.from_dataset(problem.train)
    method = FairRegression.with_values({"tolerance": 0.05})
    details = method.fit(table, Run(learner="logistic")).details
    print(
        f"adult, {len(table):,} rows, logistic, ε = .05: {details['oracle_calls_of_run']} oracle calls, "
        f"gap {details['gap']:.2g}, converged {details['converged']}, {details['members']} members"
    )
    found = ratio(
        lambda: method.fit(table, Run(learner="logistic")),
        lambda: method.baseline(table, Run(learner="logistic")),
        repeats,
    )
    print(f"whole run / one unconstrained fit with encoding: {found}")


def frontier() -> None:
    """Ten bounds in one run against ten runs."""
    problem = load("law school")
    table = Table.from_dataset(problem.train)
    levels = [float(f"{value:.3g}") for value in np.geomspace(0.25, 0.01, 10)]
    FairRegression.with_values({"tolerance": [0.2, 0.1]}).fit(table, Run(learner="linear"))  # imports
    together, wall, _ = timed(
        lambda: FairRegression.with_values({"tolerance": levels}).fit(table, Run(learner="linear"))
    )
    apart, apart_wall, _ = timed(
        lambda: [FairRegression.with_values({"tolerance": level}).fit(table, Run(learner="linear")) for level in levels]
    )
    calls = sum(model.details["oracle_calls_of_run"] for model in apart)
    print(
        f"frontier of 10 bounds: {together.details['oracle_calls_of_run']} oracle calls and {wall:.1f} s together, "
        f"{calls} and {apart_wall:.1f} s apart"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    responses(given.repeats)
    run(given.repeats)
    frontier()


if __name__ == "__main__":
    main()
