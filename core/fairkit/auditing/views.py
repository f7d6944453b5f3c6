"""From scored rows to what metrics see: outcomes, decisions and scores of one task, or of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text
from fairkit.statistics import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Predictions, Scorer


def views(
    batch: Batch, predictions: Predictions, scorer: Scorer, dataset: Dataset
) -> Iterator[tuple[str | None, Rows]]:
    """Return the rows as metrics see them: as one task; of several classes, one for accuracy and one for each."""
    if scorer.task == "ranking":  # numbers are over queries: `fairkit_rankings`
        return
    if scorer.task == "regression":
        target = _numbers(batch.label, len(batch))
        low, high = dataset.profile.label_range or (0.0, 0.0)
        middle = low + (high - low) / 2
        yield (
            None,
            Rows(
                outcome=target,
                score=predictions.score,
                weights=batch.weights,
                origin=middle,
                members=predictions.members,
                shares=predictions.shares,
            ),
        )
        return
    if scorer.task == "binary":
        outcome = np.zeros(len(batch)) if batch.favorable is None else batch.favorable.astype(np.float64)
        yield (
            None,
            Rows(
                outcome=outcome,
                decision=predictions.decision,
                score=predictions.score,
                weights=batch.weights,
                members=predictions.members,
                shares=predictions.shares,
            ),
        )
        return
    yield from _classes(batch, predictions, scorer, dataset)


def _classes(
    batch: Batch, predictions: Predictions, scorer: Scorer, dataset: Dataset
) -> Iterator[tuple[str | None, Rows]]:
    assert predictions.predicted is not None  # noqa: S101 -- multi-class scorers predict classes
    classes = scorer.classes
    favorable = dataset.roles.favorable
    index = np.full(len(batch), -1)
    if batch.label is not None:
        index = np.select([batch.label == value for value in classes], list(range(len(classes))), -1)
    right = (predictions.predicted == index).astype(np.float64)
    yield None, Rows(outcome=np.ones(len(batch)), decision=right, weights=batch.weights)
    for code, value in enumerate(classes):
        if favorable is not None and value_text(value) != value_text(favorable):
            continue
        proba = predictions.probabilities
        yield (
            value_text(value),
            Rows(
                outcome=(index == code).astype(np.float64),
                decision=(predictions.predicted == code).astype(np.float64),
                score=None if proba is None else proba[:, code],
                weights=batch.weights,
            ),
        )


def _numbers(label: Any, rows: int) -> NDArray[np.float64]:
    return np.full(rows, np.nan) if label is None else np.asarray(label, dtype=np.float64)
