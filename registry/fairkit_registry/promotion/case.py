"""One promotion while it is looked at, and the sentences about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from datetime import datetime

    from fairkit.results.findings import Finding, Interval
    from fairkit.results.report import Report
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.index import Alias, Version
    from fairkit_registry.store.registry import Registry


Kind = Literal["refused", "inconclusive", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A sentence about a promotion: a refusal, something that cannot be decided, or a note."""

    kind: Kind
    text: str

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"kind": self.kind, "text": self.text}


@dataclass(slots=True)
class Case:
    """One promotion while it is looked at."""

    registry: Registry
    version: Version
    alias: Alias
    now: datetime
    revoked: Mapping[str, str] = field(default_factory=dict)
    current: Certificate | None = None  # the newest valid certificate of the version that the alias points to
    reasons: list[Reason] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        """Add a refusal."""
        self.reasons.append(Reason(kind="refused", text=text))

    def doubt(self, text: str) -> None:
        """Add something that cannot be decided."""
        self.reasons.append(Reason(kind="inconclusive", text=text))

    def note(self, text: str) -> None:
        """Add a note."""
        self.reasons.append(Reason(kind="note", text=text))


# Two reports side by side: what is significantly worse.


ALL = "all"
"""Stands for every finding that has a direction and an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A finding of the earlier report, and the later one's."""

    title: str  # as people write it: ``demographic_parity_difference:sex``
    before: float | None
    after: float | None  # None where the later report does not have it
    interval: Interval | None  # of after - before; None where one side has no value or no interval


def difference_interval(before: Finding, after: Finding, confidence: float) -> Interval | None:
    """Return an interval of after - before from the two findings' own intervals.

    The two estimates are taken as independent and their errors as normal on each side of the value; the
    margins to the near bounds add in squares (the method of variance estimates recovery)::

        lower = d - sqrt((after - after_low)^2 + (before_high - before)^2)
        upper = d + sqrt((after_high - after)^2 + (before - before_low)^2)

    On the same rows the two errors go up and down together, so this interval is then wider than it
    need be: it is conservative.
    """
    first, second = _margins(before, confidence), _margins(after, confidence)
    if first is None or second is None or before.value is None or after.value is None:
        return None
    difference = after.value - before.value
    return difference - math.hypot(second[0], first[1]), difference + math.hypot(second[1], first[0])


def _margins(finding: Finding, confidence: float) -> tuple[float, float] | None:
    """Return how far the interval reaches below and above the value; None without a value or an interval."""
    if finding.value is None or finding.interval is None:
        return None
    quantile = NormalDist().inv_cdf
    wider = quantile(0.5 + confidence / 2) / quantile(0.5 + finding.confidence / 2)
    scale = 1.0 if confidence == finding.confidence else wider
    low, high = finding.interval
    return scale * max(0.0, finding.value - low), scale * max(0.0, high - finding.value)


def worse_findings(before: Report, after: Report, wanted: Sequence[str] = (ALL,)) -> tuple[list[Pair], list[Pair]]:
    """Find what is significantly worse in the later report, and what cannot be compared.

    With k findings that have a direction, each difference gets an interval of confidence
    1 - (1 - confidence) / k (Bonferroni), so that at most a share of 1 - confidence of the comparisons of
    two equal models names anything at all.
    """
    earlier = list(_wanted(before, wanted))
    later = {finding.key: finding for finding in _wanted(after, wanted)}
    level = 1 - (1 - after.confidence) / max(1, len(earlier))
    worse, unknown = [], []
    for one in earlier:
        counterpart = later.get(one.key)
        interval = None if counterpart is None else difference_interval(one, counterpart, level)
        title = one.metric if one.sensitive is None else f"{one.metric}:{one.sensitive}"
        pair = Pair(
            title=title, before=one.value, after=None if counterpart is None else counterpart.value, interval=interval
        )
        if interval is None:
            unknown.append(pair)
        elif interval[0] > 0 if one.better == "lower" else interval[1] < 0:
            worse.append(pair)
    return worse, unknown


def _wanted(report: Report, wanted: Sequence[str]) -> Iterator[Finding]:
    for finding in report.findings:
        named = not {finding.metric, f"{finding.metric}:{finding.sensitive}"}.isdisjoint(wanted)
        if finding.better != "none" and (named or (ALL in wanted and finding.interval is not None)):
            yield finding


# The model as it is served: rows that may meet, outputs that nobody audited, inputs never fed, ways never tried.


def check_serving(case: Case, deciding: Certificate) -> None:
    """Refuse what the audit could not show of the served model.

    That rows stay apart is shown again, here and from the registered file: no certificate is believed about it.
    """
    from fairkit_onnx.plain import doubt

    serving = deciding.report.model.serving
    path = case.registry.blobs.path(case.version.model)
    try:
        why = doubt(serving.get("rows"), path.read_bytes(), path.parent)
    except OSError as error:
        why = f"the file cannot be read ({error.strerror})"
    if why is not None:
        case.refuse(why)
    probed = serving.get("probed")
    if not isinstance(probed, dict) or probed.get("untried"):
        case.refuse("the model was not run again in every other way: audit it again")
    for key, what in (("outputs", "was not audited"), ("inputs", "was never fed")):
        named = serving.get(key)
        for name, why in (named if isinstance(named, dict) else {}).items():
            case.refuse(f"the {key[:-1]} {name!r} {what}: {why}")
