"""`fairkit registry verify`: does the evidence of a version hold, or that of an exported archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.fields import as_options
from fairkit_cli.registry.common import KeysOption, RegistryOption, load_keys, open_registry
from fairkit_cli.terminal.output import FAILED, exit_code, print_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.store.registry import Registry

_NO_KEY = (
    "name the public key that you trust with --key; no alias of the model trusts one, "
    "and a key that comes along never counts"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What held and what did not; `verdict` is the newest good certificate's, or the alias's policy's."""

    subject: str
    held: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: str | None = None

    @property
    def code(self) -> int:
        """The exit code: a verification that failed, else the verdict."""
        return FAILED if self.failed else exit_code(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "subject": self.subject,
            "verified": not self.failed,
            "held": list(self.held),
            "failed": list(self.failed),
            "notes": list(self.notes),
            "verdict": self.verdict,
        }

    def lines(self) -> list[str]:
        """Return the lines for people."""
        lines = [f"{self.subject}: {'refused' if self.failed else 'verified'}, verdict {self.verdict or 'none'}"]
        lines += [f"  holds: {text}" for text in self.held]
        lines += [f"  does not hold: {text}" for text in self.failed]
        lines += [f"  note: {text}" for text in self.notes]
        return lines


def verify(
    reference: Annotated[str, typer.Argument(help="A version, NAME@ALIAS, or an exported archive (a file).")],
    key: KeysOption = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check a version's file and certificates against keys that you trust.

    Without --key the keys count that the model's aliases trust. NAME@ALIAS is also held against the
    alias's policy again.
    """
    from fairkit_cli.names import refuse_remote

    refuse_remote(reference)
    if Path(reference).is_file():
        outcome = _archive(Path(reference), load_keys(key))
    else:
        with open_registry(registry) as store:
            outcome = _version(store, reference, load_keys(key))
    print_as(output_format, outcome.to_dict(), *outcome.lines())
    raise typer.Exit(outcome.code)


def _version(registry: Registry, reference: str, keys: Sequence[PublicKey]) -> Outcome:
    """Check a version in a registry: the model's file, each certificate, and NAME@ALIAS against the policy.

    A certificate by somebody else is a note where another one holds; a damaged file never is.
    """
    from fairkit_registry import names
    from fairkit_registry.errors import RegistryError
    from fairkit_registry.evidence.certificate import check
    from fairkit_registry.exchange.describe import pinned_keys
    from fairkit_registry.promotion.run import evaluate

    wanted = names.parse(reference)
    registered = registry.version(wanted)
    trusted = list(keys) or pinned_keys(registry, registered.name, wanted.alias)
    if not trusted:
        raise FairkitError(_NO_KEY)
    held: list[str] = []
    failed: list[str] = []
    others: list[str] = []
    notes: list[str] = []
    good: list[Certificate] = []
    problem = registry.blobs.problem(registered.model)
    (held if problem is None else failed).append(problem or f"the model's file has SHA-256 {registered.model}")
    revoked = registry.revoked()
    for digest in registered.certificates:
        try:
            found = check(registry.certificate(digest), trusted, model_sha256=registered.model, revoked=revoked)
        except RegistryError as error:
            failed.append(f"certificate {digest[:12]}: {as_options(str(error))}")
            continue
        if found.failed is not None or found.certificate is None:
            others.append(f"certificate {digest[:12]}: {as_options(str(found.failed))}")
            continue
        one = found.certificate
        good.append(one)
        signers = ", ".join(keyid[:16] for keyid in one.keyids)
        held.append(f"certificate {digest[:12]}: signed by {signers}, about this model, verdict {one.report.verdict}")
        notes += [f"certificate {digest[:12]}: setting {text}" for text in one.unusual_settings]
    if not registered.certificates:
        failed.append(f"{registered.reference} has no certificate: nobody vouches for it")
    newest = max(good, key=lambda one: one.audited_at, default=None)
    verdict: str | None = None if newest is None else newest.report.verdict
    if wanted.alias is not None:
        decision = evaluate(registry, registered.reference, wanted.alias)
        verdict = decision.verdict
        notes += [f"policy of {wanted.alias}: {one.kind}: {as_options(one.text)}" for one in decision.reasons]
    told = (failed, [*others, *notes]) if good else ([*failed, *others], notes)
    return Outcome(
        subject=registered.reference, held=tuple(held), failed=tuple(told[0]), notes=tuple(told[1]), verdict=verdict
    )


def _archive(path: Path, keys: Sequence[PublicKey]) -> Outcome:
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
        return Outcome(subject=str(path), failed=(as_options(str(error)),))
    held = [
        f"{one.origin}: model intact, signed by "
        + ", ".join(sorted({keyid[:16] for certificate in one.certificates for keyid in certificate.keyids}))
        + f", verdict {one.verdict}"
        for one in contents
    ]
    verdicts = {one.verdict for one in contents}
    worst = next((v for v in ("fail", "inconclusive", "pass") if v in verdicts), None)
    return Outcome(subject=str(path), held=tuple(held), verdict=worst)
