"""What every finding of one sensitive column (or of all rows) and one class has in common, and how one is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.results.findings import Finding, GroupValue
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.metrics import Estimate, Metric
    from fairkit.results.findings import Better


@dataclass(frozen=True, slots=True)
class About:
    """The rows that findings are about, in groups."""

    auditor: str  # the auditor's name
    sensitive: str | None  # the column; None: all rows as one group
    names: list[str]  # of the groups
    rows: list[int]
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
        arrays = (part.tolist() for part in (values, low, high))
        return tuple(
            GroupValue(group=name, rows=rows, value=v, interval=known_ends(lo, hi), denominator=n)
            if math.isfinite(v)
            else GroupValue(group=name, rows=rows, value=None)
            for name, rows, v, lo, hi, n in zip(
                self.names, self.rows, *arrays, over or [None] * len(self.names), strict=True
            )
        )


def known_ends(low: float, high: float) -> tuple[float, float] | None:
    """Return an interval; None where an end is not known."""
    return None if math.isnan(low) or math.isnan(high) else (float(low), float(high))


# What keeps a verdict from being made on a number of groups: few rows, no value, an interval in doubt.


@dataclass(frozen=True, slots=True)
class Caveats:
    """The groups that an estimate is about."""

    names: list[str]  # of the groups; one that is called all where there is no sensitive column
    rows: list[int]
    least: int  # with fewer rows a group makes a finding inconclusive
    grouped: bool  # whether there is a sensitive column

    def of(self, estimate: Estimate) -> tuple[list[str], str | None]:
        """Say which groups are small, have no value or an interval in doubt, and whether a verdict must wait."""
        notes = [*self._small(estimate), *self._doubted(estimate)]
        undefined = [self.names[i] for i in np.flatnonzero(~np.isfinite(estimate.values))]
        if undefined and self.grouped:
            notes.append(
                f"Not defined, and left out of the comparison: {_some(undefined)} (no rows that the rate is over)."
            )
        return [*estimate.notes, *notes], " ".join(notes) or None

    def _small(self, estimate: Estimate) -> list[str]:
        """Name the groups with too few rows, in all or in the number's denominator."""
        least = self.least
        sizes = [float(rows) for rows in self.rows]
        if estimate.sizes is not None:
            known = np.where(np.isfinite(estimate.sizes), np.round(estimate.sizes, 6), np.inf)
            sizes = [min(rows, float(size)) for rows, size in zip(sizes, known, strict=True)]
        if not self.grouped:
            short, rows = sizes[0] < least, self.rows[0]
            of = "" if rows < least else f" of {rows}, that the number is over (effective ones under weights)"
            return [f"There are {min(sizes[0], rows):.0f} rows only{of} (min_group is {least})."] if short else []
        few = [i for i, rows in enumerate(self.rows) if rows < least]
        thin = [
            i for i, size in enumerate(sizes) if size < least and i not in few and math.isfinite(estimate.values[i])
        ]
        notes = []
        if few:
            notes.append(
                f"Groups with fewer than {least} rows: {_some([f'{self.names[i]} ({self.rows[i]})' for i in few])}."
            )
        if thin:
            shown = _some([f"{self.names[i]} ({sizes[i]:.0f} of {self.rows[i]})" for i in thin])
            notes.append(
                f"Groups with fewer than {least} rows that the number is over (effective ones under weights): {shown}."
            )
        return notes

    def _doubted(self, estimate: Estimate) -> list[str]:
        """Say whose interval is not to be trusted, and why."""
        reasons: dict[str, list[str]] = {}
        for cell, reason in estimate.doubts.items():
            reasons.setdefault(reason, []).append(self.names[cell])
        where = "The interval of {} is" if self.grouped else ""
        start = where or "The interval is"
        return [
            f"{start.format(_some(names))} not trusted: {reason}; no verdict is made from it."
            for reason, names in reasons.items()
        ]


def _some(names: Sequence[str]) -> str:
    """Return up to five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
