"""Yurochkin and Sun: SenSeI (ICLR 2021): Adult, and the boundary on two synthetic features."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from frontier_drawing import Mark, Series, panels
from paper_budro import row
from paper_budro_data import measure, split
from papers_kit import Exhibit, moments

import fairkit
from fairkit.mitigators import Run
from fairkit_onnx.write.export import export
from fairkit_repair.mitigation.choose import find_mitigator

NAME, TITLE = "sensei", "SenSeI: Sensitive Set Invariance (Yurochkin & Sun, ICLR 2021)"
SPOUSES = {"relationship": ["Husband", "Wife"]}
ADULT: Mapping[str, dict[str, Any]] = {
    "Baseline NN": {"method": "erm"},
    "SenSR": {"method": "sensr", "epsilon": 0.5},
    "SenSR, epsilon = 0.1": {"method": "sensr", "epsilon": 0.1},
    "SenSR, epsilon = 1": {"method": "sensr", "epsilon": 1.0},
    "CLP, sex and race": {"method": "clp", "rho": 40.0, "sensitive": ["sex+white"]},
    "CLP, husbands and wives": {"method": "clp", "rho": 40.0, "sensitive": ["relationship"], "values": SPOUSES},
    "SenSeI, rho = 5": {"rho": 5.0},
    "SenSeI, rho = 40": {"rho": 40.0},
}
SYNTHETIC: Mapping[str, dict[str, Any]] = {
    "rho = 0": {"rho": 0.0},
    "rho = 0.1": {"rho": 0.1},
    "rho = 1": {"rho": 1.0},
    "rho = 10": {"rho": 10.0},
    "SenSR, epsilon = 0": {"method": "sensr"},
    "SenSR, epsilon = 0.1": {"method": "sensr", "epsilon": 0.1},
}


def compute(method: str, number: int, rows: int | None) -> dict[str, float]:
    """Train and measure on one split."""
    parts = split("adult", number, rows)
    start = time.process_time()
    values = {"directions": ["sex"], "hidden": (100,), "strength": 0.1, **ADULT[method]}
    model = find_mitigator("sensei").with_values(values).fit(parts.table, Run(seed=number))
    seconds = time.process_time() - start
    found = measure(model, parts, "adult")
    content = export(model, parts.table).SerializeToString()
    dif = fairkit.audit(content, parts.test, auditors=["dif"], parameters={"dif": {"epsilon": [0.1]}})
    return {**found, "dif, epsilon = .1": dif.find("dif").value, "CPU s": seconds}


def people(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two features; people alike in the second should be treated alike, and the label follows both."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    centre = np.where(y[:, None] == 1, [0.9, 0.7], [-0.9, -0.7])
    return (centre + 0.75 * rng.normal(size=(n, 2))).astype(np.float32), y.astype(float)


def boundary(method: str, number: int, rows: int | None) -> dict[str, Any]:
    """Return how much the first feature, which the metric ignores, counts for the decision; and the boundary."""
    import torch

    from fairkit_sensei import fit_network

    x, y = people(rows or 600, number)
    how = {"epsilon": 0.0, "epochs": 30, "batch": 64, "rate": 0.01, "hidden": (100,), "seed": number}
    module = fit_network(x, y, directions=[[1.0, 0.0]], **(how | SYNTHETIC[method])).module
    side = np.linspace(-2, 2, 41)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2).astype(np.float32)
    with torch.no_grad():
        logits = module(torch.from_numpy(grid)).numpy().reshape(41, 41, 2)
    score = logits[..., 1] - logits[..., 0]
    across, up = np.abs(np.diff(score, axis=1)).mean(), np.abs(np.diff(score, axis=0)).mean()
    crossing = side[np.abs(score).argmin(axis=0)]
    return {"x₁'s share of the slope": float(across / (across + up)), "boundary": crossing.tolist()}


def boundary_claims(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of figures 1 and 3."""
    share = {name: found["x₁'s share of the slope"][0] for name, found in moments(runs).items()}
    ladder = [share[name] for name in ("rho = 0", "rho = 0.1", "rho = 1", "rho = 10")]
    return [
        ("the larger rho, the more the boundary turns horizontal.", all(np.diff(ladder) < 0)),
        (
            "SenSR's boundary is horizontal already at epsilon = 0: it has nothing between.",
            share["SenSR, epsilon = 0"] <= 1.5 * share["SenSR, epsilon = 0.1"] + 0.05
            and share["SenSR, epsilon = 0"] < ladder[1],
        ),
    ]


def boundary_figure(runs: Sequence[Mapping]) -> str:
    """Draw the boundaries of the first run."""
    side = np.linspace(-2, 2, 41)
    series = [
        Series(
            run["method"],
            [Mark(float(a), None, b, None) for a, b in zip(side, run["values"]["boundary"], strict=True)][::4],
        )
        for run in runs
        if run["run"] == 0
    ]
    return panels([(series, "boundary of the decision", "x₁, which the metric ignores", "x₂")], shared=True)


_ADULT = "balanced accuracy, S-cons, GR-cons, sex gap max, sex gap rms, race gap max, race gap rms"
EXHIBITS = [
    Exhibit(
        name="sensei.table3",
        methods=tuple(ADULT),
        compute=compute,
        count=10,
        most=10,
        paper={
            "Baseline NN": row(_ADULT, ".829 - .848 - .865 - .216 - .179 - .105 - .089 -"),
            "SenSR": row(_ADULT, ".789 - .934 - .984 - .087 - .068 - .067 - .055 -"),
        },
    ),
    Exhibit(
        name="sensei.figure1",
        also=("sensei.figure3",),
        methods=tuple(SYNTHETIC),
        compute=boundary,
        count=5,
        claims=boundary_claims,
        figure=boundary_figure,
    ),
    Exhibit(name="sensei.table1"),
    Exhibit(name="sensei.table2"),
    Exhibit(name="sensei.figure2", also=("sensei.figure4",)),
]
