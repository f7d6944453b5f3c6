"""What goes wrong with keys, certificates and the registry."""

from __future__ import annotations

from fairkit.errors import FairkitError


class RegistryError(FairkitError, ValueError):
    """A registry that cannot be opened, or a name, version or alias that it does not have."""


class TamperedError(RegistryError):
    """A registry that is not as it was left: its log was cut or rewritten, or its tables were changed."""


class ArchiveError(RegistryError):
    """An archive that is refused: damaged, hostile, or not of the expected form."""


class KeyFileError(FairkitError, ValueError):
    """A key file that cannot be read, or is of a kind that is not accepted."""


class CertificateError(FairkitError, ValueError):
    """A file that is not a certificate at all, or lacks what a certificate must say."""


class VerificationError(CertificateError):
    """A certificate that was read and is refused: signature, model, data or findings do not hold.

    The command line answers it with exit code 1 where it was asked to verify.
    """


class ContradictionError(VerificationError):
    """A certificate by a trusted key whose statement cannot be true: it contradicts itself."""


class RevokedError(VerificationError):
    """A certificate, its model or the key that signed it was revoked."""
