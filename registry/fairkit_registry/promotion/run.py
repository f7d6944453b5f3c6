"""May an alias point to a version? All reasons against it at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from fairkit.errors import PolicyError
from fairkit_registry import names
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.settings import read_rule
from fairkit_registry.promotion.compare import ALL, same_data, worse_findings
from fairkit_registry.promotion.policies import AliasPolicy
from fairkit_registry.store.records import Alias, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.store.registry import Registry

Kind = Literal["refused", "inconclusive", "note"]
CLOCK_SKEW = timedelta(minutes=5)
"""How far in the future a certificate's time may lie: clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A sentence about a promotion: a refusal, something that cannot be decided, or a note."""

    kind: Kind
    text: str

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"kind": self.kind, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a version may be what an alias means.

    Attributes
    ----------
    version, alias
        What was asked for.
    reasons
        Everything that speaks against it, and notes.
    certificate
        The certificate that decided, verified; None where none counts or the alias is open.
    """

    version: Version
    alias: Alias
    reasons: tuple[Reason, ...]
    certificate: Certificate | None

    @property
    def verdict(self) -> Literal["pass", "fail", "inconclusive"]:
        """Pass; fail where anything refuses; else inconclusive where something cannot be decided."""
        kinds = {reason.kind for reason in self.reasons}
        return "fail" if "refused" in kinds else "inconclusive" if "inconclusive" in kinds else "pass"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "version": self.version.reference,
            "alias": self.alias.alias,
            "verdict": self.verdict,
            "promoted": self.verdict == "pass",
            "reasons": [reason.to_dict() for reason in self.reasons],
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


@dataclass(slots=True)
class _Case:
    """One promotion while it is looked at."""

    registry: Registry
    version: Version
    alias: Alias
    now: datetime
    reasons: list[Reason] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        self.reasons.append(Reason(kind="refused", text=text))

    def doubt(self, text: str) -> None:
        self.reasons.append(Reason(kind="inconclusive", text=text))

    def note(self, text: str) -> None:
        self.reasons.append(Reason(kind="note", text=text))


def evaluate(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Say whether a version may be promoted, and give every reason against it.

    An alias that was not made has the default policy, which trusts no key: it refuses.

    Parameters
    ----------
    registry
        The registry.
    reference
        The version, such as ``credit@7``.
    alias
        Such as ``production``.
    now
        For the age of certificates; by default the time of the call.

    Raises
    ------
    RegistryError
        There is no such version.
    """
    version = registry.version(reference)
    holder = registry.alias(version.name, names.check_alias(alias))
    if holder is None:
        holder = Alias(
            name=version.name,
            alias=alias,
            policy=AliasPolicy(),
            version=None,
            certificate=None,
            changed_at="",
        )
    case = _Case(registry, version, holder, now or datetime.now(UTC))
    problem = registry.blobs.problem(version.model)
    if problem is not None:
        case.refuse(f"the model file is not what was added: {problem}")
    deciding = None if holder.policy.open else _decide(case)
    if problem is None:
        _ask_plugins(case, deciding)
    return Decision(version=version, alias=holder, reasons=tuple(case.reasons), certificate=deciding)


def promote(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Point an alias to a version if its policy allows it.

    Returns
    -------
    Decision
        The alias points to the version if and only if its `verdict` is ``pass``.

    Raises
    ------
    RegistryError
        There is no such version, or the registry cannot be written.
    """
    while True:
        decision = evaluate(registry, reference, alias, now=now)
        if decision.verdict != "pass":
            return decision
        with registry.index.write() as connection:
            # The decision took time. It counts only for what it was made about: the alias, and the version
            # with these certificates (a newer one would decide).
            still = registry.alias(decision.version.name, alias), registry.version(decision.version.reference)
            if still != (decision.alias, decision.version):
                continue
            counted = None if decision.certificate is None else decision.certificate.sha256
            registry.point(connection, decision.version, decision.alias, counted)
            return decision


def trusted_keys(policy: AliasPolicy) -> list[PublicKey]:
    """Return the keys that an alias trusts."""
    return [parse_public(pem) for pem in policy.keys]


def _decide(case: _Case) -> Certificate | None:
    """Find the certificate that decides, and hold it against the policy."""
    policy = case.alias.policy
    trusted = trusted_keys(policy)
    reference, alias = case.version.reference, case.alias.alias
    if not trusted:
        case.refuse(
            f"the alias {alias!r} trusts no key, so no certificate counts: "
            f"fairkit registry alias {case.version.name} {alias} --key KEY.pub"
        )
    if not case.version.certificates:
        case.refuse(
            f"{reference} has no certificate: make one with `fairkit certify`, and attach it with "
            f"`fairkit registry add {reference} --certificate CERT`"
        )
    found = list(_valid(case, case.version, trusted)) if trusted else []
    if not found:
        return None
    usable = [one for one in found if not policy.data or one.report.data.sha256 in policy.data]
    if not usable:
        given = ", ".join(sorted({one.report.data.sha256[:16] for one in found}))
        case.refuse(
            f"no certificate of {reference} is about the data that {alias!r} asks for "
            f"({', '.join(digest[:16] for digest in policy.data)}); they are about {given}"
        )
    # Of several the newest decides, so that nobody can pick the audit that came out best.
    deciding = max(usable or found, key=lambda one: (one.audited_at, one.sha256))
    _check_age(case, deciding)
    _check_rules(case, deciding)
    if policy.no_worse:
        _check_holder(case, deciding, trusted)
    return deciding


def _valid(case: _Case, version: Version, trusted: Sequence[PublicKey]) -> Iterator[Certificate]:
    """Return the certificates of a version that hold; each that does not becomes a reason against it."""
    refused = []
    good = 0
    for digest in version.certificates:
        try:
            raw = case.registry.certificate(digest)
            yield certificates.verify(raw, trusted, model_sha256=version.model)
            good += 1
        except (CertificateError, RegistryError) as error:
            refused.append(f"certificate {digest[:12]} of {version.reference} does not count: {error}")
    for text in refused:
        (case.note if good else case.refuse)(text)


def _check_age(case: _Case, deciding: Certificate) -> None:
    limit = case.alias.policy.max_age_days
    age = case.now - deciding.audited_at
    if age < -CLOCK_SKEW:
        case.refuse(f"the certificate's audit lies in the future ({deciding.audited_at.isoformat()})")
    if limit is not None and age > timedelta(days=limit):
        days = age.total_seconds() / 86_400
        case.refuse(f"the certificate is too old: audited {days:.1f} days ago, at most {limit:g} are allowed")


def _check_rules(case: _Case, deciding: Certificate) -> None:
    from fairkit.results.policy import judge

    policy, report = case.alias.policy, deciding.report
    if not policy.rules:
        _check_own_verdict(case, deciding)
    for record in policy.rules:
        try:
            results, _ = judge([read_rule(record)], report.findings, confidence=report.confidence)
        except PolicyError as error:
            case.refuse(f"the certificate does not cover what the alias asks for: {error}")
            continue
        rule = results[0]
        if rule.verdict == "fail":
            case.refuse(f"policy: {rule.reason}")
        elif rule.verdict == "inconclusive":
            case.doubt(f"policy, inconclusive: {rule.reason}")
        low = [
            f.confidence
            for f in report.findings
            if f.metric == rule.metric and f.confidence < policy.confidence
        ]
        if low:
            case.refuse(
                f"{rule.metric} was audited at confidence {min(low):g}; the alias asks for "
                f"{policy.confidence:g}"
            )


def _check_own_verdict(case: _Case, deciding: Certificate) -> None:
    report, policy = deciding.report, case.alias.policy
    if report.verdict is None:
        case.refuse(
            "neither the certificate nor the alias has a policy: certify with --max or --min, or give "
            "the alias rules"
        )
    elif report.verdict == "fail":
        case.refuse("the certificate says that the model failed its policy: " + _failed(deciding, "fail"))
    elif report.verdict == "inconclusive":
        case.doubt(
            "the certificate says that its policy is inconclusive: " + _failed(deciding, "inconclusive")
        )
    if report.confidence < policy.confidence:
        case.refuse(
            f"the audit's confidence is {report.confidence:g}; the alias asks for {policy.confidence:g}"
        )


def _failed(deciding: Certificate, verdict: str) -> str:
    return "; ".join(rule.reason or rule.metric for rule in deciding.report.policy if rule.verdict == verdict)


def _check_holder(case: _Case, deciding: Certificate, trusted: Sequence[PublicKey]) -> None:
    held = _holder_certificate(case, trusted)
    if case.alias.version in (None, case.version.version):
        return
    holder = f"{case.version.name}@{case.alias.version}"
    if held is None:
        case.doubt(f"{holder}, which holds the alias now, has no valid certificate to compare with")
        return
    worse, unknown = worse_findings(held.report, deciding.report, case.alias.policy.no_worse)
    measured = {name for f in deciding.report.findings for name in (f.metric, f"{f.metric}:{f.sensitive}")}
    for wanted in case.alias.policy.no_worse:
        if wanted not in measured | {ALL}:
            case.refuse(f"the certificate has no finding {wanted!r}, in which the alias allows nothing worse")
    for pair in worse:
        case.refuse(
            f"worse than {holder} beyond noise: {pair.title} goes from {pair.before:.4g} to "
            f"{pair.after:.4g}, "
            f"difference {_interval(pair.interval)}"
        )
    for pair in unknown:
        case.doubt(f"{pair.title} of {holder} cannot be compared: one side has no value or no interval")
    if not same_data([held.report, deciding.report]):
        case.note(f"the certificates of {holder} and {case.version.reference} are on different data")


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.4g}, {interval[1]:.4g}]"


def _holder_certificate(case: _Case, trusted: Sequence[PublicKey]) -> Certificate | None:
    """Return the newest valid certificate of the current holder."""
    if case.alias.version is None:
        return None
    holder = case.registry.version(f"{case.version.name}@{case.alias.version}")
    quiet = _Case(case.registry, holder, case.alias, case.now)
    found = [
        one
        for one in _valid(quiet, holder, trusted)
        if not case.alias.policy.data or one.report.data.sha256 in case.alias.policy.data
    ]
    return max(found, key=lambda one: (one.audited_at, one.sha256), default=None)


def _ask_plugins(case: _Case, deciding: Certificate | None) -> None:
    from fairkit_registry.promotion.checks import ask

    policy = case.alias.policy
    held = _holder_certificate(case, trusted_keys(policy)) if policy.keys else None
    for reason in ask(case.registry, case.version, case.alias, deciding, held):
        (case.refuse if reason.veto else case.note)(reason.text)
