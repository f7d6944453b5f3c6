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

    `thresholds` are the numbers that the clause names, by its words. `certificate` has sha256, audited_at, keyids,
    mitigation and settings; it is empty for an audit that nobody signed. `watch` is a look at the decisions since.
    """

    report: Report
    facts: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    watch: Mapping[str, Any] | None = None

    @property
    def probable(self) -> tuple[str, ...]:
        """The sensitive columns of which only probabilities of the groups are known."""
        named = {str(f.sensitive) for f in self.report.findings if "probabilities" in f.parameters}
        settings = self.certificate.get("settings")
        data = settings.get("data") if isinstance(settings, Mapping) else None
        listed = data.get("sensitive_probability") if isinstance(data, Mapping) else None
        return tuple(sorted(named | {str(text).partition("=")[0] for text in listed or ()}))

    @property
    def classes(self) -> tuple[str | None, ...]:
        """The classes into which a model puts people; None alone where it decides yes or no."""
        found = {str(f.parameters["class"]): None for f in self.report.findings if "class" in f.parameters}
        return tuple(found) or (None,)

    def between(self, metric: str, sensitive: str, label: str | None = None) -> Finding | None:
        """Return the finding between all groups of a sensitive column, of a class; None where there is none."""
        found = [
            f
            for f in self.report.findings
            if f.metric == metric and f.sensitive == sensitive and f.plain and _class_of(f) == label
        ]
        return found[0] if found else None

    def selected(self, sensitive: str, label: str | None = None) -> Sequence[Selected]:
        """Return the groups of a sensitive column with their counts: of the selected, or of those put into a class."""
        if self.report.data.weights is not None:
            raise NotAnsweredError("the rows have weights, and the law asks for counts of people")
        finding = self.between("selection_rate_difference", sensitive, label)
        if finding is None or not finding.groups:
            raise NotAnsweredError(f"no selection rates of {sensitive} were measured")
        return [Selected.of(group) for group in finding.groups]


def _class_of(finding: Finding) -> str | None:
    return str(finding.parameters["class"]) if "class" in finding.parameters else None


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
        """Read a group of a finding."""
        rate = 0.0 if group.value is None else group.value
        count = round(rate * group.rows)
        if group.value is None or abs(rate * group.rows - count) > 1e-6:
            raise NotAnsweredError(f"the decisions on group {group.group} are not of whole people")
        return cls(group=group.group, rows=group.rows, count=count, rate=rate, interval=group.interval)
