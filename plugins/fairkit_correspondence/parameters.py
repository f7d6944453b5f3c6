"""What can be set about the auditor: the columns of the table, and what the statement is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairkit.parameters.declare import parameter

ANSWERED, NOT_ASKED = "answered", "not asked"
OUTCOMES = (ANSWERED, "refused", "unreadable", "cut off", NOT_ASKED)
"""Outcomes of a question: an option; open ones, which could have been anything; and questions not put yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set correspondence.KEY=VALUE."""

    document: str = parameter("document", help="The column that says which text an answer is about.")
    name: str = parameter("name", help="The column with the name, or other wording, that stood in the text.")
    context: str = parameter("context", help="The column with the context of the question; optional.")
    outcome: str = parameter(
        "outcome",
        help="The column with answered, refused, unreadable, cut off or not asked; without it a missing answer is "
        "unreadable.",
    )
    unresolved: str = parameter(
        "unresolved", help="The column with the probability in [0, 1] that belongs to no option; optional."
    )
    order: str = parameter(
        "order", help="The column with the position in which questions were asked; optional, for drift."
    )
    look: str = parameter("look", help="The column with the look, from 1, that a document belongs to; optional.")
    names: Literal["sampled", "fixed"] = parameter(
        "sampled", help="Whether names stand for a group, or the statement is about these very names (fixed)."
    )
    documents: Literal["sampled", "fixed"] = parameter(
        "sampled", help="Whether documents stand for others like them; fixed keeps the same, wider interval."
    )
    worst: Literal["average", "context"] = parameter(
        "average", help="What the plain difference is: of the average over contexts, or of the worst context."
    )
    refused: Literal["bounds", "no", "yes"] = parameter(
        "bounds", help="What an open answer counts as: anything (bounds), 0 (no) or 1 (yes), as in the deployment."
    )
    placebo: str = parameter(
        "", help="The group that is a neutral edit of another, as PLACEBO=GROUP; it is compared with that group alone."
    )
    adjust: tuple[str, ...] = parameter(
        (), help="Columns whose effects are taken out of the answers by least squares, such as the place in a list."
    )
