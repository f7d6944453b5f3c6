"""Draw docs/images/watching.svg: lifetimes that ever left their interval, at fixed-sample looks and as a sequence.

Run it with ``python docs/images/watching.py``; needs matplotlib.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

from fairkit.intervals import wilson
from fairkit_watch.sequences import lambda_grid, rate_limits

LIFETIMES, DAYS, PER_DAY, RATE = 1_000, 365, 200, 0.3


def main() -> None:
    """Simulate a stable rate, and draw."""
    rng = np.random.default_rng(0)
    counted = rng.binomial(PER_DAY, RATE, (LIFETIMES, DAYS)).cumsum(axis=1).astype(float)
    n = np.broadcast_to(PER_DAY * np.arange(1.0, DAYS + 1), counted.shape)
    fixed = wilson(counted / n, n, 1.959964)
    low, high = np.empty_like(n), np.empty_like(n)
    for part in np.array_split(np.arange(LIFETIMES), 20):
        low[part], high[part] = rate_limits(counted[part], n[part], 0.05, lambda_grid(RATE))
    mpl.rcParams.update({"svg.hashsalt": "fairkit", "font.family": "DejaVu Sans", "svg.fonttype": "path"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), constrained_layout=True)
    days = np.arange(1, DAYS + 1)
    for ends, colour, name in (
        (fixed, "#c2410c", "95 % interval, looked at daily"),
        ((low, high), "#2456c7", "sequence"),
    ):
        out = (ends[0] > RATE) | (ends[1] < RATE)
        ever = np.logical_or.accumulate(out, axis=1).mean(axis=0)
        left.plot(days, 100 * ever, color=colour, lw=2, label=f"{name}: {ever[-1]:.0%} after a year")
    left.axhline(5, color="#566173", lw=1, ls="--")
    left.set(
        xlabel="days",
        ylabel="% that ever missed the true rate",
        ylim=(0, 55),
        title="Stable models that raised an alarm",
    )
    left.legend(frameon=False, fontsize=8, loc="upper left")
    one = int(np.argmax(((fixed[0] > RATE) | (fixed[1] < RATE)).any(axis=1)))
    right.fill_between(days, low[one], high[one], color="#2456c7", alpha=0.2, lw=0)
    right.plot(days, fixed[0][one], color="#c2410c", lw=1)
    right.plot(days, fixed[1][one], color="#c2410c", lw=1)
    right.axhline(RATE, color="#1c2430", lw=1)
    right.set(
        xlabel="days",
        ylabel="rate",
        ylim=(RATE - 0.06, RATE + 0.06),
        title="One of them: lines left the truth, the band did not",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    figure.savefig(Path(__file__).with_name("watching.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
