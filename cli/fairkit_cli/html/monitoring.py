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
    """Return what a watch says, for a page of certificates; arguments as for `monitoring_section`."""
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


def monitoring_section(look: WatchSnapshot, courses: Sequence[Course]) -> Markup:
    """Return what a watch says beside what the certificate said: each rule's number then and now, and the alarms.

    Parameters
    ----------
    look
        The newest look.
    courses
        Of each rule, in their order; empty before the first decision.
    """
    parts: list[Content] = [
        tag("p", f"{title(look)}. {promise(look)}"),
        tag(
            "p",
            "This part is no part of the certificate: it is read from the watch, and nobody has signed it here.",
        ),
    ]
    if look.lately:
        parts.append(
            tag("p", tag("strong", "Broken lately"), f": {lately(look)}", class_="verdict fail"),
        )
    rows: list[Sequence[Content]] = [
        (
            term_link(one.metric, metric_term(one.metric).plain),
            one.sensitive or "all decisions",
            f"{'at most' if one.kind == 'max' else 'at least'} {one.limit:g}",
            "-" if one.reference is None else f"{number(one.reference[0])} {interval(one.reference[1])}",
            f"{number(one.value)} {interval(one.interval)}",
            tag("span", one.verdict, class_=f"badge {_CLASS[one.verdict]}"),
        )
        for one in look.rules
    ]
    columns = ("metric", "groups of", "limit", "in the certificate", "of all decisions since", "verdict")
    parts.append(table(columns, rows, numeric={2, 3, 4}, label="The watched rules, then and now"))
    alarms = [tag("li", f"{one.day}: {one.text}") for one in list(reversed(look.alarms))[:MOST_ALARMS]]
    more = len(look.alarms) - len(alarms)
    parts.append(tag("ul", alarms) if alarms else tag("p", "No alarm was raised."))
    if more > 0:
        parts.append(
            tag("p", f"And {more:,} earlier alarms: `fairkit watch show` has them.".replace("`", ""))
        )
    missing = gaps(look)
    parts.append(None if missing is None else tag("p", f"{missing}.", class_="gap"))
    pictures = [rule_section(look, place, course) for place, course in enumerate(courses[:MOST_RULES])]
    return tag("div", section("Monitoring: the decisions since the audit", *parts), pictures, id="monitoring")
