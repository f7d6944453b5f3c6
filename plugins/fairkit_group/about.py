"""What every finding of one sensitive column (or of all rows) and one class has in common, and how one is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.results.findings import Finding
from fairkit.results.values import GroupValue
from fairkit_group.caveats import Caveats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.metrics import Metric
    from fairkit.results.values import Better


@dataclass(frozen=True, slots=True)
class About:
    """The rows that findings are about, in groups."""

    auditor: str  # the auditor's name
    sensitive: str | None  # the column; None: all rows as one group
    names: list[str]  # of the groups
    rows: list[int]  # of the groups
    confidence: float  # of every interval
    parameters: Mapping[str, Any]  # the class, where there are several
    caveats: Caveats  # what keeps a verdict from being made

    @classmethod
    def of(cls, auditor: Auditor, context: AuditContext, sensitive: str | None, label: str | None) -> About:
        """Look the groups of a column up."""
        profile = context.dataset.profile
        names, rows = ["all"], [profile.rows]
        if sensitive is not None:
            names = context.dataset.group_names(sensitive)
            rows = [profile.groups[sensitive][name] for name in names]
        caveats = Caveats(names, rows, auditor.parameters.min_group, sensitive is not None)
        parameters = {} if label is None else {"class": label}
        return cls(auditor.name, sensitive, names, rows, context.confidence, parameters, caveats)

    def failed(self, cls: type[Metric], error: Exception) -> Finding:
        """Return the finding that a metric raised an error."""
        cause = f"{type(error).__name__}: {error}"
        message = f"The metric {cls.name} of {cls.__module__} failed: {cause}"
        return Finding(
            auditor=self.auditor,
            metric=cls.name,
            sensitive=self.sensitive,
            value=None,
            confidence=self.confidence,
            parameters=dict(self.parameters),
            evidence={"error": cause},
            notes=(message,),
            inconclusive=message,
        )

    def finding(
        self,
        metric: str,
        better: Better,
        value: float,
        interval: Callable[[float], tuple[float, float] | None],
        *,
        groups: tuple[GroupValue, ...] = (),
        evidence: Mapping[str, Any] | None = None,
        caveats: tuple[Sequence[str], str | None],
    ) -> Finding:
        """Write a finding; a value that is not finite is not defined on these rows."""
        notes, inconclusive = list(caveats[0]), caveats[1]
        defined = math.isfinite(value)
        if not defined:
            notes.append(
                f"{metric} is not defined on these rows: its denominator is 0 or fewer than two groups have it."
            )
        pair = interval(self.confidence) if defined else None
        if defined and pair is None:
            notes.append("No interval: nothing on these rows bounds the noise of this number.")
        return Finding(
            auditor=self.auditor,
            metric=metric,
            sensitive=self.sensitive,
            value=value if defined else None,
            interval=pair,
            confidence=self.confidence,
            better=better,
            groups=groups,
            parameters=dict(self.parameters),
            evidence=dict(evidence or {}),
            notes=tuple(notes),
            inconclusive=inconclusive if defined else notes[-1],
            interval_at=interval if defined else None,
        )

    def group_values(
        self,
        values: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        over: Sequence[float | None] | None = None,
    ) -> tuple[GroupValue, ...]:
        """Return each group's value with its interval and denominator; none of them where it is not finite."""
        return tuple(
            GroupValue(group=name, rows=rows, value=float(v), interval=known_ends(lo, hi), denominator=n)
            if math.isfinite(v)
            else GroupValue(group=name, rows=rows, value=None)
            for name, rows, v, lo, hi, n in zip(
                self.names, self.rows, values, low, high, over or [None] * len(self.names), strict=True
            )
        )


def known_ends(low: float, high: float) -> tuple[float, float] | None:
    """Return an interval; None where an end is not known."""
    return None if math.isnan(low) or math.isnan(high) else (float(low), float(high))
