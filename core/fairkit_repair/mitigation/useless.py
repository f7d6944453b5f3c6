"""What no mitigation may hide: a model that treats all people alike, or that is worse than no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel, Prediction
    from fairkit.results.report import Report

_SAME = 1e-9
_MOST_ROWS = 20_000
_EVEN = 0.5

_HALF = 0.5
ALARM = "The model is "
"""How every sentence of this module begins."""
CONSTANT = (
    "The model is constant: it decides all people alike, so that every disparity is 0 and nothing is learned. Allow a "
    "larger difference, choose another method, or add rows."
)


def treats_all_alike(fitted: FittedModel, table: Table, after: Report) -> bool:
    """Return whether a model gives all people the same decision, class or value."""
    if table.columns:
        step = max(1, len(table) // _MOST_ROWS)
        return is_constant(fitted.predict({name: values[::step] for name, values in table.columns.items()})) and (
            step == 1 or is_constant(fitted.predict(table.columns))
        )
    rate = _overall(after, "selection_rate")
    return rate is not None and rate[0] in (0.0, 1.0)


def is_constant(prediction: Prediction) -> bool:
    """Return whether all rows get the same chance of a decision, the same likeliest class, or the same value."""
    if prediction.decision_probability is not None:
        values = prediction.decision_probability
    elif prediction.score.ndim == 2:
        values = prediction.score.argmax(axis=1).astype(np.float64)
    else:
        values = prediction.score
    return bool(values.size) and float(np.ptp(values)) <= _SAME


def below_majority(table: Table, after: Report) -> tuple[str, ...]:
    """Say where the accuracy on the test rows is significantly below the share of the most frequent outcome."""
    accuracy = _overall(after, "accuracy")
    if table.task in ("regression", "ranking") or accuracy is None or accuracy[1] is None:
        return ()
    share = float(np.bincount(table.target.astype(np.int64), table.weights).max() / table.row_weights().sum())
    if accuracy[1][1] >= share:
        return ()
    auc = _overall(after, "roc_auc")
    ranks = "" if auc is None or auc[0] <= _EVEN else f"; AUC is {auc[0]:.2f}, so the scores do rank people"
    return (
        f"At its threshold the model's accuracy on the test rows is {accuracy[0]:.3g} "
        f"[{accuracy[1][0]:.3g}, {accuracy[1][1]:.3g}], below that of deciding alike for all ({share:.3g}){ranks}.",
    )


def gives_up(table: Table, before: Report, after: Report) -> tuple[str, ...]:
    """Say where a model keeps less than half of what the one before tells of the outcomes.

    That is the balanced accuracy above one half, on the test rows, where the model before is surely above it.
    """
    first, last = (_overall(one, "balanced_accuracy") for one in (before, after))
    if table.task != "binary" or first is None or last is None or first[1] is None or first[1][0] <= _EVEN:
        return ()
    if last[0] - _EVEN >= _HALF * (first[0] - _EVEN):
        return ()
    return (
        f"The model is not much better than chance: its balanced accuracy on the test rows is {last[0]:.3g}, and that "
        f"of the model before is {first[0]:.3g}. What it promises is bought by telling hardly anybody apart: ask for "
        "less, or choose another method.",
    )


def is_useless(table: Table, after: Report) -> bool:
    """Return whether no model would serve as well as this one.

    It is so where `below_majority` says something and the balanced accuracy is not significantly above one half: a
    model that weighs the outcomes evenly may have an accuracy below the most frequent outcome's share, and be of use.
    """
    balanced = _overall(after, "balanced_accuracy")
    if table.task != "binary" or not below_majority(table, after) or balanced is None:
        return False
    return balanced[1] is not None and balanced[1][0] <= _EVEN


def _overall(after: Report, metric: str) -> tuple[float, tuple[float, float] | None] | None:
    for finding in after.findings:
        if (
            finding.metric == metric
            and finding.sensitive is None
            and finding.auditor == "group"
            and finding.value is not None
        ):
            return finding.value, None if finding.interval is None else (finding.interval[0], finding.interval[1])
    return None
