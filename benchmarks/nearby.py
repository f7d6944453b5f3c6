"""How far a number moves to its neighbour (`moving.REACH`): false alarms on honest models, memories that are caught.

    FAIRKIT_DATA=... python benchmarks/nearby.py [--seeds 3]

Tables x learners, audited on rows that they were trained on and on others. An alarm is what takes a pass away in an
audit: a disparity whose interval next to the rows lies above the tightest limit that passes on the rows themselves (the
upper end of its interval there), and that has surely grown. A limit further away gives fewer alarms. Memories know up
to 10,000 audited rows by their numbers, exactly or within a radius (largest difference of a number, in standard
deviations of its column); they decide about those by a harmless number, and by group about all others. Writes
`results/nearby.json`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.spatial import cKDTree
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import fairkit
from fairkit import datasets, plugins
from fairkit.models.scorer import Predictions
from fairkit_datasets.catalog import RECIPES
from fairkit_onnx import moving, nearby
from fairkit_onnx.paired import rates_of

RESULTS = Path(__file__).parent / "results" / "nearby.json"
REACHES = (0.01, 0.02, 0.05, 0.1, 0.2)
RADII = (0.0, 0.001, 0.01)
TABLES = ("compas", "adult", "german", "loans", "acs_income", "credit_default")
METRICS = ("demographic_parity_difference", "equalized_odds_difference", "equal_opportunity_difference")
CONFIDENCE = 0.95


def learners(seed: int):
    """Return what honest people train."""
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "boosted trees": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
        "forest, fully grown": RandomForestClassifier(30, random_state=seed),
        "forest, depth 8": RandomForestClassifier(30, max_depth=8, random_state=seed),
        "one tree, fully grown": DecisionTreeClassifier(random_state=seed),
        "15 neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
        "network": make_pipeline(StandardScaler(), MLPClassifier((24,), max_iter=40, random_state=seed)),
    }


def codes_of(values, known):
    """Return numbers as they are, missing ones as -1, and texts by their place among those known."""
    if values.dtype.kind in "iuf":
        return np.nan_to_num(values.astype(float), nan=-1.0)
    return np.array([known.setdefault(str(one), len(known)) for one in values], dtype=float)


class Model:
    """A fitted estimator, or a memory, as a scorer of raw columns."""

    task = "binary"
    classes = ()

    def __init__(self, columns, decide):
        self.columns = tuple(columns)
        self.info = SimpleNamespace(serving={"rows": {}}, unseen=None, sha256="0" * 64)
        self._decide = decide
        self._known = {name: {} for name in columns}

    def matrix(self, columns):
        return np.column_stack([codes_of(columns[name], self._known[name]) for name in self.columns])

    def predict(self, columns):
        score = self._decide(self.matrix(columns))
        return Predictions(score=score, decision=(score >= 0.5).astype(float))


def evidence(model, dataset, reach, measures, metrics):
    """Return the ends of each disparity here, nearby and of the change."""
    moving.REACH = reach
    rng = np.random.default_rng([7, int(reach * 1000)])
    first = nearby._FirstRows.of(dataset, model)
    fixed = {part for name in first.groups for part in name.split("+")}
    changed, moved = moving.neighbours(first.cells, fixed, rng)
    if moved.sum() < nearby.FEWEST:
        return None
    pairs = first.pairs(model, changed, moved, measures, rng)
    found = {}
    for (split, _), pair in pairs.items():
        for metric in metrics:
            with np.errstate(all="ignore"):
                both = pair.disparity(metric)
            if both is None or not np.isfinite(both[0]).all() or not np.isfinite(both[1]).all():
                continue
            here, there = both
            ends = {}
            for name, draws in (("here", here), ("nearby", there), ("change", there - here)):
                low, high = np.quantile(draws[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
                ends[name] = (2 * draws[0] - high, float(draws[0]), 2 * draws[0] - low)
            found[split, metric] = ends
    return found


def alarmed(ends):
    """Tell whether a rule that just passes here would lose its pass."""
    return ends["nearby"][0] > ends["here"][2] and ends["change"][0] > 0


def parts(name, seed):
    """Return the audited rows and others, as datasets, and the features."""
    table = datasets.table(name)
    roles = dict(RECIPES[name].roles) if name in RECIPES else {}
    if name == "loans":
        roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "drop": ["would_repay"]}
    order = np.random.default_rng(seed).permutation(table.num_rows)[:14_096]
    rows = min(4_096, len(order) // 2)
    return [fairkit.load_data(table.take(some), **roles) for some in (order[:rows], order[rows:])]


def memory(model, cells, radius, group):
    """Return decisions by a harmless number about rows that are known, and by group about others."""
    model_columns = [
        i for i, name in enumerate(model.columns) if cells[name].dtype.kind in "iuf" and i != group
    ]
    known = model.matrix(cells)[:10_000, model_columns]
    scale = np.where(known.std(axis=0) > 0, known.std(axis=0), 1.0)
    tree = cKDTree(known / scale)
    middle = np.median(known[:, 0])

    def decide(rows):
        far, _ = tree.query(rows[:, model_columns] / scale, p=np.inf, distance_upper_bound=radius + 1e-9)
        male = rows[:, group] == rows[0, group] if len(rows) else rows[:, group]
        return np.where(np.isfinite(far), rows[:, model_columns[0]] > middle, male).astype(float)

    return decide


def main() -> None:
    """Print and write alarms and catches by reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    measures = rates_of(plugins.installed_metrics()[0]), {}
    tally = {
        reach: {"audits": 0, "alarms": [], "memories": {str(r): [0, 0] for r in RADII}} for reach in REACHES
    }
    for seed in range(options.seeds):
        for name in TABLES:
            audited, others = parts(name, seed)
            features = list(audited.features)
            for where, trained in (("rows", audited), ("other rows", others)):
                for kind, learner in learners(seed).items():
                    model = Model(features, None)
                    batch = next(trained.batches(features, rows=10_000))
                    x = model.matrix(batch.columns(features))
                    fitted = learner.fit(x, batch.favorable)
                    model._decide = lambda rows, fitted=fitted: fitted.predict_proba(rows)[:, 1]
                    for reach in REACHES:
                        found = evidence(model, audited, reach, measures, METRICS)
                        if found is None:
                            continue
                        tally[reach]["audits"] += 1
                        wrong = [f"{m}:{s}" for (s, m), ends in found.items() if alarmed(ends)]
                        if wrong:
                            tally[reach]["alarms"].append(
                                f"{name} {kind}, trained on {where}, seed {seed}: {wrong}"
                            )
            split = next(iter(audited.profile.groups)).split("+")[0].split(":")[0]
            columns = list(dict.fromkeys([*features, split]))
            cells = next(audited.batches(columns, rows=10_000)).columns(columns)
            for radius in RADII:
                model = Model(columns, None)
                model._decide = memory(model, cells, radius, columns.index(split))
                for reach in REACHES:
                    found = evidence(model, audited, reach, measures, METRICS[:1])
                    if found is None:
                        continue
                    caught = any(alarmed(ends) for ends in found.values())
                    tally[reach]["memories"][str(radius)][0] += caught
                    tally[reach]["memories"][str(radius)][1] += 1
                    if not caught:
                        print("missed", name, radius, reach, {k[0]: v for k, v in found.items()}, flush=True)
            print(
                seed,
                name,
                {r: (t["audits"], len(t["alarms"]), t["memories"]) for r, t in tally.items()},
                flush=True,
            )
    RESULTS.write_text(
        json.dumps({"seeds": options.seeds, "tables": TABLES, "reach": tally}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
