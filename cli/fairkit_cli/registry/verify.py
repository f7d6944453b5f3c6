"""What `fairkit registry verify` looks at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit_cli.fields import as_options
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations
    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry

_NO_KEY = (
    "name the public key that you trust with --key; no alias of the model trusts one, "
    "and a key that comes along never counts"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What held and what did not; `verdict` is the newest good certificate's, or the alias's policy's."""

    subject: str
    held: tuple[str, ...]
    failed: tuple[str, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    verdict: str | None = None

    @property
    def code(self) -> int:
        """The exit code: a verification that failed, else the verdict."""
        if self.failed:
            return FAILED
        code = exit_code(self.verdict)
        return INCONCLUSIVE if code == PASSED and self.doubts else code

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "subject": self.subject,
            "verified": not self.failed,
            "held": list(self.held),
            "failed": list(self.failed),
            "notes": list(self.notes),
            "doubts": list(self.doubts),
            "verdict": self.verdict,
        }

    def lines(self) -> list[str]:
        """Return the lines for people."""
        lines = [f"{self.subject}: {'refused' if self.failed else 'verified'}, verdict {self.verdict or 'none'}"]
        lines += [f"  holds: {text}" for text in self.held]
        lines += [f"  does not hold: {text}" for text in self.failed]
        lines += [f"  cannot be decided: {text}" for text in self.doubts]
        lines += [f"  note: {text}" for text in self.notes]
        return lines


def version(registry: Registry, reference: str, keys: Sequence[PublicKey]) -> Outcome:
    """Check a version in a registry."""
    from fairkit_registry import names
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.exchange.describe import pinned_keys
    from fairkit_registry.promotion.valid import of_registry

    wanted = names.parse(reference)
    registered = registry.version(wanted, fallen=True)
    trusted = list(keys) or pinned_keys(registry, registered.name, wanted.alias)
    if not trusted:
        raise FairkitError(_NO_KEY)
    try:
        revocations = of_registry(registry, trusted)
    except VerificationError as error:
        return Outcome(subject=registered.reference, held=(), failed=(as_options(str(error)),))
    confirmed, failed, good, notes = _files(registry, registered, trusted, revocations)
    verdict = _newest_verdict(good)
    if wanted.alias is not None:
        verdict, told = _against_policy(registry, registered, wanted.alias)
        notes += told
        failed += _probation(registry, registered, wanted.alias)
    return Outcome(
        subject=registered.reference,
        held=tuple(confirmed),
        failed=tuple(failed),
        notes=tuple(notes),
        doubts=tuple(revocations.overdue(datetime.now(UTC))),
        verdict=verdict,
    )


def _files(
    registry: Registry, registered: Version, trusted: Sequence[PublicKey], revocations: Revocations
) -> tuple[list[str], list[str], list[Certificate], list[str]]:
    """Hash the model again and verify its certificates: what held, what did not, which count, and notes.

    A certificate by somebody else is a note where another one holds; a damaged file never is.
    """
    from fairkit_registry.errors import CertificateError, RegistryError
    from fairkit_registry.evidence.certificate import verify

    confirmed: list[str] = []
    failed: list[str] = []
    others: list[str] = []
    good: list[Certificate] = []
    unusual: list[str] = []
    problem = registry.blobs.problem(registered.model)
    if problem is None:
        confirmed.append(f"the model's file has SHA-256 {registered.model}")
    else:
        failed.append(problem)
    for digest in registered.certificates:
        try:
            certificate = verify(
                registry.certificate(digest), trusted, model_sha256=registered.model, revocations=revocations
            )
        except CertificateError as error:
            others.append(f"certificate {digest[:12]}: {as_options(str(error))}")
            continue
        except RegistryError as error:
            failed.append(f"certificate {digest[:12]}: {as_options(str(error))}")
            continue
        good.append(certificate)
        confirmed.append(_vouched(certificate))
        unusual += [f"certificate {digest[:12]}: setting {text}" for text in certificate.unusual_settings]
    if not registered.certificates:
        failed.append(f"{registered.reference} has no certificate: nobody vouches for it")
    return (confirmed, failed, good, [*others, *unusual]) if good else (confirmed, [*failed, *others], good, [])


def _against_policy(registry: Registry, found: Version, alias: str) -> tuple[str, list[str]]:
    from fairkit_registry.promotion.run import evaluate

    decision = evaluate(registry, found.reference, alias)
    return decision.verdict, [f"policy of {alias}: {one.kind}: {as_options(one.text)}" for one in decision.reasons]


def _probation(registry: Registry, registered: Version, alias: str) -> list[str]:
    """Return that the alias's probation has ended without success; nothing where it has not."""
    from fairkit_cli.registry.probation import sentence

    pointer = registry.alias(registered.name, alias)
    state = None if pointer is None else registry.probation(pointer)
    return [sentence(state)] if state is not None and state.state == "fallen" else []


def archive(path: Path, keys: Sequence[PublicKey]) -> Outcome:
    """Check an exported archive without a registry."""
    import tempfile

    from fairkit_registry.errors import ArchiveError, CertificateError, RegistryError
    from fairkit_registry.exchange.importing import look_into

    if not keys:
        raise FairkitError(_NO_KEY)
    try:
        with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
            contents = look_into(path, keys, Path(scratch))
    except (ArchiveError, CertificateError, RegistryError) as error:
        return Outcome(subject=str(path), held=(), failed=(as_options(str(error)),))
    confirmed = [
        f"{one.origin}: model intact, signed by "
        + ", ".join(sorted({keyid[:16] for certificate in one.certificates for keyid in certificate.keyids}))
        + f", verdict {one.verdict}"
        for one in contents
    ]
    verdicts = {one.verdict for one in contents}
    worst = next((v for v in ("fail", "inconclusive", "pass") if v in verdicts), None)
    return Outcome(subject=str(path), held=tuple(confirmed), failed=(), verdict=worst)


def _vouched(one: Certificate) -> str:
    keys = ", ".join(keyid[:16] for keyid in one.keyids)
    return f"certificate {one.sha256[:12]}: signed by {keys}, about this model, verdict {one.report.verdict}"


def _newest_verdict(good: Sequence[Certificate]) -> str | None:
    newest = max(good, key=lambda one: one.audited_at, default=None)
    return None if newest is None else newest.report.verdict
