"""Scores of rows that training did not see: every fold is scored by a model of the other folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.learners import fit_learner
from fairkit.mitigation.split import strata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel, Run

    Array = NDArray[np.float64]

FOLDS = 3


def folds_of(table: Table, count: int, seed: int) -> NDArray[np.int64]:
    """Number the rows' folds, shape [n]: each holds its share of every group and outcome."""
    rng = np.random.default_rng([seed, count])
    codes = [*(groups.codes for groups in table.groups.values()), (table.target > 0).astype(np.int64)]
    order = rng.permutation(len(table))
    order = order[np.argsort(strata_of(codes, len(table))[order], kind="stable")]
    fold = np.empty(len(table), dtype=np.int64)
    fold[order] = np.arange(len(table)) % count
    return fold


def out_of_fold(
    table: Table, fold: NDArray[np.int64], fit: Callable[[Table], FittedModel]
) -> tuple[Array, Array]:
    """Return the score and the decision probability of every row, by models of the other folds; each [n]."""
    score, chance = np.empty(len(table)), np.empty(len(table))
    for place in range(int(fold.max()) + 1):
        inside = fold == place
        held = table.take(inside)
        found = fit(table.take(~inside)).predict(held.columns)
        score[inside] = found.score
        chance[inside] = (
            found.score >= 0.5 if found.decision_probability is None else found.decision_probability
        )
    return score.astype(np.float32).astype(np.float64), chance


def learner_scores(
    table: Table,
    fold: NDArray[np.int64],
    learner: str,
    run: Run,
    settings: Mapping[str, Any] | None = None,
) -> tuple[Array, Array]:
    """Return out-of-fold scores and decisions of a plain learner."""
    return out_of_fold(table, fold, lambda part: fit_learner(learner, part, run, settings=settings))
