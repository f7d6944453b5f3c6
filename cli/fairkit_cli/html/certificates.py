"""Pages that are made from certificates: of a registry's version, and of one or several files that were checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from fairkit_cli.evidence import Shown, stated_report
from fairkit_cli.html.charts import ForestRow
from fairkit_cli.html.markup import Content, Markup, name_of, tag
from fairkit_cli.html.page import facts, page, section, table
from fairkit_cli.html.report import forest_figure, sections
from fairkit_cli.html.summary import MARKS, WORDS, header
from fairkit_cli.html.terms import metric_link
from fairkit_cli.text.numbers import interval, number
from fairkit_cli.text.ranking import disparities, performance

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit_cli.html.monitoring import Monitoring
    from fairkit_registry.evidence.certificate import Certificate

YEAR_DAYS = 365
MOST_FOLLOWED = 8
"""So many numbers are followed over several certificates."""


def certificate_page(reference: str, certificates: Sequence[Certificate]) -> str:
    """Return the audit that a registry version's newest certificate states, verified ones first, as one HTML file.

    Raises
    ------
    CertificateError
        The version has no certificate, so there is nothing to show.
    """
    from fairkit_registry.errors import CertificateError

    if not certificates:
        raise CertificateError(
            f"{reference} has no certificate, so there is no audit to show; make one with `fairkit certify`"
        )
    chosen = next((one for one in certificates if one.verified), certificates[0])
    report = stated_report(chosen)
    state = (
        "signature verified with a trusted key"
        if chosen.verified
        else "signature NOT verified: no trusted key"
    )
    entries: list[tuple[str, Content]] = [
        ("Version", name_of(reference)),
        *_identity(chosen),
        ("Signature", state),
        ("Certificates of this version", str(len(certificates))),
    ]
    body: list[Content] = [
        header(report, reference, date=_day(chosen)),
        facts(entries),
        mitigation_section(chosen),
        *sections(report),
    ]
    return page(f"Fairness audit of {reference}", body, verifier=True)


def evidence_page(
    shown: Sequence[Shown], monitoring: Monitoring | None = None, *, today: str | None = None
) -> str:
    """Return certificates as one HTML file: what their checks said, how numbers moved, then the newest audit.

    Parameters
    ----------
    shown
        At least one, the oldest first.
    monitoring
        What came after the newest audit; it is not signed.
    today
        The day of the page, as 2026-01-31: says how old the newest audit is.
    """
    newest = shown[-1]
    report = stated_report(newest.certificate)
    several = len(shown) > 1
    name = f"{len(shown)} certificates" if several else newest.certificate.model_name
    body: list[Content] = [
        *(checked_banner(one, named=several) for one in shown),
        None if monitoring is None else monitoring.banner,
        overview(shown) if several else None,
        tag(
            "div",
            header(report, newest.certificate.model_name, date=newest.when),
            facts([*_identity(newest.certificate), *_age(newest, today), ("Signature", newest.state)]),
            mitigation_section(newest.certificate),
            *sections(report),
            class_="signed" if newest.signed else "unsigned",
        ),
        None if monitoring is None else monitoring.section,
    ]
    return page(f"Fairness audit of {name}", body, verifier=True)


def one_certificate(certificate: Certificate) -> str:
    """Return a certificate that was read, or verified, as one HTML file; see `evidence_page`."""
    return evidence_page(
        [Shown(name=certificate.model_name, certificate=certificate, failed=None, keyed=certificate.verified)]
    )


_SEARCHED = (
    ("considered", "alternatives considered"),
    ("searched", "alternatives measured on rows that training did not see"),
    ("as_good", "as accurate as the model without mitigation, within noise"),
    ("sure", "chance of passing that was asked for"),
    ("chance", "predicted chance that the chosen one passes"),
    ("looks", "looks at the test rows"),
)


def mitigation_section(certificate: Certificate) -> Markup | None:
    """Return how the model was made, as its file says: method, parameters, the model before, the search."""
    made = certificate.mitigation
    if made is None:
        return None
    entries: list[tuple[str, Content]] = [("Method", name_of(str(made.get("plugin"))))]
    parameters, base, search = (made.get(key) for key in ("parameters", "base", "search"))
    if isinstance(parameters, Mapping):
        entries += [(f"Parameter {key}", json.dumps(value, default=str)) for key, value in parameters.items()]
    before = base.get("sha256") if isinstance(base, Mapping) else None
    entries.append(("Model before", tag("code", str(before)) if before else "none: trained anew"))
    if isinstance(search, Mapping):
        entries += [
            (f"Search: {word}", str(search[key])) for key, word in _SEARCHED if search.get(key) is not None
        ]
    return section("How the model was made, as its file says", facts(entries))


def checked_banner(checked: Shown, *, named: bool = True) -> Markup:
    """Return the banner with the result of a certificate's check, in red where the check failed."""
    status = "pass" if checked.signed else "fail" if checked.failed else "inconclusive"
    word = {"pass": "Holds", "fail": "DOES NOT HOLD", "inconclusive": "Not checked"}[status]
    head = [tag("span", MARKS[status], aria_hidden="true"), " ", word]
    who: Content = [" ", name_of(checked.name)] if named or checked.failed else None
    return tag(
        "p", tag("strong", head), who, ": ", checked.state, class_=f"verdict evidence {status}",
        role="alert" if checked.failed else None,
    )  # fmt: skip


def _identity(certificate: Certificate) -> list[tuple[str, Content]]:
    mitigation = certificate.mitigation
    return [
        ("Certificate", [tag("code", certificate.sha256), f", audited {_day(certificate)}"]),
        ("Model made by", "not stated" if mitigation is None else str(mitigation.get("plugin"))),
        ("Settings that are not the default", "; ".join(certificate.unusual_settings) or "none"),
    ]


def _age(one: Shown, today: str | None) -> list[tuple[str, Content]]:
    if today is None:
        return []
    days = (date.fromisoformat(today) - one.certificate.audited_at.date()).days
    old: Content = tag("span", f"{days:,} days: more than a year", class_="gap")
    return [("Age", old if days > YEAR_DAYS else f"{max(days, 0):,} days")]


def _day(certificate: Certificate) -> str:
    return f"{certificate.audited_at:%Y-%m-%d %H:%M} UTC, as the signer says"


def overview(shown: Sequence[Shown]) -> Markup:
    """Return the certificates side by side, the oldest first, and how the numbers of the newest one moved."""
    rows: list[Sequence[Content]] = []
    for checked in shown:
        stated = checked.certificate
        verdict = stated.report.verdict
        badge: Content = "none" if verdict is None else tag("span", WORDS[verdict], class_=f"badge {verdict}")
        holds = "yes" if checked.signed else "NO" if checked.failed else "not checked"
        data = stated.report.data
        rows.append(
            (
                name_of(_short(checked)),
                f"{stated.audited_at:%Y-%m-%d %H:%M}",
                name_of(data.name),
                f"{data.rows:,}",
                badge,
                tag("span", holds, class_=f"badge {_STATUS[holds]}"),
            )
        )
    columns = ("model", "audited (UTC)", "table", "rows", "verdict", "evidence holds")
    listed = table(columns, rows, numeric={3}, label="The certificates")
    passing = repair_that_passes(shown)
    said = None
    if passing is not None:
        said = tag(
            "p",
            "The repair that passes: ",
            name_of(_short(passing)),
            ", by the same rules on the same table.",
        )
    moved = [_moved(shown, one) for one in _followed(shown[-1].certificate.report)]
    return tag(
        "div", tag("h1", f"{len(shown)} certificates"), listed, said, section("How the numbers moved", *moved)
    )


_STATUS = {"yes": "pass", "NO": "fail", "not checked": "inconclusive"}


def repair_that_passes(shown: Sequence[Shown]) -> Shown | None:
    """Return the newest certificate of another model that passes what a certificate fails, on the same table.

    Evidence that does not hold repairs nothing.
    """

    def asked(one: Shown) -> tuple[Any, ...]:
        report = one.certificate.report
        rules = sorted(str(result.rule) for result in report.policy)
        return (report.data.sha256, *rules)

    for checked in reversed(shown):
        stated = checked.certificate
        if stated.report.verdict == "pass" and checked.failed is None:
            for other in shown:
                failing = other.certificate.report.verdict == "fail" and other.failed is None
                if (
                    failing
                    and asked(other) == asked(checked)
                    and other.certificate.model_sha256 != stated.model_sha256
                ):
                    return checked
    return None


def _short(one: Shown) -> str:
    digest = one.certificate.model_sha256 or one.certificate.report.data.sha256
    return f"{one.certificate.model_name} {digest[:8]}"


def _followed(report: Report) -> list[Finding]:
    """Return the numbers that are followed: what the policy is about, accuracy, and the largest disparities."""
    asked = {rule.metric for rule in report.policy}
    found = [*performance(report)[:1], *disparities(report)]
    ranked = sorted(found, key=lambda one: one.metric not in asked)
    return ranked[:MOST_FOLLOWED]


def _moved(shown: Sequence[Shown], like: Finding) -> Markup:
    rows, numbers = [], []
    for checked in shown:
        found = next((f for f in checked.certificate.report.findings if f.key == like.key), None)
        name = f"{_short(checked)} · {checked.certificate.audited_at:%Y-%m-%d}{'' if checked.failed is None else ' ✗'}"
        value, pair = (None, None) if found is None else (found.value, found.interval)
        if value is not None:
            status = "none" if checked.failed is None else "fail"
            tip = f"{name}: {number(value)}, interval {interval(pair)}"
            rows.append(ForestRow(name=name, value=value, tip=tip, interval=pair, status=status))
        numbers.append((name_of(name), number(value), interval(pair), checked.certificate.report.data.name))
    place = f" · {like.place}" if like.sensitive else ""
    title = f"{like.metric}{place}"
    listed = table(("certificate", "value", "interval", "table"), numbers, numeric={1, 2}, label=title)
    heading = tag("h3", metric_link(like), place)
    drawn = forest_figure(rows, title, f"{title} by certificate", listed, zero=True) if rows else listed
    return tag("div", heading, drawn)
