"""Frontiers of loss against statistical parity, as in figure 1 of Agarwal, Dudík & Wu (2019); `papers.py` runs them.

Of every data set the unconstrained learner, SEO (least squares), fairlearn's reduction under demographic parity
(logistic loss), and the plugin's frontier; on the small sets also the cost-sensitive oracles, as in the paper.
"""

from __future__ import annotations

import dataclasses
import time
import warnings

import numpy as np
from fair_regression_data import SOURCES, Problem

from fairkit.mitigators import Run, Table
from fairkit_fair_regression.learning import Chances, Member
from fairkit_fair_regression.losses import disparities
from fairkit_fair_regression.plugin import FairRegression

LEARNERS = {"logistic": ("logistic", "xgboost"), "squared": ("linear", "xgboost")}
TREES = {"max_depth": 4, "n_estimators": 100}
"""Of XGBoost: the depth keeps trees from overfitting halves of these sizes."""


SUBSAMPLE = 2_000
SMALL = {"adult, 2,000 rows": ("adult", SUBSAMPLE), "law school, 2,000 rows": ("law school", SUBSAMPLE)}
SETS = {name: (name, None) for name in SOURCES} | SMALL
COST_SENSITIVE = {"hinge": "linear", "cs": "logistic"}
"""The oracles that see every row at every threshold, and their learners: for the small sets alone."""


def is_small(name: str) -> bool:
    return name in SMALL or name == "communities & crime"


def ours(problem: Problem, learner: str, levels: list[float], oracle: str | None = None) -> list[dict]:
    values = {
        "loss": problem.loss,
        "label_range": problem.label_range,
        "settings": TREES if learner == "xgboost" else {},
        "iterations": 25 if oracle is None else 8,
        "oracle": oracle,
    }
    methods = [FairRegression.with_values(values | {"tolerance": level}) for level in levels]
    table, test = Table.from_dataset(problem.train), Table.from_dataset(problem.test)
    start = time.perf_counter()
    models = FairRegression.fit_together(methods, table, Run(learner=learner))
    seconds = time.perf_counter() - start
    name = learner if oracle is None else f"{learner} (oracle {oracle})"
    free = fitted(problem, learner, table)[0]
    if oracle is not None:
        free = dataclasses.replace(models[0], members=[models[0].unconstrained])
    found = [measured(f"unconstrained, {name}", [free], [1.0], problem, table, test)]
    calls = models[0].details["oracle_calls_of_run"]
    print(f"  {name}: {calls} oracle calls for {len(levels)} bounds, {seconds:.0f} s")
    for level, model in zip(levels, models, strict=True):
        parts = [Wrapped(model.encoder, member, model.loss) for member in model.members]
        row = measured(f"ours, {name}", parts, model.weights, problem, table, test, level)
        found.append(row | {"oracle_calls": model.details["oracle_calls"]})
    return found


def fitted(problem: Problem, learner: str, table: Table) -> list:
    method = FairRegression.with_values(
        {"loss": problem.loss, "settings": TREES if learner == "xgboost" else {}, "label_range": (0, 1)}
    )
    return [method.baseline(table, Run(learner=learner))]


def measured(name, models, weights, problem, table, test, bound=None) -> dict:
    """Measure the mixture of some models, each with one member, on the grid: loss and distance of distributions."""
    method = FairRegression.with_values({"loss": problem.loss, "label_range": problem.label_range})
    learner = "logistic" if problem.loss == "logistic" else "linear"
    scale, loss = method.training(table, Run(learner=learner)).scale, models[0].loss
    found = {"method": name, "bound": bound}
    for part, rows in (("train", table), ("test", test)):
        groups, labels = rows.only_groups(), scale.to_unit(rows.target)
        mass, mean = np.zeros((len(groups.names), scale.grid.size + 1)), 0.0
        for model, weight in zip(models, weights, strict=True):
            predicted = scale.snapped(model.members[0].predict(model.encoder.transform(rows.columns)))
            mean += weight * loss(labels, predicted).mean() / loss.unit * (scale.high - scale.low) ** loss.power
            np.add.at(mass, (groups.codes, scale.grid.levels(predicted)), weight)
        found |= {f"{part}_loss": float(mean), f"{part}_disparity": float(np.abs(disparities(mass)).max())}
    return found


def seo(problem: Problem) -> list[dict]:
    method = FairRegression.with_values({"constraint": "seo", "label_range": (0, 1)})
    table, test = Table.from_dataset(problem.train), Table.from_dataset(problem.test)
    return [measured("SEO", [method.fit(table, Run())], [1.0], problem, table, test)]


def classification(problem: Problem, learner: str, levels: list[float]) -> list[dict]:
    """fairlearn's exponentiated gradient under demographic parity; its members' scores are what is measured."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    table, test = Table.from_dataset(problem.train), Table.from_dataset(problem.test)
    free = fitted(problem, learner, table)[0]
    matrix = free.encoder.transform(table.columns)
    groups = table.only_groups()
    found = []
    for level in levels:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gradient = ExponentiatedGradient(
                estimator(learner), DemographicParity(difference_bound=level), eps=level, max_iter=20
            )
            gradient.fit(matrix, table.target.astype(int), sensitive_features=groups.codes)
        weights = gradient.weights_.to_numpy(float)
        kept = [k for k in range(len(weights)) if weights[k] > 1e-6]
        models = [Wrapped(free.encoder, Chances(gradient.predictors_[k]), free.loss) for k in kept]
        row = measured(
            f"fairlearn, {learner}", models, weights[kept] / weights[kept].sum(), problem, table, test, level
        )
        calls, seconds = gradient.n_oracle_calls_, time.perf_counter() - start
        print(f"  fairlearn {learner} {level:g}: {calls} oracle calls, {seconds:.0f} s")
        found.append(row | {"oracle_calls": gradient.n_oracle_calls_})
    return found


class Wrapped:
    def __init__(self, encoder, member: Member, loss):
        self.encoder, self.members, self.loss = encoder, [member], loss


def estimator(learner: str):
    if learner == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(solver="newton-cholesky")
    from xgboost import XGBClassifier

    return XGBClassifier(learning_rate=0.1, tree_method="hist", **TREES)


def cost_sensitive(problem: Problem, levels: list[float]) -> list[dict]:
    """Return the frontiers of the oracles that see every row at every threshold."""
    return [row for oracle, learner in COST_SENSITIVE.items() for row in ours(problem, learner, levels, oracle=oracle)]
