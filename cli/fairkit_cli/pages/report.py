"""A report, in the order in which people ask: the answer, disparities, groups, single people, how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.reading import answer, answers, disparities
from fairkit.results.evidence import Bounded, evidence_of
from fairkit.results.findings import KNOWN, heading
from fairkit.support.escaping import interval, number
from fairkit_cli.helping import as_options
from fairkit_cli.pages.charts import ForestRow
from fairkit_cli.pages.findings import disparity_section, findings_table, forest_chart, performance_section
from fairkit_cli.pages.groups import condition_sections, group_sections
from fairkit_cli.pages.individuals import AUDITOR as WHY
from fairkit_cli.pages.individuals import bounded_auditors, individual_section, subgroup_section, why_parts
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Column,
    Facts,
    Fields,
    Inline,
    Item,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Spec,
    Table,
    capital,
    name_of,
    numbers,
    page_only,
    sized,
    words,
)
from fairkit_cli.pages.sheet import data_sheet, glossary, limits_section, matrix, metric_cell, term
from fairkit_cli.text.packs import (
    GAP,
    NOT_STATED,
    flag_lines,
    headline,
    identity,
    not_answered,
    origin,
    shown_cell,
    shown_fact,
)
from fairkit_cli.text.view import (
    Shown,
    cell,
    changes,
    limit_words,
    missing_of,
    notes_of,
    plugin_evidence,
    question,
    subject_of,
    summary_of,
)

if TYPE_CHECKING:
    from fairkit.packs import Answered, Fact, PackTable, Rendering
    from fairkit.reading import Answer
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult


def report_page(report: Report) -> Page:
    """Return a report's page."""
    return Page(f"Fairness audit of {report.model.name}", [header(report), *sections(report)])


def sections(report: Report) -> list[Part | None]:
    """Return all that comes after the first screen."""
    return [
        matrix(report),
        performance_section(report),
        disparity_section(report),
        *group_sections(report),
        *label_sections(report),
        *condition_sections(report),
        subgroup_section(report),
        *why_parts(report),
        individual_section(report),
        *evidence_sections(report),
        data_sheet(report),
        limits_section(report),
        details(report),
        glossary(report),
    ]


def details(report: Report) -> Section:
    """Return how the numbers were made, what to keep in mind, and all of them."""
    environment, data = report.environment, report.data
    plugins = ", ".join(f"{plugin['name']} {plugin['version']}" for plugin in environment.get("plugins", ()))
    versions = f"fairkit {environment.get('fairkit', '?')}, Python {environment.get('python', '?')}; plugins {plugins}"
    adjusted = f", adjusted: {report.adjustment}" if report.adjustment else ""
    entries: list[tuple[Inline, Inline]] = [
        ("Model", [name_of(report.model.name), f", {report.model.task}"]),
        ("SHA-256 of the model", Span(report.model.sha256 or "none: an object in memory", "code")),
        ("Data", [name_of(data.name), f", {data.rows:,} rows{data.lacking}"]),
        ("SHA-256 of the data", Span(data.sha256, "code")),
        *([("As it is served", report.model.as_served)] if report.model.as_served else []),
        ("Confidence", f"{report.confidence:.0%}{adjusted}"),
        ("Seed", str(report.seed)),
        ("Made with", versions),
    ]
    notes = notes_of(report)
    count = f"All {len(report.findings)} findings"
    everything = findings_table(report, report.findings, "All findings", everything=True)
    meaning = (
        "A finding is a statement under its metric, on this data. An interval says how far the number would "
        "move if other people of the same kind had been drawn; it says nothing about errors in the labels."
    )
    reminders = Listing(notes) if notes else Note("None.", on=On.PAGE)
    return Section(
        Span("How the numbers were made", on=On.PAGE),
        [
            Facts(entries, on=On.PAGE),
            Section([*page_only("To keep in mind"), Span("Notes", on=On.TEXT)], [reminders], "part"),
            Note(meaning, on=On.PAGE),
            Section(count, [everything], "fold", on=On.PAGE),
        ],
    )


# The first screen: the question, the answer, what would change it; then what was audited, and a place to sign.


MOST_GROUPS = 6


def header(report: Report, name: str | None = None, *, date: str | None = None) -> Section:
    """Return the first screen of a report."""
    rule_answers = answers(report)
    entries = audited(report, date)
    answered = verdict(report, rule_answers)
    unstated = [label for label, content in entries if content is None]
    entries_shown: list[tuple[Inline, Inline]] = [(label, content) for label, content in entries if content is not None]
    parts: list[Part] = [
        Note(["Fairness audit of ", name_of(name or report.model.name)], "title", on=On.PAGE),
        Section("The question", [Note(question(report))], "first", on=On.PAGE),
        Section(Span("The answer", on=On.PAGE), answered[:1], "first"),
        *change_list(report, rule_answers),
        Section(Span("Each limit", on=On.PAGE), answered[1:], "first"),
        Note(subject_of(report), "subject"),
        *(Note(line, "warning") for line in missing_of(report)),
        Section("What was audited", [Facts(entries_shown, "audited")], "first", on=On.PAGE),
        *([Note(f"Not stated: {', '.join(unstated)}.", "gap", on=On.PAGE)] if unstated else []),
        signature(),
    ]
    return Section(None, parts, "header")


def _rule_hint(report: Report) -> str:
    """Return a rule that this report has a number for, as it is typed; nothing where there is none."""
    ruled = [f.metric for f in report.findings if f.sensitive is not None and f.plain and f.interval is not None]
    between = [name for name in ruled if name not in ("group_share", "group_auc")]  # of two groups none has .8 or .1
    usual = "demographic_parity_difference"
    metric = usual if usual in between else next(iter(between), None)
    if metric is None:
        return ""
    low = metric.endswith(("_ratio", "_group_min")) or metric == "representation"
    return f". Add a rule, for example {f'--min {metric}=0.8' if low else f'--max {metric}=0.1'}"


def verdict(report: Report, rule_answers: list[Answer] | None = None) -> list[Part]:
    """Return the verdict with the sentences that decide it, then each rule."""
    if report.verdict is None:
        largest = next((f for f in disparities(report) if f.value is not None), None)
        sentence = "" if largest is None else f" The largest disparity: {answer(report, largest)}"
        hint = _rule_hint(report)
        return [
            Note(
                [
                    Span("No verdict", "strong"),
                    ": no policy was given",
                    Span(hint, on=On.SCREEN),
                    Span(f". What was measured follows.{sentence}", on=On.PAGE),
                ],
                "banner",
            )
        ]
    said = {id(each.rule): each for each in (answers(report) if rule_answers is None else rule_answers)}
    decisive = [rule for rule in report.policy if rule.verdict == report.verdict]
    first = said.get(id(decisive[0])) if decisive else None
    sentence = "" if first is None else str(first) if first.limit else first.told
    also = f" ({len(decisive) - 1} more below.)" if len(decisive) > 1 else ""
    banner = Note([summary_of(report), *page_only(". ", Span(sentence, "answer"), also)], "banner", report.verdict)
    items = [_rule(rule, None if rule is decisive[0] else said.get(id(rule))) for rule in report.policy]
    parts: list[Part] = [banner, Listing(items, "rules", on=On.PAGE | On.SUMMARY)]
    for rule in report.policy:  # a screen says people first, and the number below
        reason, people = as_options(rule.reason), said.get(id(rule))
        parts.append(Listing([Item(reason if people is None else str(people), rule.verdict)], "rules", on=On.SCREEN))
        parts += [] if people is None else [Note(f"    {reason}", on=On.SCREEN)]
    return parts


def _rule(rule: RuleResult, said: Answer | None) -> Item:
    plain = capital(limit_words(rule)) + "." if said is None else str(said)
    return Item([*page_only(f"{plain} "), Span(as_options(rule.reason), "reason")], rule.verdict)


def change_list(report: Report, found: list[Answer]) -> list[Part]:
    """Return the list of steps that would change the verdict; nothing without a policy."""
    steps = changes(report, found)
    if not steps:
        return []
    items = [
        Span(line.removeprefix("$ "), "code") if line.startswith("$ ") else line.replace("`", "") for line in steps
    ]
    return [Section("What would change it", [Listing(items)], "first", on=On.PAGE)]


def audited(report: Report, date: str | None = None) -> list[tuple[str, Inline]]:
    """Return the facts about the audited model and table, by name; None for one that nobody stated."""
    data, model, about = report.data, report.model, dict(report.about)
    decided = report.decisions
    entries: list[tuple[str, Inline]] = [
        ("Model", [name_of(model.name), f", {model.task}"]),
        ("Table", [name_of(data.name), f", {data.rows:,} people (rows)", data.lacking]),
        (heading("period"), about.pop("period", None) or _period(report)),
        ("Outcome", _outcome(report)),
        ("Decision", _decision(report)),
    ]
    if decided:
        counted = f"{decided['favorable']:,} favorable, {decided['unfavorable']:,} unfavorable"
        entries.append(("Decided", [counted, _by_group(decided["groups"])]))
    entries.append((heading("date"), date or about.pop("date", None)))
    about.pop("date", None)
    entries += [(heading(key), about.pop(key, None)) for key in ("intended_use", "owner")]
    entries += [(KNOWN.get(key) or heading(key), text) for key, text in about.items()]
    return entries


def _period(report: Report) -> Inline:
    period = report.data.period
    return [f"{period['from']} to {period['to']} (column ", name_of(period["column"]), ")"] if period else None


def _outcome(report: Report) -> Inline:
    data = report.data
    if data.label is None:
        return "none: decisions are compared, and nothing says which of them were right"
    if data.favorable is None:
        return ["column ", name_of(data.label)]
    favorable: Inline = [term("favorable", "favorable"), " is ", name_of(data.favorable)]
    called: Inline = [": such people are called ", term("qualified", "qualified")]
    return ["column ", name_of(data.label), "; ", favorable, called]


def _decision(report: Report) -> Inline:
    served = report.model.outputs
    if "rule" in served:
        return ["favorable where ", name_of(str(served["rule"])), " (the threshold)"]
    if "threshold" in served:  # of an older report
        return f"favorable by the threshold {served['threshold']:g}"
    if served.get("decision"):
        source = "column" if report.model.predictions else "model's own output"
        return [f"the {source} ", name_of(str(served["decision"])), ", which has its threshold inside"]
    return "none: scores or values are compared" if report.model.task != "multiclass" else "the likeliest class"


def _by_group(groups: dict[str, dict[str, dict[str, int]]]) -> Inline:
    """Return the counts of each group: favorable of all."""
    shown: list[Inline] = []
    for sensitive, each in groups.items():
        counts = ", ".join(
            f"{name} {count['favorable']:,} of {count['favorable'] + count['unfavorable']:,}"
            for name, count in list(each.items())[:MOST_GROUPS]
        )
        more = f" and {len(each) - MOST_GROUPS} more groups" if len(each) > MOST_GROUPS else ""
        shown.append(Span(f"{sensitive}: {counts}{more}", "line"))
    return shown


def signature() -> Section:
    """Return the place where the responsible person signs."""
    names = ("Decision: approved, with conditions, or rejected", "Name and function", "Date", "Signature")
    return Section("Sign here", [Fields(names)], "first", on=On.PAGE)


# Evidence that plugins show, each as a picture with its numbers; and what holds for all inputs, with examples.


def evidence_sections(report: Report) -> list[Section | None]:
    """Return the section of bounds over all inputs, and that of the other charts of plugins."""
    charts, notes = plugin_evidence(report)
    auditors = bounded_auditors(report)
    bounded = [chart for chart in charts if chart.finding.auditor in auditors]
    parts: list[Part] = [_figure(chart) for chart in charts if chart not in bounded]
    parts += [Note(note, "warning") for note in notes]
    return [_all_inputs(report, auditors, bounded), Section("Further evidence", parts) if parts else None]


def _figure(chart: Shown) -> Section:
    def draw(narrow: bool) -> Spec | None:
        try:
            spec = chart.chart.picture(chart.value, narrow=narrow)
            return None if spec is None else dict(spec)
        except Exception:  # a plugin's picture is somebody else's code: its numbers are shown
            return None

    on = On.PAGE if chart.finding.auditor == WHY else On.ALL  # which has lines of its own
    title = f"{chart.title} {chart.finding.parameters.get('of', '')}".strip()
    figure = Chart(title, draw, _table(chart), name=chart.chart.name, of=chart.finding.sensitive)
    return Section(Span(chart.title, on=On.TEXT), [figure], "part", on=on)


def _table(chart: Shown) -> Table:
    changed = (1, 2)
    rows: list[Sequence[Cell]] = [
        tuple(
            Span(cell(value), "differs" if row[-1] == "changes" and index in changed else "name")
            for index, value in enumerate(row)
        )
        for row in chart.table.rows
    ]
    values = zip(*chart.table.rows, strict=False) if rows else ((),) * len(chart.table.columns)
    columns = [
        Column(name_of(name), numeric=bool(rows) and all(isinstance(value, int | float | None) for value in column))
        for name, column in zip(chart.table.columns, values, strict=False)
    ]
    return Table(chart.title, columns, rows)


def _all_inputs(report: Report, auditors: set[str], witnesses: Sequence[Shown]) -> Section | None:
    """Return the section of bounds over all inputs, each with its witness; None without such bounds."""
    findings = [each for each in report.findings if each.auditor in auditors]
    if not findings:
        return None
    rows: list[Sequence[Cell]] = [
        (
            metric_cell(finding),
            name_of(finding.sensitive) if finding.sensitive else "all rows",
            _answer(finding),
            *sized(finding.value, finding.interval),
        )
        for finding in findings
    ]
    columns = [*words("question", "when these change", "answer"), *numbers("value", "from, to")]
    intro = (
        "About every input that the model's domain allows, not only about the people in the table. An example is an "
        "input that the model was run on; it need not be a person who exists."
    )
    domain = next((d for finding in findings if (d := finding.evidence.get("domain"))), None)
    if isinstance(domain, Mapping):
        intro += f" The domain: {'; '.join(f'{name}: {text}' for name, text in domain.items())}."
    opened = [Section(each.title, [_table(each)], "fold" if index else "open") for index, each in enumerate(witnesses)]
    table = Table("What holds for all inputs", columns, rows)
    return Section("Anybody: all inputs", [Note(intro, on=On.PAGE), table, *opened])


def _answer(finding: Finding) -> str:
    evidence = evidence_of(finding, Bounded)
    if evidence is None:
        return "estimated from people drawn at random"
    if finding.inconclusive is not None:
        return f"inconclusive: {finding.inconclusive}"
    if not evidence.decided:
        return "undecided: the truth is in this range"
    if finding.metric.endswith("flip"):
        return "there is such an input" if finding.value else "proved: there is none"
    return "proved"


# Few outcomes: how many are known of whom, what they are worth, and when the numbers hold.


def label_sections(report: Report) -> list[Section]:
    """Return a section for each sensitive column where outcomes are known for some rows; none elsewhere."""
    return [
        _section(finding) for finding in report.findings if finding.metric == "labelled_share" and finding.sensitive
    ]


def _section(finding: Finding) -> Section:
    cells: Sequence[dict[str, Any]] = finding.evidence["labels"]
    base = {record["group"]: record for record in finding.evidence["base_rate"]}
    rows: list[Sequence[Cell]] = []
    for group in dict.fromkeys(c["group"] for c in cells):
        refused, selected = sorted((c for c in cells if c["group"] == group), key=lambda c: int(c["decision"]))
        share = base.get(group)
        rows.append((
            name_of(group), f"{refused['rows'] + selected['rows']:,}",
            f"{refused['labels']:,} + {selected['labels']:,}", f"{refused['worth']:,.0f} + {selected['worth']:,.0f}",
            "" if share is None else f"{number(share['value'])} {interval(tuple(share['interval']))}",
        ))  # fmt: skip
    drawn = [
        ForestRow(
            name=f"{cell['group']}, {'selected' if cell['decision'] else 'refused'}",
            value=cell["labels"],
            interval=(cell["labels"], max(cell["worth"], cell["labels"])),
            tip=f"{cell['group']}, {'selected' if cell['decision'] else 'refused'}: {cell['rows']:,} rows, "
            f"{cell['labels']:,} outcomes known, worth {cell['worth']:,.0f} with the score",
        )
        for cell in cells
    ]
    title = f"Known outcomes of {finding.sensitive}"
    columns = [*words("group"), *numbers("rows", "refused + selected", "worth", "favorable outcomes")]
    caption = f"{title}: how many are known (point), and how many these are worth with the score (line)"
    chart = forest_chart(drawn, "outcomes", caption, zero=False)
    return Section(title, [Listing(finding.notes), chart, Table(title, columns, rows)])


# A pack filled with an audit: every item by its clause, gaps where a reader sees them.


_STATUS = {"red": "fail", "amber": "inconclusive", "grey": "none"}


def pack_page(made: Rendering, banners: Sequence[Part]) -> Page:
    """Return the page of a rendering."""
    pack, report = made.pack, made.report
    entries: list[tuple[Inline, Inline]] = [
        ("Law", pack.law),
        ("Source", [Span(pack.source, "code"), f", checked {pack.checked}"]),
        ("Pack", f"{identity(made)}; rendered {made.today}"),
        ("What was audited", name_of(report.model.name)),
        ("Table", [name_of(report.data.name), f", {report.data.rows:,} people (rows)"]),
    ]
    parts: list[Part | None] = [
        Note(pack.title, "title"),
        *banners,
        Facts(entries),
        Note(pack.notice, "warning"),
        *(Note(note, "warning") for note in made.notes),
        *(_flag(*flag) for flag in flag_lines(made)),
        _gaps(made) if made.gaps else None,
        *(_item(each) for each in made.items),
        signature(),
    ]
    return Page(pack.title, parts)


def _flag(severity: str, head: str, texts: Sequence[str]) -> Section:
    return Section(f"{capital(severity)}: {head}", [Listing(texts)], f"verdict {_STATUS[severity]}")


def _gaps(made: Rendering) -> Section:
    title = [*page_only("? "), not_answered(made)]
    listed: list[Inline] = [[Span(f"{GAP} ", on=On.TEXT), gap] for gap in made.gaps]
    return Section(title, [Listing(listed)], "verdict inconclusive")


def _item(answered: Answered) -> Section:
    states, sources = answered.law["states"], answered.law["sources"]
    gaps = [gap for gap in answered.gaps if not gap.startswith(NOT_STATED)]
    return Section(
        headline(answered),
        [
            Note(" ".join(states), "subject") if states else None,
            Note(answered.item.says) if answered.item.says else None,
            Facts([(fact.title, _fact(fact, value)) for fact, value in answered.facts]) if answered.facts else None,
            *(Note(f"{GAP}: {gap}", "gap") for gap in gaps),
            *(_pack_table(each) for each in answered.tables),
            Note(" ".join(sources), "muted small wrap") if sources else None,
        ],
    )


def _fact(fact: Fact, value: str | bool | None) -> Inline:
    text = shown_fact(value, fact)
    if value is None:
        return [Span(text, "gap" if fact.required else "muted"), *page_only(f" {fact.help}" if fact.help else "")]
    return [text, *page_only(" ", Span("stated by the filer, not signed", "wrap"))]


def _pack_table(table: PackTable) -> Section:
    rows: list[Sequence[Cell]] = [
        tuple(
            name_of(shown_cell(cell, column)) if isinstance(cell, str) else shown_cell(cell, column)
            for cell, column in zip(row, table.columns, strict=True)
        )
        for row in table.rows
    ]
    columns = [Column(column.name, numeric=column.kind != "text") for column in table.columns]
    title = [
        name_of(table.title),
        " ",
        *page_only(Span(origin(table), "small")),
        Span(f"({origin(table)})", on=On.TEXT),
    ]
    return Section(title, [Table(table.title, columns, rows), Listing(table.notes) if table.notes else None], "part")
