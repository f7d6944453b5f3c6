"""What an alias asks of the certificate that decides: its age, and the rules that its findings must meet."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fairkit.errors import PolicyError
from fairkit.results.rules import Rule
from fairkit_registry.evidence.predicate import CLOCK_SKEW

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.decision import Case


def check_age(case: Case, deciding: Certificate) -> None:
    """Refuse an audit that is too old, or that lies in the future."""
    limit = case.alias.policy.max_age_days
    age = case.now - deciding.audited_at
    if age < -CLOCK_SKEW:
        case.refuse(f"the certificate's audit lies in the future ({deciding.audited_at.isoformat()})")
    if limit is not None and age > timedelta(days=limit):
        days = age.total_seconds() / 86_400
        case.refuse(f"the certificate is too old: audited {days:.1f} days ago, at most {limit:g} are allowed")


def check_rules(case: Case, deciding: Certificate) -> None:
    """Judge the alias's rules; without any the verdict that was signed must be a pass."""
    from fairkit.results.policy import judge

    policy, report = case.alias.policy, deciding.report
    if not policy.rules:
        _check_own_verdict(case, deciding)
    for record in policy.rules:
        try:
            results, _ = judge([Rule.from_dict(record)], report.findings, confidence=report.confidence)
        except PolicyError as error:
            case.refuse(f"the certificate does not cover what the alias asks for: {error}")
            continue
        rule = results[0]
        if rule.verdict == "fail":
            case.refuse(f"policy: {rule.reason}")
        elif rule.verdict == "inconclusive":
            case.doubt(f"policy, inconclusive: {rule.reason}")
        low = [f.confidence for f in report.findings if f.metric == rule.metric and f.confidence < policy.confidence]
        if low:
            case.refuse(
                f"{rule.metric} was audited at confidence {min(low):g}; the alias asks for {policy.confidence:g}"
            )
        _check_scope(case, deciding, rule.metric, rule.sensitive)


def _check_scope(case: Case, deciding: Certificate, metric: str, sensitive: str | None) -> None:
    """Refuse a rule without a column on a disparity where the signer chose the columns."""
    between = sorted({f.sensitive for f in deciding.report.findings if f.metric == metric and f.sensitive})
    if sensitive is None and between and "data.sensitive" not in case.alias.policy.settings:
        case.refuse(
            f"the alias's rule on {metric} names no column and the alias does not pin data.sensitive, so the "
            f"signer chose which groups count ({', '.join(between)}): name the column in the rule, as in "
            f"--max {metric}:{between[0]}=X, or pin the settings with --like CERT"
        )


def _check_own_verdict(case: Case, deciding: Certificate) -> None:
    report, policy = deciding.report, case.alias.policy
    if report.verdict is None:
        case.refuse(
            "neither the certificate nor the alias has a policy: certify with --max or --min, or give the alias rules"
        )
    elif report.verdict == "fail":
        case.refuse("the certificate says that the model failed its policy: " + _failed(deciding, "fail"))
    elif report.verdict == "inconclusive":
        case.doubt("the certificate says that its policy is inconclusive: " + _failed(deciding, "inconclusive"))
    if report.confidence < policy.confidence:
        case.refuse(f"the audit's confidence is {report.confidence:g}; the alias asks for {policy.confidence:g}")


def _failed(deciding: Certificate, verdict: str) -> str:
    return "; ".join(rule.reason or rule.metric for rule in deciding.report.policy if rule.verdict == verdict)
