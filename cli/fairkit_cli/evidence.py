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

    @property
    def when(self) -> str:
        """When the audit was, and who says so."""
        return f"{self.certificate.audited_at:%Y-%m-%d %H:%M} UTC, as the signer says"


def read_evidence(paths: Sequence[Path], keys: Sequence[Path]) -> list[Shown]:
    """Read and check certificates, the oldest first."""
    from fairkit_registry.evidence.keys import load_public

    trusted = [load_public(path) for path in keys]
    return sorted((_checked(path, trusted) for path in paths), key=lambda one: one.certificate.audited_at)


def _checked(path: Path, trusted: Sequence[PublicKey]) -> Shown:
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import check, read, read_file

    raw = read_file(path)
    found = check(raw, trusted or None)
    try:
        certificate = found.certificate or read(raw)
    except CertificateError as unreadable:
        raise CertificateError(f"{path}: {unreadable}") from None
    failed = None if found.failed is None else as_options(found.failed).rstrip(".")
    return Shown(name=path.name, certificate=certificate, failed=failed, keyed=bool(trusted))


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
