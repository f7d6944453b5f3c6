"""The question that an audit answers, and what would change the answer."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fairkit.reading import kind_of, metric_term
from fairkit.support.numbers import number

if TYPE_CHECKING:
    from fairkit.reading import Answer
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult

MOST_NAMED = 3
"""So many limits are named in the question; the others are counted."""


def question(report: Report) -> str:
    """Return the audit's question: whether the model keeps these limits on these rows."""
    what = "Do these decisions" if report.model.predictions else f"Does {report.model.name}"
    if not report.policy:
        return f"How differently {'are' if report.model.predictions else 'does'} {_treated(report)}?"
    named = [limit_words(rule) for rule in report.policy[:MOST_NAMED]]
    more = len(report.policy) - len(named)
    rest = f"; and {more} more" if more else ""
    return f"{what} keep the limits that were set: {'; '.join(named)}{rest}?"


def _treated(report: Report) -> str:
    columns = ", ".join(report.data.groups) or "no sensitive column"
    if report.model.predictions:
        return f"the groups of {columns} decided about"
    return f"{report.model.name} treat the groups of {columns}"


def limit_words(rule: RuleResult) -> str:
    """Say a rule in words: ``difference in favorable decisions between groups of sex, at most 0.05``."""
    where = f" between groups of {rule.sensitive}" if rule.sensitive else ""
    inside = f" inside the strata of {'+'.join(rule.within)}" if rule.within else ""
    bound = rule.rule.say()
    return f"{metric_term(rule.metric).plain}{where}{inside}, {bound}"


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
    if any(one.verdict == "fail" for one in answers):
        why = "More rows of the same kind would hardly help where a limit is broken: the whole interval is beyond it."
        if report.model.unseen:
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


def repair_command(report: Report) -> str:
    """Return the options of the command that searches for a model under the same policy."""
    parts = []
    for rule in report.policy:
        kind, bound = (f"--{rule.rule.side}", rule.limit)
        place = f":{rule.sensitive}" if rule.sensitive else ""
        place += f"|{'+'.join(rule.within)}" if rule.within else ""
        parts += [kind, shlex.quote(f"{rule.metric}{place}={bound:g}")]
    if report.data.label is not None:
        parts += ["--label", shlex.quote(report.data.label)]
    if report.data.favorable is not None:
        parts += ["--favorable", shlex.quote(report.data.favorable)]
    for name in report.data.groups:
        parts += ["--sensitive", shlex.quote(name)]
    return " ".join([*parts, "--data TRAIN --test TEST --output REPAIRED.onnx"])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
