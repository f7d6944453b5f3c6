"""What a user must know about the pick of a search: how sure it is, what was given up, what was not counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairkit_repair.repairing.missing import missing_of, told_missing

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit_repair.studies import Study, Trial

BUDGET = "the budget"
"""Reasons of alternatives that the budget cut have these words."""
_LESS_SURE, _MUCH = 0.15, 0.005


def notes_of(search: Study, test: Dataset, *, with_base: bool, binary: bool) -> tuple[str, ...]:
    """Return sentences about the pick, its chance and the look."""
    notes = _of_missing(test, search, binary=binary)
    if not search.reached:
        notes.append(
            f"No alternative reaches the chance {search.sure:g}: the surest one was picked, and it passes with a "
            f"predicted chance of {search.choice.chance:.2f} only.{_in_the_way(search)}"
        )
    notes += _of_budget(search)
    notes += _price(search)
    if search.deterministic is not False and not search.choice.randomized:
        notes += _cost_of_determinism(search)
    if with_base:
        notes.append(_of_given(search))
    if search.looks > 1 or search.looks_doubt:
        least = "at least " if search.looks_doubt else ""
        why = f" ({search.looks_doubt})" if search.looks_doubt else ""
        notes.append(
            f"This is {least}look {search.looks} at the same test rows{why}. Each look that is judged by itself is "
            "another chance to pass wrongly; fresh test rows mend that."
        )
    return tuple(notes)


def _of_given(search: Study) -> str:
    """Return a note on whether the given model learned from the rows that predictions are made from."""
    base = "Chances are predicted from the given model's scores of the training rows"
    if search.optimism is None:
        return f"{base}; unknown: this model may have learned from these rows, and they are then too good."
    if search.optimism == 0:
        return (
            f"{base}; it is not surely more accurate there than on the test rows, so nothing says that it learned "
            "from them."
        )
    return (
        f"{base}. It learned from these rows: its accuracy there is {search.optimism:.4f} above that on the test rows. "
        "Predicted accuracies of repairs of it are lowered by as much; chances of passing cannot be corrected, and "
        "may be too good."
    )


def _in_the_way(told: Study) -> str:
    """Say which of several limits the pick is least likely to keep."""
    chances = told.choice.chances
    if len(chances) < 2:
        return ""
    each = ", ".join(f"{name} {chance:.2f}" for name, chance in sorted(chances.items(), key=lambda pair: pair[1]))
    return f" Its chance of keeping each limit by itself: {each}."


def _price(search: Study) -> list[str]:
    """Say where an alternative that is a little less sure is much better."""
    choice = search.choice
    near = [
        other
        for other in search.alternatives
        if other.status == "tried" and search.sure - _LESS_SURE <= (other.chance or 0.0) < (choice.chance or 0.0)
    ]
    if not near or not search.reached:
        return []
    best = max(near, key=lambda other: other.accuracy or 0.0)
    if (best.accuracy or 0.0) - (choice.accuracy or 0.0) < _MUCH:
        return []
    sure = math.floor(100 * (best.chance or 0.0)) / 100
    return [
        f"The chance of {search.sure:g} costs much here: {best.name} has a predicted {search.performance} of "
        f"{best.accuracy:.4f} and passes with a predicted chance of {best.chance:.2f}; `sure={sure:g}` takes it."
    ]


def _of_missing(test: Dataset, told: Study, *, binary: bool) -> list[str]:
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


def _of_budget(search: Study) -> list[str]:
    """Return a note on alternatives that the budget left no time for, in time on the clock."""
    cut = [one.method for one in search.alternatives if BUDGET in one.reason]
    if not cut and search.seconds < 60 * search.budget:
        return []
    left = f"{len(cut)} of {len(search.alternatives)} alternatives ({', '.join(dict.fromkeys(cut))})"
    return [
        f"The budget of {search.budget:g} minutes left no time for {left if cut else 'settings in between'}: a larger "
        "`budget`, or a machine with less to do, would try them."
    ]


def _cost_of_determinism(search: Study) -> list[str]:
    drawn: list[Trial] = [
        one for one in search.alternatives
        if one.randomized and one.status == "left out" and (one.chance or 0.0) >= search.sure
    ]  # fmt: skip
    if not drawn:
        return []
    best = max(drawn, key=lambda one: one.accuracy or 0.0)
    loss = (best.accuracy or 0.0) - (search.choice.accuracy or 0.0)
    return [
        f"Without decisions drawn by chance the predicted {search.performance} is {abs(loss):.4f} "
        f"{'lower' if loss > 0 else 'higher'} than with them ({best.name})."
    ]
