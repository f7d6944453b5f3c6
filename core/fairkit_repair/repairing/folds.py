"""Scores of rows that training did not see: every fold is scored by a model of the other folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.progress import Progress, no_progress
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.split import strata_of
from fairkit_repair.scored_rows import even_folds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Prediction, Run

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
    return even_folds(strata_of(codes, len(table)), count, rng)


def out_of_folds(
    table: Table,
    fold: NDArray[np.int64],
    answers: Callable[[Table, Table, NDArray[np.bool_]], Sequence[NDArray[np.floating[Any]]]],
    progress: Progress = no_progress,
) -> list[Array]:
    """Return answers for every row by models of the other folds."""
    whole: list[Array] = []
    count = int(fold.max()) + 1
    for place in range(count):
        progress("out-of-fold models", place, count)
        inside = fold == place
        found = answers(table.take(~inside), table.take(inside), inside)
        whole = whole or [np.empty((len(table), *one.shape[1:])) for one in found]
        for target, own in zip(whole, found, strict=True):
            if own.shape[1:] != target.shape[1:]:
                raise DataError(
                    f"{table.name}: a class has so few rows that training rows of a fold lack it; merge classes, or "
                    "add rows"
                )
            target[inside] = own
    return whole


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

    def answers(part: Table, held: Table, _: NDArray[np.bool_]) -> list[Array]:
        own = fit_learner(learner, part, run).predict(held.columns)
        return [own.score, said(own, table.task)]

    scores, decisions = out_of_folds(table, fold, answers)
    return scores.astype(np.float32).astype(np.float64), decisions
