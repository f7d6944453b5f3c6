"""Draws docs/images/sensei-boundary.png: figures 1 and 3 of the SenSeI paper, on rows made by formula.

Run from the repository: python docs/images/sensei_boundary.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from fairkit_sensei import fit_network

mpl.use("agg")

import matplotlib.pyplot as plt


def people(n=600, seed=1):
    """Two features; who is alike in the second should be treated alike, yet the label follows both."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    centre = np.where(y[:, None] == 1, [0.9, 0.7], [-0.9, -0.7])
    return (centre + 0.75 * rng.normal(size=(n, 2))).astype(np.float32), y.astype(float)


def probability(module, grid):
    with torch.no_grad():
        return module(torch.from_numpy(grid)).softmax(1)[:, 1].numpy()


def main():
    x, y = people()
    side = np.linspace(-3, 3, 121)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
    runs = [
        ("plain (rho = 0)", {"rho": 0.0}),
        ("SenSeI, rho = 0.1", {"rho": 0.1}),
        ("SenSeI, rho = 10", {"rho": 10.0}),
        ("SenSR, ε = 0", {"method": "sensr"}),
    ]
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.1), sharey=True)
    for (title, values), panel in zip(runs, panels, strict=True):
        how = {"epsilon": 0.0, "epochs": 60, "batch": 64, "rate": 0.01, "hidden": (100,), "seed": 0}
        module = fit_network(x, y, directions=[[1.0, 0.0]], **(how | values)).module
        chance = probability(module, grid).reshape(121, 121)
        panel.contourf(side, side, chance, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.6)
        panel.contour(side, side, chance, levels=[0.5], colors="black", linewidths=1.5)
        panel.scatter(*x[::3].T, c=y[::3], cmap="RdBu_r", s=7, linewidths=0)
        panel.set(title=title, xlabel="x₁, which the metric ignores", xlim=(-3, 3), ylim=(-3, 3))
    panels[0].set_ylabel("x₂")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("sensei-boundary.png"), dpi=110)


if __name__ == "__main__":
    main()
