"""Coverage of the certificates' intervals: 500 draws of query rows from a population, the support held fixed.

python benchmarks/individual_coverage.py
"""

from __future__ import annotations

import numpy as np

from fairkit_similarity.outside import spread
from fairkit_similarity.transport import Support

DRAWS = 500


def population(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    labels = rng.integers(0, 2, n)
    score = 1 / (1 + np.exp(-2 * z[:, 0] - rng.normal(size=n)))
    return Support(z), np.stack([-np.log(1 - score), -np.log(score)]), labels, score


def main():
    support, values, labels, score = population()
    makers = {
        "restricted-dro": lambda **options: support.losses(values, labels, **options),
        "dif": lambda **options: support.outputs(score, **options),
    }
    for name, make in makers.items():
        for epsilon in (0.01, 0.1, 1.0):
            whole = make()
            truth = whole.solve(epsilon).value - whole.mass @ whole.own
            for size in (200, 1_000):
                rng = np.random.default_rng([int(100 * epsilon), size, len(name)])
                found = [
                    spread(make(rows=rng.integers(0, len(labels), size), eta=1.0).solve(epsilon), rng)
                    for _ in range(DRAWS)
                ]
                inside = np.mean([low <= truth <= high for low, high in (one.interval(0.95) for one in found)])
                above = np.mean([one.upper_bound(0.95) >= truth for one in found])
                print(f"{name:15} epsilon {epsilon:4g}, {size:5} rows: {inside:.3f} of 95 % intervals hold the "
                      f"population's value, {above:.3f} of 95 % upper bounds are above it", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
