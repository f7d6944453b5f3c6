"""Proofs about a log: an event is in it (C2SP tlog-proof), or it was only added to (as tlog-witness takes it)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit_registry import merkle
from fairkit_registry.errors import CertificateError, VerificationError
from fairkit_registry.evidence.checkpoints import PROOF, SIZE, read_hash
from fairkit_registry.evidence.dsse import encoded
from fairkit_registry.jsonio import StrictJsonError, canonical, fingerprint, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from fairkit_registry.evidence.checkpoints import Checkpoint

_MOST_HASHES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """A proof that an event is in a log, read and not checked."""

    event: Mapping[str, Any]
    index: int
    hashes: tuple[bytes, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consistency:
    """A proof that a log went on from an older size, read and not checked."""

    old: int
    hashes: tuple[bytes, ...]
    note: str


def prove_event(event: Mapping[str, Any], leaves: Sequence[bytes], note: str) -> str:
    """Return the proof that an event is in the log of a checkpoint over these entries (C2SP tlog-proof)."""
    body = canonical({key: value for key, value in event.items() if key != "digest"})
    index = int(event["seq"]) - 1
    hashes = "".join(f"{encoded(one)}\n" for one in merkle.inclusion(leaves, index))
    return f"{PROOF}\nextra {encoded(body)}\nindex {index}\n{hashes}\n{note}"


def prove_growth(old: int, leaves: Sequence[bytes], note: str) -> str:
    """Return the proof that the log of a checkpoint goes on from an older size, as witnesses take it (tlog-witness)."""
    hashes = "".join(f"{encoded(one)}\n" for one in merkle.consistency(leaves, old))
    return f"old {old}\n{hashes}\n{note}"


def read_proof(raw: bytes) -> Inclusion | Consistency:
    """Read a proof of either kind, and check nothing of it."""
    try:
        head, _, note = raw.decode("utf-8").partition("\n\n")
        lines = head.split("\n")
        if lines[0] != PROOF:
            kind, old = lines[0].split(" ")
            if kind != "old" or not SIZE.fullmatch(old):
                raise ValueError(kind)
            return Consistency(old=int(old), hashes=_hashes(lines[1:]), note=note)
        (extra, body), (index, place) = (line.split(" ") for line in lines[1:3])
        if (extra, index) != ("extra", "index") or not SIZE.fullmatch(place):
            raise ValueError(place)
        event = read_object(base64.b64decode(body, validate=True))
        return Inclusion(event=event, index=int(place), hashes=_hashes(lines[3:]), note=note)
    except (UnicodeDecodeError, ValueError, StrictJsonError):
        raise CertificateError("it is no proof about a log (C2SP tlog-proof, or a request to a witness)") from None


def _hashes(lines: Sequence[str]) -> tuple[bytes, ...]:
    if len(lines) > _MOST_HASHES:
        raise ValueError(len(lines))
    return tuple(read_hash(line) for line in lines)


def check_inclusion(proof: Inclusion, head: Checkpoint) -> None:
    """Refuse a proof that does not show its event in the log."""
    entry = merkle.leaf(bytes.fromhex(fingerprint(dict(proof.event))))
    if not merkle.included(entry, proof.index, head.size, proof.hashes, head.root):
        raise VerificationError(f"the event is not number {proof.index + 1} of the log {head.shown}: it was changed")


def check_growth(proof: Consistency, old: Checkpoint, new: Checkpoint) -> None:
    """Refuse a proof that does not show that one checkpoint's log became the other's."""
    shown = (old.size, new.size, old.root, new.root)
    if old.origin != new.origin or proof.old != old.size or not merkle.consistent(*shown, proof.hashes):
        raise VerificationError(
            f"the log {new.shown} does not continue the log {old.shown}: it has two histories, or the proof is of "
            "another log"
        )
