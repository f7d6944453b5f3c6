"""Draws docs/images/budro.svg: figure 1 of Vargo et al. (2021), from code.

Two features: the protected one across, what should matter upwards. 125 people of the left cluster are labelled by one
diagonal of a rectangle, 25 of the right one by the other. Left: plain boosting. Right: BuDRO with a metric that sees the
upward feature only; arrows show where the last round's worst case moves people.

Run from the repository: python docs/images/budro.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from fairkit.mitigators import Run, Table
from fairkit_budro.boosting import class_losses
from fairkit_budro.plugin import BuDRO
from fairkit_similarity.learn import given, transport_plan
from fairkit_similarity.transport import Support

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "fairkit"

import matplotlib.pyplot as plt  # noqa: E402 -- after the backend is chosen

EPSILON = 0.01
METRIC = Path(__file__).with_name("budro-metric.json")


def people(seed=1):
    """Appendix C.1: a centred normal sample, labelled by a diagonal, then shifted to the left or the right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, 2))
    low, high = x.min(axis=0), x.max(axis=0)
    slope = (high[1] - low[1]) / (high[0] - low[0])
    middle = (low + high) / 2
    many = np.arange(150) < 125
    above = x[:, 1] - middle[1] > np.where(many, slope, -slope) * (x[:, 0] - middle[0])
    x[:, 0] += np.where(many, -2.0, 2.0)
    return x, above.astype(float)


def main():
    x, y = people()
    columns = {"protected": x[:, 0], "merit": x[:, 1]}
    table = Table(columns=columns, features=("protected", "merit"), target=y, classes=(0, 1))
    metric = given(columns, directions=[[1.0, 0.0]])
    metric.save(METRIC)
    settings = {
        "n_estimators": 300,
        "learning_rate": 0.02,
        "max_depth": 2,
        "fair_metric": str(METRIC),
        "balanced": False,
    }
    try:
        models = [
            BuDRO.with_values(settings | {"epsilon": epsilon}).fit(table, Run(seed=0, threads=1))
            for epsilon in (0.0, EPSILON)
        ]
    finally:
        METRIC.unlink()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    across, up = np.meshgrid(np.linspace(-5.5, 5.5, 221), np.linspace(-3.2, 3.2, 129))
    for axis, model, title in zip(axes, models, ("plain boosting", f"BuDRO, ε = {EPSILON}"), strict=True):
        score = model.predict({"protected": across.ravel(), "merit": up.ravel()}).score.reshape(across.shape)
        axis.pcolormesh(across, up, score, cmap="RdBu", vmin=0, vmax=1, alpha=0.6, rasterized=True)
        for label, colour in ((0, "tab:red"), (1, "tab:blue")):
            axis.scatter(*x[y == label].T, c=colour, s=10, label="repaid" if label else "defaulted")
        axis.set(title=title, xlabel="protected: share of nonwhite residents")
    axes[0].set_ylabel("merit: credit score")
    axes[0].legend(loc="lower right", fontsize=8)
    margins = models[1].margins(models[1].encoder.transform(columns))
    problem = Support(metric.transform(columns)).losses(class_losses(margins), y.astype(int))
    plan = transport_plan(problem.solve(EPSILON))
    for entry in plan.top(40):
        ends = x[plan.target[entry]], x[plan.source[entry]]
        arrow = {"arrowstyle": "->", "color": "black", "lw": 0.6, "alpha": 0.7}
        axes[1].annotate("", xy=ends[0], xytext=ends[1], arrowprops=arrow)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("budro.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
