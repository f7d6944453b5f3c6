"""Which way a column of scores points: towards the favorable label, or away from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.models.classes import ranks_higher
from fairkit_onnx.read.rivals import crossed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        up, down = crossed(values, decision)[0], crossed(-values, decision)[0]
        if not up or not down:
            return bool(up) if up != down else by_name
    for truth in (is_favorable, None if decision is None else decision >= 0.5):
        higher = None if truth is None else ranks_higher(values, truth)
        if higher is not None:
            return not higher
    return by_name
