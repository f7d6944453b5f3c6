"""Numbers against a reference, inside strata or by group probabilities: do they hold together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_registry.evidence.consistency.numbers import about, check_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairkit.results.findings import Finding
    from fairkit.results.report import Report


def check_condition(finding: Finding, report: Report, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what cannot be in such a finding."""
    yield from check_place(finding.value, finding.interval)
    if not about(finding.confidence, report.confidence):
        yield f"its confidence is {finding.confidence:g}, the audit's is {report.confidence:g}"
    parts = [(f"group {one.group}", one.value, one.interval) for one in finding.groups]
    parts += [(f"stratum {one.stratum}", one.value, one.interval) for one in finding.strata]
    for name, value, interval in parts:
        for text in check_place(value, interval):
            yield f"{name}: {text}"
    yield from _asked(finding, report, data)
    yield from _of_reference(finding, report)
    yield from _of_strata(finding, report)
    yield from _of_proxy(finding)


def _asked(finding: Finding, report: Report, data: Mapping[str, Any]) -> Iterator[str]:
    """Check that the settings ask for it."""
    named = [str(text).partition("=")[0] for text in data.get("sensitive_probability", ())]
    if "probabilities" in finding.parameters:
        if finding.sensitive not in named:
            yield "the settings name no group probabilities for it"
    elif finding.sensitive not in report.data.groups:
        yield f"the data have no groups of {finding.sensitive!r}"
    if finding.reference is not None:
        texts = [str(text) for text in data.get("reference", ())]
        if not any(text.startswith(f"{finding.sensitive}=") for text in texts):
            yield f"the settings name no reference group of {finding.sensitive}"
    inside = "+".join(finding.within)
    own = finding.parameters.get("strata") == inside  # the auditor's own, such as the contexts of a question
    if finding.within and not own and inside not in [_columns(str(text)) for text in data.get("within", ())]:
        yield f"the settings name no strata of {inside}"


def _columns(text: str) -> str:
    """Leave the bin edges of ``age:25:60+sex`` out."""
    return "+".join(part.partition(":")[0] for part in text.split("+"))


def _of_reference(finding: Finding, report: Report) -> Iterator[str]:
    if finding.reference is None:
        return
    if finding.reference not in report.data.groups.get(str(finding.sensitive), {}):
        yield f"its reference {finding.reference!r} is no group of the data"
    values = [group.value for group in finding.groups if group.value is not None]
    if finding.value is not None and not any(about(value, finding.value) for value in values):
        yield f"its value is {finding.value:g}, and no group has it"
    whole = [
        f
        for f in report.findings
        if f.metric == finding.metric
        and f.sensitive == finding.sensitive
        and f.plain
        and f.parameters == finding.parameters
    ]
    if finding.within or not whole or not finding.metric.endswith("_difference"):
        return
    known = {group.group: group.value for group in whole[0].groups}
    base = known.get(finding.reference)
    for group in finding.groups:
        rate = known.get(group.group)
        if group.value is not None and rate is not None and base is not None and not about(rate - base, group.value):
            yield f"group {group.group} differs by {group.value:g}, and the groups' own numbers by {rate - base:g}"


def _of_strata(finding: Finding, report: Report) -> Iterator[str]:
    """Check that a pooled number lies among those of the strata, and that their rows are in the data."""
    if not finding.strata:
        return
    rows = sum(stratum.rows for stratum in finding.strata)
    if rows > report.data.rows:
        yield f"its strata have {rows:,} rows, the data have {report.data.rows:,}"
    values = [stratum.value for stratum in finding.strata if stratum.value is not None]
    if finding.value is not None and values and len(finding.strata) == finding.evidence.get("strata"):
        low, high = min(values), max(values)
        if not (low <= finding.value <= high or about(low, finding.value) or about(high, finding.value)):
            yield f"its value {finding.value:g} lies outside those of its strata, [{low:g}, {high:g}]"
    for stratum in finding.strata:
        if sum(group.rows for group in stratum.groups) not in (0, stratum.rows):
            yield f"the groups of stratum {stratum.stratum} do not have its {stratum.rows:,} rows"


def _of_proxy(finding: Finding) -> Iterator[str]:
    possible = finding.evidence.get("identified_set")
    if not isinstance(possible, list | tuple) or len(possible) != 2 or finding.interval is None:
        return
    low, high = finding.interval
    if low > possible[0] + 1e-9 or high < possible[1] - 1e-9:
        yield f"its interval [{low:g}, {high:g}] is narrower than what is possible, [{possible[0]:g}, {possible[1]:g}]"
