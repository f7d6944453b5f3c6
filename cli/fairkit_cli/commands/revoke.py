"""`fairkit revoke`: a signed statement that a certificate, a model or a key counts no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairkit_cli import options as opt
from fairkit_cli.terminal.interrupts import finished
from fairkit_cli.terminal.output import print_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit_registry.evidence.revocations import Entry, RevocationList
    from fairkit_registry.evidence.revoked import Revocations


def revoke(
    *,
    key: Annotated[str, opt.option("--key", "FILE", "Secret key of the issuer: the one that signed, or a revoker's.")],
    insecure_key: opt.InsecureKey = False,
    output: Annotated[
        Path, opt.option("--output", "FILE", "The list; one of the same key that is there is continued.")
    ],
    certificate: Annotated[
        list[Path] | None, opt.option("--certificate", "CERT", "Certificate to revoke (repeatable).")
    ] = None,
    model: Annotated[
        list[Path] | None,
        opt.option("--model", "MODEL.onnx", "Model whose certificates to revoke, also later ones (repeatable)."),
    ] = None,
    public_key: Annotated[
        list[Path] | None,
        opt.option("--public-key", "PUB", "Key to revoke with everything that it signed (repeatable)."),
    ] = None,
    invalid_since: Annotated[
        str | None,
        opt.option(
            "--invalid-since",
            "TIME",
            "Of --public-key: since when its signatures count no longer, as 2026-03-01T12:00Z; older ones that a "
            "timestamp proves go on counting.",
        ),
    ] = None,
    reason: Annotated[str, opt.option("--reason", "TEXT", "Why; it is signed too.")] = "",
    days: Annotated[
        float, opt.option("--next-update", "DAYS", "For how many days the list may be relied on.", min=0)
    ] = 30,
    output_format: opt.TableFormat = "table",
) -> None:
    """Revoke certificates, models or keys: write the next signed list of a key. Without any, renew the list.

    Hand the list to those who verify: `fairkit verify --revocations FILE`, `fairkit registry revocations FILE`.
    """
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_registry.evidence import revocations
    from fairkit_registry.evidence.revoked import remembered, seen

    (signer,) = load_signers([key], insecure=insecure_key)
    now = datetime.now(UTC)
    since = _since(invalid_since, public_key)
    entries = list(_entries(certificate or (), model or (), public_key or (), reason, now, since))
    check_writable(output)
    trusted = [signer.public]
    known = seen(revocations.read_files([output]), trusted) if output.is_file() else remembered(trusted)
    previous = _own(known)
    raw = revocations.issue(signer, entries, previous=previous, next_update=now + timedelta(days=days), issued_at=now)
    finished()  # an interrupt from here on would leave a list that was written and not remembered
    write_atomic(output, raw)
    made = _own(seen([(str(output), raw)], trusted))
    assert made is not None  # noqa: S101 -- it was just taken
    new = len(made.entries) - len(previous.entries if previous else ())
    print_as(
        output_format,
        made.to_dict() | {"list": str(output)},
        f"{output}: revocation list number {made.sequence} of key {made.issuer[:16]}, {len(made.entries)} "
        f"revoked ({new} new), next update by {made.next_update:%Y-%m-%d %H:%M} UTC",
    )


def _own(known: Revocations) -> RevocationList | None:
    return next(iter(known.lists), None)


def _entries(
    certificates: list[Path] | tuple[()],
    models: list[Path] | tuple[()],
    keys: list[Path] | tuple[()],
    reason: str,
    now: datetime,
    since: datetime | None,
) -> Iterator[Entry]:
    from fairkit_registry.blobs import hash_file
    from fairkit_registry.evidence.certificate import read, read_file
    from fairkit_registry.evidence.keys import load_public
    from fairkit_registry.evidence.revocations import Entry

    for path in certificates:
        digest = read(read_file(path)).statement_sha256
        yield Entry(kind="certificate", sha256=digest, reason=reason, at=now)
    for path in models:
        yield Entry(kind="model", sha256=hash_file(path), reason=reason, at=now)
    for path in keys:
        yield Entry(kind="key", sha256=load_public(path).keyid, reason=reason, at=now, invalid_since=since)


def _since(text: str | None, keys: list[Path] | None) -> datetime | None:
    """Read the time since when a key is invalid."""
    from fairkit.errors import ParameterError

    if text is None:
        return None
    if not keys:
        raise ParameterError("--invalid-since is about a key: name it with --public-key")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ParameterError(f"--invalid-since {text!r} is no time with its zone; write 2026-03-01T12:00Z")
    return found.astimezone(UTC)
