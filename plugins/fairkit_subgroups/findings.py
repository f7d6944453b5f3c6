"""Findings: the bound for all groups, the same by metric, and each group that is listed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.results.conditions import in_words
from fairkit.results.findings import Finding
from fairkit.results.values import GroupValue
from fairkit_subgroups.parameters import DIFFERENCE, GAP, SINGLE
from fairkit_subgroups.searching.cells import too_long
from fairkit_subgroups.statement import Ends, Statement

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit.results.values import Interval
    from fairkit_subgroups.parameters import Parameters
    from fairkit_subgroups.searched import Searched
    from fairkit_subgroups.searching.measures import Measure
    from fairkit_subgroups.searching.search import Group, RankedGroup
    from fairkit_subgroups.searching.tables import Totals


@dataclass(frozen=True)
class SharedFacts:
    """What all findings of one audit share."""

    auditor: str
    statement: Statement
    settings: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def searched(self) -> Searched:
        """What was searched."""
        return self.statement.searched

    def unit(self, measure: Measure) -> float:
        """Return the size of a difference of 1 in the unit of the metric."""
        return self.searched.unit if measure.kind == "loss" else 1.0

    def conditions(self, group: Group) -> list[dict[str, Any]]:
        """Return the conditions of a group."""
        return self.searched.family.conditions(group.table, group.number)

    def within(self, group: Group) -> list[dict[str, Any]]:
        """Return the conditions of a group's stratum."""
        return self.searched.stratum(group.layer * self.searched.halves)

    def words(self, group: Group) -> str:
        """Return both in words."""
        return in_words(self.conditions(group), self.within(group))


def findings(
    auditor: str, searched: Searched, chosen: Parameters, total: Totals, context: AuditContext
) -> list[Finding]:
    """Turn totals into findings."""
    statement = Statement(searched, chosen, total, context.confidence)
    statement.check()
    facts = SharedFacts(auditor, statement, _settings(searched, chosen), _notes(searched, chosen))
    by_metric, single = [], []
    for measure in searched.measures:
        listed = statement.listed(measure)
        ends = statement.ends(measure, context.confidence)
        by_metric.append((measure, _of_metric(facts, measure, ends, listed)))
        single += [_single(facts, measure, one, place) for place, one in enumerate(listed, 1)]
    whole = _whole(facts, by_metric)
    return [*whole, *(finding for _, finding in by_metric), *single]


def _settings(searched: Searched, chosen: Parameters) -> dict[str, Any]:
    return {
        "columns": [column.name for column in searched.family.columns],
        "depth": chosen.depth,
        "share": chosen.share,
        "least": chosen.least,
        "bins": chosen.bins,
        "within": list(chosen.within),
        "simultaneous": chosen.simultaneous,
        "validate": chosen.validate,
    }


def _notes(searched: Searched, chosen: Parameters) -> tuple[str, ...]:
    family = searched.family
    most = min(chosen.depth, len(family.columns))
    many = f"at most {most} conditions" if most > 1 else "one condition"
    notes = [
        f"Searched: every group described by {many} on {too_long([c.name for c in family.columns])} that has at least "
        f"{chosen.share:.3g} of the rows, and {chosen.least} rows in the denominator, inside and outside."
    ]
    if searched.left:
        left = "; ".join(f"{name}: {reason}" for name, reason in sorted(searched.left.items())[:6])
        notes.append(f"Not searched: {left}.")
    if searched.weight:
        notes.append("Weighted rows count with their effective number: the tails are then not exact.")
    if chosen.validate == "half":
        notes.append(
            "Groups were found in one half of the rows and tested in the other: there is no bound for all groups."
        )
    return tuple(notes)


def _of_metric(facts: SharedFacts, measure: Measure, ends: Ends, listed: list[RankedGroup]) -> Finding:
    statement, unit = facts.statement, facts.unit(measure)
    confidence = statement.confidence

    def at(level: float) -> Interval:
        found = ends if level == confidence else statement.ends(measure, level)
        return found.low * unit, found.high * unit

    evidence: dict[str, Any] = {
        "groups_searched": statement.searches[measure.name].groups,
        "statements": _statements(statement),
        "critical": statement.searches[measure.name].level(statement.alpha(measure, confidence)).critical,
        "listed": len(listed),
    }
    if ends.bounds:
        known = [(share, one) for share, one in zip(statement.shares, ends.bounds, strict=True) if one]
        evidence["share_curve"] = [number for share, one in known for number in (share, min(one.at_most, 1.0) * unit)]
    if ends.surest is not None:
        evidence["conditions"] = facts.conditions(ends.surest.group)
        if facts.within(ends.surest.group):
            evidence["within"] = facts.within(ends.surest.group)
        evidence["rows"] = round(ends.surest.rows)
    if len(listed) > 1:
        evidence["covers"] = [cell for row in statement.covers(listed) for cell in row]
    return Finding(
        auditor=facts.auditor,
        metric=f"{measure.name}_{DIFFERENCE}",
        value=None if ends.surest is None else abs(ends.surest.difference) * unit,
        interval=None if ends.surest is None else at(confidence),
        confidence=confidence,
        better="lower",
        parameters={"measure": measure.name, **facts.settings},
        evidence=evidence,
        notes=facts.notes,
        interval_at=at,
    )


def _statements(statement: Statement) -> int:
    from fairkit_subgroups.statement import TESTED

    return TESTED * len(statement.searches) if statement.chosen.validate == "half" else statement.groups


def _whole(facts: SharedFacts, by_metric: list[tuple[Measure, Finding]]) -> list[Finding]:
    """Return the bound over all metrics, under its two names."""
    bounded = [finding for _, finding in by_metric if finding.interval is not None]
    surest = max(bounded, key=lambda finding: (finding.interval or (0, 0))[0], default=None)

    def at(level: float) -> Interval:
        ends = [pair for finding in bounded if finding.interval_at and (pair := finding.interval_at(level))]
        return max(low for low, _ in ends), max(high for _, high in ends)

    evidence: dict[str, Any] = {"groups_searched": sum(f.evidence["groups_searched"] for _, f in by_metric)}
    if surest is not None:
        evidence["measure"] = surest.parameters["measure"]
        evidence |= {k: surest.evidence[k] for k in ("conditions", "within", "rows") if k in surest.evidence}
    interval_at: Callable[[float], Interval] | None = at if bounded else None
    names = [measure.name for measure, _ in by_metric]
    return [
        Finding(
            auditor=facts.auditor,
            metric=name,
            value=None if surest is None else surest.value,
            interval=None if interval_at is None else interval_at(facts.statement.confidence),
            confidence=facts.statement.confidence,
            better="lower",
            parameters={"metrics": names, **facts.settings},
            evidence=evidence,
            notes=facts.notes if surest is not None else (*facts.notes, "No group was found in the first half."),
            interval_at=interval_at,
        )
        for name in (DIFFERENCE, GAP)
    ]


def _single(facts: SharedFacts, measure: Measure, ranked: RankedGroup, rank: int) -> Finding:
    statement, unit = facts.statement, facts.unit(measure)
    rows = statement.total.rows / facts.searched.halves
    evidence: dict[str, Any] = {
        "conditions": facts.conditions(ranked.group),
        "rows": round(ranked.rows),
        "share": ranked.rows / rows,
        "rate": ranked.value * unit,
        "rest": ranked.rest * unit,
        "rank": rank,
        "groups_searched": statement.searches[measure.name].groups,
        "critical": statement.searches[measure.name].level(statement.alpha(measure, statement.confidence)).critical,
    }
    if within := facts.within(ranked.group):
        evidence["within"] = within
    against = "mean score" if measure.kind == "residual" else "everybody else"
    return Finding(
        auditor=facts.auditor,
        metric=SINGLE,
        value=ranked.difference * unit,
        interval=(ranked.low * unit, ranked.high * unit),
        confidence=statement.confidence,
        parameters={"measure": measure.name, "group": facts.words(ranked.group), **facts.settings},
        groups=(
            GroupValue(group=facts.words(ranked.group), rows=round(ranked.rows), value=ranked.value * unit),
            GroupValue(group=against, rows=round(rows - ranked.rows), value=ranked.rest * unit),
        ),
        evidence=evidence,
        inconclusive=f"it is one of many groups: a rule on {DIFFERENCE} is about all of them",
    )
