"""Figures 2 and 3 of the BuDRO paper: fairness at every accuracy, on Adult, over grids of hyperparameters.

One training gives a point at every 25th round. As in the paper, points go into bins of accuracy, and the best of each
bin by a measure on the test rows is drawn: a picture of what a method can reach, not a way to choose a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from frontier_drawing import Mark, Series, panels
from paper_budro_data import ratio, split

from fairkit.mitigators import Run, Table
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import find_mitigator

BIN = 0.0016
NAMES = ("balanced accuracy", "S-cons", "GR-cons", "sex gap rms", "race gap rms")
_TREES = {"lambda": 1.0, "min_child_weight": 0.5, "eta": 0.1, "n_estimators": 300}
GRIDS: Mapping[str, list[dict]] = {
    "BuDRO": [
        {"epsilon": epsilon, "max_depth": depth}
        for epsilon, depth in itertools.product((0.1, 0.2, 0.4, 0.8, 1.4), (8, 14))
    ],
    "Baseline": [{"max_depth": depth, "balanced": True} for depth in (2, 3, 6)],
    "Project": [
        {"max_depth": depth, "balanced": balanced} for depth, balanced in itertools.product((3, 8), (True, False))
    ],
    "Reweigh": [
        {"max_depth": depth, "balanced": balanced} for depth, balanced in itertools.product((3, 6), (True, False))
    ],
}


def compute(method: str, number: int, rows: int | None) -> dict[str, list]:
    """Train one setting of one method; measure it at every 25th round."""
    setting = GRIDS[method][number]
    parts = split("adult", 0, rows)
    model = fit(method, setting, parts.table)
    booster = model.booster if method == "BuDRO" else model.estimator
    booster = booster.get_booster() if hasattr(booster, "get_booster") else booster
    test = Table.from_dataset(parts.test)
    matrices = [model.encoder.transform(columns) for columns in (test.columns, *flips(test))]
    rounds = range(25, booster.num_boosted_rounds() + 1, 25)
    return {"setting": [f"{key}={value:g}" for key, value in setting.items()], "points": [
        [count, *figures(decisions(booster, count, matrices), test)] for count in rounds
    ]}  # fmt: skip


def fit(method: str, setting: Mapping, table: Table):
    """Train."""
    if method == "BuDRO":
        values = {
            "directions": ["sex"],
            "reg_lambda": 1e-4 * len(table),
            "min_child_weight": 0.1,
            "learning_rate": 0.005,
            "n_estimators": 200,
            "first_round": {"lambda": 1e-4, "min_child_weight": 0.1 / len(table)},
        }
        return find_mitigator("budro").with_values(values | dict(setting)).fit(table, Run(seed=0))
    run = Run(seed=0, learner="xgboost", threads=1)
    trees = _TREES | {"max_depth": setting["max_depth"]}
    if setting["balanced"]:
        trees["scale_pos_weight"] = ratio(table)
    if method == "Baseline":
        return fit_learner("xgboost", table, Run(seed=0, threads=1), settings=trees)
    values = {"directions": ["sex"]} if method == "Project" else {"sensitive": "sex"}
    return find_mitigator(method.lower()).with_values({"settings": trees, **values}).fit(table, run)


def flips(test: Table) -> list[dict]:
    """Return husbands, wives, then all four combinations of sex and race, for everybody."""
    n = len(test)
    changes = [{"relationship": "Husband"}, {"relationship": "Wife"}]
    changes += [{"sex": s, "white": w} for s, w in itertools.product(("Male", "Female"), ("yes", "no"))]
    return [
        {**test.columns, **{name: np.full(n, value, object) for name, value in change.items()}} for change in changes
    ]


def decisions(booster, count: int, matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Return the decisions after so many rounds, shape (versions of the rows, rows)."""
    import xgboost

    part = booster[:count]
    return np.array([part.predict(xgboost.DMatrix(m), output_margin=True) > 0 for m in matrices])


def figures(decided: np.ndarray, test: Table) -> list[float]:
    """Return the measures in the order of `NAMES`."""
    own, label = decided[0], test.target == 1
    out = [float(np.mean([(own == label)[label == k].mean() for k in (False, True)]))]
    out += [float((part == part[0]).all(axis=0).mean()) for part in (decided[1:3], decided[3:])]
    for groups in test.groups.values():
        rates = [[(own == k)[(label == k) & (groups.codes == g)].mean() for g in (0, 1)] for k in (False, True)]
        out.append(float(np.sqrt(np.mean([(a - b) ** 2 for a, b in rates]))))
    return out


def points(runs: Sequence[Mapping], method: str) -> np.ndarray:
    """Return all points of a method, shape (points, 1 + measures)."""
    own = [point for run in runs if run["method"] == method for point in run["values"]["points"]]
    return np.array(own).reshape(-1, 1 + len(NAMES))


def best(found: np.ndarray, quantity: np.ndarray) -> np.ndarray:
    """Keep the point of each accuracy bin with the least quantity, by accuracy."""
    bins = np.floor(found[:, 1] / BIN).astype(int)
    kept = [np.flatnonzero(bins == b)[np.argmin(quantity[bins == b])] for b in np.unique(bins)]
    return found[kept]


def column(found: np.ndarray, name: str) -> np.ndarray:
    """Return one measure of every point."""
    return found[:, 1 + NAMES.index(name)]


def figure(runs: Sequence[Mapping]) -> str:
    """Draw BuDRO's best points by four measures, and all methods' points of least sex gap."""
    found = points(runs, "BuDRO")
    sex, race, spouse = (column(found, name) for name in ("sex gap rms", "race gap rms", "S-cons"))
    drawn = []
    for title, quantity in (
        ("BuDRO, least average gap rms", sex + race),
        ("BuDRO, least race gap rms", race),
        ("BuDRO, least sex gap rms", sex),
        ("BuDRO, largest S-cons", -spouse),
    ):
        kept = best(found, quantity)
        series = [Series(name, marks(kept, name)) for name in ("sex gap rms", "race gap rms")]
        drawn.append((series, title, NAMES[0], "gap rms, test"))
    kept = {method: least_gap(runs, method) for method in dict.fromkeys(run["method"] for run in runs)}
    for name in ("sex gap rms", "S-cons"):
        series = [Series(method, marks(own, name)) for method, own in kept.items()]
        drawn.append((series, f"all methods, least sex gap rms: {name}", NAMES[0], f"{name}, test"))
    return panels(drawn, columns=2, shared=True)


def marks(found: np.ndarray, name: str) -> list[Mark]:
    """Return points of accuracy and a measure."""
    return [Mark(x, None, y, None) for x, y in zip(column(found, NAMES[0]), column(found, name), strict=True)]


def least_gap(runs: Sequence[Mapping], method: str) -> np.ndarray:
    """Return the points of least sex gap of every accuracy bin."""
    found = points(runs, method)
    return best(found, column(found, "sex gap rms"))


def _of_budro(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of figure 2."""
    found = points(runs, "BuDRO")
    kept = best(found, column(found, "sex gap rms"))
    accurate, gap = column(kept, NAMES[0]), column(kept, "sex gap rms")
    middle = np.median(accurate)
    least, race = (
        float(column(found, "S-cons").min()),
        column(best(found, column(found, "race gap rms")), "race gap rms"),
    )
    return [
        (f"S-cons never drops below .94 (here at least {least:.3f}).", least >= 0.94),
        (
            "less accuracy buys smaller gaps: the sex gap rms is "
            f"{gap[accurate < middle].mean():.3f} in the lower half of the bins, "
            f"{gap[accurate >= middle].mean():.3f} in the upper half.",
            bool(gap[accurate < middle].mean() < gap[accurate >= middle].mean()),
        ),
        (
            f"race gaps were easier to make small than sex gaps (mean of the bins' least: {race.mean():.3f} and "
            f"{gap.mean():.3f}).",
            bool(race.mean() < gap.mean()),
        ),
    ]


def _of_all(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of figure 3."""
    kept = {method: least_gap(runs, method) for method in GRIDS}
    most = {method: float(column(p, NAMES[0]).max()) for method, p in kept.items()}
    spouse = {method: float(column(p, "S-cons").mean()) for method, p in kept.items()}
    gaps = {method: float(column(p, "sex gap rms").min()) for method, p in kept.items()}
    return [
        (
            f"plain boosting is the most accurate ({most['Baseline']:.3f}) and cannot make the sex gap small (at least "
            f"{gaps['Baseline']:.3f}).",
            most["Baseline"] >= max(most.values()) - 0.002 and gaps["Baseline"] > gaps["BuDRO"],
        ),
        (
            f"projecting does not reach the accuracy of plain boosting ({most['Project']:.3f}).",
            most["Project"] < most["Baseline"] - 0.005,
        ),
        (
            f"reweighing never has an acceptable S-cons (mean {spouse['Reweigh']:.3f}, BuDRO {spouse['BuDRO']:.3f}).",
            spouse["Reweigh"] < spouse["BuDRO"],
        ),
    ]


def claims(runs: Sequence[Mapping]) -> list[tuple[str, bool]]:
    """Check what the paper says of both figures."""
    return [*_of_budro(runs), *_of_all(runs)]
