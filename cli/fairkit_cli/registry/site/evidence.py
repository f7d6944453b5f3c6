"""What a page says of a certificate: whether it holds, its verdict, and the numbers that people look at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.reading import disparities, performance
from fairkit_cli.fields import as_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.reading import Headlines
    from fairkit.results.report import Report
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations

Numbers = list[Any]
"""Title, value, ends of the interval (None where there is none), better (``lower``, ``higher``, ``none``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A certificate on a page."""

    digest: str  # of the file
    holds: bool | None
    why: str  # why not, in words
    told: Mapping[str, Any]  # what it says; empty where it cannot be read

    @property
    def verdict(self) -> str | None:
        """The verdict that was signed."""
        return self.told.get("verdict")

    @property
    def audited(self) -> str:
        """When, as the signer says."""
        return str(self.told.get("audited", ""))


def look(
    raw: bytes, digest: str, model: str, trusted: Sequence[PublicKey], revocations: Revocations, declared: Headlines
) -> Evidence:
    """Check a certificate about a model, and take from it what a page shows; `declared` says what comes first."""
    from fairkit_registry.errors import CertificateError, VerificationError
    from fairkit_registry.evidence import certificate as certificates

    why, holds = "", None
    try:
        if trusted:
            certificate = certificates.verify(raw, trusted, model_sha256=model, revocations=revocations, full=False)
            holds = True
        else:
            certificate = certificates.read(raw)
            why = "no alias of the model trusts a key, so no signature was checked"
    except CertificateError as error:
        holds, why = False, as_options(str(error))
        try:
            certificate = certificates.read(raw)
            if isinstance(error, VerificationError) and certificate.model_sha256 != model:
                return Evidence(digest=digest, holds=False, why=why, told={})
        except CertificateError:
            return Evidence(digest=digest, holds=False, why=why, told={})
    return Evidence(digest=digest, holds=holds, why=why, told=_told(certificate, declared))


def _told(certificate: Certificate, declared: Headlines) -> dict[str, Any]:
    report = certificate.report
    shown = [*performance(report, declared), *disparities(report, declared)]
    return {
        "verdict": report.verdict,
        "audited": f"{certificate.audited_at:%Y-%m-%d %H:%M}",
        "statement": certificate.statement_sha256,
        "keys": [keyid[:16] for keyid in certificate.keyids],
        "data": [report.data.name, report.data.sha256, report.data.rows],
        "confidence": report.confidence,
        "made_by": None if certificate.mitigation is None else str(certificate.mitigation.get("plugin")),
        "unusual": certificate.unusual_settings,
        "locked": certificate.policy_lock is not None,
        "rules": [_rule(report, place) for place in range(len(report.policy))],
        "numbers": [_numbers(one) for one in shown],
    }


def _rule(report: Report, place: int) -> list[Any]:
    rule = report.policy[place]
    title = rule.metric if rule.place is None else f"{rule.metric} · {rule.place}"
    return [title, *(rule.to_dict().get(side) for side in ("max", "min")), rule.verdict, as_options(rule.reason)]


def _numbers(found: Any) -> Numbers:
    title = found.metric if found.sensitive is None else f"{found.metric} · {found.place}"
    low, high = found.interval or (None, None)
    return [title, found.value, low, high, found.better]
