"""What a user must know about the pick of a search: how sure it is, what was given up, what was not counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.results.searches import Alternative, Search

_FEW_MISSING = 0.02
_LESS_SURE, _MUCH = 0.15, 0.005


def notes_of(told: Search, test: Dataset, *, given: bool) -> tuple[str, ...]:
    """Return sentences about the pick, its chance and the look.

    Parameters
    ----------
    told
        The search.
    test
        The rows that were looked at.
    given
        Whether the base was given.
    """
    notes = _of_missing(test, told)
    if not told.reached:
        notes.append(
            f"No alternative reaches the chance {told.sure:g}: the surest one was picked, and it passes with a "
            f"predicted chance of {told.choice.chance:.2f} only."
        )
    notes += _price(told)
    if told.deterministic:
        notes += _cost_of_determinism(told)
    if given:
        notes.append(
            "Chances are predicted from the given model's scores of the training rows; if it learned from these "
            "rows, they are too good."
        )
    if told.looks > 1:
        notes.append(
            f"This is look {told.looks} at the same test rows for this file. Each look that is judged by itself is "
            "another chance to pass wrongly; fresh test rows mend that."
        )
    return tuple(notes)


def _price(told: Search) -> list[str]:
    """Say where an alternative that is a little less sure is much better."""
    one = told.choice
    near = [
        other
        for other in told.alternatives
        if other.status == "tried" and told.sure - _LESS_SURE <= (other.chance or 0.0) < (one.chance or 0.0)
    ]
    if not near or not told.reached:
        return []
    best = max(near, key=lambda other: other.accuracy or 0.0)
    if (best.accuracy or 0.0) - (one.accuracy or 0.0) < _MUCH:
        return []
    sure = math.floor(100 * (best.chance or 0.0)) / 100
    return [
        f"The chance of {told.sure:g} costs much here: {best.name} has a predicted {told.performance} of "
        f"{best.accuracy:.4f} and passes with a predicted chance of {best.chance:.2f}; `sure={sure:g}` takes it."
    ]


def _of_missing(test: Dataset, told: Search) -> list[str]:
    """Say where rows without a group may turn a verdict that the search predicted."""
    profile = test.profile
    columns = dict.fromkeys(rule.sensitive or "" for rule in told.rules)
    return [
        f"{profile.missing[name]:,} of {profile.rows:,} test rows have no value of {name}: the verdict must hold "
        "whatever their groups are, and the predicted chance does not know that."
        for name in columns
        if profile.missing.get(name, 0) > _FEW_MISSING * profile.rows
    ]


def _cost_of_determinism(told: Search) -> list[str]:
    drawn: list[Alternative] = [
        one for one in told.alternatives
        if one.randomized and one.status == "left out" and (one.chance or 0.0) >= told.sure
    ]  # fmt: skip
    if not drawn:
        return []
    best = max(drawn, key=lambda one: one.accuracy or 0.0)
    loss = (best.accuracy or 0.0) - (told.choice.accuracy or 0.0)
    return [
        f"Without decisions drawn by chance the predicted {told.performance} is {abs(loss):.4f} "
        f"{'lower' if loss > 0 else 'higher'} than with them ({best.name})."
    ]
