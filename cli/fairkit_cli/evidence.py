"""Certificates that are read to be shown: each is checked first, and what does not hold is kept with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_cli.fields import as_options

if TYPE_CHECKING:
    from fairkit.results.report import Report
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A certificate and what its check said."""

    name: str  # the file's name
    certificate: Certificate  # what it says
    failed: str | None  # why it does not hold; None where it does, as far as it was checked
    keyed: bool  # whether a trusted key was named, so that the signature was checked
    doubts: tuple[str, ...] = ()  # what is not known about its revocation, in sentences

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
        said = [f"Signed by {keys}, a key that was named as trusted."]
        return " ".join([*said, *(f"{doubt[:1].upper()}{doubt[1:]}." for doubt in self.doubts)])

    @property
    def when(self) -> str:
        """When the audit was, and who says so."""
        return f"{self.certificate.audited_at:%Y-%m-%d %H:%M} UTC, as the signer says"


def read_evidence(
    paths: Sequence[Path], keys: Sequence[Path], *, revocations: Revocations | str | None = None
) -> list[Shown]:
    """Read and check certificates, the oldest first."""
    from fairkit_registry.evidence.keys import load_public

    trusted = [load_public(path) for path in keys]
    found = [_checked(path, trusted, revocations) for path in paths]
    return sorted(found, key=lambda one: one.certificate.audited_at)


def _checked(path: Path, trusted: Sequence[PublicKey], revocations: Revocations | str | None) -> Shown:
    from datetime import UTC, datetime

    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import check_statement, read, read_file, verify

    raw = read_file(path)
    try:
        if isinstance(revocations, str):
            raise CertificateError(revocations)
        if trusted:
            held = verify(raw, trusted, revocations=revocations)
            doubts = () if revocations is None else tuple(revocations.overdue(datetime.now(UTC)))
            return Shown(name=path.name, certificate=held, failed=None, keyed=True, doubts=doubts)
        certificate = read(raw, full=True)
        check_statement(certificate.report, certificate.settings)
    except CertificateError as error:
        try:
            certificate = read(raw, full=True)
        except CertificateError as unreadable:
            raise CertificateError(f"{path}: {unreadable}") from None
        failed = as_options(str(error)).rstrip(".")
        return Shown(name=path.name, certificate=certificate, failed=failed, keyed=bool(trusted))
    return Shown(name=path.name, certificate=certificate, failed=None, keyed=False)


def stated_report(certificate: Certificate) -> Report:
    """Return a certificate's report as an audit gives it; where it is older, the outcome is that of its settings."""
    from fairkit.data.roles import value_text
    from fairkit_registry.evidence.charts import expanded

    report, told = expanded(certificate.report), certificate.settings.get("data", {})
    label, favorable = told.get("label"), told.get("favorable")
    if report.data.label is not None or not isinstance(label, str):
        return report
    outcome = None if favorable is None else value_text(favorable)
    data = dataclasses.replace(report.data, label=label, favorable=outcome)
    return dataclasses.replace(report, data=data)
