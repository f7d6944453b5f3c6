"""What a pack's tables are made from, and what they are: rows, with a kind for each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.values import GroupValue


class NotAnsweredError(Exception):
    """What a table would need is not in the audit; the message is the reason, for the page's gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """An audit, what a person stated, and what an item tells its table.

    `certificate` has sha256, audited_at, keyids, mitigation and settings; it is empty for an audit that nobody signed.
    """

    report: Report
    facts: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)

    def between(self, metric: str, sensitive: str) -> Finding | None:
        """Return the finding between all groups of a sensitive column; None where there is none."""
        found = [
            f
            for f in self.report.findings
            if f.metric == metric and f.sensitive == sensitive and f.plain and "class" not in f.parameters
        ]
        return found[0] if found else None

    def selected(self, sensitive: str) -> Sequence[Selected]:
        """Return the groups of a sensitive column with their counts.

        Raises
        ------
        NotAnsweredError
            Decisions were not measured, or rows have weights.
        """
        if self.report.data.weights is not None:
            raise NotAnsweredError("the rows have weights, and the law asks for counts of people")
        finding = self.between("selection_rate_difference", sensitive)
        if finding is None or not finding.groups:
            raise NotAnsweredError(f"no selection rates of {sensitive} were measured")
        return [Selected.of(group) for group in finding.groups]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A group: its rows, how many of them were selected, and the rate with its interval."""

    group: str
    rows: int
    count: int
    rate: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, group: GroupValue) -> Selected:
        """Read a group of a finding.

        Raises
        ------
        NotAnsweredError
            Its rate is not of whole people.
        """
        rate = 0.0 if group.value is None else group.value
        count = round(rate * group.rows)
        if group.value is None or abs(rate * group.rows - count) > 1e-6:
            raise NotAnsweredError(f"the decisions on group {group.group} are not of whole people")
        return cls(group=group.group, rows=group.rows, count=count, rate=rate, interval=group.interval)
