"""Why no signature holds, in words that help. Nothing here makes a certificate valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_registry.evidence import predicate
from fairkit_registry.jsonio import StrictJsonError, canonical, read_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.dsse import Envelope
    from fairkit_registry.evidence.keys import PublicKey


def explain_refusal(envelope: Envelope, trusted: Sequence[PublicKey]) -> str:
    """Return the likely reason why no trusted key has signed a certificate.

    The payload is looked at although nobody vouches for it: what it says is used for the wording of a
    refusal and for nothing else.
    """
    changed = _changed_payload(envelope.payload)
    if changed is not None:
        return f"the signature does not hold: {changed}"
    claimed = sorted({one.keyid for one in envelope.signatures})
    trusted_ids = {key.keyid for key in trusted}
    if not trusted_ids & set(claimed):
        return (
            f"not signed by a key that you trust: the certificate names key {_short(claimed)}, "
            f"you trust {_short(sorted(trusted_ids))}. (A key inside a certificate is never trusted.)"
        )
    return (
        "the signature does not hold: it was changed, or it was not made by the key that it names "
        f"({_short(sorted(trusted_ids & set(claimed)))})"
    )


def _short(keyids: Sequence[str]) -> str:
    return ", ".join(f"{keyid[:16]}..." if keyid else "(none)" for keyid in keyids)


def _changed_payload(payload: bytes) -> str | None:
    try:
        statement = read_object(payload)
        body: Any = statement["predicate"]
        stated, actual = body["checksums"], predicate.checksums(body)
        if canonical(statement) != payload:
            return "the statement was changed after it was signed"
        if len(stated["findings"]) != len(actual["findings"]):
            return "findings were added or removed after it was signed"
        for number, (was, now) in enumerate(zip(stated["findings"], actual["findings"], strict=True)):
            if was != now:
                return f"the finding {_name(body['findings'][number])} was changed after it was signed"
        about = body["data"] if body["model"] is None else body["model"]
        same_subject = statement["subject"][0]["digest"]["sha256"] == about["sha256"]
        if stated["rest"] != actual["rest"] or not same_subject:
            return "the statement was changed after it was signed"
    except (StrictJsonError, KeyError, TypeError, IndexError, AttributeError):
        return "the payload was changed after it was signed (it is no longer a fairness statement)"
    return None


def _name(finding: Any) -> str:
    parts = (finding.get("auditor"), finding.get("metric"), finding.get("sensitive"))
    return "/".join(str(part) for part in parts if part is not None)
