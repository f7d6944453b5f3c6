"""Groups that a search found: which finding is about what, and the lines of them on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit.results.conditions import in_words, is_conditions
from fairkit.results.evidence import Conditions, Covers, GroupsSearched, ShareCurve, evidence_of
from fairkit.support.numbers import number

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


@dataclass(frozen=True, slots=True)
class Searched:
    """One metric's search: the bound for all groups, and those that are listed."""

    measure: str
    bound: Finding
    listed: tuple[Finding, ...]

    @property
    def name(self) -> str:
        """The metric, for a title."""
        return self.measure.replace("_", " ")

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """Shares with the largest difference that a group of that share may have."""
        found = evidence_of(self.bound, ShareCurve)
        return () if found is None else found.points

    @property
    def covers(self) -> tuple[tuple[float, ...], ...]:
        """Which part of each listed group is in each other one; empty where that is not known."""
        found = evidence_of(self.bound, Covers)
        return found.parts if found is not None and len(found.parts) == len(self.listed) else ()

    @property
    def columns(self) -> tuple[str, str]:
        """What a group's number and the number beside it are called."""
        own = self.measure == "calibration_residual"
        return ("outcomes", "mean score") if own else ("in the group", "all others")


def is_searched(finding: Finding) -> bool:
    """Whether a finding is of a search over groups."""
    return evidence_of(finding, GroupsSearched) is not None


def listed_apart(finding: Finding) -> bool:
    """Whether a finding stands in the tables of groups, and in no other one: a group, or another name of a bound."""
    return is_searched(finding) and (evidence_of(finding, ShareCurve) is None or "rank" in finding.evidence)


def searches(report: Report) -> list[Searched]:
    """Return the searches of a report, metric by metric."""
    bounds: dict[str, Finding] = {}
    listed: dict[str, list[Finding]] = {}
    for finding in report.findings:
        measure = finding.parameters.get("measure")
        if not isinstance(measure, str) or not is_searched(finding):
            continue
        if evidence_of(finding, Conditions) is not None and "rank" in finding.evidence:
            listed.setdefault(measure, []).append(finding)
        else:
            bounds.setdefault(measure, finding)
    return [Searched(measure, bound, tuple(listed.get(measure, ()))) for measure, bound in bounds.items()]


def described(finding: Finding) -> str:
    """Return a group's conditions in words; a dash where there are none."""
    found = evidence_of(finding, Conditions)
    if found is None:
        return "-"
    within = finding.evidence.get("within")
    return in_words(found.conditions, within if within and is_conditions(within) else ())


def share_of(finding: Finding) -> str:
    """Return a group's share of the rows."""
    share = finding.evidence.get("share")
    return f"{share:.1%}" if isinstance(share, int | float) else "-"


def told(finding: Finding, key: str) -> str:
    """Return a number of a finding's evidence."""
    value = finding.evidence.get(key)
    return number(value) if isinstance(value, int | float) else "-"


def count_of(finding: Finding) -> int:
    """Return how many groups a finding is about."""
    found = evidence_of(finding, GroupsSearched)
    return 0 if found is None else found.count


def bound_sentence(one: Searched, confidence: float) -> str:
    """Return the simultaneous statement about all groups of a search."""
    groups = f"{count_of(one.bound):,} groups"
    if not one.curve:
        return f"{groups} were searched in one half of the rows; the other half tests those listed."
    (share, bound), *others = one.curve
    more = "; ".join(f"of {_percent(at)}: {number(limit)}" for at, limit in others)
    return (
        f"No group of at least {_percent(share)} of the rows differs by more than {number(bound)}"
        + (f" ({more})" if more else "")
        + f": {confidence:.0%} for all {groups} at once, under this metric, on this data."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
