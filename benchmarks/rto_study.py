"""Post-processing compared: RTO, threshold optimizers, reject option, shift inference (RTO paper, section 5).

Adult and credit default, four classifiers each, the sensitive attribute is sex. Rows are split at random into
train (1/2), fit (1/4, for the post-processing) and test (1/4). As in the paper the training part of credit default
is biased: a row with s = y is kept (s = 1 for women, y = 1 for a default), another is dropped with chance 1/2.

`papers.py rto.table1` runs it. The classifiers are trained once per split; their scores are kept in the cache folder,
so that a second run takes seconds. The logistic regression's C is 1, not tuned by cross validation as in the paper.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import fairkit_datasets as datasets
from fairkit.mitigators import Run
from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule
from fairkit_reject_option import GRID, RejectOption
from fairkit_repair.scored_rows import ScoredRows
from fairkit_rto.mitigator import RandomizedThresholds
from fairkit_shift_inference import ShiftInference
from fairkit_threshold_optimizer import ThresholdOptimizer

DATA = ("adult", "credit_default")
CLASSIFIERS = ("forest", "knn", "mlp", "logistic")
METHODS = ("original", "rto", "fairlearn", "threshold-optimizer", "reject-option", "shift-inference")
EPSILONS = (0.0, 0.02, 0.04, 0.07, 0.1, 0.14, 0.19, 0.25)
NAMES = ("men", "women")


def read(name):
    """Return features (one-hot, unscaled), the outcome and the sex (1 for women)."""
    import pandas as pd

    frame = datasets.frame(name)
    if name == "adult":
        y = (frame.pop("income") == ">50K").to_numpy().astype(int)
        sex = (frame["sex"] == "Female").to_numpy().astype(int)
        frame = frame.drop(columns=["split", "fnlwgt"])
    else:
        y = frame.pop("default_payment_next_month").to_numpy()
        sex = (frame["SEX"] == 2).to_numpy().astype(int)
        frame = frame.drop(columns=["ID"])
    return pd.get_dummies(frame).to_numpy(np.float64), y, sex


def classifier(name, seed):
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier

    return {
        "forest": lambda: RandomForestClassifier(max_depth=10, random_state=seed),
        "knn": lambda: KNeighborsClassifier(10),
        "mlp": lambda: MLPClassifier((128,), max_iter=30, random_state=seed),
        "logistic": lambda: LogisticRegression(max_iter=1000),
    }[name]()


def score_split(name, seed):
    """Train the classifiers on one split and give their scores of the fit and the test part."""
    from sklearn.preprocessing import StandardScaler

    X, y, sex = read(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, fit, test = np.split(order, [len(y) // 2, 3 * len(y) // 4])
    if name == "credit_default":
        train = train[(sex[train] == y[train]) | (rng.random(len(train)) < 0.5)]
    scaler = StandardScaler().fit(X[train])
    found = {"fit_y": y[fit], "fit_s": sex[fit], "test_y": y[test], "test_s": sex[test]}
    for kind in CLASSIFIERS:
        model = classifier(kind, seed).fit(scaler.transform(X[train]), y[train])
        for part, rows in (("fit", fit), ("test", test)):
            found[f"{part}_{kind}"] = model.predict_proba(scaler.transform(X[rows]))[:, 1]
    return found


def cached_scores(name, seed, cache):
    path = Path(cache) / f"{name}-{seed}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the network stops at 30 epochs
            np.savez_compressed(path, **score_split(name, seed))
        print(f"scored {name}, split {seed}", flush=True)
    with np.load(path) as found:
        return dict(found)


def rows_of(scores, part, kind):
    return ScoredRows(
        scores=scores[f"{part}_{kind}"].astype(np.float32).astype(np.float64),
        codes=scores[f"{part}_s"].astype(np.int64),
        names=NAMES,
        favorable=scores[f"{part}_y"].astype(np.float64),
    )


def figures(rows, h):
    rates = rows.rates(h)
    return float(abs(rates[0] - rates[1])), rows.accuracy(h)


def apply(solution, rows):
    column = GroupColumn(name="sex", keys=(0.0, 1.0))
    keys = GroupKeys(columns=(column,), names=NAMES, cells=((1,), (2,)))
    rule = GroupRule(keys=keys, pieces=solution.pieces, odds=solution.odds)
    return figures(rows, rule.probability(rule.adjust(rows.scores, rows.codes), rows.codes))


def fairlearn_rule(fit, test):
    from fairlearn.postprocessing import ThresholdOptimizer as Theirs
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        classes_ = np.array([0, 1])

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.column_stack([1 - X[:, 0], X[:, 0]])

        def __sklearn_is_fitted__(self):
            return True

    theirs = Theirs(estimator=Given(), constraints="demographic_parity", prefit=True, predict_method="predict_proba")
    theirs.fit(fit.scores[:, None], fit.favorable, sensitive_features=fit.codes)
    return figures(test, theirs._pmf_predict(test.scores[:, None], sensitive_features=test.codes)[:, 1])


def compare(fit, test, seed):
    """Return (bias, expected accuracy) on the test part for every method, and the trade-off curves."""
    run = Run(seed=seed)
    reject = RejectOption.with_values({}).solve(fit, None, run)
    rto = RandomizedThresholds.with_values({}).solve(fit, None, run)
    gamma = rto.details["gamma"]  # along the curve the width stays, the common rate is chosen anew
    found = {
        "original": figures(test, (test.scores >= 0.5).astype(float)),
        "rto": apply(rto, test),
        "fairlearn": fairlearn_rule(fit, test),
        "threshold-optimizer": apply(ThresholdOptimizer.with_values({}).solve(fit, None, run), test),
        "reject-option": apply(reject, test),
        "shift-inference": apply(ShiftInference.with_values({}).solve(fit, None, run), test),
    }
    curves = {
        "rto": [
            apply(RandomizedThresholds.with_values({"tolerance": e, "gamma": gamma}).solve(fit, None, run), test)
            for e in EPSILONS
        ],
        "threshold-optimizer": [
            apply(ThresholdOptimizer.with_values({"tolerance": e}).solve(fit, None, run), test) for e in EPSILONS
        ],
        "reject-option": [
            apply(RejectOption.with_values({"theta": t}).solve(fit, None, run), test) for t in GRID[:40:2]
        ],
        "shift-inference": [found["original"], found["shift-inference"]],
    }
    return found, curves, bool(reject.details["reached"])
