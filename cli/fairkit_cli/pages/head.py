"""The first screen: the question, the answer, what would change it; then what was audited, and a place to sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.reading import answer, answers, disparities
from fairkit.results.about import KNOWN, heading
from fairkit_cli.fields import as_options
from fairkit_cli.pages.parts import (
    Facts,
    Fields,
    Inline,
    Item,
    Listing,
    Note,
    On,
    Part,
    Section,
    Span,
    capital,
    name_of,
    page_only,
)
from fairkit_cli.pages.terms import term
from fairkit_cli.text.changes import changes, limit_words, question
from fairkit_cli.text.view import report_view

if TYPE_CHECKING:
    from fairkit.reading import Answer
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult

MOST_GROUPS = 6


def header(report: Report, name: str | None = None, *, date: str | None = None) -> Section:
    """Return the first screen of a report."""
    view = report_view(report)
    rule_answers = answers(report)
    entries = audited(report, date)
    answered = verdict(report, rule_answers)
    unstated = [label for label, content in entries if content is None]
    known: list[tuple[Inline, Inline]] = [(label, content) for label, content in entries if content is not None]
    parts: list[Part] = [
        Note(["Fairness audit of ", name_of(name or report.model.name)], "title", on=On.PAGE),
        Section("The question", [Note(question(report))], "first", on=On.PAGE),
        Section(Span("The answer", on=On.PAGE), answered[:1], "first"),
        *change_list(report, rule_answers),
        Section(Span("Each limit", on=On.PAGE), answered[1:], "first"),
        Note(view.subject, "subject"),
        *(Note(line, "warning") for line in view.missing),
        Section("What was audited", [Facts(known, "audited")], "first", on=On.PAGE),
        *([Note(f"Not stated: {', '.join(unstated)}.", "gap", on=On.PAGE)] if unstated else []),
        signature(),
    ]
    return Section(None, parts, "header")


def _rule_hint(report: Report) -> str:
    """Return a rule that this report has a number for, as it is typed; nothing where there is none."""
    found = [f.metric for f in report.findings if f.sensitive is not None and f.plain and f.interval is not None]
    between = [name for name in found if name not in ("group_share", "group_auc")]  # of two groups none has .8 or .1
    usual = "demographic_parity_difference"
    metric = usual if usual in between else next(iter(between), None)
    if metric is None:
        return ""
    low = metric.endswith(("_ratio", "_group_min")) or metric == "representation"
    return f". Add a rule, for example {f'--min {metric}=0.8' if low else f'--max {metric}=0.1'}"


def verdict(report: Report, rule_answers: list[Answer] | None = None) -> list[Part]:
    """Return the verdict with the sentences that decide it, then each rule."""
    view = report_view(report)
    if view.verdict is None:
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
    decisive = [rule for rule in view.rules if rule.verdict == view.verdict]
    first = said.get(id(decisive[0])) if decisive else None
    sentence = "" if first is None else str(first) if first.limit else first.told
    also = f" ({len(decisive) - 1} more below.)" if len(decisive) > 1 else ""
    banner = Note([view.summary, *page_only(". ", Span(sentence, "answer"), also)], "banner", view.verdict)
    items = [_rule(rule, None if rule is decisive[0] else said.get(id(rule))) for rule in view.rules]
    parts: list[Part] = [banner, Listing(items, "rules", on=On.PAGE | On.SUMMARY)]
    for rule in view.rules:  # a screen says people first, and the number below
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
        own = "column" if report.model.predictions else "model's own output"
        return [f"the {own} ", name_of(str(served["decision"])), ", which has its threshold inside"]
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
