"""A watch: the rules and what is said of them, bands over time with the limits, what changed when, and the groups."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from fairkit.support.escaping import measured, number
from fairkit_cli.pages import charts as timelines
from fairkit_cli.pages.groups import legend
from fairkit_cli.pages.parts import (
    Cell,
    Chart,
    Facts,
    Inline,
    Key,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Table,
    badge,
    capital,
    name_of,
    numbers,
    sized,
    words,
)

if TYPE_CHECKING:
    from fairkit_watch.alarms import RuleLook, WatchSnapshot
    from fairkit_watch.records import Course

MOST_ALARMS, MOST_DAYS, MOST_GROUPS = 12, 6, 8
MOST_RULES, MOST_MONITORED = 3, 5
_LEVELS = {"fail": "fails", "changed": "broken lately", "shares": "shares changed"}
_KEPT = {"pass": "all limits kept", "undecided": "nothing is decided yet"}


class Shares(NamedTuple):
    """The first days of the weeks, and each group's share of the decisions, [W, G]."""

    days: Sequence[str]
    values: Any
    groups: Sequence[str]


def watch_page(
    snapshot: WatchSnapshot, courses: Sequence[Course] = (), shares: Mapping[str, Shares] | None = None
) -> Page:
    """Return the page of a watch."""
    failed = [rule for rule in snapshot.rules if rule.verdict == snapshot.verdict]
    head: list[Part] = [
        Note(title(snapshot), "title", on=On.PAGE),
        Note(title(snapshot), "strong", on=On.SCREEN),
        Note(f"Looked at on {snapshot.today}. {promise(snapshot)}", "subject", on=On.PAGE),
    ]
    if snapshot.verdict is not None:
        since = f"of all decisions since {snapshot.since or 'the start'}"
        counted = Span(f", {len(failed)} of {len(snapshot.rules)} rules", on=On.PAGE)
        head.append(Note([since, counted], "banner", snapshot.verdict))
    head += _lately(snapshot)
    return Page(
        title(snapshot),
        [
            Section(None, head, "header"),
            rules_table(snapshot) if snapshot.rules else None,
            Section(Span("What changed", on=On.PAGE), _alarms(snapshot)),
            *(rule_section(snapshot, index, course) for index, course in enumerate(courses)),
            *(_shares(name, split) for name, split in (shares or {}).items() if len(split.days)),
            _groups(snapshot) if snapshot.groups else None,
            _details(snapshot),
        ],
    )


def title(snapshot: WatchSnapshot) -> str:
    """Return one line about what is watched."""
    what = snapshot.model or "Decisions"
    if snapshot.alias and snapshot.model:
        what += f" ({snapshot.alias})"
    if snapshot.since is None:
        return f"{what}: no decisions yet"
    return f"{what}: {snapshot.rows:,} decisions since {snapshot.since}, up to {snapshot.until}"


def promise(look: WatchSnapshot) -> str:
    """Return a sentence about the joint, anytime-valid confidence of a watch's intervals."""
    return (
        f"All intervals hold at every look, {look.confidence:.0%} for all {look.streams} rules together: one may look, "
        "stop or go on at any time."
    )


def _lately(look: WatchSnapshot) -> list[Part]:
    """Return which rules are broken lately, and since when; nothing where none is."""
    return [Note(lately(look), "banner", "fail", word="Broken lately")] if look.lately else []


def lately(look: WatchSnapshot) -> str:
    """Return which rules are broken lately, and since when."""
    return "; ".join(f"{subject}, since about {day}" for subject, day in look.lately.items())


def gaps(snapshot: WatchSnapshot) -> str | None:
    """Return which days are missing; None where none are."""
    if not snapshot.missing_days:
        return None
    shown = ", ".join(snapshot.missing_days[-MOST_DAYS:])
    more = f" (the last {MOST_DAYS}: {shown})" if len(snapshot.missing_days) > MOST_DAYS else f": {shown}"
    return f"{len(snapshot.missing_days):,} days without data{more}"


def rules_table(snapshot: WatchSnapshot) -> Table:
    """Return each rule's number: of all decisions, of this week, and in the certificate."""
    rows: list[Sequence[Cell]] = []
    for rule in snapshot.rules:
        where = f" ({rule.sensitive})" if rule.sensitive else ""
        stated = "-" if rule.reference is None else measured(*rule.reference)
        name = f"{rule.metric}{where} {rule.kind} {rule.limit:g}"
        rows.append((name, *sized(rule.value, rule.interval), badge(rule.verdict), measured(*rule.week[:2]), stated))
    columns = [*words("rule"), *numbers("value", "interval"), *words("verdict")]
    return Table("The watched rules", [*columns, *numbers("this week", "certificate")], rows)


def _alarms(snapshot: WatchSnapshot) -> list[Part]:
    if not snapshot.alarms:
        return [Note("Nothing: no alarm was raised.", on=On.PAGE)]
    rows: list[Sequence[Cell]] = [
        (Span(alarm.day, "day"), Span(_LEVELS[alarm.level], "fail" if alarm.level == "fail" else "badge"), alarm.text)
        for alarm in reversed(snapshot.alarms)
    ]
    parts: list[Part] = [Table("Alarms", words("day", "what", "evidence"), rows, on=On.PAGE)]
    parts += [
        Note(f"ALARM {alarm.number}  {alarm.level}  {alarm.day}  {alarm.text}", on=On.SCREEN)
        for alarm in snapshot.alarms[-MOST_ALARMS:]
    ]
    earlier = len(snapshot.alarms) - MOST_ALARMS
    if earlier > 0:
        parts.append(Note(f"{earlier} earlier alarms are in --format json", on=On.SCREEN))
    if any("parts" in alarm.evidence for alarm in snapshot.alarms):
        parts.append(Note([_MORE, Span(_COMPARED, "code")], kind="muted"))
    return parts


_MORE = "A watch keeps counts. The rows of both periods say which columns carry the change: "
_COMPARED = "fairkit compare MODEL --data BEFORE --against SINCE --sensitive COLUMN --auditor why"


def rule_section(snapshot: WatchSnapshot, place: int, course: Course) -> Section:
    """Return one rule's course over the days: the picture with its limit, and each week's number."""
    rule = snapshot.rules[place]
    about = f"{rule.metric.replace('_', ' ')}{f' ({rule.sensitive})' if rule.sensitive else ''}"
    heading = f"{capital(about)}: {'at most' if rule.kind == 'max' else 'at least'} {rule.limit:g}"
    chart = timelines.Timeline(
        days=course.days,
        values=course.path.value.tolist(),
        low=course.path.low.tolist(),
        high=course.path.high.tolist(),
        weeks=course.weeks,
        limit=rule.limit,
        reference=rule.reference,
        events=tuple(
            (alarm.day, _LEVELS[alarm.level]) for alarm in snapshot.alarms if alarm.subject == course.question.subject
        ),
        missing=_spans(snapshot.missing_days),
    )
    weeks = [(f"{first} to {last}", *sized(value, pair)) for first, last, value, pair in reversed(course.weeks)]
    figure = Chart(
        f"{about} over time with its confidence sequence and the limit {rule.limit:g}",
        lambda narrow: timelines.timeline(chart, about, narrow=narrow),
        Table(f"{about} by week", [*words("week"), *numbers("value", "interval of the week alone")], weeks),
        f"Of all decisions since {snapshot.since}, day by day",
        _legend(chart),
    )
    quiet = None if chart.events else _needed(snapshot, rule, course)
    return Section(heading, [Note([badge(rule.verdict), f": {rule.reason}."]), quiet, figure], on=On.PAGE)


def _needed(snapshot: WatchSnapshot, rule: RuleLook, course: Course) -> Note | None:
    """Say how long a week's number beyond the limit would have to last for an alarm; None where none is."""
    sign = 1 if rule.kind == "max" else -1
    beyond = [value for _, _, value, _ in course.weeks if value is not None and sign * (value - rule.limit) > 0]
    if not beyond or rule.value is None or rule.interval is None or rule.verdict == "fail":
        return None
    # a band of n decisions is as wide as 1 / sqrt(n), and has to fit between the number and the limit
    width = rule.value - rule.interval[0] if sign > 0 else rule.interval[1] - rule.value
    people = max(math.ceil(snapshot.rows * (width / (beyond[-1] - rule.limit)) ** 2 / 100) * 100, 100)
    weeks = math.ceil(people / (snapshot.rows / len(course.weeks)))
    many = f"{len(beyond)} of {len(course.weeks)} weeks are beyond the limit, and no alarm was raised"
    return Note(
        f"{many}: weeks alone are few people. If all were as the last of these ({number(beyond[-1])}), about "
        f"{people:,} people, {weeks:,} weeks at this pace, would raise one."
    )


def _legend(chart: timelines.Timeline) -> list[Key]:
    keys = [
        Key("all decisions since the start, with the band that holds at every look", "band", "var(--c1)"),
        Key("limit", "line", "var(--fail)", (6, 3)),
        Key("one week alone", "circle", "var(--c2)"),
    ]
    keys += [Key("the certificate's number", "diamond", "var(--ink)")] if chart.reference is not None else []
    keys += [Key("alarm", "rule", "var(--ink)")] if chart.events else []
    return [*keys, *([Key("no data", "band", "var(--line)")] if chart.missing else [])]


def _shares(name: str, split: Shares) -> Section:
    days, values, groups = split
    order = sorted(range(len(groups)), key=lambda g: -float(values[:, g].sum()))[:MOST_GROUPS]
    names = [groups[g] for g in order]
    shown = [[float(value) for value in values[:, g]] for g in order]
    rows = [(day, *(f"{values[w, g]:.1%}" for g in order)) for w, day in reversed(list(enumerate(days)))]
    more = f" The {MOST_GROUPS} largest of {len(groups)} groups." if len(groups) > MOST_GROUPS else ""
    figure = Chart(
        f"share of each group of {name} among the decisions, week by week",
        lambda narrow: timelines.shares(days, shown, names, narrow=narrow),
        Table(f"Shares of {name}", [*words("week of"), *numbers(*map(name_of, names))], rows),
        "Share of the decisions, week by week",
        legend(names),
    )
    intro = f"Rates are comparable over time only while the groups' shares are stable.{more}"
    return Section(f"Who is decided about: {name}", [Note(intro), figure], on=On.PAGE)


def _groups(snapshot: WatchSnapshot) -> Section:
    rates = list(dict.fromkeys(name for group in snapshot.groups for name in group.rates))
    rows: list[Sequence[Cell]] = []
    for group in snapshot.groups:
        cells = [measured(*group.rates.get(rate, (None, None))) for rate in rates]
        name = name_of(f"{group.split}={group.group}" if group.split else "everybody")
        named = [name, None if group.expected else " (new)"]
        rows.append((named, f"{group.rows:,}", f"{group.share:.1%}", *cells))
    columns = [*words("group"), *numbers("decisions", "share", *(rate.replace("_", " ") for rate in rates))]
    intro = f"Of all decisions since {snapshot.since}; the bands of all groups hold together, at every look."
    return Section(Span("The groups", on=On.PAGE), [Note(intro, on=On.PAGE), Table("Groups", columns, rows)])


def _details(snapshot: WatchSnapshot) -> Section:
    entries: list[tuple[Inline, Inline]] = [
        ("Decisions", f"{snapshot.rows:,} on {snapshot.days:,} days"),
        ("Missing days", gaps(snapshot) or "none"),
        ("Confidence", f"{snapshot.confidence:.0%} for all rules together, at every look"),
    ]
    if snapshot.certificate:
        entries.append(("Certificate", Span(snapshot.certificate, "code")))
    sentences = remarks(snapshot)
    return Section(
        Span("How the numbers were made", on=On.PAGE),
        [
            Facts(entries, on=On.PAGE),
            Listing(sentences, on=On.PAGE),
            *(Note(sentence, on=On.SCREEN) for sentence in sentences),
            Note("All of it holds under these metrics, on these decisions.", on=On.PAGE),
        ],
    )


def remarks(snapshot: WatchSnapshot) -> list[str]:
    """Return the sentences below the tables."""
    sentences = [promise(snapshot)] if snapshot.rules else []
    sentences += [rule.reason for rule in snapshot.rules if rule.verdict == "undecided" or rule.unresolved]
    missing = gaps(snapshot)
    sentences += [missing] if missing else []
    if snapshot.open:
        sentences.append(f"{snapshot.open:,} decisions wait for their outcome")
    sentences += [f"{count:,} {what}" for what, count in snapshot.odd.items()]
    sentences += snapshot.notes
    return sentences


def _spans(days: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return runs of consecutive days: first and last."""
    ordinals = [date.fromisoformat(day).toordinal() for day in days]
    spans = []
    for _, run in itertools.groupby(enumerate(ordinals), lambda pair: pair[1] - pair[0]):
        inside = [at for at, _ in run]
        spans.append((days[inside[0]], days[inside[-1]]))
    return tuple(spans)


class Monitoring(NamedTuple):
    """What a certificate's page has of a watch: a line for its top, and the section."""

    banner: Part
    section: Part


def monitoring(look: WatchSnapshot, courses: Sequence[Course]) -> Monitoring:
    """Return what the decisions since an audit say, for a certificate's page."""
    broken, verdict = sum(rule.verdict == "fail" for rule in look.rules), look.verdict or "undecided"
    said = f"{broken} of {len(look.rules)} limits broken" if broken else _KEPT[verdict]
    if look.lately:
        said, verdict = f"{said}; broken lately: {lately(look)}", "fail"
    link = Span("what the decisions since say", link="#monitoring")
    banner = Note([said, " (", link, ")"], "banner", verdict, word="Since the audit")
    return Monitoring(banner, Section(None, _monitored(look, courses), "part", "monitoring"))


def _monitored(look: WatchSnapshot, courses: Sequence[Course]) -> list[Part | None]:
    alarms = [f"{alarm.day}: {alarm.text}" for alarm in list(reversed(look.alarms))[:MOST_MONITORED]]
    more, missing = len(look.alarms) - len(alarms), gaps(look)
    unsigned = "This part is no part of the certificate: it is read from the watch, and nobody has signed it here."
    section = Section(
        "Monitoring: the decisions since the audit",
        [
            Note(f"{title(look)}. {promise(look)}"),
            Note(unsigned),
            *_lately(look),
            rules_table(look),
            Listing(alarms) if alarms else Note("No alarm was raised."),
            Note(f"And {more:,} earlier alarms: fairkit watch show has them.") if more > 0 else None,
            None if missing is None else Note(f"{missing}.", "gap"),
        ],
    )
    return [section, *(rule_section(look, index, course) for index, course in enumerate(courses[:MOST_RULES]))]
