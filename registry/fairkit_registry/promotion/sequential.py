"""Is a certificate missing? The numbers that an auditor's key gave must be in the registry without a gap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.revoked import Revocations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.promotion.decision import Case

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class _Known:
    """A statement of the registry in one key's sequence: its number, its digest and the digest of the one before it."""

    number: int
    statement: str
    previous: str | None


def check_sequence(case: Case, deciding: Certificate, trusted: Sequence[PublicKey]) -> None:
    """Refuse a certificate whose key has given numbers that the registry has no certificate for."""
    places = [place for place in deciding.sequence if place.keyid in deciding.keyids]
    if not places:
        case.refuse(
            "the alias asks for certificates in sequence, and this one has no number of its key: `fairkit certify` of "
            "this version numbers them"
        )
        return
    for place in places:
        key = next(key for key in trusted if key.keyid == place.keyid)
        known = list(_of_key(case, key))
        for text in gaps(known, place.keyid, place.number):
            case.refuse(text)


def gaps(numbered: Iterable[_Known], keyid: str, number: int) -> Iterator[str]:
    """Yield what is missing from a key's sequence up to its highest known number, and what contradicts itself in it."""
    by_number: dict[int, set[_Known]] = {}
    for certificate in numbered:
        by_number.setdefault(certificate.number, set()).add(certificate)
    key = f"key {keyid[:16]}"
    highest = max([number, *by_number])
    missing = list(islice((each for each in count(1) if each not in by_number), _SHOWN))
    missing = [each for each in missing if each <= highest]
    if missing:
        rest = highest - len(by_number) - len(missing)
        more = f" and {rest} more" if rest > 0 else ""
        yield (
            f"certificates number {', '.join(map(str, missing))}{more} of {key} are not in this registry: ask "
            "the auditor for them, and attach each to the version that it is about"
        )
    for each, ones in sorted(by_number.items()):
        if len(ones) > 1:
            yield f"{key} has signed {len(ones)} certificates with the number {each}"
        before = {one.statement for one in by_number.get(each - 1, ())}
        if before and any(one.previous not in before for one in ones):
            yield f"certificate number {each} of {key} does not follow number {each - 1}: it names another one"


def _of_key(case: Case, key: PublicKey) -> Iterator[_Known]:
    """Yield every certificate of the registry that the key has signed, whatever model it is about."""
    for digest in (*case.registry.certificates(), *case.registry.detached()):
        try:
            certificate = certificates.verify(
                case.registry.certificate(digest), [key], full=False, revocations=Revocations()
            )
        except (CertificateError, RegistryError):
            continue  # of another key, or damaged: then its number is missing
        for place in certificate.sequence:
            if place.keyid == key.keyid:
                yield _Known(place.number, certificate.statement_sha256, place.previous)
