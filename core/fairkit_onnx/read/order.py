"""A matrix of columns whose order nobody stated: what was guessed, and whether the scores look like another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.models.classes import roc_area

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.models.scorer import Columns, Predictions
    from fairkit_onnx.read.feeds import Feed

FEWEST = 200
"""With fewer rows of either label nothing is compared."""


def guessed_order(
    feeds: Sequence[Feed], cells: Columns, predictions: Predictions, favorable: NDArray[np.bool_] | None
) -> list[str]:
    """Return the warnings about inputs that got the table's columns in the table's order."""
    warnings = []
    for feed in feeds:
        shown = ", ".join(feed.columns)
        warnings.append(
            f"The input {feed.input.name!r} is a matrix without names: it gets these {len(feed.columns)} columns in "
            f"this order: {shown}. In another order every number is wrong; `features` states the order of the training"
            f"{_worse_than_one(feed, cells, predictions, favorable)}."
        )
    return warnings


def _worse_than_one(feed: Feed, cells: Columns, predictions: Predictions, favorable: NDArray[np.bool_] | None) -> str:
    """Say that a single column ranks the rows surely better than the model; empty where none does."""
    score = predictions.score if predictions.score is not None else predictions.decision
    if favorable is None or score is None or min(favorable.sum(), (~favorable).sum()) < FEWEST:
        return ""
    ones, zeros = int(favorable.sum()), int((~favorable).sum())
    auc = roc_area(score, favorable)
    areas = {}
    for name in feed.columns:
        values = cells[name]
        if values.dtype.kind in "iufb":
            numbers = np.nan_to_num(values.astype(np.float64))
            area = roc_area(numbers, favorable)
            areas[name] = max(area, 1 - area)
    best = max(areas, key=lambda name: areas[name], default=None)
    error = np.sqrt((ones + zeros + 1) / (12 * ones * zeros))
    if best is None or areas[best] <= auc + 2 * error:
        return ""
    return (
        f". It looks like another order: the model's ROC-AUC on the first rows is {auc:.3f}, and the column {best!r} "
        f"alone has {areas[best]:.3f}"
    )
