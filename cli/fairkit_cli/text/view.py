"""What a report shows first, whatever it is rendered with: one view model for the terminal and the page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.data.roles import value_text
from fairkit.errors import FairkitError
from fairkit.reading import disparities, headlines, kind_of, metric_name, metric_term, performance, survives
from fairkit.results.findings import GroupValue
from fairkit.support.escaping import number
from fairkit.support.lazy_dataclass import dataclass
from fairkit_cli.helping import as_options

if TYPE_CHECKING:
    from fairkit.charts import Cell, ChartTable, EvidenceChart
    from fairkit.reading import Answer
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult


NO_GROUP = "(no value)"
"""What the line of rows without a sensitive value is called."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group's values, in the order of the columns."""

    group: str
    rows: int
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()


def summary_of(report: Report) -> str:
    """Say how many rules have the verdict of the whole policy."""
    count, what = sum(rule.verdict == report.verdict for rule in report.policy), str(report.verdict)
    became = {"pass": "kept", "fail": "broken", "inconclusive": "undecided"}[what]
    rules = f"{len(report.policy)} policy rule{'s' * (len(report.policy) != 1)}"
    return f"{count} of {rules} {became}, under these metrics, on this data"


def missing_of(report: Report) -> tuple[str, ...]:
    """Return the report's warnings, then the shares of rows without a sensitive value, by column."""
    gaps = (f.notes[0] for f in report.findings if f.metric == "missing_group_share" and f.notes)
    return (*report.warnings, *gaps)


def subject_of(report: Report) -> str:
    """Say which model was audited on which table, and what decides how the numbers are read."""
    weighted = f", weighted by {report.data.weights!r}" if report.data.weights is not None else ""
    told = report.data.clusters
    units = "queries" if report.model.task == "ranking" else "clusters"
    clusters = f", {told['count']:,} {units} of {told['column']!r}" if told else ""
    digest = f" {report.model.sha256[:12]}" if report.model.sha256 else ""
    adjusted = f", adjusted for many rules ({report.adjustment})" if report.adjustment else ""
    return (
        f"{report.model.name}{digest} ({report.model.task}) on {report.data.name} {report.data.sha256[:12]}, "
        f"{report.data.rows:,} rows{report.data.lacking}{weighted}{clusters}{adjusted}{_favorable(report)}"
    )


def _favorable(report: Report) -> str:
    """Say which outcome, and which decision of a column, counts as good for the person."""
    data, served = report.data, report.model.outputs
    named = [] if data.favorable is None or data.label is None else [f"{data.label} = {data.favorable}"]
    if "favorable" in served and served.get("decision") != data.label:
        named.append(f"{served['decision']} = {served['favorable']}")
    return f"; favorable: {', '.join(named)}" if named else ""


def notes_of(report: Report) -> tuple[str, ...]:
    """Return the notes of model and data, then those of findings that are shown, each once."""
    shown = [*disparities(report), *(f for f in report.findings if f.auditor != "group")]
    notes = [*report.model.notes, *report.data.notes]
    for finding in shown:
        between = f"{finding.place}: " if finding.sensitive and finding.auditor == "group" else ""
        notes += [f"{between}{note}" for note in finding.notes]
    for finding in performance(report):
        notes += [f"{finding.metric}: {note}" for note in finding.notes] if finding.interval is None else []
    for finding in report.findings:  # a metric that failed has no place among the disparities
        notes += finding.notes if finding.auditor == "group" and "error" in finding.evidence else ()
    notes += [f"Not loaded: {reason}" for reason in report.environment.get("plugins_not_loaded", ())]
    return tuple(map(as_options, dict.fromkeys(notes)))


def about_many(report: Report, shown: Sequence[Finding]) -> str:
    """Return a sentence about the joint confidence of a list of disparities."""
    levels = [f.evidence["simultaneous_level"] for f in shown if survives(f) is not None]
    if not levels:
        return (
            "Each interval holds by itself; of many, some miss. --set group.simultaneous=true adds intervals that hold "
            "together."
        )
    return (
        f"✓ marks disparities that survive when all intervals hold together at {report.confidence:.0%} "
        f"(each taken at {levels[0]:.2%})."
    )


def group_table(report: Report, sensitive: str) -> tuple[list[GroupRow], list[str]]:
    """Return the groups of a sensitive column with the metrics that people look at first.

    Of several classes the rates are those of the favorable one, where there is one. The last row is that of the rows
    without a group, where there are such rows.
    """
    classes = (None, favorable_class(report))
    findings = {
        finding.metric.removesuffix("_difference"): finding
        for name in reversed(classes)
        for finding in report.findings
        if finding.sensitive == sensitive
        and finding.plain
        and finding.metric.endswith("_difference")
        and finding.parameters.get("class") == name
    }
    metrics = [metric for metric in headlines().columns(report.model.task) if metric in findings]
    if not metrics:
        return [], []
    rows = [
        _line(group.group, [findings[metric].groups[index] for metric in metrics])
        for index, group in enumerate(findings[metrics[0]].groups)
    ]
    without = [missing for metric in metrics if (missing := findings[metric].missing) is not None]
    if without:
        nothing = GroupValue(group=without[0].group, rows=without[0].rows, value=None)
        rows.append(_line(NO_GROUP, [findings[metric].missing or nothing for metric in metrics]))
    return rows, metrics


def favorable_class(report: Report) -> str | None:
    """Return the class whose rates tables show, of several; None in other tasks, and where no class is favorable."""
    several = report.model.task == "multiclass" and report.data.favorable is not None
    return value_text(report.data.favorable) if several else None


MOST_GROUPS = 20
"""Lines of a table of groups; of more groups those that matter are shown."""
FEW_ROWS = 30
"""A group with fewer rows says little: it does not set the scale of a chart."""


def groups_that_matter(report: Report, rows: Sequence[GroupRow], metric: str) -> tuple[list[GroupRow], str]:
    """Return at most `MOST_GROUPS` groups, in their order, and a sentence about the others; empty where there are none.

    Those come first whose interval is farthest from the number over all rows, then the largest.
    """
    named = [row for row in rows if row.group != NO_GROUP]
    if len(named) <= MOST_GROUPS:
        return list(rows), ""
    whole = next(
        (finding.value for finding in report.findings if finding.metric == metric and finding.sensitive is None), None
    )

    def apart(row: GroupRow) -> float:
        pair = row.intervals[0] if row.intervals else None
        if pair is None or whole is None:
            return 0.0
        return max(pair[0] - whole, whole - pair[1], 0.0)

    chosen = sorted(named, key=lambda row: (row.rows < FEW_ROWS, -apart(row), -row.rows))[:MOST_GROUPS]
    others = [row for row in named if row not in chosen]
    values = [row.values[0] for row in others if row.values[0] is not None and row.rows >= FEW_ROWS]
    few = sum(row.rows < FEW_ROWS for row in others)
    between = f"; {metric.replace('_', ' ')} {number(min(values))} to {number(max(values))}" if values else ""
    small = f"; {few} have fewer than {FEW_ROWS} rows" if few else ""
    text = (
        f"{len(others)} other groups with {sum(row.rows for row in others):,} rows{between}{small}. --format html and "
        "json list them."
    )
    return [row for row in rows if row in chosen or row.group == NO_GROUP], text


def _line(name: str, values: Sequence[GroupValue]) -> GroupRow:
    return GroupRow(
        name, values[0].rows, tuple(value.value for value in values), tuple(value.interval for value in values)
    )


@dataclass(frozen=True, slots=True)
class Stratified:
    """What is shown of one sensitive column inside the strata of a column.

    `findings` are the disparities inside, each with its number as a whole; `strata` is the finding whose strata are
    shown; `how` says what a finding is of its strata.
    """

    sensitive: str
    within: str
    findings: Sequence[tuple[Finding, float | None]]
    strata: Finding | None
    how: str


def against(report: Report) -> dict[tuple[str, str], list[Finding]]:
    """Return the findings against a reference group that are shown, by column and reference."""
    shown = headlines()
    findings: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        listed = shown.lists(finding.metric, report.model.task)
        if (
            finding.reference is not None
            and not finding.within
            and listed
            and finding.groups
            and "class" not in finding.parameters
        ):
            findings.setdefault((str(finding.sensitive), finding.reference), []).append(finding)
    return findings


def inside(report: Report) -> list[Stratified]:
    """Return the stratified comparisons of the headline metrics, by sensitive column and strata."""
    shown, task = headlines(), report.model.task
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        listed = shown.lists(finding.metric, task)
        if finding.within and finding.reference is None and listed and "class" not in finding.parameters:
            grouped.setdefault((str(finding.sensitive), "+".join(finding.within)), []).append(finding)
    whole = {(f.metric, f.sensitive): f.value for f in report.findings if f.plain and "class" not in f.parameters}
    return [
        Stratified(
            sensitive,
            within,
            [(f, whole.get((f.metric, sensitive))) for f in findings],
            _shown_by_stratum(report, findings),
            "the largest" if any("strata" in f.parameters for f in findings) else "pooled",
        )
        for (sensitive, within), findings in grouped.items()
    ]


def agreement(finding: Finding) -> str:
    """Return the p-value of the test that the strata agree."""
    homogeneity = finding.evidence.get("homogeneity")
    return f"p = {homogeneity['p_value']:.2g}" if isinstance(homogeneity, Mapping) else "-"


def _shown_by_stratum(report: Report, findings: Sequence[Finding]) -> Finding | None:
    """Return the finding whose strata are shown: what a rule is about, else what people look at first."""
    having = [finding for finding in findings if finding.strata]
    ruled = [
        finding
        for finding in having
        if any(rule.metric == finding.metric and rule.within == finding.within for rule in report.policy)
    ]
    order = headlines().between(report.model.task)
    first = sorted(
        (finding for finding in having if finding.metric in order), key=lambda finding: order.index(finding.metric)
    )
    return next(iter([*ruled, *first, *having]), None)


# The question that an audit answers, and what would change the answer.


MOST_NAMED = 3
"""So many limits are named in the question; the others are counted."""


def question(report: Report) -> str:
    """Return the audit's question: whether the model keeps these limits on these rows."""
    if not report.policy:
        return f"How differently {_treated(report)}?"
    what = "Do these decisions" if report.model.predictions else f"Does {report.model.name}"
    named = [limit_words(rule) for rule in report.policy[:MOST_NAMED]]
    more = len(report.policy) - len(named)
    rest = f"; and {more} more" if more else ""
    return f"{what} keep the limits that were set: {'; '.join(named)}{rest}?"


def _treated(report: Report) -> str:
    columns = ", ".join(report.data.groups) or "no sensitive column"
    if report.model.predictions:
        return f"are the groups of {columns} decided about"
    return f"does {report.model.name} treat the groups of {columns}"


def limit_words(rule: RuleResult) -> str:
    """Say a rule in words: ``difference in favorable decisions between groups of sex, at most 0.05``."""
    where = f" between groups of {rule.sensitive}" if rule.sensitive else ""
    inside = f" inside the strata of {'+'.join(rule.within)}" if rule.within else ""
    return f"{metric_term(rule.metric).plain}{where}{inside}, {rule.rule.say()}"


def changes(report: Report, answers: list[Answer]) -> list[str]:
    """Return the steps that would change the verdict: more rows, a repair; and the detectable differences."""
    said: list[str] = []
    seen: list[str] = []
    for answer in answers:
        if answer.rule is None:
            continue
        name = metric_term(answer.rule.metric).plain
        if answer.rule.more_rows is not None:
            said.append(f"{name}: {_lower(answer.rule.more_rows.sentence)}.")
        elif answer.verdict == "inconclusive":
            advice = _lower(answer.rule.reason.partition(". ")[2]) or "more rows would narrow the interval"
            said.append(f"{name}: {answer.finding.inconclusive or advice}.")
        elif answer.verdict == "pass" and (size := _seen(answer)) is not None:
            seen.append(f"{name[:1].upper()}{name[1:]}: it passes. {size}")
    if any(answer.verdict == "fail" for answer in answers):
        why = "More rows of the same kind would hardly help where a limit is broken: the whole interval is beyond it."
        if report.model.unseen or not _repairable(report):
            return [*said, f"{why} Other decisions would.", *seen]
        said.append(f"{why} Another model can: `fairkit mitigate` searches for the most accurate one that passes.")
        said.append(f"$ fairkit mitigate {repair_command(report)}")
    return [*said, *seen]


def _seen(answer: Answer) -> str | None:
    """Say from which size a disparity would have failed: what so many rows can see."""
    detectable = answer.finding.evidence.get("detectable")
    if not isinstance(detectable, dict) or not isinstance(detectable.get("fails_from"), int | float):
        return None
    chance = float(detectable.get("power", 0.8))
    side = "higher" if answer.rule is not None and answer.rule.rule.upper else "lower"
    return (
        f"With this many people, a true {kind_of(answer.finding)} of {number(detectable['fails_from'])} or {side} "
        f"would have failed ({chance:.0%} chance)."
    )


def _repairable(report: Report) -> bool:
    """Tell whether an installed method can meet one of the limits."""
    from fairkit_repair.repairing.candidates import candidates
    from fairkit_repair.repairing.chance import limits_of

    rules: list[Any] = [judgement.rule for judgement in report.policy]
    task: Any = report.model.task
    try:
        limits = limits_of(rules, list(report.data.groups), of_rates=task == "binary")
        return bool(candidates(limits, None, {}, 0.5, task))
    except FairkitError:
        return False


def repair_command(report: Report) -> str:
    """Return the options of the command that searches for a model under the same policy."""
    parts = []
    for rule in report.policy:
        group_suffix = f":{rule.sensitive}" if rule.sensitive else ""
        group_suffix += f"|{'+'.join(rule.within)}" if rule.within else ""
        parts += [f"--{rule.rule.side}", shlex.quote(f"{rule.metric}{group_suffix}={rule.limit:g}")]
    if report.data.label is not None:
        parts += ["--label", shlex.quote(report.data.label)]
    if report.data.favorable is not None:
        parts += ["--favorable", shlex.quote(report.data.favorable)]
    if report.model.task == "ranking" and report.data.clusters:
        parts += ["--set", shlex.quote(f"data.query={report.data.clusters['column']}")]
    for name in report.data.groups:
        parts += ["--sensitive", shlex.quote(name)]
    return " ".join([*parts, "--data TRAIN --test TEST --output REPAIRED.onnx"])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


# Evidence that plugins show: for each finding the charts that know one of its keys, with their numbers.


@dataclass(frozen=True, slots=True)
class Shown:
    """One finding's evidence with the chart that shows it and its numbers."""

    finding: Finding
    title: str
    chart: EvidenceChart
    value: Any
    table: ChartTable


def plugin_evidence(report: Report) -> tuple[list[Shown], list[str]]:
    """Return the charts that plugins make of a report's evidence, and a note for each that fails."""
    from fairkit import plugins

    measured = {finding.auditor for finding in report.findings}
    ours = [plugins.load(info.name) for info in plugins.find() if info.built_in and info.name in measured]
    shown = [*plugins.third_party()[0], *ours]
    charts = {cls.name: cls() for plugin in shown for cls in plugin.evidence_charts}
    drawn, notes = [], []
    for finding in report.findings:
        for key in sorted(finding.evidence.keys() & charts.keys()):
            chart, value = charts[key], finding.evidence[key]
            try:
                table = chart.table(value)
            except Exception as error:  # it may be somebody else's certificate, and is somebody else's code
                notes.append(f"The evidence {key!r} of {finding.metric} cannot be shown: {error}")
                continue
            about = f" ({finding.sensitive})" if finding.sensitive else ""
            drawn.append(Shown(finding, f"{chart.title}: {metric_name(finding)}{about}", chart, value, table))
    return drawn, notes


def cell(value: Cell) -> str:
    """Write a cell of a chart's table."""
    if isinstance(value, float) or value is None:
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
