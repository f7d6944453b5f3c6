"""Alabdulmohsin and Lucic: A Near-Optimal Algorithm for Debiasing Trained Machine Learning Models (NeurIPS 2021)."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rto_intersections
import rto_study
from frontier_drawing import Mark, Series, panels
from papers_kit import Exhibit, PapersError, Table, find, moment

NAME, TITLE = (
    "rto",
    "RTO: A Near-Optimal Algorithm for Debiasing Trained Models (Alabdulmohsin & Lucic, NeurIPS 2021)",
)
CACHE = Path(__file__).resolve().parents[1] / "build" / "rto-study"
CELLS = tuple(f"{data} {kind}" for data, kind in itertools.product(rto_study.DATA, rto_study.CLASSIFIERS))
CLASSES = "fairlearn, classes"
SHOWN = {
    "original": "original",
    "rto": "RTO",
    "fairlearn": "Hardt et al. (fairlearn)",
    CLASSES: "the same on classes",
    "reject-option": "ROC",
    "shift-inference": "shift inference",
}
EPOCHS = (1, 2, 5, 10, 25)


def compute(cell: str, number: int, rows: int | None) -> dict[str, Any]:
    """Post-process one classifier's scores on one split."""
    if rows is not None:
        raise PapersError("rto.table1 runs on all rows: leave --rows out")
    data, _, kind = cell.partition(" ")
    find(data)  # says so where the file is missing
    scores = rto_study.cached_scores(data, number, CACHE)
    fit, test = (rto_study.rows_of(scores, part, kind) for part in ("fit", "test"))
    found, curves, reached = rto_study.compare(fit, test, number)
    decided = [dataclasses.replace(part, scores=(part.scores >= 0.5).astype(float)) for part in (fit, test)]
    found[CLASSES] = rto_study.fairlearn_rule(*decided)
    return {"found": found, "curves": curves, "reached": reached, "margin": test.margin()}


def of_cell(runs: Sequence[Mapping], cell: str, method: str) -> np.ndarray:
    """Return bias and accuracy on the test rows, shape (splits, 2)."""
    return np.array([run["values"]["found"][method] for run in runs if run["method"] == cell])


def table(runs: Sequence[Mapping]) -> Table:
    """Return bias and expected accuracy of every method, by cell."""
    return {
        cell.replace("_", " "): {
            f"{shown}: {what}": moment(of_cell(runs, cell, method)[:, place])
            for method, shown in SHOWN.items()
            for place, what in enumerate(("bias", "accuracy"))
        }
        for cell in cells_of(runs)
    }


def cells_of(runs: Sequence[Mapping]) -> list[str]:
    """Return the cells that were run."""
    return [cell for cell in CELLS if any(run["method"] == cell for run in runs)]


def claims(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of table 1."""
    cells = cells_of(runs)
    bias = {m: {c: of_cell(runs, c, m)[:, 0].mean() for c in cells} for m in SHOWN}
    accuracy = {m: {c: of_cell(runs, c, m)[:, 1].mean() for c in cells} for m in SHOWN}
    margin = {c: np.mean([run["values"]["margin"] for run in runs if run["method"] == c]) for c in cells}
    ahead = {c: accuracy["rto"][c] - accuracy["fairlearn"][c] for c in cells}
    lost = [accuracy["rto"][c] - accuracy[CLASSES][c] for c in cells]
    kept = [c for c in cells if "knn" in c]
    debiased = [c for c in cells if "credit" in c]
    reached = [run["values"]["reached"] for run in runs if run["method"] in kept]
    return [
        (
            "RTO and the method of Hardt et al. remove the bias of all classifiers (mean bias on the test rows within "
            f"sampling error; the largest is {max([*bias['rto'].values(), *bias['fairlearn'].values()]):.3f}).",
            all(bias[m][c] <= margin[c] for m in ("rto", "fairlearn") for c in cells),
        ),
        (
            f"shift inference does not control parity (bias {min(bias['shift-inference'].values()):.3f} to "
            f"{max(bias['shift-inference'].values()):.3f}).",
            all(bias["shift-inference"][c] > margin[c] for c in cells),
        ),
        (
            "ROC can fail on the discrete scores of kNN (parity on the fit rows reached in "
            f"{np.mean(reached):.0%} of the splits).",
            not all(reached),
        ),
        (
            "debiasing can improve the accuracy (credit default, whose training rows are biased: "
            + ", ".join(f"{accuracy['rto'][c] - accuracy['original'][c]:+.3f}" for c in debiased)
            + ").",
            bool(debiased) and all(accuracy["rto"][c] > accuracy["original"][c] for c in debiased),
        ),
        (
            "RTO costs much less accuracy than the method of Hardt et al. (the differences here are "
            f"{min(ahead.values()):+.4f} to {max(ahead.values()):+.4f}).",
            all(gain > 0.002 for gain in ahead.values()),
        ),
        (
            "Ours: it does where fairlearn's rule is given classes in place of probabilities "
            f"({min(lost):+.4f} to {max(lost):+.4f}).",
            all(gain > 0.002 for gain in lost),
        ),
    ]


def figure(runs: Sequence[Mapping]) -> str:
    """Draw the trade-offs of figure 3: bias against expected accuracy, for every cell."""
    drawn = []
    for cell in cells_of(runs):
        own = [run["values"]["curves"] for run in runs if run["method"] == cell]
        start = of_cell(runs, cell, "original").mean(axis=0)
        series = []
        for method in own[0]:
            points = np.mean([curves[method] for curves in own], axis=0)
            marks = [Mark(x, None, y, None) for x, y in points if x <= 1.3 * max(start[0], 0.02)]
            series.append(Series(method, marks, line=method != "reject-option"))
        series.append(Series("original", [Mark(start[0], None, start[1], None)], line=False))
        series = [one for one in series if one.marks]
        drawn.append((series, cell.replace("_", " "), "bias: difference of rates", "expected accuracy"))
    return panels(drawn, columns=4, shared=True)


@functools.cache
def _intersections():
    find("adult")
    return rto_intersections.study()


def inside(method: str, _: int, rows: int | None) -> dict[str, float]:
    """Return the sexes' gaps inside ethnic groups, on fit and test rows."""
    if rows is not None:
        raise PapersError("rto.figure1 runs on all rows: leave --rows out")
    kind, _, state = method.partition(", ")
    found, names = _intersections()
    return {
        f"{name}, {part}": gap
        for part in ("fit", "test")
        for name, gap in zip(names, found[kind, part, state], strict=True)
    }


def inside_claims(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of figure 1."""
    by = {run["method"]: run["values"] for run in runs}
    wider, crossed = [], []
    for kind in dict.fromkeys(method.partition(", ")[0] for method in by):
        before, sex, both = (by[f"{kind}, {state}"] for state in rto_intersections.STATES)
        fitted = [column for column in before if column.endswith(", fit")]
        wider += [f"{kind}, {column.removesuffix(', fit')}" for column in fitted if sex[column] > before[column] + 1e-3]
        crossed += [both[column] for column in fitted]
    return [
        (
            f"parity of sex alone can widen the gap inside an ethnic group ({'; '.join(wider) or 'nowhere'}).",
            bool(wider),
        ),
        (
            f"parity of sex and ethnic group together cannot (largest gap on the fit rows {max(crossed):.1e}).",
            max(crossed) <= 1e-6,
        ),
    ]


def converge(method: str, number: int, rows: int | None) -> dict[str, float]:
    """Run algorithm 1 for so many epochs, or the exact solver, on the scores of a random forest on Adult."""
    from fairkit.mitigators import Run
    from fairkit_rto.mitigator import RandomizedThresholds

    if rows is not None:
        raise PapersError("rto.figure2 runs on all rows: leave --rows out")
    find("adult")
    scores = rto_study.rows_of(rto_study.cached_scores("adult", number, CACHE), "fit", "forest")
    values = {"gamma": 0.1, "rho": float(scores.scores.mean()), "tolerance": 0.0}
    if method != "exact":
        values |= {"solver": "sgd", "epochs": int(method.partition(" ")[0])}
    solved = RandomizedThresholds.with_values(values).solve(scores, None, Run(seed=number))
    gap, accuracy = rto_study.apply(solved, scores)
    return {"bias on the fit rows": gap, "accuracy on the fit rows": accuracy}


EXHIBITS = [
    Exhibit(
        name="rto.table1",
        also=("rto.figure3",),
        methods=CELLS,
        compute=compute,
        count=10,
        table=table,
        claims=claims,
        figure=figure,
    ),
    Exhibit(
        name="rto.figure1",
        methods=tuple(
            f"{kind}, {state}"
            for kind, state in itertools.product(("forest", "knn", "logistic"), rto_intersections.STATES)
        ),
        compute=inside,
        claims=inside_claims,
        image="../images/rto-intersections.png",
    ),
    Exhibit(
        name="rto.figure2",
        methods=(*(f"{epochs} epochs" for epochs in EPOCHS), "exact"),
        compute=converge,
        count=3,
        claims=lambda runs: [
            (
                "descent needs few epochs (bias after 25 at most .01).",
                moment([r["values"]["bias on the fit rows"] for r in runs if r["method"] == "25 epochs"])[0] <= 0.01,
            )
        ],
    ),
    Exhibit(name="rto.table2", also=("rto.figure4",)),
]
