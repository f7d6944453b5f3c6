"""Answers to the cases of the conformance suite: what this verifier says of each, as a JSON object.

Any verifier can answer: it reads cases as JSON lines and prints one JSON line for each (docs/reference/conformance.md).
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError
from fairkit_registry.errors import CertificateError, ContradictionError, KeyFileError, RevokedError, VerificationError
from fairkit_registry.evidence import certificate, checkpoints, logproofs, tables
from fairkit_registry.evidence.heartbeats import read_heartbeats
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.locks import verify_lock
from fairkit_registry.evidence.revocations import read as read_revocations
from fairkit_registry.evidence.revoked import Revocations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairkit_registry.evidence.keys import PublicKey

Answer = dict[str, Any]
VERIFIED, REFUSED, UNDECIDED, UNSUPPORTED = "verified", "refused", "undecided", "unsupported"


def answers(lines: Iterable[str]) -> Iterator[str]:
    """Yield a line of JSON for each case of a stream of JSON lines; empty lines are passed over."""
    for line in lines:
        if line.strip():
            yield json.dumps(answer(json.loads(line)), sort_keys=True)


def answer(case: Mapping[str, Any]) -> Answer:
    """Return this verifier's answer to a case."""
    check = _KINDS.get(str(case.get("kind")))
    if check is None:
        return {"answer": UNSUPPORTED}
    try:
        return check(case["input"])
    except CertificateError as error:
        return {"answer": REFUSED, "because": _reason(error), "message": str(error)}
    except KeyFileError as error:
        return {"answer": REFUSED, "because": "key", "message": str(error)}
    except FairkitError as error:  # a library that comes with an extra
        return {"answer": UNSUPPORTED, "message": str(error)}


def _reason(error: CertificateError) -> str:
    if isinstance(error, ContradictionError | RevokedError):
        return "contradiction" if isinstance(error, ContradictionError) else "revoked"
    return "signature" if isinstance(error, VerificationError) else "form"


def _bytes(given: Mapping[str, Any], name: str = "file") -> bytes:
    try:
        return base64.b64decode(given[name], validate=True)
    except (KeyError, TypeError, binascii.Error):
        raise CertificateError(f"the case has no {name} in base64") from None


def _trusted(given: Mapping[str, Any], name: str = "keys") -> list[PublicKey]:
    return [parse_public(pem) for pem in given.get(name, ())]


def _certificate(case_input: Mapping[str, Any]) -> Answer:
    trusted, revokers = _trusted(case_input), _trusted(case_input, "revokers")
    revocations = Revocations(revokers=frozenset(key.keyid for key in revokers))
    for text in case_input.get("revocations", ()):
        raw = base64.b64decode(text)
        revocations = revocations.take(read_revocations(raw, [*trusted, *revokers]), "was seen before")
    verified = certificate.verify(
        _bytes(case_input),
        trusted,
        model_sha256=case_input.get("model_sha256"),
        data_sha256=case_input.get("data_sha256"),
        revocations=revocations,
        timestamp_roots=case_input.get("timestamp_roots", ()),
    )
    now = datetime.fromisoformat(case_input["now"]) if "now" in case_input else datetime.now(UTC)
    state = UNDECIDED if revocations.overdue(now) else VERIFIED
    told: Answer = {"answer": state, "verdict": verified.report.verdict, "signers": sorted(verified.keyids)}
    return told if verified.proven_at is None else told | {"proven_at": verified.proven_at.isoformat()}


def _revocations(given: Mapping[str, Any]) -> Answer:
    found = read_revocations(_bytes(given), _trusted(given))
    return {"answer": VERIFIED, "signers": [found.issuer], "sequence": found.sequence}


def _table(given: Mapping[str, Any]) -> Answer:
    found = tables.verify_statement(_bytes(given), _trusted(given), data_sha256=given["data_sha256"])
    return {"answer": VERIFIED, "signers": sorted(found.keyids)}


def _lock(given: Mapping[str, Any]) -> Answer:
    return {"answer": VERIFIED, "signers": sorted(verify_lock(_bytes(given), _trusted(given)).keyids)}


def _watch(given: Mapping[str, Any]) -> Answer:
    found = read_heartbeats(_bytes(given), _trusted(given))
    return {"answer": VERIFIED, "signers": sorted({keyid for one in found for keyid in one.keyids})}


def _checkpoint(given: Mapping[str, Any]) -> Answer:
    found = checkpoints.verify(_bytes(given), _trusted(given), origin=given.get("origin"))
    return {"answer": VERIFIED, "size": found.size, "root": found.root.hex()}


def _proof(case_input: Mapping[str, Any]) -> Answer:
    trusted, proof = _trusted(case_input), logproofs.read_proof(_bytes(case_input))
    head = checkpoints.verify(proof.note, trusted, origin=case_input.get("origin"))
    if isinstance(proof, logproofs.Inclusion):
        logproofs.check_inclusion(proof, head)
    else:
        logproofs.check_growth(proof, checkpoints.verify(_bytes(case_input, "old"), trusted), head)
    return {"answer": VERIFIED, "size": head.size}


_KINDS: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
    "certificate": _certificate,
    "revocations": _revocations,
    "table statement": _table,
    "policy lock": _lock,
    "watch": _watch,
    "checkpoint": _checkpoint,
    "proof": _proof,
}
