"""What the findings of one audit of all inputs share: what was asked, of whom, what answers are called and mean."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairkit.results.findings import Finding
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE
from fairkit_all_inputs.bounds.searching import Effort

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit_all_inputs.bounds.problem import Problem
    from fairkit_all_inputs.bounds.searching import Answer
    from fairkit_all_inputs.domains import People
    from fairkit_all_inputs.parameters import Parameters


QUESTIONS = {FLIP: "all_inputs_flip", SCORE: "all_inputs_score_change", CHANCE: "all_inputs_probability_change"}
SHARE = "all_inputs_flippable"
BOUNDS = "The interval is no confidence interval: its ends are bounds that hold for every input of the domain."
NARROWED = "of {} only the table's own values were looked at (an operator that reads them is not understood): nothing \
is known of other inputs. State the values that are meant, as all-inputs.domain.COLUMN=A,B"
MEANING = {
    FLIP: "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
    SCORE: "The largest change of the sum that the score is made of, over all inputs of the domain.",
    CHANCE: "The largest change of the score as a probability, over all inputs of the domain.",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditScope:
    """What the findings of one audit share."""

    told: Parameters  # the parameters, and the audit
    changing: Sequence[str]  # the columns that change, and what was seen of the rows
    people: People  # the columns that change, and what was seen of the rows
    context: AuditContext  # the parameters, and the audit
    began: float = field(default_factory=time.monotonic)  # when the audit did, on the monotonic clock
    searched: bool = True  # whether the search was compiled in time
    domain: Mapping[str, str] = field(default_factory=dict)  # by block, what its columns may be, in words
    narrowed: Sequence[str] = ()  # the columns of which only values of the table were looked at

    @property
    def place(self) -> str:
        """The columns that change, as a policy names them."""
        return "+".join(self.changing)

    @property
    def seconds_left(self) -> float:
        """How long all that is left may take; infinite where no time was said."""
        if self.told.seconds is None:
            return math.inf
        return max(self.told.seconds - (time.monotonic() - self.began), 0.0)

    def effort(self, left: int = 1) -> Effort:
        """Return how much a question may cost: with `seconds`, an even share of what is left of them for the audit."""
        if self.told.seconds is None:
            return Effort(boxes=self.told.boxes)
        return Effort(boxes=self.told.boxes, seconds=self.seconds_left / max(left, 1))

    def finding(
        self, metric: str, lower: float, upper: float, evidence: Mapping[str, Any], notes: Sequence[str]
    ) -> Finding:
        """Return a finding whose interval does not depend on a confidence; no proof where a column was narrowed."""
        flips = metric == QUESTIONS[FLIP]
        open_ = bool(self.narrowed) and metric != SHARE and not (flips and lower == 1.0)
        interval = (lower, 1.0 if open_ and flips else upper)
        narrowed = {"decided": False, "narrowed": ", ".join(self.narrowed)} if open_ else {}
        evidence = {**evidence, **narrowed, "domain": dict(self.domain)}
        return Finding(
            auditor="all-inputs",
            metric=metric,
            sensitive=self.place,
            value=lower,
            interval=interval,
            confidence=self.context.confidence,
            better="lower",
            evidence=evidence,
            notes=tuple(notes),
            inconclusive=NARROWED.format(", ".join(self.narrowed)) if open_ else None,
            interval_at=lambda _: interval,
        )

    def signed(self, metric: str) -> Finding | None:
        """Return the signed finding about a metric while a certificate is checked, else None."""
        mine = [f for f in self.context.signed if f.auditor == "all-inputs" and f.metric == metric]
        return next((f for f in mine if f.sensitive == self.place), None)


def interval_of(problem: Problem, kind: int, got: Answer, *, found: bool) -> tuple[float, float]:
    """Return bounds that hold for the model as the runtime rounds it."""
    if kind == FLIP:
        if found:
            return 1.0, 1.0
        return (0.0, 0.0) if got.upper <= -problem.rounding else (0.0, 1.0)
    lower = max(got.lower, 0.0)
    if kind == SCORE:
        return lower, max(got.upper, 0.0) + 2.0 * problem.rounding
    return lower, min(1.0, max(got.upper, 0.0) + 0.5 * problem.rounding + 1e-6)


def meet(problem: Problem, kind: int, lower: float) -> float:
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
