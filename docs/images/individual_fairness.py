"""Draws docs/images/individual-fairness.svg: a certificate's curve, and where two people go.

Run from the repository: python docs/images/individual_fairness.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from fairkit_similarity.learn import transport_plan
from fairkit_similarity.transport import Support

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "fairkit"

import matplotlib.pyplot as plt  # noqa: E402 -- after the backend is chosen


def people(n=150, seed=3):
    """Two columns that should matter; the model also jumps at a threshold of the first."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    score = 1 / (1 + np.exp(-(0.5 * z[:, 0] + 0.5 * z[:, 1] + 2.5 * (z[:, 0] > 0.2) - 1.0)))
    labels = (rng.random(n) < score).astype(int)
    return z, score, labels


def main():
    z, score, labels = people()
    values = np.stack([-np.log(1 - score), -np.log(score)])
    problem = Support(z).losses(values, labels)
    baseline = problem.mass @ problem.own
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    plan = transport_plan(problem.solve(0.05))
    left.scatter(*z.T, c=score, cmap="cividis", s=18, vmin=0, vmax=1)
    for entry in plan.top(25):
        start, end = z[plan.source[entry]], z[plan.target[entry]]
        left.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": "tab:red", "lw": 0.8})
    left.axvline(0.2, color="grey", lw=0.6, ls=":")
    left.set(title="ε = 0.05: who is replaced by whom", xlabel="what should matter, first", ylabel="second")
    epsilons = np.linspace(0, 1, 21)
    curve = [solution.value - baseline for solution in problem.curve(epsilons.tolist())]
    right.plot(epsilons, curve, color="tab:red")
    right.set(title="the gap for every budget", xlabel="ε: mean squared fair distance", ylabel="performance gap")
    right.set_ylim(0)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("individual-fairness.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
