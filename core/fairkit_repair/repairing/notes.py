"""What a user must know about the pick of a search: how sure it is, what was given up, what was not counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairkit_repair.repairing.missing import missing_of, told_missing

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit_repair.searches import Alternative, Search

BUDGET = "the budget"
"""Reasons of alternatives that the budget cut have these words."""
_LESS_SURE, _MUCH = 0.15, 0.005


def notes_of(told: Search, test: Dataset, *, given: bool, binary: bool) -> tuple[str, ...]:
    """Return sentences about the pick, its chance and the look.

    Parameters
    ----------
    told
        The search.
    test
        The rows that were looked at.
    given
        Whether the base was given.
    binary
        Whether outcomes are two: chances count then what missing groups could do.
    """
    notes = _of_missing(test, told, binary=binary)
    if not told.reached:
        notes.append(
            f"No alternative reaches the chance {told.sure:g}: the surest one was picked, and it passes with a "
            f"predicted chance of {told.choice.chance:.2f} only.{_in_the_way(told)}"
        )
    notes += _of_budget(told)
    notes += _price(told)
    if told.deterministic is not False and not told.choice.randomized:
        notes += _cost_of_determinism(told)
    if given:
        notes.append(_of_given(told))
    if told.looks > 1 or told.looks_doubt:
        least = "at least " if told.looks_doubt else ""
        why = f" ({told.looks_doubt})" if told.looks_doubt else ""
        notes.append(
            f"This is {least}look {told.looks} at the same test rows{why}. Each look that is judged by itself is "
            "another chance to pass wrongly; fresh test rows mend that."
        )
    return tuple(notes)


def _of_given(told: Search) -> str:
    """Say what is known about whether a given model learned from the rows that predictions are made from."""
    base = "Chances are predicted from the given model's scores of the training rows"
    if told.optimism is None:
        return f"{base}; unknown: this model may have learned from these rows, and they are then too good."
    if told.optimism == 0:
        return (
            f"{base}; it is not surely more accurate there than on the test rows, so nothing says that it learned "
            "from them."
        )
    return (
        f"{base}. It learned from these rows: its accuracy there is {told.optimism:.4f} above that on the test rows. "
        "Predicted accuracies of repairs of it are lowered by as much; chances of passing cannot be corrected, and "
        "may be too good."
    )


def _in_the_way(told: Search) -> str:
    """Say which of several limits the pick is least likely to keep."""
    chances = told.choice.chances
    if len(chances) < 2:
        return ""
    each = ", ".join(
        f"{name} {chance:.2f}" for name, chance in sorted(chances.items(), key=lambda pair: pair[1])
    )
    return f" Its chance of keeping each limit by itself: {each}."


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


def _of_missing(test: Dataset, told: Search, *, binary: bool) -> list[str]:
    """Say where rows without a group may turn the verdict."""
    columns = list(dict.fromkeys(rule.sensitive or "" for rule in told.rules))
    missing = missing_of(test.profile, columns)
    if not missing:
        return []
    known = "counts that in" if binary else "does not know that"
    return [
        f"{told_missing(missing, test.profile.rows)}: the verdict must hold whatever their groups are, and the "
        f"predicted chance {known}."
    ]


def _of_budget(told: Search) -> list[str]:
    """Say what the budget left no time for: it is time on the clock, which a busy machine has less of."""
    cut = [one.method for one in told.alternatives if BUDGET in one.reason]
    if not cut and told.seconds < 60 * told.budget:
        return []
    left = f"{len(cut)} of {len(told.alternatives)} alternatives ({', '.join(dict.fromkeys(cut))})"
    return [
        f"The budget of {told.budget:g} minutes left no time for {left if cut else 'settings in between'}: a larger "
        "`budget`, or a machine with less to do, would try them."
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
