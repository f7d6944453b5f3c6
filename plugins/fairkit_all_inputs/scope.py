"""What the findings of one audit of all inputs share: what was asked, of whom, and the form of a finding."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.results.findings import Finding
from fairkit_all_inputs.bounds.searching import Effort
from fairkit_all_inputs.metrics import SUBSPACE

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit_all_inputs.collect import People
    from fairkit_all_inputs.distances import Summed
    from fairkit_all_inputs.parameters import Parameters
    from fairkit_all_inputs.weighed import Weighed


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditScope:
    """What the findings of one audit share."""

    told: Parameters  # the parameters, and the audit
    changing: Sequence[str]  # the columns that change, and what was seen of the rows
    people: People  # the columns that change, and what was seen of the rows
    context: AuditContext  # the parameters, and the audit
    metric: Summed | Weighed | None = None  # how near inputs are to people, where that is no sum over columns
    began: float = field(default_factory=time.monotonic)  # when the audit did, on the monotonic clock
    searched: bool = True  # whether the search was compiled in time

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
        self,
        metric: str,
        lower: float,
        upper: float,
        evidence: Mapping[str, Any],
        notes: Sequence[str],
        parameters: Mapping[str, Any] | None = None,
    ) -> Finding:
        """Return a finding whose interval does not depend on a confidence."""
        interval = (lower, upper)
        near: dict[str, Any] = (
            {} if self.told.near is None else {"near": self.told.near, "people": len(self.people.rows)}
        )
        if self.told.fair_metric is not None:
            near["fair_metric"] = Path(self.told.fair_metric).name
        if self.told.fair_metric == SUBSPACE:
            near["strength"] = self.told.strength
            if self.told.directions is not None:
                near["directions"] = list(self.told.directions)
        return Finding(
            auditor="all-inputs",
            metric=metric,
            sensitive=self.place,
            value=lower,
            interval=interval,
            confidence=self.context.confidence,
            better="lower",
            parameters={**near, **(parameters or {})},
            evidence=dict(evidence),
            notes=tuple(notes),
            interval_at=lambda _: interval,
        )

    def signed(self, metric: str, label: str | None = None) -> Finding | None:
        """Return the signed finding about a metric (of a class) while a certificate is checked, else None."""
        mine = [f for f in self.context.signed if f.auditor == "all-inputs" and f.metric == metric]
        of_class = [f for f in mine if f.parameters.get("class") == label]
        return next((f for f in of_class if f.sensitive == self.place), None)
