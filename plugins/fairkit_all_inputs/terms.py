"""What the questions are called, what their answers mean, and the interval of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE

if TYPE_CHECKING:
    from fairkit_all_inputs.bounds.questions import AnyProblem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.scope import AuditScope

QUESTIONS = {FLIP: "all_inputs_flip", SCORE: "all_inputs_score_change", CHANCE: "all_inputs_probability_change"}
SHARE = "all_inputs_flippable"
BOUNDS = "The interval is no confidence interval: its ends are bounds that hold for every input of the domain."
MEANING = {
    FLIP: "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
    SCORE: "The largest change of the sum that the score is made of, over all inputs of the domain.",
    CHANCE: "The largest change of the score as a probability, over all inputs of the domain.",
}


def meaning(kind: int, label: str | None, scope: AuditScope) -> str:
    """Return a sentence with the meaning of a finding, also for three classes or more."""
    if scope.context.scorer.task != "multiclass":
        return MEANING[kind]
    if kind == FLIP:
        return (
            "1: there is an input whose predicted class changes with these columns alone; 0: it is proved that there "
            "is none. The class with the largest sum is predicted, whichever it is: none counts as favorable."
        )
    return (
        f"The largest change of the sum of class {label}, before a Softmax, over all inputs of the domain. Changes of "
        "probabilities after a Softmax are not bounded."
    )


def interval_of(problem: AnyProblem, kind: int, got: Answer, *, found: bool) -> tuple[float, float]:
    """Return bounds that hold for the model as the runtime rounds it."""
    rounding = problem.rounding
    if kind == FLIP:
        if found:
            return 1.0, 1.0
        return (0.0, 0.0) if got.upper <= -rounding else (0.0, 1.0)
    lower = max(got.lower, 0.0)
    if kind == SCORE:
        return lower, max(got.upper, 0.0) + 2.0 * rounding
    return lower, min(1.0, max(got.upper, 0.0) + 0.5 * rounding + 1e-6)


def meet(problem: AnyProblem, kind: int, lower: float) -> float:
    """Return how far apart the ends of a decided interval may be."""
    return 2.1 * problem.rounding + 1e-6 * max(1.0, lower) + (2e-5 if kind == CHANCE else 0.0)


NOT_COMPILED = (
    "Nothing was searched: within that time the search itself was not compiled, which numba does once for each version "
    "and machine. What was compiled is kept; more seconds, or none given, finish it."
)


def state_of(scope: AuditScope, *, decided: bool) -> list[str]:
    """Say where a question is not decided, and what would decide it."""
    if decided:
        return []
    more = [] if scope.searched else [NOT_COMPILED]
    limit = f"{scope.told.boxes:,} boxes" + ("" if scope.told.seconds is None else f" or {scope.told.seconds:g} s")
    return [
        f"Not decided with {limit}: the truth lies in the interval. More work narrows it (`all-inputs.boxes=N`).",
        *more,
    ]
