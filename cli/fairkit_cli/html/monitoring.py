"""The section about a watch on a report's page: what the decisions since the audit say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairkit_cli.html.markup import Content, Markup, tag
from fairkit_cli.html.page import section, table
from fairkit_cli.html.terms import term_link
from fairkit_cli.html.watch import rule_section
from fairkit_cli.text.glossary import metric_term
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.watch import gaps, lately, promise, title

if TYPE_CHECKING:
    from fairkit_watch.results import WatchSnapshot
    from fairkit_watch.snapshot import Course

MOST_RULES, MOST_ALARMS = 3, 5
_KEPT = {"pass": "all limits kept", "undecided": "nothing is decided yet"}
_CLASS = {"pass": "pass", "fail": "fail", "undecided": "inconclusive"}


class Monitoring(NamedTuple):
    """What a page has of a watch: a line for its top, and the section."""

    banner: Markup
    section: Markup


def monitoring(look: WatchSnapshot, courses: Sequence[Course]) -> Monitoring:
    """Return the banner and the section of a watch, for a certificate's page; see `monitoring_section`."""
    return Monitoring(_banner(look), monitoring_section(look, courses))


def _banner(look: WatchSnapshot) -> Markup:
    """Say before everything else what has become of the limits: the certificate speaks of another time."""
    broken, verdict = sum(one.verdict == "fail" for one in look.rules), look.verdict or "undecided"
    said = f"{broken} of {len(look.rules)} limits broken" if broken else _KEPT[verdict]
    if look.lately:
        said, verdict = f"{said}; broken lately: {lately(look)}", "fail"
    link = tag("a", "what the decisions since say", href="#monitoring")
    return tag(
        "p", tag("strong", "Since the audit"), f": {said} (", link, ")", class_=f"verdict {_CLASS[verdict]}"
    )


def monitoring_section(snapshot: WatchSnapshot, courses: Sequence[Course]) -> Markup:
    """Return the monitoring section: each rule's number in the audit and since then, and the alarms.

    Parameters
    ----------
    snapshot
        The newest look.
    courses
        Of each rule, in their order; empty before the first decision.
    """
    parts: list[Content] = [
        tag("p", f"{title(snapshot)}. {promise(snapshot)}"),
        tag(
            "p",
            "This part is no part of the certificate: it is read from the watch, and nobody has signed it here.",
        ),
    ]
    if snapshot.lately:
        parts.append(
            tag("p", tag("strong", "Broken lately"), f": {lately(snapshot)}", class_="verdict fail"),
        )
    rows: list[Sequence[Content]] = [
        (
            term_link(rule.metric, metric_term(rule.metric).plain),
            rule.sensitive or "all decisions",
            f"{'at most' if rule.kind == 'max' else 'at least'} {rule.limit:g}",
            "-" if rule.reference is None else f"{number(rule.reference[0])} {interval(rule.reference[1])}",
            f"{number(rule.value)} {interval(rule.interval)}",
            tag("span", rule.verdict, class_=f"badge {_CLASS[rule.verdict]}"),
        )
        for rule in snapshot.rules
    ]
    columns = ("metric", "groups of", "limit", "in the certificate", "of all decisions since", "verdict")
    parts.append(table(columns, rows, numeric={2, 3, 4}, label="The watched rules, then and now"))
    alarms = [tag("li", f"{one.day}: {one.text}") for one in list(reversed(snapshot.alarms))[:MOST_ALARMS]]
    more = len(snapshot.alarms) - len(alarms)
    parts.append(tag("ul", alarms) if alarms else tag("p", "No alarm was raised."))
    if more > 0:
        parts.append(
            tag("p", f"And {more:,} earlier alarms: `fairkit watch show` has them.".replace("`", ""))
        )
    missing = gaps(snapshot)
    parts.append(None if missing is None else tag("p", f"{missing}.", class_="gap"))
    pictures = [rule_section(snapshot, place, course) for place, course in enumerate(courses[:MOST_RULES])]
    return tag("div", section("Monitoring: the decisions since the audit", *parts), pictures, id="monitoring")
