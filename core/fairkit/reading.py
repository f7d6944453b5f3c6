"""What a reader needs of a report, once for terminal, page, notebook and JSON.

What is shown first (headlines), the largest disparities, each metric's plain name (glossary), and a finding as a
sentence (answer).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from fairkit.errors import PluginError
from fairkit.metrics import Term, first_sentence, recorded
from fairkit.plugins.finding import find, installed_metrics, load
from fairkit.results.evidence import HighestGroup, LowestGroup, evidence_of
from fairkit.support.escaping import number
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.metrics import Headline, Metric
    from fairkit.plugins.loading import PluginInfo
    from fairkit.results.findings import Finding, Interval, VerdictName
    from fairkit.results.policy import Change, Outcome
    from fairkit.results.report import Report
    from fairkit.results.rules import RuleResult

_ENDINGS = {
    "_difference": ("difference: {}", "The largest minus the smallest group's number of: {}; 0 is equal."),
    "_ratio": ("ratio: {}", "The smallest over the largest group's number of: {}; 1 is equal."),
    "_group_min": ("lowest group: {}", "The smallest number of any group, of: {}."),
    "_group_max": ("highest group: {}", "The largest number of any group, of: {}."),
}
"""By the end of the name of what is made of a metric's numbers in all groups: its plain name and its meaning."""


def _ending(metric: str) -> str:
    """Return how groups are compared: the ending of the name."""
    return next((ending for ending in _ENDINGS if metric.endswith(ending)), "")


@dataclass(frozen=True, slots=True)
class Headlines:
    """The installed metrics, and the findings of auditors that are no single metric's."""

    metrics: Mapping[str, type[Metric]]
    joint: Mapping[str, Headline]
    terms: Mapping[str, Term] = field(default_factory=dict)

    def performance(self) -> list[str]:
        """The numbers over all rows that a comparison begins with, in order."""
        return _ranked({name: cls.headline.performance for name, cls in self.metrics.items()})

    def levels(self) -> list[str]:
        """The numbers over all rows that a report begins with, in order: those, and what needs no outcome."""
        free = [name for name, cls in self.metrics.items() if not cls.outcome and cls.headline.performance is None]
        return [*self.performance(), *free]

    def base(self, finding: str) -> type[Metric] | None:
        """The metric whose numbers a finding compares between groups, or that it is."""
        names = {cls.alias: cls for cls in self.metrics.values() if cls.alias} | dict(self.metrics)
        return names.get(finding, names.get(finding.removesuffix(_ending(finding))))

    def between(self, task: str) -> list[str]:
        """The disparities that a comparison begins with, in order."""
        of_class = {_between(cls): cls.headline.between for cls in self.metrics.values() if cls.headline.holds(task)}
        return _ranked(of_class | {name: headline.between for name, headline in self.joint.items()})

    def columns(self, task: str) -> list[str]:
        """The metrics in the table of groups, in order."""
        return _ranked({n: cls.headline.column for n, cls in self.metrics.items() if cls.headline.holds(task)})

    def lists(self, finding: str, task: str) -> bool:
        """Whether a finding between groups may be among the largest disparities."""
        if finding in self.joint:
            return self.joint[finding].disparity
        cls = self.metrics.get(finding.removesuffix("_difference"))
        plain = finding.endswith("_difference")
        return plain and (cls is None or (cls.headline.disparity and cls.headline.holds(task)))

    def decides(self, names: set[str]) -> bool:
        """Whether among these are disparities that no regression has."""
        return any(_between(cls) in names and "regression" not in cls.tasks for cls in self.metrics.values())


_SHOWN: ContextVar[Headlines | None] = ContextVar("shown", default=None)


@contextmanager
def as_recorded(report: Report | None = None) -> Iterator[None]:
    """Look headlines up once for all that is shown inside.

    Metrics of the report that are not installed here are shown as it says that they are where it was made. They take
    the place of nothing that is installed.
    """
    record = {} if report is None else report.environment.get("metrics", {})
    before = _SHOWN.set(_installed([recorded(name, shown) for name, shown in record.items()]))
    try:
        yield
    finally:
        _SHOWN.reset(before)


def headlines() -> Headlines:
    """Return the headlines of the installed plugins' metrics and of the report that is being shown."""
    return _SHOWN.get() or _installed()


def _installed(others: Sequence[type[Metric]] = ()) -> Headlines:
    """Return what the installed plugins declare, and `others` that have none of their names."""
    metrics, used = installed_metrics()
    joint = {name: headline for plugin in used for cls in plugin.auditors for name, headline in cls.headlines.items()}
    terms = {name: term for plugin in used for cls in plugin.auditors for name, term in cls.terms.items()}
    taken = {*joint, *terms, *(stem for cls in metrics for stem in (cls.name, cls.alias))} - {""}
    metrics = [*metrics, *(cls for cls in others if not taken & {cls.name, cls.alias})]
    for metric in metrics:
        terms[metric.name] = metric.term or Term(metric.name.replace("_", " "), first_sentence(metric))
        terms |= {f"{metric.alias or metric.name}_{kind}": term for kind, term in metric.terms_between.items()}
    return Headlines({cls.name: cls for cls in metrics}, joint, terms)


@cache
def _all_terms() -> dict[str, Term]:
    return _terms(find()) | usual_terms()


@cache
def _terms_of(*names: str) -> dict[str, Term]:
    """Return terms with one of these names, if anybody has it: the usual ones, of imported plugins, else of all."""
    usual = usual_terms()
    terms = usual if usual.keys() & names else _terms(info for info in find() if info.target in sys.modules)
    return terms if terms.keys() & names else _all_terms()


@cache
def usual_terms() -> dict[str, Term]:
    """Return those of the plugins that every audit uses: no other one is imported for them."""
    return dict(_installed().terms)


def _terms(infos: Iterable[PluginInfo]) -> dict[str, Term]:
    """Return the plain names of findings, by name, for the auditors of plugins that load."""
    terms: dict[str, Term] = {}
    for info in infos:
        with suppress(PluginError):
            terms |= {name: term for cls in load(info.name).auditors for name, term in cls.terms.items()}
    return terms


def _between(cls: type[Metric]) -> str:
    return f"{cls.alias or cls.name}_difference"


def _ranked(ranks: Mapping[str, int | None]) -> list[str]:
    return [name for rank, name in sorted((rank, name) for name, rank in ranks.items() if rank is not None)]


TERMS: Mapping[str, Term] = {
    "favorable": Term("favorable decision", "The decision that is good for the person, as approved or hired."),
    "qualified": Term("qualified", "A person whose outcome in the table is the favorable one."),
    "unqualified": Term("unqualified", "A person whose outcome in the table is the other one."),
    "interval": Term(
        "interval",
        "The range in which the true number lies with the stated confidence, if other people of the same kind "
        "were drawn; errors in the table are not in it.",
    ),
    "confidence": Term("confidence", "How often such an interval holds the true number: at 95%, in 19 of 20 audits."),
    "sensitive": Term("sensitive column", "A column by which people are split into groups, as sex or age."),
    "group": Term("group", "The people with one value in a sensitive column."),
    "policy": Term("policy", "The limits that were set before the audit, each on one number."),
    "pass": Term("pass", "The whole interval keeps the limit."),
    "fail": Term("fail", "The whole interval is beyond the limit."),
    "inconclusive": Term(
        "inconclusive", "The interval contains the limit, or a group is too small: these rows do not decide."
    ),
    "digest": Term("SHA-256", "A fingerprint of a file or a table: whoever changes one character gets another one."),
}
"""The words of a page that are no metrics."""


def metric_term(metric: str) -> Term:
    """Return the plain name and meaning of a metric, as the plugin that measures it declares them."""
    ending = _ending(metric)
    base = metric.removesuffix(ending)
    declared = _terms_of(metric, base)
    if metric in declared:
        return declared[metric]
    if ending:
        name, meaning = _ENDINGS[ending]
        of = metric_term(base)
        return Term(name.format(of.plain), meaning.format(of.plain))
    return headlines().terms.get(metric) or Term(
        metric.replace("_", " "), f"The number that its auditor calls {metric}."
    )


def short_name(metric: str) -> str:
    """Return the field's short name, as ``TPR difference``; where there is none the name in words."""
    base = metric.removesuffix(_ending(metric))
    short = metric_term(metric).short or metric_term(base).short
    return (short + metric.removeprefix(base) if short else metric).replace("_", " ")


def used_terms(metrics: Iterable[str]) -> list[tuple[str, Term]]:
    """Return the metrics that a page shows and the words that every page uses, by key, in alphabetical order."""
    terms = {metric: metric_term(metric) for metric in metrics}
    return sorted((terms | dict(TERMS)).items(), key=lambda pair: pair[1].plain.lower())


MOST_DISPARITIES = 12
Kind = Literal["difference", "ratio", "level"]
_KINDS: tuple[Kind, ...] = ("difference", "ratio", "level")


def disparities(report: Report, most: int = MOST_DISPARITIES) -> list[Finding]:
    """Return the disparities between groups that are shown first, none of them twice under two names.

    What the policy is about is always among them. Differences come before ratios, each the farthest from parity first:
    the two have no common scale.
    """
    shown = headlines()
    chosen = [
        finding
        for finding in report.findings
        if finding.auditor == "group"
        and finding.plain
        and finding.sensitive is not None
        and finding.value is not None
        and shown.lists(finding.metric, report.model.task)
    ]
    in_policy = {(rule.metric, rule.sensitive, rule.within) for rule in report.policy}
    judged = [
        finding
        for finding in report.findings
        if finding.sensitive is not None
        and finding.value is not None
        and finding.reference is None
        and {(finding.metric, column, finding.within) for column in (finding.sensitive, None)} & in_policy
    ]
    keys = {finding.key for finding in judged}
    others = sorted((f for f in chosen if f.key not in keys), key=_far_first)
    return sorted([*judged, *others[: max(most - len(judged), 0)]], key=_far_first)


def kind_of(finding: Finding) -> Kind:
    """Return a comparison's kind: difference (parity is 0), ratio (parity is 1), or a group's level."""
    if finding.metric.endswith("_ratio"):
        return "ratio"
    of_group = finding.metric.endswith(("_group_min", "_group_max")) or finding.metric == "worst_group_loss"
    return "level" if of_group else "difference"


def parity_distance(finding: Finding) -> float:
    """Return how far a disparity is from parity: a difference from 0, a ratio from 1, whichever group is below."""
    value, kind = abs(finding.value or 0.0), kind_of(finding)
    if kind == "ratio":
        return 1.0 if value == 0 else 1 - min(value, 1 / value)
    return value if kind == "difference" else 0.0


def _far_first(finding: Finding) -> tuple[int, float]:
    return _KINDS.index(kind_of(finding)), -parity_distance(finding)


def performance(report: Report) -> list[Finding]:
    """Return the numbers over all rows that people look at first, then those that the policy is about."""
    first = headlines().levels()
    in_policy = {rule.metric for rule in report.policy}
    findings = [
        finding
        for finding in report.findings
        if finding.sensitive is None
        and finding.auditor == "group"
        and finding.value is not None
        and "class" not in finding.parameters
        and finding.metric in {*first, *in_policy}
    ]
    order = {name: index for index, name in reversed(list(enumerate(first)))}
    return sorted(findings, key=lambda finding: order.get(finding.metric, len(order)))


def metric_name(finding: Finding) -> str:
    """Name a finding's metric, with the class, the budget or the number that it is about."""
    qualifiers = [f"{key} {finding.parameters[key]}" for key in ("class", "epsilon", "of") if key in finding.parameters]
    return f"{finding.metric} ({', '.join(qualifiers)})" if qualifiers else finding.metric


def rule_for(report: Report, finding: Finding) -> RuleResult | None:
    """Return the policy's rule on a finding: the one that names its sensitive column, else the general one."""
    of_metric = [rule for rule in report.policy if rule.metric == finding.metric]
    of_metric = [rule for rule in of_metric if rule.within == finding.within]
    named = [rule for rule in of_metric if rule.sensitive == finding.sensitive]
    return next(iter(named or [rule for rule in of_metric if rule.sensitive is None]), None)


def survives(finding: Finding) -> bool | None:
    """Return whether a disparity is there in the simultaneous interval; None where there is no such interval."""
    flag = finding.evidence.get("survives")
    return flag if isinstance(flag, bool) else None


_FATES = {"pass": "it is kept", "fail": "it is broken", "inconclusive": "these rows do not decide it"}
_ORDER = ("fail", "inconclusive", "pass")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule of the policy, or a finding without one, says in words.

    `told` is one sentence about the groups, `limit` one about the limit: None where there is none.
    """

    finding: Finding
    rule: RuleResult | None
    told: str
    limit: str | None

    @property
    def verdict(self) -> VerdictName | None:
        """The rule's verdict."""
        return None if self.rule is None else self.rule.verdict

    def __str__(self) -> str:
        return self.told if self.limit is None else f"{self.told} {self.limit}"


def answers(report: Report) -> list[Answer]:
    """Return the answer to each rule, the decisive ones first."""
    found = []
    for rule in report.policy:
        finding = judged_finding(report, rule)
        if finding is not None:
            found.append(answer(report, finding, rule))
    return sorted(found, key=lambda one: _ORDER.index(str(one.verdict)))


def judged_finding(report: Report, rule: RuleResult) -> Finding | None:
    """Return the finding that a rule was decided by: of several the one that its reason names."""
    of_metric = [f for f in report.findings if f.metric == rule.metric and f.within == rule.within]
    chosen = [f for f in of_metric if rule.sensitive in (None, f.sensitive)]
    chosen = [f for f in chosen if f.reference is None] or chosen
    return next((f for f in chosen if _named(f, rule.reason)), chosen[0] if chosen else None)


def _named(finding: Finding, reason: str) -> bool:
    between = f" for {finding.place}" if finding.sensitive else ""
    label = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    return reason == finding.inconclusive or reason.startswith(f"{finding.metric}{between}{label} ")


def answer(report: Report, finding: Finding, rule: RuleResult | None = None) -> Answer:
    """Say a finding, and what became of its limit, in two sentences."""
    bound = None if rule is None else rule.limit
    source = _source(report, finding)
    kind, share, groups = _ending(source.metric), _share(report, source), _ends(source)
    interval = _interval(finding, rule)
    if finding.value is None:
        sentence, scale = f"{_name(finding)} is not defined here.", 1.0
    elif share is not None and not finding.within and finding.reference is None:
        scale = 1.0 if kind == "_ratio" else 100.0
        sentence = _counted(report, finding, share, kind, groups, interval, bound)
    else:
        sentence, scale = _plainly(finding, kind, groups, interval), 1.0
    return Answer(finding, rule, sentence, None if rule is None else _limit(report, rule, scale))


_DECISIONS = ("accepted", "admitted", "approved", "funded", "granted", "hired", "invited", "paroled", "selected")


class Share(NamedTuple):
    """Of 100 of whom, how many do what."""

    whom: str
    do: str


def _source(report: Report, finding: Finding) -> Finding:
    """Return the finding that has the groups' rates: the worse of two has them from its own finding."""
    declared = headlines().joint.get(finding.metric)
    parts = [_find(report, name, finding) for name in ([] if declared is None else declared.worse_of)]
    return next((part for part in parts if part is not None and part.value == finding.value), finding)


def _find(report: Report, metric: str, like: Finding) -> Finding | None:
    def place(one: Finding) -> tuple[object, ...]:
        return one.sensitive, one.reference, one.within, one.auditor, one.parameters.get("class")

    return next(
        (finding for finding in report.findings if finding.metric == metric and place(finding) == place(like)), None
    )


def share_of(report: Report, finding: Finding) -> Share | None:
    """Return of whom a finding's rates are shares, and what they do; None where it is no rate."""
    return _share(report, _source(report, finding))


def _share(report: Report, finding: Finding) -> Share | None:
    if (metric := headlines().base(finding.metric)) is None or metric.term is None:
        return None
    several = report.model.task == "multiclass" or "class" in finding.parameters
    said = metric.term.share_of_class if several else metric.term.share
    if said is None or ("class" not in finding.parameters and "{0}" in "".join(said)):
        return None
    return Share(said[0].format(label := finding.parameters.get("class")), decided(report, said[1].format(label)))


def decided(report: Report, do: str) -> str:
    """Say "are approved" for "get a favorable decision" where the table's own value is such a word."""
    word = report.data.favorable
    return do.replace("get a favorable decision", f"are {word}") if word in _DECISIONS else do


def _ends(finding: Finding) -> list[tuple[str, float]]:
    """Return the lowest and the highest group with their values; nothing where there are none."""
    values = {group.group: group.value for group in finding.groups}
    named = [evidence_of(finding, LowestGroup), evidence_of(finding, HighestGroup)]
    pairs = [(group.group, values.get(group.group)) for group in named if group is not None]
    return [(name, value) for name, value in pairs if value is not None] if len(pairs) == 2 else []


def _interval(finding: Finding, rule: RuleResult | None) -> Interval | None:
    """Return the interval that a rule is judged by: a one-sided bound takes the place of the upper end."""
    pair, bound = finding.interval, finding.evidence.get("upper_confidence_bound")
    if pair is None or bound is None or rule is None or not rule.rule.upper:
        return pair
    return pair[0], float(bound)


def _counted(
    report: Report,
    finding: Finding,
    share: Share,
    kind: str,
    groups: Sequence[tuple[str, float]],
    interval: Interval | None,
    bound: float | None,
) -> str:
    """Say a rate, or rates of groups, as so many of 100."""
    value = float(finding.value or 0.0)
    ratio = kind == "_ratio"
    places = 0 if ratio else _places(interval, bound)
    sure = f"{report.confidence:.0%} confidence"
    if kind in ("_difference", "_ratio") and len(groups) == 2:
        (low, low_value), (high, high_value) = groups
        places = max(places, _apart(low_value, high_value))
        both = (
            f"Of 100 {_of(share, low)}, {_hundred(low_value, places)} {share.do}; "
            f"of 100 of group {high}, {_hundred(high_value, places)}"
        )
        if ratio:
            return f"{both}: {_times(value, interval)} times as many ({sure})."
        between = _range(interval, places)
        return f"{both}: {between or _hundred(value, places)} fewer ({sure if between else 'no interval'})."
    whom = share.whom
    if kind in ("_group_min", "_group_max") and groups:
        whom = _of(share, groups[0 if kind == "_group_min" else 1][0])
    elif kind:
        return _plainly(finding, kind, groups, interval)
    between = _range(interval, places)
    certainty = f"{between} with {sure}" if between else "no interval"
    return f"Of 100 {whom}, {_hundred(value, places)} {share.do} ({certainty})."


def _of(share: Share, group: str) -> str:
    return share.whom.replace("people", f"people of group {group}", 1)


def _plainly(finding: Finding, kind: str, groups: Sequence[tuple[str, float]], interval: Interval | None) -> str:
    """Say a number that is no share of people."""
    between = "no interval" if interval is None else f"{number(interval[0])} to {number(interval[1])}"
    if kind in ("_difference", "_ratio") and len(groups) == 2 and not finding.within:
        (low, low_value), (high, high_value) = groups
        word = kind.removeprefix("_")
        return (
            f"{_name(finding, kind)} is {number(low_value)} for group {low} and {number(high_value)} for group {high}: "
            f"a {word} of {number(finding.value)} ({between})."
        )
    where = ""
    if finding.within:
        where = f" between groups of {finding.sensitive}, inside the strata of {'+'.join(finding.within)},"
    elif finding.reference is not None:
        where = f" between groups of {finding.sensitive}, against {finding.reference},"
    elif finding.sensitive is not None:
        where = f" between groups of {finding.sensitive}"
    return f"{_name(finding)}{where} is {number(finding.value)} ({between})."


def _name(finding: Finding, kind: str = "") -> str:
    plain = metric_term(finding.metric.removesuffix(kind)).plain
    label = f" (class {finding.parameters['class']})" if "class" in finding.parameters else ""
    return f"{plain[0].upper()}{plain[1:]}{label}"


def _limit(report: Report, rule: RuleResult, scale: float) -> str:
    bound = float(rule.limit)
    word = "at most" if rule.rule.upper else "at least"
    many = f", adjusted for {len(report.policy)} rules" if report.adjustment else ""
    return f"Your limit is {word} {scale * bound:.6g}: {_FATES[rule.verdict]}{many}."


def _hundred(value: float, places: int) -> str:
    return f"{100 * value + 0.0:.{places}f}"


def _apart(one: float, other: float) -> int:
    """Return the places at which two rates that differ do not look equal."""
    return next((p for p in range(3) if one == other or _hundred(one, p) != _hundred(other, p)), 3)


def _places(interval: Interval | None, bound: float | None) -> int:
    """Return the least number of places at which neither end seems to be on another side of the limit."""
    if interval is None or not all(map(math.isfinite, interval)):
        return 0
    for places in range(4):
        ends = [float(_hundred(end, places)) for end in interval]
        enough = bound is None or all(
            _side(shown - 100 * bound) == _side(100 * end - 100 * bound)
            for shown, end in zip(ends, interval, strict=True)
        )
        if enough and (ends[0] != ends[1] or interval[0] == interval[1]):
            return places
    return 4


def _side(distance: float) -> int:
    return 0 if abs(distance) < 1e-9 else 1 if distance > 0 else -1


def _range(interval: Interval | None, places: int) -> str | None:
    if interval is None or not all(map(math.isfinite, interval)):
        return None
    return f"{_hundred(interval[0], places)} to {_hundred(interval[1], places)}"


def _times(value: float, interval: Interval | None) -> str:
    if interval is None:
        return f"{value:.2f}"
    return f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


MOST_CHANGES = 24
"""Of many classes, those whose numbers changed significantly come first."""
MEANING: Mapping[Outcome, str] = {
    "better": "better",
    "worse": "worse",
    "changed": "changed",
    "same": "not significant",
    "undecided": "undecided",
}
"""What is said about a difference between two models."""


def headline_changes(changes: Sequence[Change]) -> tuple[list[Change], list[Change]]:
    """Return the changes that people look at first: of performance over all rows, and of disparities.

    Where no metric is ranked they are those of whole splits: an auditor that measures one number of its own ranks none.
    """
    shown = headlines()
    names = {change.metric for change in changes}
    first, then = shown.performance(), shown.between("binary" if shown.decides(names) else "regression")
    performance = [
        change
        for change in changes
        if change.sensitive is None and change.metric in first and change.before is not None
    ]
    between = [
        change for change in changes if change.sensitive is not None and change.group is None and change.metric in then
    ]
    if not performance and not between:
        return [], _most([change for change in changes if change.group is None])
    performance, between = _most(performance), _most(between)
    performance.sort(key=lambda change: first.index(change.metric))
    between.sort(key=lambda change: (change.sensitive or "", then.index(change.metric)))
    return performance, between


def _most(changes: Sequence[Change]) -> list[Change]:
    """Return the changes over all classes, then the significant ones, up to as many as a reader takes in."""
    ranked = sorted(changes, key=lambda change: ("class" in change.parameters, change.outcome in ("same", "undecided")))
    return ranked[:MOST_CHANGES]


def change_name(one: Change) -> str:
    """Name a change's metric."""
    return f"{one.metric} (class {one.parameters['class']})" if "class" in one.parameters else one.metric
