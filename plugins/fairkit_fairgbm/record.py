"""What a training leaves for people: its path as plain values, and the constraints that it did not meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fairkit_fairgbm.constraints import Constraints
    from fairkit_fairgbm.select import Choice
    from fairkit_fairgbm.trainer import Moment, Trained


def unmet(result: Trained, choice: Choice) -> tuple[str, ...]:
    """Say where a single round does not meet the constraints on the rows that were looked at.

    Only a violation that is larger than its standard error counts: the rows cannot resolve a smaller one. A mixture's
    own note says by how much it misses them.
    """
    if len(choice.rounds) > 1:
        return ()
    where = "validation" if result.validation else "training"
    moment = (result.validation or result.train)[choice.rounds[-1] - 1]
    if moment.excess <= 0:
        return ()
    return (f"The constraints are not met on the {where} rows: they are violated by {moment.violation:.3g}.",)


def details(result: Trained, choice: Choice, constraints: Constraints, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the whole path as plain JSON values."""
    return {
        "groups": list(names),
        "constraints": list(constraints.rates),
        "tolerances": list(constraints.tolerances),
        "targets": [[name, limit] for name, limit in constraints.targets],
        "rounds": list(choice.rounds),
        "weights": list(choice.weights),
        "multipliers": result.multipliers.tolist(),
        "train": _path(result.train),
        "validation": _path(result.validation),
    }


def _path(moments: list[Moment]) -> dict[str, Any]:
    return {
        "loss": [moment.loss for moment in moments],
        "error": [moment.error for moment in moments],
        "violation": [moment.violation for moment in moments],
        "gap": [moment.gap for moment in moments],
        "rates": [np.nan_to_num(moment.rates.by_group, nan=-1.0).tolist() for moment in moments],
        "overall": [moment.rates.overall.tolist() for moment in moments],
    }
