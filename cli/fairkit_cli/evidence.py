"""Certificates that are read to be shown: each is checked first, and what does not hold is kept with it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, ParameterError
from fairkit.results.policy import Change, Comparison, judge, outcome_of
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_cli.helping import as_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairkit.results.findings import Finding, Interval
    from fairkit.results.report import ModelInfo, Report
    from fairkit.results.rules import Rule
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.signers import PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A certificate and what its check said."""

    name: str  # the file's name
    certificate: Certificate  # what it says
    failed: str | None  # why it does not hold; None where it does, as far as it was checked
    keyed: bool  # whether a trusted key was named, so that the signature was checked

    @property
    def signed(self) -> bool:
        """Whether a trusted key has signed the numbers."""
        return self.keyed and self.failed is None

    @property
    def state(self) -> str:
        """What the check said, in a sentence."""
        if self.failed is not None:
            return f"This evidence does not hold: {self.failed}."
        if not self.keyed:
            return (
                "The signature was not checked: no key was named. Name the key that you trust with --key; until then "
                "anybody may have written these numbers."
            )
        keys = ", ".join(keyid[:16] for keyid in self.certificate.keyids)
        return f"Signed by {keys}, a key that was named as trusted."


def read_report(path: Path) -> Report:
    """Read a report, or the one in a certificate, as it stands: nothing of it is checked but its form."""
    from fairkit.results.report import Report, validate_report
    from fairkit_registry.blobs import read_limited
    from fairkit_registry.evidence.certificate import read

    raw = read_limited(path, 64 << 20, "a report")
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        raise DataError(
            f"{str(path)!r} is neither a report nor a certificate: it is not valid JSON; write a report with "
            "fairkit audit ... --format json --output FILE"
        ) from None
    if isinstance(record, dict) and "payload" in record:
        return read(raw).report
    validate_report(record)
    return Report.from_dict(record)


def read_evidence(paths: Sequence[Path], keys: Sequence[Path]) -> list[Shown]:
    """Read and check certificates, the oldest first."""
    from fairkit_registry.evidence.signers import load_public

    trusted = [load_public(path) for path in keys]
    return sorted((_checked(path, trusted) for path in paths), key=lambda item: item.certificate.audited_at)


def _checked(path: Path, trusted: Sequence[PublicKey]) -> Shown:
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import check, read, read_file

    raw = read_file(path)
    checked = check(raw, trusted or None)
    try:
        certificate = checked.certificate or read(raw)
    except CertificateError as unreadable:
        raise CertificateError(f"{path}: {unreadable}") from None
    failed = None if checked.failed is None else as_options(checked.failed).rstrip(".")
    return Shown(name=path.name, certificate=certificate, failed=failed, keyed=bool(trusted))


def stated_report(certificate: Certificate) -> Report:
    """Return a certificate's report as an audit gives it; where it is older, the outcome is that of its settings."""
    from fairkit.data.roles import value_text
    from fairkit_registry.evidence.charts import expanded

    report, data_settings = expanded(certificate.report), certificate.settings.get("data", {})
    label, favorable = data_settings.get("label"), data_settings.get("favorable")
    if report.data.label is not None or not isinstance(label, str):
        return report
    outcome = None if favorable is None else value_text(favorable)
    data = dataclasses.replace(report.data, label=label, favorable=outcome)
    return dataclasses.replace(report, data=data)


# Two reports, of two tables or of two models: how every number differs, from the intervals of both.


def compare_reports(before: Report, after: Report, policy: Sequence[Rule] = (), *, alone: bool = True) -> Comparison:
    """Compare every number that two reports share; there may be none where others are compared besides.

    The reports are taken as independent: of other rows, as of two months. The interval of a difference is made from
    those of the two numbers (Newcombe's method 10). Two models on the same rows are compared far more sharply by
    `fairkit.compare`, which pairs the rows.
    """
    if before.confidence != after.confidence:
        raise ParameterError(
            f"the reports have the confidences {before.confidence:g} and {after.confidence:g}; compare reports of one "
            "confidence"
        )
    earlier = {finding.key: finding for finding in before.findings}
    shared = [(earlier[f.key], f) for f in after.findings if f.key in earlier]
    if alone and not shared:
        raise ParameterError("the two reports have no number in common; audit with the same auditors and columns")
    return Comparison(
        models=_named(before, after),
        data=after.data,
        changes=(tuple(change for old, new in shared for change in _changes(old, new)),),
        confidence=after.confidence,
        notes=tuple(_notes(before, after, len(shared))),
        warnings=tuple(
            f"{when}: {text}" for when, report in (("before", before), ("after", after)) for text in report.warnings
        ),
        policy=tuple(
            judge(policy, report.findings, confidence=report.confidence)[0] for report in (before, after) if policy
        ),
        title=f"{_carried(before, after)}{_subject(before)}; then {_subject(after)}",
    )


def _named(before: Report, after: Report) -> tuple[ModelInfo, ModelInfo]:
    """Return the models under names that tell them apart: their own, else those of the tables."""
    names = (before.model.name, after.model.name)
    if names[0] == names[1]:
        names = (before.data.name, after.data.name)
    if names[0] == names[1]:
        names = ("before", "after")
    return replace(before.model, name=names[0]), replace(after.model, name=names[1])


def _changes(before: Finding, after: Finding) -> Iterator[Change]:
    shared: dict[str, Any] = {
        "metric": before.metric, "sensitive": before.sensitive, "better": before.better, "reference": before.reference,
        "within": before.within, "parameters": dict(before.parameters),
    }  # fmt: skip
    undecided = bool(before.inconclusive or after.inconclusive)
    yield _change((before.value, before.interval), (after.value, after.interval), shared, undecided=undecided)
    earlier = {group.group: group for group in before.groups}
    if not before.metric.endswith("_difference") or not before.plain:
        return
    for group in after.groups:
        if group.group in earlier:
            past = earlier[group.group]
            shared |= {"metric": before.metric.removesuffix("_difference"), "group": group.group, "better": "none"}
            yield _change((past.value, past.interval), (group.value, group.interval), shared, undecided=undecided)


def _change(
    before: tuple[float | None, Interval | None],
    after: tuple[float | None, Interval | None],
    shared: Mapping[str, Any],
    *,
    undecided: bool,
) -> Change:
    interval = _interval(before, after)
    outcome = "undecided" if interval is None or undecided else outcome_of(*interval, shared["better"])
    return Change(before=before[0], after=after[0], interval=interval, outcome=outcome, **shared)


def _interval(
    one: tuple[float | None, Interval | None], other: tuple[float | None, Interval | None]
) -> Interval | None:
    """Return the interval of other minus one for two independent numbers."""
    (x, first), (y, second) = one, other
    if x is None or y is None or first is None or second is None:
        return None
    low = y - x - math.hypot(y - second[0], first[1] - x)
    high = y - x + math.hypot(second[1] - y, x - first[0])
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _subject(report: Report) -> str:
    return f"{report.model.name} on {report.data.name}, {report.data.rows:,} rows"


def _carried(before: Report, after: Report) -> str:
    """Say which column's part of each divided gap changed most."""
    earlier = {finding.key: finding for finding in before.findings if finding.metric == "attribution"}
    sentences = []
    for later in after.findings:
        if later.key not in earlier or later.parameters.get("of") == "score":
            continue
        then = {part["column"]: part["value"] for part in earlier[later.key].evidence.get("columns", ())}
        now = {part["column"]: part["value"] for part in later.evidence.get("columns", ()) if part["column"] in then}
        if now:
            name = max(now, key=lambda column: abs(now[column] - then[column]))
            whose = f"the gap of {later.groups[0].group if later.groups else later.sensitive}"
            sentences.append(f"{name} carries {now[name]:+.3f} of {whose}, {then[name]:+.3f} in {before.data.name}. ")
    return "".join(sentences)


def _notes(before: Report, after: Report, shared: int) -> Iterator[str]:
    yield (
        f"Before: {before.model.name} on {before.data.name}, {before.data.rows:,} rows; after: {after.model.name} on "
        f"{after.data.name}, {after.data.rows:,} rows."
    )
    if before.data.sha256 == after.data.sha256:
        yield (
            "Both reports are about the same rows, and their intervals are taken as independent: compare the models "
            "themselves on these rows for intervals that pair them, which are narrower."
        )
    alone = len(before.findings) + len(after.findings) - 2 * shared
    if alone:
        yield f"{alone} numbers are in one of the reports only and are left out."
