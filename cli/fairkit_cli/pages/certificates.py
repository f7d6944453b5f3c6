"""What certificates say: of a registry's version, and of one or several files that were checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from fairkit.reading import MEANING, change_name, disparities, headline_changes, performance, short_name
from fairkit.results.policy import verdict_of
from fairkit.support.escaping import interval, measured, number
from fairkit_cli.evidence import Shown, stated_report
from fairkit_cli.helping import as_options
from fairkit_cli.pages.charts import ForestRow
from fairkit_cli.pages.findings import forest_chart
from fairkit_cli.pages.parts import (
    Cell,
    Facts,
    Inline,
    Item,
    Listing,
    Note,
    On,
    Page,
    Part,
    Section,
    Span,
    Table,
    badge,
    name_of,
    numbers,
    page_only,
    sized,
    words,
)
from fairkit_cli.pages.report import header, sections
from fairkit_cli.pages.sheet import metric_cell

if TYPE_CHECKING:
    from fairkit.results.findings import Finding
    from fairkit.results.policy import Change, Comparison
    from fairkit.results.report import DataInfo, ModelInfo, Report
    from fairkit.results.rules import RuleResult
    from fairkit_cli.pages.watch import Monitoring
    from fairkit_registry.evidence.certificate import Certificate


YEAR_DAYS = 365
MOST_FOLLOWED = 8
"""So many numbers are followed over several certificates."""


def certificate_page(reference: str, certificates: Sequence[Certificate]) -> Page:
    """Return the audit that a registry version's newest certificate states, verified ones first."""
    from fairkit_registry.errors import CertificateError

    if not certificates:
        raise CertificateError(
            f"{reference} has no certificate, so there is no audit to show; make one with `fairkit certify`"
        )
    chosen = next((each for each in certificates if each.verified), certificates[0])
    report = stated_report(chosen)
    trust = "verified with a trusted key" if chosen.verified else "NOT verified: no trusted key"
    entries = [
        ("Version", name_of(reference)),
        *_identity(chosen),
        ("Signature", f"signature {trust}"),
        ("Certificates of this version", str(len(certificates))),
    ]
    parts = [
        header(report, reference, date=_day(chosen)),
        Facts(entries),
        mitigation_section(chosen),
        *sections(report),
    ]
    return Page(f"Fairness audit of {reference}", parts, verifier=True)


def evidence_page(shown: Sequence[Shown], monitoring: Monitoring | None = None, *, today: str | None = None) -> Page:
    """Return the page of certificates: what their checks said, how numbers moved, then the newest audit."""
    newest = shown[-1]
    report = stated_report(newest.certificate)
    several = len(shown) > 1
    name = f"{len(shown)} certificates" if several else newest.certificate.model_name
    entries = [*_identity(newest.certificate), *_age(newest, today), ("Signature", newest.state)]
    audit = [
        header(report, newest.certificate.model_name, date=_day(newest.certificate)),
        Facts(entries),
        mitigation_section(newest.certificate),
        *sections(report),
    ]
    parts: list[Part | None] = [
        *(checked_banner(each, named=several) for each in shown),
        None if monitoring is None else monitoring.banner,
        *(overview(shown) if several else ()),
        Section(None, audit, "signed" if newest.signed else "unsigned"),
        None if monitoring is None else monitoring.section,
    ]
    return Page(f"Fairness audit of {name}", parts, verifier=True)


def single_page(certificate: Certificate) -> Page:
    """Return the page of a certificate that was read, or verified; see `evidence_page`."""
    name, keyed = certificate.model_name, certificate.verified
    return evidence_page([Shown(name=name, certificate=certificate, failed=None, keyed=keyed)])


_SEARCHED = (
    ("considered", "alternatives considered"),
    ("searched", "alternatives measured on rows that training did not see"),
    ("as_good", "as accurate as the model without mitigation, within noise"),
    ("sure", "chance of passing that was asked for"),
    ("chance", "predicted chance that the chosen one passes"),
    ("looks", "looks at the test rows"),
)


def mitigation_section(certificate: Certificate) -> Section | None:
    """Return how the model was made, as its file says: method, parameters, the model before, the search."""
    made = certificate.mitigation
    if made is None:
        return None
    entries: list[tuple[Inline, Inline]] = [("Method", name_of(str(made.get("plugin"))))]
    parameters, base, search = (made.get(key) for key in ("parameters", "base", "search"))
    if isinstance(parameters, Mapping):
        entries += [(f"Parameter {key}", json.dumps(value, default=str)) for key, value in parameters.items()]
    before = base.get("sha256") if isinstance(base, Mapping) else None
    entries.append(("Model before", Span(str(before), "code") if before else "none: trained anew"))
    if isinstance(search, Mapping):
        entries += [(f"Search: {word}", str(search[key])) for key, word in _SEARCHED if search.get(key) is not None]
    return Section("How the model was made, as its file says", [Facts(entries)])


def checked_banner(checked: Shown, *, named: bool = True) -> Note:
    """Return the banner with the result of a certificate's check, in red where the check failed."""
    status = "pass" if checked.signed else "fail" if checked.failed else "inconclusive"
    word = {"pass": "Holds", "fail": "DOES NOT HOLD", "inconclusive": "Not checked"}[status]
    name = f"{word} {checked.name}" if named or checked.failed else word
    return Note(checked.state, "evidence", status, word=name)


def _identity(certificate: Certificate) -> list[tuple[Inline, Inline]]:
    mitigation = certificate.mitigation
    return [
        ("Certificate", [Span(certificate.sha256, "code"), f", audited {_day(certificate)}"]),
        ("Model made by", "not stated" if mitigation is None else str(mitigation.get("plugin"))),
        ("Settings that are not the default", "; ".join(certificate.unusual_settings) or "none"),
    ]


def _age(newest: Shown, today: str | None) -> list[tuple[Inline, Inline]]:
    if today is None:
        return []
    days = (date.fromisoformat(today) - newest.certificate.audited_at.date()).days
    old = Span(f"{days:,} days: more than a year", "gap")
    return [("Age", old if days > YEAR_DAYS else f"{max(days, 0):,} days")]


def _day(certificate: Certificate) -> str:
    return f"{certificate.audited_at:%Y-%m-%d %H:%M} UTC, as the signer says"


def overview(shown: Sequence[Shown]) -> list[Part]:
    """Return the certificates side by side, the oldest first, and how the numbers of the newest one moved."""
    rows: list[Sequence[Cell]] = []
    for checked in shown:
        stated = checked.certificate
        verdict, data = stated.report.verdict, stated.report.data
        holds = badge("pass", "yes") if checked.signed else badge("inconclusive", "not checked")
        rows.append(
            (
                name_of(_short(checked)),
                f"{stated.audited_at:%Y-%m-%d %H:%M}",
                name_of(data.name),
                f"{data.rows:,}",
                "none" if verdict is None else badge(verdict, verdict.capitalize()),
                badge("fail", "NO") if checked.failed else holds,
            )
        )
    columns = [*words("model", "audited (UTC)", "table"), *numbers("rows"), *words("verdict", "evidence holds")]
    parts: list[Part] = [Note(f"{len(shown)} certificates", "title"), Table("The certificates", columns, rows)]
    passing = repair_that_passes(shown)
    if passing is not None:
        repair: list[Inline] = [
            "The repair that passes: ",
            name_of(_short(passing)),
            ", by the same rules on the same table.",
        ]
        parts.append(Note(repair))
    moved = [_moved(shown, finding) for finding in _followed(shown[-1].certificate.report)]
    return [*parts, Section("How the numbers moved", moved)]


def repair_that_passes(shown: Sequence[Shown]) -> Shown | None:
    """Return the newest certificate of another model that passes what a certificate fails, on the same table.

    Evidence that does not hold repairs nothing.
    """

    def terms(each: Shown) -> tuple[Any, ...]:
        report = each.certificate.report
        return (report.data.sha256, *sorted(str(result.rule) for result in report.policy))

    def holding(verdict: str) -> list[Shown]:
        return [each for each in shown if each.certificate.report.verdict == verdict and each.failed is None]

    for passing in reversed(holding("pass")):
        for failing in holding("fail"):
            same_model = failing.certificate.model_sha256 == passing.certificate.model_sha256
            if not same_model and terms(failing) == terms(passing):
                return passing
    return None


def _short(checked: Shown) -> str:
    digest = checked.certificate.model_sha256 or checked.certificate.report.data.sha256
    return f"{checked.certificate.model_name} {digest[:8]}"


def _followed(report: Report) -> list[Finding]:
    """Return the numbers that are followed: what the policy is about, accuracy, and the largest disparities."""
    limited = {rule.metric for rule in report.policy}
    findings = [*performance(report)[:1], *disparities(report)]
    return sorted(findings, key=lambda finding: finding.metric not in limited)[:MOST_FOLLOWED]


def _moved(shown: Sequence[Shown], like: Finding) -> Section:
    drawn: list[ForestRow] = []
    rows: list[Sequence[Cell]] = []
    for checked in shown:
        report = checked.certificate.report
        finding = next((f for f in report.findings if f.key == like.key), None)
        name = f"{_short(checked)} · {checked.certificate.audited_at:%Y-%m-%d}{'' if checked.failed is None else ' ✗'}"
        value, pair = (None, None) if finding is None else (finding.value, finding.interval)
        if value is not None:
            status = "none" if checked.failed is None else "fail"
            tip = f"{name}: {number(value)}, interval {interval(pair)}"
            drawn.append(ForestRow(name=name, value=value, tip=tip, interval=pair, status=status))
        rows.append((name_of(name), *sized(value, pair), report.data.name))
    between = f" · {like.place}" if like.sensitive else ""
    title = f"{like.metric}{between}"
    table = Table(title, [*words("certificate"), *numbers("value", "interval"), *words("table")], rows)
    chart = forest_chart(drawn, title, f"{title} by certificate", table)
    return Section([*metric_cell(like), between], [chart], "part")


# Two models on the same rows: what is significantly better or worse, and every number.


_UNIT = 1.5


def comparison_page(result: Comparison) -> Page:
    """Return the page of a comparison."""
    base = result.models[0]
    title = result.title or f"{result.data.name}, {result.data.rows:,} rows: each model compared with {base.name}"
    intro = (
        f"On the same {result.data.rows:,} rows of {result.data.name}, with {result.confidence:.0%} intervals of the "
        "paired differences."
    )
    parts: list[Part | None] = [
        Note(["Models beside ", name_of(base.name)], "title", on=On.PAGE),
        Note(intro, "subject", on=On.PAGE),
        Note(title, "strong", on=On.SCREEN),
        *warnings(result.warnings),
    ]
    for model, rules in zip(result.models, result.policy, strict=bool(result.policy)):
        parts += verdict_parts(model.name, rules)
    parts.append(Note("", on=On.SCREEN))
    for model, changes in zip(result.models[1:], result.changes, strict=True):
        heading = [
            Span(model.name, "name", on=On.PAGE),
            Span(f"{model.name} beside {base.name}, {result.data.rows:,} rows", on=On.SUMMARY),
        ]
        parts.append(Section(heading, change_parts(changes, (base.name, model.name), result.confidence)))
    parts.append(_details(result.models, result.data, result.notes, result.confidence))
    return Page(f"Comparison with {base.name}", parts)


def warnings(texts: Sequence[str]) -> list[Part]:
    """Return the warnings that precede the numbers."""
    return [Note(as_options(text), "warning") for text in texts]


def verdict_parts(name: str, rules: Sequence[RuleResult]) -> list[Part]:
    """Return a model's verdict with the results of its rules; nothing without rules."""
    verdict = verdict_of([rule.verdict for rule in rules])
    if verdict is None:
        return []
    items = [Item(Span(as_options(rule.reason), "reason"), rule.verdict) for rule in rules]
    return [Note([name_of(name), ": ", Span(verdict.upper(), verdict)], "strong"), Listing(items, "rules")]


def change_parts(changes: Sequence[Change], names: tuple[str, str], confidence: float) -> list[Part | None]:
    """Return how one model differs from another: in a sentence, drawn, and as tables."""
    performance, between = headline_changes(changes)
    level = f" ({confidence:.0%} intervals of the difference)"
    parts: list[Part | None] = [Note(summary([*performance, *between]), "verdict", on=On.PAGE)]
    for title, more, chosen in (("Performance", level, performance), ("Between groups", "", between)):
        if chosen:
            apart = [each for each in chosen if each.outcome != "same"] or chosen
            unchanged = ", ".join(_where(each, short=True) for each in chosen if each not in apart)
            inner = [
                change_table(chosen, names, title, brief=True, on=On.SUMMARY),
                change_table(apart, names, title, brief=True, on=On.SCREEN),
                Note(f"No significant difference: {unchanged}. --format json has all.", on=On.SCREEN)
                if unchanged
                else None,
            ]
            parts.append(Section([title, more], inner, "part", on=On.TEXT))
            parts += _charts(title, chosen, names)
    everything = change_table(changes, names, "All numbers")
    folded = Section(f"All {len(changes)} numbers", [everything], "fold", on=On.PAGE)
    return [*parts, folded]


def _charts(title: str, changes: Sequence[Change], names: tuple[str, str]) -> list[Part]:
    """Return the forest plots of differences: those that reach beyond 1.5 have an axis of their own."""
    small = [each for each in changes if _reach(each) <= _UNIT]
    large = [each for each in changes if _reach(each) > _UNIT]
    parts: list[Part] = []
    for chosen, unit in ((small, ""), (large, ", in the metric's own unit")):
        rows = [change_row(each) for each in chosen if each.difference is not None]
        if chosen:
            label = f"{title}{unit}"
            table = change_table(chosen, names, label)
            parts.append(
                forest_chart(
                    rows, "difference", f"{label}: differences", table, zero=False, name="changes", of=names[1]
                )
            )
    return parts


def summary(changes: Sequence[Change]) -> Inline:
    """Return a sentence that lists the significant improvements and the significant deteriorations."""
    sentence: list[Inline] = []
    for outcome in ("better", "worse"):
        chosen = [_where(each) for each in changes if each.outcome == outcome]
        listed = ", ".join(chosen) if chosen else "nothing"
        sentence += [Span(f"{outcome.capitalize()} (significant)", "strong"), f": {listed}. "]
    return sentence


def _where(change: Change, *, short: bool = False) -> str:
    name = short_name(change.metric) if short else change_name(change)
    return name + (f" ({change.place})" if change.sensitive else "")


def _reach(change: Change) -> float:
    return max(abs(end) for end in (change.interval or (0.0, 0.0)))


def change_row(change: Change) -> ForestRow:
    """Say about a change what its line in a forest plot shows."""
    value = change.difference or 0.0
    return ForestRow(
        name=change_name(change) + (f" · {change.place}" if change.sensitive else ""),
        value=value,
        interval=change.interval,
        status=MEANING[change.outcome],
        tip=f"{_where(change)}: {number(change.before)} to {number(change.after)}, difference {number(value)}, "
        f"interval {interval(change.interval)}: {MEANING[change.outcome]}",
    )


def change_table(
    changes: Sequence[Change], names: tuple[str, str], label: str, *, brief: bool = False, on: On = On.ALL
) -> Table:
    """Return changes as numbers; `brief` without the group, and with the interval beside its difference."""
    rows: list[Sequence[Cell]] = []
    for change in changes:
        where = name_of(change.place) if change.place else "all rows"
        ends = (number(change.before), number(change.after))
        outcome = Span(MEANING[change.outcome], change.outcome)
        if brief:
            name = change_name(change).replace(change.metric, short_name(change.metric), 1)
            called: Inline = [Span(change_name(change), on=On.PAGE | On.SUMMARY), Span(name, on=On.SCREEN)]
            rows.append((called, where, *ends, measured(change.difference, change.interval), outcome))
        else:
            group = name_of(change.group) if change.group else "-"
            rows.append((change_name(change), where, group, *ends, *sized(change.difference, change.interval), outcome))
    grouped = On.ALL if any(change.place for change in changes) or not brief else On.PAGE | On.SUMMARY
    columns = [*words("metric"), *words("groups of", on=grouped), *words(*(() if brief else ("group",)))]
    columns += numbers(*map(name_of, names), "difference", *(() if brief else ("interval",)))
    return Table(label, [*columns, *words("" if brief else "meaning")], rows, on=on)


def notes_parts(notes: Sequence[str]) -> list[Part]:
    """Return notes, each once."""
    return [Listing([as_options(note) for note in dict.fromkeys(notes)])] if notes else []


def _details(models: Sequence[ModelInfo], data: DataInfo, notes: Sequence[str], confidence: float) -> Section:
    entries: list[tuple[Inline, Inline]] = [
        (f"Model {index}", [name_of(model.name), " ", Span(model.sha256 or "in memory", "code")])
        for index, model in enumerate(models, 1)
    ]
    entries += [
        ("Data", [name_of(data.name), " ", Span(data.sha256, "code")]),
        ("Rows", f"{data.rows:,}{data.lacking}"),
        ("Confidence", f"{confidence:.0%}"),
    ]
    meaning = (
        "Both models saw the same rows, so most of the noise cancels in the difference: its interval is "
        "narrower than the two intervals of the models suggest. A difference is called better or worse where "
        "its whole interval lies on one side of 0, under its metric, on this data."
    )
    listed = notes_parts([*notes, *data.notes])
    parts = [Facts(entries, on=On.PAGE), *listed, Note(meaning, on=On.PAGE)]
    return Section(page_only("How the numbers were made"), parts)
