"""A pack filled with an audit: its words, as JSON values, and its tables as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.results.evidence import Conditions, Covers, GroupsSearched, ShareCurve, evidence_of
from fairkit.results.findings import in_words, is_conditions
from fairkit.support.escaping import number, visible
from fairkit.support.lazy_dataclass import asdict, dataclass
from fairkit_cli.helping import as_options
from fairkit_cli.terminal.plain import plain, to_text
from fairkit_cli.text.registry import csv_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from fairkit.auditing.drawing import LabelPlan
    from fairkit.packs import Answered, Cell, Column, Fact, Flag, PackTable, Rendering
    from fairkit.planning.results import Plan, RulePlan
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


GAP = "GAP"
NOT_STATED = "not stated: "
"""What stands where nothing was stated: it is never left out."""


def shown_cell(value: Cell, column: Column) -> str:
    """Write a cell by its column's kind; None is not defined."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return visible(value)
    if column.kind == "percent":
        return f"{100 * value:.1f}%"
    if column.kind == "ratio":
        return f"{value:.3f}"
    if column.kind == "p":
        return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"
    return f"{value:,}" if isinstance(value, int) else number(value)


def shown_fact(value: str | bool | None, fact: Fact) -> str:
    """Write what a person stated; a gap where nothing was, and it is needed."""
    if value is None:
        return GAP if fact.required else "not stated"
    return ("yes" if value else "no") if isinstance(value, bool) else value


def not_answered(made: Rendering) -> str:
    """Say how many items are not answered."""
    count = len(made.gaps)
    return "1 item is not answered" if count == 1 else f"{count} items are not answered"


HEADS = {
    "red": "no law stands behind it: these numbers are a convention",
    "amber": "not yet law here, or to be checked again",
    "grey": "read the official text before you rest on it",
}
"""What the flags of a severity have in common."""


def flags_of(made: Rendering) -> list[Flag]:
    """Return the flags of a rendering's clauses, the most severe first."""
    flags = [flag for item in made.items for flag in item.flags]
    return sorted(flags, key=lambda flag: list(HEADS).index(flag.severity))


def complete(made: Rendering) -> bool:
    """Tell whether every item is answered, and every flag was accepted: what ``--strict`` asks for."""
    return not made.gaps and all(flag.accepted for flag in flags_of(made))


def convention(one: Answered) -> bool:
    """Tell whether no clause stands behind an item's numbers."""
    return any(flag.severity == "red" for flag in one.flags)


def flag_lines(made: Rendering) -> list[tuple[str, str, list[str]]]:
    """Return for each severity its head and a line for each text with its clauses, the worst severity first."""
    by_severity: dict[str, dict[str, list[str]]] = {}
    for flag in flags_of(made):
        text = f"{flag.text}{' (accepted)' if flag.accepted else ''}"
        by_severity.setdefault(flag.severity, {}).setdefault(text, []).append(flag.clause)
    return [
        (severity, HEADS[severity], [f"{text}: {'; '.join(clauses)}" for text, clauses in texts.items()])
        for severity, texts in by_severity.items()
    ]


def identity(made: Rendering) -> str:
    """Say which edition of which pack made the page."""
    record = made.pack.to_dict()
    return f"{record['name']}, edition {record['edition']}, SHA-256 {record['sha256']}"


def headline(one: Answered) -> str:
    """Return an item's title, with its clause only where the clause stands behind its numbers."""
    clause = one.item.clause
    return f"{clause}: {one.item.title}" + (" (convention, no legal clause)" if convention(one) else "")


def origin(table: PackTable) -> str:
    """Say where a table's numbers come from."""
    sources = {"computed": "computed from signed counts", "watched": "read from the watch, not signed here"}
    return sources.get(table.origin, "signed")


def pack_record(made: Rendering, state: str) -> dict[str, Any]:
    """Return a rendering as JSON values: every item with its clause's legal life, flags, facts, gaps and tables."""
    return {
        "schema": "fairkit.pack/1",
        "pack": made.pack.to_dict(),
        "today": made.today.isoformat(),
        "audited": str(made.certificate["audited_at"])[:10],
        "certificate": made.certificate.get("sha256"),
        "evidence": state,
        "complete": complete(made),
        "notes": list(made.notes),
        "items": [_record(item) for item in made.items],
    }


def _record(answered: Answered) -> dict[str, Any]:
    item = answered.item
    return {
        "clause": item.clause,
        "title": item.title,
        "says": item.says,
        **answered.law,
        "convention": convention(answered),
        "flags": [flag._asdict() for flag in answered.flags],
        "facts": {fact.key: value for fact, value in answered.facts},
        "gaps": list(answered.gaps),
        "tables": [asdict(table) for table in answered.tables],
    }


def pack_csv(made: Rendering) -> str:
    """Return the tables of a rendering as one CSV file: clause, table, then every table's columns, numbers in full."""
    names = list(dict.fromkeys(column.name for table in made.tables for column in table.columns[1:]))
    rows: list[list[Cell]] = []
    for item in made.items:
        for table in item.tables:
            positions = {column.name: i for i, column in enumerate(table.columns) if i}
            rows += [
                [item.item.clause, table.title, row[0], *(row[positions[n]] if n in positions else None for n in names)]
                for row in table.rows
            ]
    return csv_text(["clause", "table", "row", *names], rows)


# A plan for the terminal: rows for each rule, and what an audit of that size can see.


def plan_text(plan: Plan, *, terminal: bool) -> str:
    """Return a plan as text, with colours on a terminal."""
    return to_text(_parts(plan), terminal=terminal)


def drawn_text(plan: LabelPlan, rows: Path, design: Path) -> str:
    """Return a plan of labels as text: how many of whom, and what to do next."""
    sensitive = plan.design["sensitive"]
    width = max(len(sensitive), *(len(group) for group, _ in plan.counts))
    lines = [f"{len(plan.rows):,} rows to label in stage {plan.stage}, in {rows}", ""]
    lines.append(f"{sensitive:{width}}  refused  selected")
    for group in dict.fromkeys(group for group, _ in plan.counts):
        lines.append(f"{group:{width}}  {plan.counts[group, 0]:7,}  {plan.counts[group, 1]:8,}")
    rules = " ".join(f"--for {rule}" for rule in plan.design["for"])
    later = (
        f"Then stage 2: fairkit plan TABLE --labels N {rules} --labelled {design} --stage 2 --draw second.csv"
        if plan.stage == 1
        else f"Then audit with --labelled {design}"
    )
    lines += [
        "",
        f"Seed {plan.design['seed']}, design in {design}: publish both before any outcome is looked up. Look up the "
        "outcomes of exactly these rows, and write down those that cannot be known, too.",
        f"{later}.",
    ]
    return "\n".join(lines) + "\n"


def explored_text(widths: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return how wide differences are where so many refused people of each group are explored at random."""
    lines = ["Refused people of each group whose outcome is seen, chosen at random, and the width of the interval:", ""]
    for rule, each in widths.items():
        lines.append(rule)
        lines += [f"  {count:4}  {number(width)}" for count, width in each]
    lines += [
        "",
        "Refused people are taken to have a fifth to all of the selected ones' share of favorable outcomes: of "
        "these the widest.",
    ]
    return "\n".join(lines) + "\n"


def _parts(plan: Plan) -> list[RenderableType]:
    from rich.text import Text

    adjusted = f", adjusted for {len(plan.rules)} rules ({plan.adjustment})" if plan.adjustment else ""
    rows = f"{plan.rows:,} rows" if plan.rows is not None else "No affordable number of rows"
    what = "the policy" if len(plan.rules) == 1 else "the policy, all its rules at once,"
    parts: list[RenderableType] = [
        Text(f"{rows} decide {what} with {plan.power:.0%} chance", style="bold"),
        Text(f"at {plan.confidence:.0%} confidence{adjusted}, by fairkit {plan.fairkit}", style="dim"),
    ]
    for rule in plan.rules:
        parts += ["", *_rule(rule)]
    return parts


def _rule(plan: RulePlan) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    rule = plan.rule
    limit = rule.say()
    where = f" for {rule.sensitive}" if rule.sensitive else ""
    title = f"{rule.metric}{where} {limit}: {plan.side}, if it is {number(plan.value)}"
    parts: list[RenderableType] = [plain(title, "bold")]
    if plan.rows is not None:
        grid = Table(box=None, pad_edge=False)
        grid.add_column("group")
        grid.add_column("rows", justify="right")
        grid.add_column("rows that the rate is over", justify="right")
        for group in plan.groups:
            grid.add_row(plain(group.group), f"{group.rows:,}", f"{group.denominator:,}")
        grid.add_row("all", f"{plan.rows:,}", f"{sum(group.denominator for group in plan.groups):,}")
        parts.append(grid)
        parts += [Text(line) for line in _sentences(plan)]
    return [*parts, *(Text(f"· {as_options(note)}") for note in plan.notes)]


def _sentences(plan: RulePlan) -> list[str]:
    said = [f"With {plan.rows:,} rows the verdict is {plan.side} with {plan.power or 0:.0%} chance."]
    seen = plan.detectable
    if seen is not None:
        chance = f"with {seen.power:.0%} chance"
        passing, failing = ("up to", "from") if plan.rule.upper else ("from", "up to")
        least, most = seen.passes_up_to, seen.fails_from
        said.append(
            f"No number passes {chance}." if least is None else f"It passes {passing} {number(least)} {chance}."
        )
        said.append(f"No number fails {chance}." if most is None else f"It fails {failing} {number(most)} {chance}.")
    if plan.balanced_rows is not None and plan.rows and plan.balanced_rows < 0.8 * plan.rows:
        said.append(f"With as many rows of each group as it needs, about {plan.balanced_rows:,} rows do.")
    return said


# Groups that a search found: which finding is about what, and the lines of them on a terminal.


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
        evidence = evidence_of(self.bound, Covers)
        return evidence.parts if evidence is not None and len(evidence.parts) == len(self.listed) else ()

    @property
    def columns(self) -> tuple[str, str]:
        """What a group's number and the number beside it are called."""
        signed_gap = self.measure == "calibration_residual"
        return ("outcomes", "mean score") if signed_gap else ("in the group", "all others")


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
    conditions = evidence_of(finding, Conditions)
    if conditions is None:
        return "-"
    within = finding.evidence.get("within")
    return in_words(conditions.conditions, within if within and is_conditions(within) else ())


def share_of(finding: Finding) -> str:
    """Return a group's share of the rows."""
    share = finding.evidence.get("share")
    return f"{share:.1%}" if isinstance(share, int | float) else "-"


def told(finding: Finding, key: str) -> str:
    """Return a number of a finding's evidence."""
    value = finding.evidence.get(key)
    return number(value) if isinstance(value, int | float) else "-"


def bound_sentence(one: Searched, confidence: float) -> str:
    """Return the simultaneous statement about all groups of a search."""
    searched = evidence_of(one.bound, GroupsSearched)
    groups = f"{0 if searched is None else searched.count:,} groups"
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
