"""Signed statements about tables: an auditor vouches for the rows before anybody audits a model on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence import dsse
from fairkit_registry.evidence.predicate import read_time, time_text
from fairkit_registry.evidence.statement import PAYLOAD_TYPE, read_limited, reading, sign_statement, signers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

TYPE = "https://fairkit.dev/signed-data/v1"
"""The predicate type. It is a name; nothing is ever fetched from it."""

LARGEST = 64 * 1024
"""Bytes of the largest statement that is read."""
_NONE = "no statement about a table"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatement:
    """What a statement about a table says."""

    name: str  # the table: its name, and the digest of its columns, types and values in order
    sha256: str  # the table: its name, and the digest of its columns, types and values in order
    rows: int  # how many it has
    columns: tuple[str, ...]  # their names, in order
    purpose: str  # what the table is for, in the signer's words; empty where nothing was said
    signed_at: datetime  # when, as the signer says
    keyids: tuple[str, ...]  # the trusted keys that signed, or what the file claims where it was only read

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "rows": self.rows,
            "columns": list(self.columns),
            "purpose": self.purpose,
            "signedAt": time_text(self.signed_at),
            "keyids": list(self.keyids),
        }


def sign_table(
    name: str,
    sha256: str,
    rows: int,
    columns: Sequence[str],
    secrets: Sequence[Signer],
    *,
    purpose: str = "",
    signed_at: datetime | None = None,
) -> bytes:
    """Sign a statement about a table."""
    predicate = {
        "rows": rows,
        "columns": list(columns),
        "purpose": purpose,
        "signedAt": time_text(signed_at or datetime.now(UTC)),
    }
    return sign_statement(name, sha256, TYPE, predicate, secrets)


def read_statement(raw: bytes) -> TableStatement:
    """Read what a statement says without asking who says it."""
    envelope = dsse.Envelope.from_bytes(raw)
    return _interpret(envelope, tuple(one.keyid for one in envelope.signatures))


def verify_statement(raw: bytes, trusted: Sequence[PublicKey], *, data_sha256: str) -> TableStatement:
    """Check a statement: signed by a trusted key, and about this table."""
    envelope = dsse.Envelope.from_bytes(raw)
    good = signers_of(envelope, trusted, "the statement about the table")
    table_statement = _interpret(envelope, tuple(key.keyid for key in good))
    if table_statement.sha256 != data_sha256:
        raise VerificationError(
            f"the statement is about another table: it names SHA-256 {table_statement.sha256[:16]}..., the table has "
            f"{data_sha256[:16]}..."
        )
    return table_statement


def read_file(path: str | Path) -> bytes:
    """Read a statement's file."""
    raw = read_limited(Path(path), LARGEST, what="statement", too_large="a statement about a table")
    try:
        read_statement(raw)
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None
    return raw


def _interpret(envelope: dsse.Envelope, keyids: tuple[str, ...]) -> TableStatement:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise CertificateError(f"{_NONE}: its payload type is {envelope.payload_type!r}")
    with reading(envelope, TYPE, _NONE, "; `fairkit sign-data TABLE` makes one") as said:
        (subject,), body = said["subject"], said["predicate"]
        return TableStatement(
            name=_text(subject["name"]),
            sha256=_text(subject["digest"]["sha256"]),
            rows=_count(body["rows"]),
            columns=tuple(map(_text, body["columns"])),
            purpose=_text(body["purpose"]),
            signed_at=read_time(body["signedAt"]),
            keyids=keyids,
        )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is no number of rows")
    return value
