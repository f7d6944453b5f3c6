"""Signed checkpoints of a log (C2SP tlog-checkpoint, signed-note) and proofs about it (tlog-proof, tlog-witness).

A checkpoint says how many events a registry's log has and what its Merkle root is. An entry of the tree is the digest
of an event, 32 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit_registry import merkle
from fairkit_registry.errors import CertificateError, KeyFileError, VerificationError
from fairkit_registry.evidence.dsse import encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.signers import Signer

LARGEST = 1 << 20
PROOF = "c2sp.org/tlog-proof@v1"
_ED25519 = b"\x01"
_RAW = 32
_ORIGIN = re.compile(r"[^\s+]{1,255}")
SIZE = re.compile(r"0|[1-9][0-9]{0,14}")
_SIGNED = "\n\n\u2014 "


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The head of a log: its name, the number of its entries, its Merkle root. `text` is what was signed."""

    origin: str
    size: int
    root: bytes
    text: str

    @property
    def shown(self) -> str:
        """What people are told of it."""
        return f"{self.origin}, {self.size} events, root {self.root.hex()[:16]}"


def check_origin(origin: str) -> str:
    """Return the name of a log back if it may be one."""
    if not _ORIGIN.fullmatch(origin) or not origin.isprintable():
        raise CertificateError(
            f"{origin!r} is no name for a log: up to 255 characters without blanks and '+', as in example.org/models"
        )
    return origin


def entries(digests: Sequence[str]) -> list[bytes]:
    """Return the hashes of the tree's entries, given the digests of the events, the oldest first."""
    return [merkle.leaf(bytes.fromhex(digest)) for digest in digests]


def _raw(key: PublicKey) -> bytes:
    if key.kind != "ed25519":
        raise KeyFileError(
            f"checkpoints are signed with ed25519, which all witnesses read; this key is {key.kind}: make one with "
            "fairkit key new PATH"
        )
    return base64.b64decode("".join(key.pem.splitlines()[1:-1]))[-_RAW:]


def _hint(name: str, key: PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + _raw(key)).digest()[:4]


def verifier_key(origin: str, key: PublicKey) -> str:
    """Return the key as tools for signed notes write it: ``name+hash+base64``."""
    return f"{origin}+{_hint(origin, key).hex()}+{encoded(_ED25519 + _raw(key))}"


def sign(origin: str, leaves: Sequence[bytes], signer: Signer) -> str:
    """Return the signed checkpoint of a log."""
    check_origin(origin)
    hint = _hint(origin, signer.public)
    text = f"{origin}\n{len(leaves)}\n{encoded(merkle.root(leaves))}\n"
    return f"{text}\n\u2014 {origin} {encoded(hint + signer.sign(text.encode()))}\n"


def is_note(raw: bytes) -> bool:
    """Tell whether bytes look like a signed checkpoint."""
    return _SIGNED.encode() in raw[:LARGEST] and raw[:1] not in (b"{", b"[") and not _is_proof(raw)


def _is_proof(raw: bytes) -> bool:
    return raw.startswith((PROOF.encode(), b"old "))


def parse(raw: bytes | str, *, where: str = "the checkpoint") -> Checkpoint:
    """Read a checkpoint without asking who signed it."""
    try:
        whole = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        text, blank, _ = whole.rpartition("\n\n")
        origin, size, root, *_ = text.split("\n")
        if not blank or not SIZE.fullmatch(size) or not _ORIGIN.fullmatch(origin):
            raise ValueError(size)
        return Checkpoint(origin=origin, size=int(size), root=read_hash(root), text=f"{text}\n")
    except (UnicodeDecodeError, ValueError):
        raise CertificateError(f"{where} is no signed checkpoint of a log (C2SP tlog-checkpoint)") from None


def verify(
    raw: bytes | str, trusted: Sequence[PublicKey], *, where: str = "the checkpoint", origin: str | None = None
) -> Checkpoint:
    """Check that a trusted key signed a checkpoint in the name of its log."""
    checkpoint = parse(raw, where=where)
    if origin not in (None, checkpoint.origin):
        raise VerificationError(f"{where} is of the log {checkpoint.origin!r}, not of {origin!r}")
    whole = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    for line in whole.rpartition("\n\n")[2].splitlines():
        dash, name, signature = [*line.split(" "), "", ""][:3]
        if dash != "\u2014" or name != checkpoint.origin:
            continue  # of a witness, who vouches for having seen it
        signed = _signature(signature)
        for key in trusted:
            if key.kind == "ed25519" and signed[:4] == _hint(name, key):
                if key.verifies(signed[4:], checkpoint.text.encode()):
                    return checkpoint
                raise VerificationError(f"{where} was changed: its signature does not hold")
    raise VerificationError(f"{where} is not signed by a key that you trust")


def _signature(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def read_hash(text: str) -> bytes:
    """Return a hash from its base64; ValueError where it is none."""
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(text) from None
    if len(found) != _RAW:
        raise ValueError(text)
    return found


def check_follows(head: Checkpoint, leaves: Sequence[bytes], *, where: str) -> None:
    """Refuse a log that does not continue a checkpoint of it."""
    if head.size > len(leaves):
        raise VerificationError(
            f"the log has {len(leaves)} events, and {where} has {head.size}: the log was cut, or an older one is here"
        )
    if merkle.root(leaves[: head.size]) != head.root:
        raise VerificationError(
            f"the log's first {head.size} events are not those of {where}: it was rewritten, or it has two histories"
        )


def forked(one: Checkpoint, other: Checkpoint) -> VerificationError:
    """Return the error for two signed checkpoints of one log and one size: the log has two histories."""
    return VerificationError(
        f"the log {one.origin} has two histories: its key has signed two roots of {one.size} events, "
        f"{one.root.hex()[:16]} and {other.root.hex()[:16]}. Keep both files: they prove it"
    )
