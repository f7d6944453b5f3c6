"""Which method for which goal: accuracy at a disparity of at most .02, .05 and .10.

Data sets x constraints x sensitive columns x methods. Rows are split at random into train (60 %), validation (20 %)
and test (20 %), evenly in every group and class. Rules on scores, ours, error-parity's and fairlearn's, are fitted to
the same scores: those of the training rows by LightGBM models that did not see them (three folds); they decide on the
scores of one LightGBM of all training rows. The others train on the training rows. Of each method's settings the one
with the highest validation accuracy whose validation disparity is within the limit is taken, and its test accuracy and
test disparity are reported.

    FAIRKIT_DATA=... python benchmarks/quality.py --data adult compas --splits 3 --error-parity PYTHON
    python benchmarks/quality_page.py

error-parity needs an older numpy: `--error-parity PYTHON` names the interpreter of an environment that has it. Results
are written to `benchmarks/results/quality.json` after every method, and what is in the file already is skipped; the
second command writes the table of methods in docs/reference/measured.md from them. `--methods` runs only these.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from papers_kit import folder

import fairkit
from fairkit.errors import FairkitError
from fairkit.mitigators import Run, Table
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import find_mitigator, stratified
from fairkit_repair.repairing.chance import FOLDS, folds_of, learner_scores

TOLERANCES = (0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1)
FEW = (0.0, 0.02, 0.05, 0.1)
LARGE = 100_000
"""Training rows from which a method of many trainings gets two tolerances only."""
RESULTS = Path(__file__).parent / "results" / "quality.json"
CONSTRAINTS = ("demographic_parity", "equal_opportunity", "equalized_odds")
LEAST = 10
"""Rows of a group that a rate must be over to count in a disparity."""
REMOVERS = (
    ("disparate-impact-remover", "repair", (0.5, 0.75, 1.0)),
    ("correlation-remover", "alpha", (0.5, 0.75, 1.0)),
)
"""They know no constraint: their models are measured under each."""
COMPAS = "age sex race juv_fel_count juv_misd_count juv_other_count priors_count c_charge_degree"
DATA = {
    "adult": {"label": "income", "favorable": ">50K", "drop": ["split", "fnlwgt"]},
    "acs_income": {"label": "PINCP", "favorable": 1, "drop": ["row_index", "split"]},
    "credit_default": {"label": "default_payment_next_month", "favorable": 0, "drop": ["ID"]},
    "compas": {"label": "two_year_recid", "favorable": 0, "features": COMPAS.split()},
    "german": {"label": "class", "favorable": 1},
}
COLUMNS = {
    "adult": {"sex": "sex", "race": "race3"},
    "acs_income": {"sex": "SEX", "race": "race4"},
    "credit_default": {"sex": "SEX"},
    "compas": {"sex": "sex", "race": "race3"},
    "german": {"sex": "sex", "age": "age:26"},
}
"""Of race the largest values, the others together; credit default and German have none. German's sex is in a status."""
LARGEST = {"adult": ("White", "Black"), "compas": ("African-American", "Caucasian"), "acs_income": (1, 2, 6)}


def load(name, rows, sensitive):
    table = pq.read_table(folder() / f"{name}.parquet")
    table = table if rows is None else table.slice(0, rows)
    roles = dict(DATA[name])
    if sensitive.startswith("race"):
        source = "RAC1P" if name == "acs_income" else "race"
        kept = [str(value) if value in LARGEST[name] else "other" for value in table[source].to_pylist()]
        table = table.append_column(sensitive, pa.array(kept))
    if name == "german" and sensitive == "sex":
        status = table["personal_status"].to_pylist()
        table = table.append_column("sex", pa.array(["female" if one in ("A92", "A95") else "male" for one in status]))
    return Table.from_dataset(fairkit.load_data(table, name=name, sensitive=sensitive, **roles))


def three(table, seed):
    groups = table.only_groups()
    rng = np.random.default_rng(seed)

    def cells(part):
        return 2 * part.only_groups().codes + part.target.astype(int)

    held = stratified(2 * groups.codes + table.target.astype(int), 0.4, rng)
    rest = table.take(held)
    half = stratified(cells(rest), 0.5, rng)
    return table.take(~held), rest.take(~half), rest.take(half)


def measured(chance, table, constraint):
    """Accuracy, and the disparity as audits report it, of groups with enough rows."""
    y, codes = table.target, table.only_groups().codes

    def gap(mask):
        rates = [
            chance[mask & (codes == g)].mean() for g in range(codes.max() + 1) if (mask & (codes == g)).sum() >= LEAST
        ]
        return max(rates) - min(rates) if len(rates) > 1 else 0.0

    every = {"demographic_parity": [y >= 0], "equal_opportunity": [y == 1], "equalized_odds": [y == 1, y == 0]}
    return float(np.where(y == 1, chance, 1 - chance).mean()), float(max(gap(mask) for mask in every[constraint]))


def rule_points(name, settings, scores, parts, run):
    for values in settings:
        method = find_mitigator(name).with_values(values | {"min_group": LEAST})
        rule, _ = method.learn(scores[0], parts[0], run)
        yield tuple(rule.probability(s, rule.keys.codes(t.columns)) for s, t in zip(scores[1:], parts[1:], strict=True))


def trained_points(name, settings, parts, run):
    methods = [find_mitigator(name).with_values(values) for values in settings]
    if getattr(methods[0], "together", ()):
        models = methods[0].fit_together(methods, parts[0], run)
    else:
        models = [method.fit(parts[0], run, validation=parts[1]) for method in methods]
    for model in models:
        yield tuple(model.predict(t.columns).decision_probability for t in parts[1:])


def fairlearn_points(constraint, scores, parts):
    """Fairlearn's ThresholdOptimizer has no tolerance: one point."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator

    class Scored(BaseEstimator):
        fitted_ = True

        def fit(self, *_):
            return self

        def predict(self, X):
            return np.asarray(X)[:, 0]

    names = {"equal_opportunity": "true_positive_rate_parity"}
    post = ThresholdOptimizer(
        estimator=Scored(), constraints=names.get(constraint, constraint), prefit=True, predict_method="predict"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train = parts[0]
        post.fit(scores[0][:, None], train.target.astype(int), sensitive_features=train.only_groups().codes)
        yield tuple(
            post._pmf_predict(s[:, None], sensitive_features=t.only_groups().codes)[:, 1]
            for s, t in zip(scores[1:], parts[1:], strict=True)
        )


WORKER = """
import sys, numpy as np
from error_parity import RelaxedThresholdOptimizer
d = np.load(sys.argv[1]); constraint = sys.argv[2]; out = {}
for k, tol in enumerate(map(float, sys.argv[4:])):
    r = RelaxedThresholdOptimizer(predictor=lambda X: X[:, 0], constraint=constraint, tolerance=tol, seed=0)
    r.fit(d["s0"][:, None], d["y"].astype(int), group=d["g0"])
    for part in "12":
        draws = [r.predict(d["s" + part][:, None], group=d["g" + part]) for _ in range(25)]
        out[f"{part}.{k}"] = np.mean(draws, axis=0)
np.savez(sys.argv[3], **out)
"""


def error_parity_points(python, constraint, scores, parts):
    names = {"equal_opportunity": "true_positive_rate_parity"}
    with tempfile.TemporaryDirectory() as place:
        given, found = Path(place) / "in.npz", Path(place) / "out.npz"
        arrays = {f"s{k}": s for k, s in enumerate(scores)}
        arrays |= {f"g{k}": t.only_groups().codes for k, t in enumerate(parts)}
        np.savez(given, y=parts[0].target, **arrays)
        words = [python, "-c", WORKER, str(given), names.get(constraint, constraint), str(found)]
        subprocess.run([*words, *map(str, TOLERANCES)], check=True, capture_output=True)
        with np.load(found) as out:
            for place_, _ in enumerate(TOLERANCES):
                yield out[f"1.{place_}"], out[f"2.{place_}"]


def methods(constraint, scores, parts, run, python):
    """Each method's name and points (chances on validation and test rows)."""
    rules = [{"constraint": constraint, "tolerance": t} for t in TOLERANCES]
    tolerances = [{"constraint": constraint, "tolerance": t} for t in FEW]
    linear = [one | {"min_group": 5} for one in tolerances]
    blind = [one | {"read_group": False} for one in linear]
    boosted = [one | {"small_groups": "unconstrained"} for one in tolerances]
    dear = tolerances if parts is None or len(parts[0]) < LARGE else tolerances[0:3:2]
    found = {
        "unconstrained": lambda: [tuple((s >= 0.5).astype(float) for s in scores[1:])],
        "threshold-optimizer": lambda: rule_points("threshold-optimizer", rules, scores, parts, run),
        "linear-post": lambda: trained_points("linear-post", linear, parts, run),
        "linear-post, blind": lambda: trained_points("linear-post", blind, parts, run),
        "fairgbm": lambda: trained_points("fairgbm", boosted, parts, run),
        "fairlearn": lambda: fairlearn_points(constraint, scores, parts),
        "exponentiated-gradient": lambda: trained_points("exponentiated-gradient", dear, parts, run),
    }
    for name, dial, values in REMOVERS:
        settings = [{dial: value} for value in values]
        found[name] = lambda name=name, settings=settings: trained_points(name, settings, parts, run)
    if constraint != "equalized_odds":
        found["rto"] = lambda: rule_points("rto", rules, scores, parts, run)
    if constraint == "demographic_parity":
        strengths = [{"strength": s} for s in (0.5, 0.75, 1.0)]
        bands = [{"tolerance": t} for t in TOLERANCES]
        found["reweigh"] = lambda: trained_points("reweigh", strengths, parts, run)
        found["reject-option"] = lambda: rule_points("reject-option", bands, scores, parts, run)
    if python:
        found["error-parity"] = lambda: error_parity_points(python, constraint, scores, parts)
    return found


def scored(parts, run):
    """One LightGBM of the training rows, and scores: of training rows by models that did not see them."""
    fold = folds_of(parts[0], FOLDS, run.seed)
    outside, _ = learner_scores(parts[0], fold, "lightgbm", run)
    base = fit_learner("lightgbm", parts[0], run)
    return base, [outside, *(base.predict(t.columns).score for t in parts[1:])]


def cell(parts, found, constraint, known):
    """Give the records of one data set, column, constraint and split; `known` keeps models for other constraints."""
    for method, points in found.items():
        record = {"method": method}
        try:
            chances, record["seconds"] = known[method] if method in known else timed(points)
            if any(method == name for name, *_ in REMOVERS):
                known[method] = chances, record["seconds"]
            seen = [(*measured(v, parts[1], constraint), *measured(t, parts[2], constraint)) for v, t in chances]
            record["points"] = [[round(x, 5) for x in point] for point in seen]
        except (FairkitError, subprocess.CalledProcessError, ValueError) as error:
            record |= {"refused": str(error)[:200], "seconds": 0.0}
        yield record


def timed(points):
    """Return what a method gives, and its CPU seconds."""
    begun = time.process_time() + resource_seconds()
    found = list(points())
    return found, round(time.process_time() + resource_seconds() - begun, 2)


def resource_seconds():
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000, help="of ACSIncome, 60000 or 200000")
    parser.add_argument("--first", type=int, default=0, help="the first split")
    parser.add_argument("--methods", nargs="*", default=None)
    parser.add_argument("--without", nargs="*", default=())
    parser.add_argument("--error-parity", default=None, metavar="PYTHON")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    records = json.loads(given.output.read_text()) if given.output.exists() else []
    for seed in range(given.first, given.splits):
        for name in given.data:
            for told in COLUMNS[name]:
                add_split(records, given, name, told, seed)


def save(records, path):
    """One record a line; never half a file."""
    half = path.with_suffix(".part")
    half.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
    half.replace(path)


def add_split(records, given, name, told, seed):
    """Measure what is not in the file yet of one split by one column."""
    rows = given.rows if name == "acs_income" else None
    about = {"data": f"{name} {rows}" if rows else name, "column": told, "split": seed}
    base, run, known = None, Run(seed=seed, threads=1), {}
    for constraint in CONSTRAINTS:
        key = about | {"constraint": constraint}
        done = {r["method"] for r in records if key.items() <= r.items()} | set(given.without)

        def missing(scores, parts, constraint=constraint, done=done):
            found = methods(constraint, scores, parts, run, given.error_parity)
            wanted = found if given.methods is None else given.methods
            return {method: found[method] for method in found if method in wanted and method not in done}

        if not missing([], None):
            continue
        if base is None:
            table = load(name, rows, COLUMNS[name][told])
            parts = three(table, seed)
            base, scores = scored(parts, run)
        key["majority"] = float(max(table.target.mean(), 1 - table.target.mean()))
        for record in cell(parts, missing(scores, parts), constraint, known):
            records.append(key | record)
            save(records, given.output)
        print(*key.values(), flush=True)


if __name__ == "__main__":
    main()
