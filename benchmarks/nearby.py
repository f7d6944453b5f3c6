"""How far a number moves to its neighbour (`moving.REACH`): false alarms on honest models, memories that are caught.

    FAIRKIT_DATA=... python benchmarks/nearby.py [--seeds 3]
    FAIRKIT_DATA=... python benchmarks/nearby.py --seeds 8 --first 100 --reaches 0.02 --results nearby_fresh.json

Tables x learners, audited on rows that they were trained on and on others. An alarm is what takes a pass away in an
audit: a disparity whose interval next to the rows lies above the tightest limit that passes (the upper end of the
interval that the audit gives it), and that has surely grown. A limit further away gives fewer alarms. Memories know the
audited rows by their numbers, exactly or within a radius (largest difference of a number, in standard deviations of its
column); they decide about those by a harmless number, and by group about all others. A memory is caught where it would
lose the pass of some limit; at how many rows that nobody audited it sleeps is written too: on tables of few numbers it
knows most people. Writes `results/nearby.json`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

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
from fairkit.results.subjects import ModelInfo
from fairkit_datasets.catalog import RECIPES
from fairkit_onnx import moving, nearby
from fairkit_onnx.paired import rates_of

RESULTS = Path(__file__).parent / "results"
REACHES = (0.01, 0.02, 0.05, 0.1, 0.2)
RADII = (0.0, 0.001, 0.01)
TABLES = ("compas", "adult", "german", "loans", "acs_income", "credit_default")
METRICS = ("demographic_parity_difference", "equalized_odds_difference", "equal_opportunity_difference")
CONFIDENCE = 0.95
ROWS, TRAINING = 4_096, 6_000
"""Rows that are audited, and that other models learn from."""


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
        self.info = ModelInfo(name="model", sha256="0" * 64, task="binary", serving={"rows": {}})
        self._decide = decide
        self._known = {name: {} for name in columns}

    def matrix(self, columns):
        return np.column_stack([codes_of(columns[name], self._known[name]) for name in self.columns])

    def bind(self, dataset, options):
        return self

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


def limits(model, dataset):
    """Return the upper end of the audit's interval of each disparity: the tightest limit that passes."""
    report = fairkit.audit(model, dataset)
    return {
        (f.sensitive, f.metric): f.interval[1]
        for f in report.findings
        if f.metric in METRICS and f.interval is not None and not f.within and f.reference is None
    }


def alarmed(limit, ends):
    """Tell whether a rule that just passes would lose its pass."""
    return ends["nearby"][0] > limit and ends["change"][0] > 0


def parts(name, seed):
    """Return the audited rows and others, as datasets, and the features."""
    table = datasets.table(name)
    roles = dict(RECIPES[name].roles) if name in RECIPES else {}
    if name == "loans":
        roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "drop": ["would_repay"]}
    order = np.random.default_rng(seed).permutation(table.num_rows)[: ROWS + TRAINING]
    rows = min(ROWS, len(order) // 2)
    return [fairkit.load_data(table.take(some), **roles) for some in (order[:rows], order[rows:])]


def memory(model, cells, radius, group):
    """Return decisions by a harmless number about rows that are known, and by group about others."""
    model_columns = [i for i, name in enumerate(model.columns) if cells[name].dtype.kind in "iuf" and i != group]
    known = model.matrix(cells)[:10_000, model_columns]
    scale = np.where(known.std(axis=0) > 0, known.std(axis=0), 1.0)
    tree = cKDTree(known / scale)
    middle = np.median(known[:, 0])
    codes, counts = np.unique(model.matrix(cells)[:, group], return_counts=True)
    most = codes[counts.argmax()]

    def decide(rows):
        far, _ = tree.query(rows[:, model_columns] / scale, p=np.inf, distance_upper_bound=radius + 1e-9)
        male = rows[:, group] == most
        return np.where(np.isfinite(far), rows[:, model_columns[0]] > middle, male).astype(float)

    return decide


def study_honest(tally, name, seed, audited, others, measures):
    """Count audits and alarms of honest models, trained on the audited rows and on others."""
    features = list(audited.features)
    for where, trained in (("rows", audited), ("other rows", others)):
        batch = next(trained.batches(features, rows=10_000))
        for kind, learner in learners(seed).items():
            model = Model(features, None)
            fitted = learner.fit(model.matrix(batch.columns(features)), batch.favorable)
            model._decide = lambda rows, fitted=fitted: fitted.predict_proba(rows)[:, 1]
            limit = limits(model, audited)
            for reach in tally:
                found = evidence(model, audited, reach, measures, METRICS)
                if found is None:
                    continue
                tally[reach]["audits"] += 1
                wrong = [f"{m}:{s}" for (s, m), ends in found.items() if alarmed(limit.get((s, m), np.inf), ends)]
                if wrong:
                    tally[reach]["alarms"].append(f"{name} {kind}, trained on {where}, seed {seed}: {wrong}")


def study_memories(tally, name, audited, others, measures):
    """Count memories of the audited rows that are caught; one decides by the largest group of a column."""
    names = [split.name for split in audited.roles.sensitive]
    columns = list(dict.fromkeys([*audited.features, *names]))
    cells = next(audited.batches(columns, rows=10_000)).columns(columns)
    sizes = {one: np.unique(cells[one].astype(str), return_counts=True)[1] for one in names}
    split = max((one for one in names if len(sizes[one]) <= 10), key=lambda one: np.sort(sizes[one])[-2])
    strangers = next(others.batches(columns, rows=ROWS)).columns(columns)
    for radius in RADII:
        model = Model(columns, None)
        model._decide = memory(model, cells, radius, columns.index(split))
        limit = limits(model, audited)
        numbers = [i for i, c in enumerate(columns) if cells[c].dtype.kind in "iuf" and c != split]
        known = model.matrix(cells)[:, numbers]
        scale = np.where(known.std(axis=0) > 0, known.std(axis=0), 1.0)
        far, _ = cKDTree(known / scale).query(model.matrix(strangers)[:, numbers] / scale, p=np.inf)
        awake = round(float((far <= radius + 1e-9).mean()), 3)
        for reach in tally:
            found = evidence(model, audited, reach, measures, METRICS[:1])
            caught = found is not None and any(
                alarmed(limit.get((s, m), np.inf), ends) for (s, m), ends in found.items()
            )
            one = tally[reach]["memories"][str(radius)]
            one["caught"] += caught
            one["of"] += 1
            if not caught:
                shown = {
                    s: [round(float(x), 3) for x in ends["nearby"]] + [limit.get((s, m))]
                    for (s, m), ends in (found or {}).items()
                }
                one["missed"].append(f"{name}: knows {awake:.0%} of other people; nearby and limit {shown}")


def main() -> None:
    """Print and write alarms and catches by reach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--reaches", nargs="+", type=float, default=REACHES)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--results", default="nearby.json", help="the file's name in results/")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    measures = rates_of(plugins.installed_metrics()[0]), {}
    tally = {
        reach: {"audits": 0, "alarms": [], "memories": {str(r): {"caught": 0, "of": 0, "missed": []} for r in RADII}}
        for reach in options.reaches
    }
    for seed in range(options.first, options.first + options.seeds):
        for name in options.tables:
            audited, others = parts(name, seed)
            study_honest(tally, name, seed, audited, others, measures)
            study_memories(tally, name, audited, others, measures)
            for reach, counts in tally.items():
                caught = [f"{one['caught']} of {one['of']}" for one in counts["memories"].values()]
                print(
                    seed, name, reach, counts["audits"], "audits", len(counts["alarms"]), "alarms", caught, flush=True
                )
            done = {"seeds": [options.first, seed + 1], "last": name, "tables": options.tables}
            done["reach"] = tally
            (RESULTS / options.results).write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
