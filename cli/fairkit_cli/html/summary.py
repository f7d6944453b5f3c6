"""The first screen: what was audited, the question, the answer, what would change it, and a place to sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.results.about import KNOWN, heading
from fairkit_cli.fields import as_options
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts
from fairkit_cli.html.terms import term_link
from fairkit_cli.text.answers import answer, answers
from fairkit_cli.text.changes import changes, limit_words, question
from fairkit_cli.text.ranking import disparities
from fairkit_cli.text.view import report_view

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult
    from fairkit_cli.text.answers import Answer

MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
WORDS = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive"}


def header(report: Report, name: str | None = None, *, date: str | None = None) -> Markup:
    """Return the first screen of a report's page.

    Parameters
    ----------
    report
        Of an audit.
    name
        What was audited, where it has another name than the model's own.
    date
        When, where something else than the report states it.
    """
    view = report_view(report)
    rule_answers = answers(report)
    entries = audited(report, date)
    unstated = [label for label, content in entries if content is None]
    return tag(
        "header",
        tag("h1", "Fairness audit of ", name_of(name or report.model.name)),
        tag("p", view.subject, class_="subject"),
        *(tag("p", line, class_="subject") for line in view.missing),
        tag("h2", "The question", class_="first"),
        tag("p", question(report)),
        tag("h2", "The answer", class_="first"),
        verdict(report, rule_answers),
        change_list(report, rule_answers),
        tag("h2", "What was audited", class_="first"),
        facts([(label, content) for label, content in entries if content is not None], class_="audited"),
        tag("p", f"Not stated: {', '.join(unstated)}.", class_="gap") if unstated else None,
        signature(),
    )


def verdict(report: Report, rule_answers: list[Answer] | None = None) -> list[Markup]:
    """Return the verdict with the sentences that decide it, then each rule."""
    view = report_view(report)
    if view.verdict is None:
        largest = next((f for f in disparities(report) if f.value is not None), None)
        sentence = "" if largest is None else f" The largest disparity: {answer(report, largest)}"
        none = [tag("strong", "No verdict"), f": no policy was given. What was measured follows.{sentence}"]
        return [tag("p", none, class_="verdict none")]
    said = {id(one.rule): one for one in (answers(report) if rule_answers is None else rule_answers)}
    word = [tag("span", MARKS[view.verdict], aria_hidden="true"), " ", WORDS[view.verdict]]
    decisive = [rule for rule in view.rules if rule.verdict == view.verdict]
    first = said.get(id(decisive[0])) if decisive else None
    sentence = "" if first is None else str(first) if first.limit else first.told
    also = f" ({len(decisive) - 1} more below.)" if len(decisive) > 1 else ""
    banner = tag(
        "p", tag("strong", word), f": {view.summary}. ", tag("span", sentence, class_="answer"), also,
        class_=f"verdict {view.verdict}",
    )  # fmt: skip
    rules = [_rule(rule, None if rule is decisive[0] else said.get(id(rule))) for rule in view.rules]
    return [banner, tag("ul", rules, class_="rules")]


def _rule(rule: RuleResult, said: Answer | None) -> Markup:
    badge = tag("span", f"{MARKS[rule.verdict]} {WORDS[rule.verdict]}", class_=f"badge {rule.verdict}")
    plain = f" {_capital(limit_words(rule))} " if said is None else f" {said} "
    return tag("li", badge, plain, tag("span", as_options(rule.reason), class_="muted small reason"))


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def change_list(report: Report, found: list[Answer]) -> Markup | None:
    """Return the list of steps that would change the verdict; None without a policy."""
    said = changes(report, found)
    if not said:
        return None
    items = [
        tag("li", tag("code", line.removeprefix("$ ")) if line.startswith("$ ") else line.replace("`", ""))
        for line in said
    ]
    return tag("div", tag("h2", "What would change it", class_="first"), tag("ul", items))


def audited(report: Report, date: str | None = None) -> list[tuple[str, Content]]:
    """Return the facts about the audited model and table, by name; None for one that nobody stated."""
    data, model, about = report.data, report.model, dict(report.about)
    decided = report.decisions
    entries: list[tuple[str, Content]] = [
        ("Model", [name_of(model.name), f", {model.task}"]),
        ("Table", [name_of(data.name), f", {data.rows:,} people (rows)", _left_out(report)]),
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


def _left_out(report: Report) -> str:
    return f", {report.data.dropped_rows:,} left out" if report.data.dropped_rows else ""


def _period(report: Report) -> Content:
    told = report.data.period
    return [f"{told['from']} to {told['to']} (column ", name_of(told["column"]), ")"] if told else None


def _outcome(report: Report) -> Content:
    data = report.data
    if data.label is None:
        return "none: decisions are compared, and nothing says which of them were right"
    if data.favorable is None:
        return ["column ", name_of(data.label)]
    return [
        "column ", name_of(data.label), "; ", term_link("favorable", "favorable"), " is ", name_of(data.favorable),
        ": such people are called ", term_link("qualified", "qualified"),
    ]  # fmt: skip


def _decision(report: Report) -> Content:
    served = report.model.outputs
    if "threshold" in served:
        score = served.get("score")
        named: Content = [" of ", name_of(str(score))] if score else None
        what = "favorable when one minus the score" if served.get("turned") else "favorable when the score"
        return [what, named, f" is at least {served['threshold']:g} (the threshold)"]
    if served.get("decision"):
        own = "column" if report.model.predictions else "model's own output"
        return [f"the {own} ", name_of(str(served["decision"])), ", which has its threshold inside"]
    return (
        "none: scores or values are compared" if report.model.task != "multiclass" else "the likeliest class"
    )


def _by_group(groups: dict[str, dict[str, dict[str, int]]]) -> Content:
    """Return the counts of each group: favorable of all."""
    shown: list[Content] = []
    for sensitive, each in groups.items():
        told = ", ".join(
            f"{name} {one['favorable']:,} of {one['favorable'] + one['unfavorable']:,}"
            for name, one in list(each.items())[:6]
        )
        more = f" and {len(each) - 6} more groups" if len(each) > 6 else ""
        shown.append(tag("div", name_of(sensitive), f": {told}{more}", class_="muted small wrap"))
    return shown


def signature() -> Markup:
    """Return the place where the responsible person signs."""
    fields = ("Decision: approved, with conditions, or rejected", "Name and function", "Date", "Signature")
    lines = [tag("div", tag("span", field, class_="muted small wrap"), class_="line") for field in fields]
    return tag("div", tag("h2", "Sign here", class_="first"), tag("div", lines, class_="sign"))
