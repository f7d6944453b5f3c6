"""Scores of rows that training did not see: every fold is scored by a model of the other folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.split import strata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import FittedModel, Prediction, Run

    Array = NDArray[np.float64]

FOLDS = 3


def folds_of(table: Table, count: int, seed: int) -> NDArray[np.int64]:
    """Number the rows' folds, shape [n]: each holds its share of every group and class, or of the queries."""
    rng = np.random.default_rng([seed, count])
    if table.queries is not None:
        return np.asarray((rng.permutation(int(table.queries.max()) + 1) % count)[table.queries])
    codes = [groups.codes for groups in table.groups.values()]
    if table.task != "regression":
        codes.append(table.target.astype(np.int64))
    order = rng.permutation(len(table))
    if codes:
        order = order[np.argsort(strata_of(codes, len(table))[order], kind="stable")]
    fold = np.empty(len(table), dtype=np.int64)
    fold[order] = np.arange(len(table)) % count
    return fold


def out_of_fold(table: Table, fold: NDArray[np.int64], fit: Callable[[Table], FittedModel]) -> Array:
    """Return the answers for every row by models of the other folds: see `said`."""
    return out_of_folds(table, fold, lambda part: [fit(part)], 1)[0]


def out_of_folds(
    table: Table, fold: NDArray[np.int64], fit: Callable[[Table], Sequence[FittedModel]], count: int
) -> list[Array]:
    """Return the same for each of several models that are trained together."""
    whole: list[Array] = []
    for inside in (fold == place for place in range(int(fold.max()) + 1)):
        held = table.take(inside)
        found = [said(model.predict(held.columns), table.task) for model in fit(table.take(~inside))]
        whole = whole or [np.empty((len(table), *one.shape[1:])) for one in found]
        for target, own in zip(whole, found, strict=True):
            _put(target, inside, own, table)
    return whole


def _put(target: Array, inside: NDArray[np.bool_], scores: Array, table: Table) -> None:
    """Write a fold's scores; refuse those of a model that did not see all classes."""
    if scores.shape[1:] != target.shape[1:]:
        raise DataError(
            f"{table.name}: a class has so few rows that training rows of a fold lack it; merge classes, or add rows"
        )
    target[inside] = scores


def said(prediction: Prediction, task: Task) -> Array:
    """Return the probability of the favorable decision, shape [n]; in other tasks than binary ones the score.

    That is the value, shape [n], or the probabilities of the classes, shape [n, K].
    """
    if task != "binary":
        return prediction.score
    if prediction.decision_probability is None:
        return np.asarray(prediction.score >= 0.5, dtype=np.float64)
    return prediction.decision_probability


def learner_scores(table: Table, fold: NDArray[np.int64], learner: str, run: Run) -> tuple[Array, Array]:
    """Return out-of-fold scores of a plain learner, and what it then says of the rows (see `said`)."""
    columns: list[Array] = []
    for inside in (fold == place for place in range(int(fold.max()) + 1)):
        own = fit_learner(learner, table.take(~inside), run).predict(table.take(inside).columns)
        for place, values in enumerate((own.score, said(own, table.task))):
            if len(columns) <= place:
                columns.append(np.empty((len(table), *values.shape[1:])))
            _put(columns[place], inside, values, table)
    return columns[0].astype(np.float32).astype(np.float64), columns[1]
