"""The exact thresholds against stochastic gradient descent: time, memory, and how near parity is met.

    python benchmarks/rto_speed.py                     # 10,000,000 scores in 4 groups
    python benchmarks/rto_speed.py --sgd-rows 1000000  # descent on fewer rows, the exact solution on the same ones

Every measurement is a process of its own; memory is the peak of resident memory during the fit, less what was
resident before it, over the bytes of the scores. Descent runs as the paper's algorithm 1: one row at a time, rate
.1 √(K/T); once in Python and once compiled by numba, for 1 and for 25 epochs (its figure 2).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

import numpy as np

GROUPS, GAMMA, RHO = 4, 0.01, 0.3


def scores_of(rows, seed, *, discrete=False):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, GROUPS, rows)
    scores = rng.beta(1.0 + 0.4 * codes, 3.0)
    return (scores.round(1) if discrete else scores), codes


def resident():
    """Bytes in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 -- no file of ours
        return int(file.read().split()[1]) * 4096


def reset_peak():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("5")


def peak():
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def error_of(scores, codes, thresholds):
    from fairkit_rto.solver import ramp

    h = ramp(2 * scores - 1, thresholds[codes], GAMMA)
    return max(abs(h[codes == group].mean() - RHO) for group in range(GROUPS))


def fit_exact(scores, codes):
    """The plugin's own way, with what it reports."""
    from fairkit.mitigators import Run
    from fairkit_repair.scored_rows import ScoredRows
    from fairkit_rto.mitigator import RandomizedThresholds

    rows = ScoredRows(scores=scores, codes=codes, names=tuple("abcd"), favorable=np.empty(0))
    solution = RandomizedThresholds.with_values({"gamma": GAMMA, "rho": RHO}).solve(rows, None, Run())
    return np.array([2 * pieces[0].threshold - 1 for pieces in solution.pieces])


def fit_python(scores, codes, epochs):
    from fairkit_rto.sgd import Duals, sgd_thresholds, shuffled_epochs

    duals = Duals(owner=np.arange(GROUPS), factors=np.ones(GROUPS), offset=RHO, slack=0.0)
    stream = shuffled_epochs((2 * scores - 1, codes, np.ones(len(scores))), epochs, np.random.default_rng(0))
    return sgd_thresholds(stream, duals, gamma=GAMMA, steps=epochs * len(scores))


def compiled():
    import numba

    @numba.njit
    def descend(margins, codes, order, upper, lower, rate, gamma, rho):
        for row in order:
            group = codes[row]
            chance = min(max((margins[row] - upper[group] + lower[group]) / gamma, 0.0), 1.0)
            upper[group] = max(0.0, upper[group] - rate * (rho - chance))
            lower[group] = max(0.0, lower[group] - rate * (chance - rho))

    return descend


def fit_compiled(descend, scores, codes, epochs):
    margins, rng = 2 * scores - 1, np.random.default_rng(0)
    upper, lower = np.zeros(GROUPS), np.zeros(GROUPS)
    rate = 0.1 * math.sqrt(GROUPS / (epochs * len(scores)))
    for _ in range(epochs):
        descend(margins, codes, rng.permutation(len(scores)), upper, lower, rate, GAMMA, RHO)
    return upper - lower


def measure(method, rows, epochs, repeats):
    """Run one method in this process and print its figures as JSON."""
    scores, codes = scores_of(rows, 0, discrete=method == "exact, tied scores")
    if method == "compiled":
        descend = compiled()
        fit_compiled(descend, scores[:10], codes[:10], 1)
        fit = lambda: fit_compiled(descend, scores, codes, epochs)  # noqa: E731
    elif method == "python":
        fit = lambda: fit_python(scores, codes, epochs)  # noqa: E731
    else:
        fit_exact(scores[:1000], codes[:1000])
        fit = lambda: fit_exact(scores, codes)  # noqa: E731
    seconds = []
    before = resident()
    reset_peak()
    for _ in range(repeats):
        start = time.perf_counter()
        found = fit()
        seconds.append(time.perf_counter() - start)
    memory = (peak() - before) / scores.nbytes
    print(
        json.dumps(
            {"seconds": statistics.median(seconds), "memory": memory, "error": error_of(scores, codes, found[:GROUPS])}
        )
    )


def child(*arguments):
    done = subprocess.run(
        [sys.executable, __file__, "--child", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--sgd-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs=4)
    arguments = parser.parse_args()
    if arguments.child:
        method, rows, epochs, repeats = arguments.child
        measure(method, int(rows), int(epochs), int(repeats))
        return
    print(f"{'method':<34}{'rows':>12}{'seconds':>10}{'memory':>9}{'|rate-rho|':>12}{'times exact':>13}")
    plans = [
        ("exact", arguments.rows, 0, arguments.repeats),
        ("exact, tied scores", arguments.rows, 0, arguments.repeats),
        ("exact", arguments.sgd_rows, 0, 2 * arguments.repeats + 1),
        ("compiled", arguments.sgd_rows, 1, 1),
        ("compiled", arguments.sgd_rows, 25, 1),
        ("python", arguments.sgd_rows, 1, 1),
        ("python", arguments.sgd_rows, 25, 1),
    ]
    reference = None
    for method, rows, epochs, repeats in plans:
        found = child(method, rows, epochs, repeats)
        if method == "exact":
            reference = found["seconds"]
        name = method if not epochs else f"SGD, {method}, {epochs} epoch{'s' * (epochs > 1)}"
        print(
            f"{name:<34}{rows:>12,}{found['seconds']:>10.3f}{found['memory']:>8.1f}x{found['error']:>12.2e}"
            f"{found['seconds'] / reference:>12.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
