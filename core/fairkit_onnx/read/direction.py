"""Which way a column of scores points: towards the favorable label, or away from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.models.classes import ranks_higher

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING = 1e-5
"""Scores that are nearer to a threshold may fall on either side of it by rounding."""


def is_turned(
    values: NDArray[np.float64],
    decision: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
    *,
    by_name: bool,
) -> bool:
    """Return whether a score beside a decision is about the unfavorable label.

    The direction in which one threshold explains the decisions is the score's; where neither or both do, the labels
    tell, then the ranking of the decisions, then the names.
    """
    if decision is not None and 0 < decision.sum() < len(decision):
        up, down = crossed(values, decision), crossed(-values, decision)
        if not up or not down:
            return bool(up) if up != down else by_name
    for truth in (is_favorable, None if decision is None else decision >= 0.5):
        higher = None if truth is None else ranks_higher(values, truth)
        if higher is not None:
            return not higher
    return by_name


def crossed(score: NDArray[np.float64], decision: NDArray[np.float64]) -> int:
    """Count the decisions that no threshold of the score gives; rows within `ROUNDING` may be on either side."""
    taken = decision >= 0.5
    if taken.all() or not taken.any() or float(score[~taken].max()) <= float(score[taken].min()) + ROUNDING:
        return 0
    order = np.argsort(score, kind="stable")
    ranked, favorable = score[order], taken[order]
    wrong = np.concatenate([[0], np.cumsum(favorable)]) + np.concatenate([np.cumsum(~favorable[::-1])[::-1], [0]])
    first = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores are decided alike
    return int(np.where(first, wrong, len(ranked) + 1).min())
