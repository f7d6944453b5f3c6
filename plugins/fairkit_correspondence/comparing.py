"""Two models, or two versions of one, that answered the same plan: how much their differences differ.

The difference θ' - θ of the two is the paired difference of the answers (1 + y' - y) / 2 in [0, 1], twice: every
document, name and context was put to both, so that the two-way interval of one model is that of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError
from fairkit.results.comparisons import Change, outcome_of
from fairkit_correspondence.findings import DIFFERENCE, Statement

if TYPE_CHECKING:
    from fairkit_correspondence.answers import Answers


def changes(before: Statement, after: Statement) -> Iterator[Change]:
    """Yield the change of each pair's difference, averaged over contexts; the intervals of all pairs hold together.

    The largest one is that of the column as a whole; the others are those of their first group against the second.
    """
    earlier, later = (_shared(before, after), _shared(after, before))
    joined = replace(after, answers=_difference(earlier, later))
    doubts = {one.context.dataset.name: one.doubt for one in (before, after, joined) if one.doubt}
    said = "; ".join(f"{table}: {doubt}" for table, doubt in doubts.items())
    for rank, change in enumerate(sorted(joined.averaged, key=lambda one: -abs(one.value))):
        pair = change.first, change.second
        ends = joined.pair_limits(change, joined.context.confidence, len(joined.pairs))
        low, high = (2 * end for end in ends)
        first, second = (joined.answers.groups[group] for group in pair)
        yield Change(
            metric=DIFFERENCE,
            sensitive=joined.sensitive,
            group=first if rank else None,
            reference=second,
            parameters={"pair": f"{first} - {second}"} | ({"inconclusive": said} if said else {}),
            before=earlier.compare(pair).value,
            after=later.compare(pair).value,
            interval=(low, high),
            better="none",
            outcome="undecided" if said else outcome_of(low, high, "none"),
        )


def _shared(statement: Statement, other: Statement) -> Statement:
    """Return a statement about the documents that the other model has answered, too: the plan may go on for either."""
    answers = statement.answers
    kept = set((other if "plan" in statement.recorded else statement).answers.documents)
    shared = np.array([document in kept for document in answers.documents])
    return replace(statement, answers=answers.take(shared[answers.document]))


def _difference(before: Statement, after: Statement) -> Answers:
    """Return (1 + y' - y) / 2 of every document, context and name, between its bounds."""
    answers, others = after.answers, before.answers
    (where, (low, high)), (place, (base_low, base_high)) = (
        one.means(np.ones(len(one.low), dtype=bool), one.low, one.high) for one in (answers, others)
    )
    different = {
        "plans": before.recorded.get("plan") != after.recorded.get("plan"),
        "documents": answers.documents != others.documents or not answers.documents,
        "groups": answers.groups != others.groups,
        "names": answers.names != others.names,
        "contexts": answers.contexts != others.contexts or not all(map(np.array_equal, where, place)),
    }
    for what, differs in different.items():
        if differs:
            labels = (before.context.dataset.name, after.context.dataset.name)
            raise ParameterError(
                f"{' and '.join(labels)} have different {what}: models are compared on answers to one plan; ask the "
                "other model with the same plan (two reports, as JSON, are compared as independent ones)"
            )
    document, context, name = where
    group = np.array([answers.groups.index(group) for _, group in answers.names])
    nothing = np.zeros(len(name))
    return replace(
        answers, document=document, context=context, name=name, group=group[name],
        low=(1 + low - base_high) / 2, high=(1 + high - base_low) / 2, open=nothing,
        outcome=nothing.astype(np.int64), block=nothing.astype(np.int64), order=None, tokens=None,
        look=min(answers.look, others.look),
    )  # fmt: skip
