"""Is a version worse than the one that the alias points to now?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.promotion.compare import ALL, other_supports, same_data, worse_findings

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.decision import Case


def check_current(case: Case, deciding: Certificate, current_certificate: Certificate | None) -> None:
    """Refuse what is worse than the current version, significantly, in a metric that the alias names."""
    if case.alias.version in (None, case.version.version):
        return
    current = f"{case.version.name}@{case.alias.version}"
    if current_certificate is None:
        case.doubt(f"{current}, which the alias means now, has no valid certificate to compare with")
        return
    worse, unknown = worse_findings(current_certificate.report, deciding.report, case.alias.policy.no_worse)
    measured = {name for f in deciding.report.findings for name in (f.metric, f"{f.metric}:{f.sensitive}")}
    for wanted in case.alias.policy.no_worse:
        if wanted not in measured | {ALL}:
            case.refuse(f"the certificate has no finding {wanted!r}, in which the alias allows nothing worse")
    for pair in worse:
        case.refuse(
            f"significantly worse than {current}: {pair.title} goes from {pair.before:.4g} to "
            f"{pair.after:.4g}, difference {_interval(pair.interval)}"
        )
    for pair in unknown:
        case.doubt(f"{pair.title} of {current} cannot be compared: one side has no value or no interval")
    for told in other_supports(current_certificate.report, deciding.report):
        case.note(told)
    if not same_data([current_certificate.report, deciding.report]):
        case.note(f"the certificates of {current} and {case.version.reference} are on different data")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.4g}, {interval[1]:.4g}]"
