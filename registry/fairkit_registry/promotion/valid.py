"""Which certificates of a version count for an alias, and which of them decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError, ContradictionError, RegistryError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.revocations import read as read_list
from fairkit_registry.evidence.revoked import remembered
from fairkit_registry.promotion.decision import Case

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry


def trusted_keys(policy: AliasPolicy) -> list[PublicKey]:
    """Return the keys that an alias trusts."""
    return [parse_public(pem) for pem in policy.keys]


def revoked(registry: Registry, policy: AliasPolicy) -> Revocations:
    """Return the revocations for an alias: the registry's lists, and those that this user has seen."""
    return of_registry(registry, trusted_keys(policy), [parse_public(pem) for pem in policy.revokers])


def of_registry(registry: Registry, trusted: Sequence[PublicKey], revokers: Sequence[PublicKey] = ()) -> Revocations:
    """Return the revocations by lists of these keys, as `revoked` does."""
    known = remembered(trusted, revokers)
    for keyid, raw in registry.revocations().items():
        keys = [key for key in (*trusted, *revokers) if key.keyid == keyid]
        if keys:  # a list by somebody whom this alias does not trust says nothing here
            known = known.merge(read_list(raw, keys), "is in the registry or was seen by this user")
    return known


def valid(case: Case, version: Version, trusted: Sequence[PublicKey]) -> Iterator[Certificate]:
    """Yield the certificates of a version that hold; each that does not becomes a reason against it.

    Copies of one statement are one certificate. Those of other versions with the same file count too: a file added
    again does not leave a bad one behind. So do those that were detached, if a trusted key has signed them.
    A certificate by somebody else is a note where another one holds. One by a trusted key that contradicts itself, or a
    damaged file, is a refusal in any case: what it should have said may be worse than what the others say.
    """
    refused = []
    good: dict[str, Certificate] = {}
    detached = case.registry.detached(model=version.model)
    elsewhere = {*case.registry.certificates(model=version.model), *detached} - set(version.certificates)
    for digest in (*version.certificates, *sorted(elsewhere)):
        try:
            raw = case.registry.certificate(digest)
            verified = certificates.verify(raw, trusted, model_sha256=version.model, revocations=case.revocations)
            if digest in detached:
                case.note(
                    f"certificate {digest[:12]} was detached and goes on counting: a key that the alias trusts has "
                    "signed it, and only its signer can revoke it"
                )
            good[verified.statement_sha256] = _fuller(verified, good.get(verified.statement_sha256))
        except (ContradictionError, RegistryError) as error:
            if digest in detached and isinstance(error, ContradictionError):
                case.note(f"certificate {digest[:12]} was detached: {error}")
                continue
            case.refuse(f"certificate {digest[:12]} of {version.reference} does not count: {error}")
        except CertificateError as error:
            if digest in elsewhere:
                continue
            refused.append(f"certificate {digest[:12]} of {version.reference} does not count: {error}")
    for text in refused:
        (case.note if good else case.refuse)(text)
    yield from good.values()


def _fuller(copy: Certificate, known: Certificate | None) -> Certificate:
    """Return which of two copies of a statement stands for it: more trusted keys first."""
    if known is None:
        return copy

    return min(copy, known, key=lambda one: (-len(one.keyids), one.sha256))


def newest(found: Iterable[Certificate]) -> list[Certificate]:
    """Return the certificates with the latest audit; more than one where they state the same time.

    Of several the newest decides, so that nobody can pick the audit that came out best.
    """
    listed = sorted(found, key=lambda one: (one.audited_at, one.statement_sha256))
    return [one for one in listed if one.audited_at == listed[-1].audited_at]


def on_data(found: Iterable[Certificate], policy: AliasPolicy) -> list[Certificate]:
    """Return the certificates about a table that the alias names, or all where it names none."""
    return [one for one in found if not policy.data or one.report.data.sha256 in policy.data]


def of_current(case: Case, trusted: Sequence[PublicKey]) -> Certificate | None:
    """Return the newest valid certificate of the version that the alias points to; None where there is none."""
    if case.alias.version is None:
        return None
    current = case.registry.version(f"{case.version.name}@{case.alias.version}")
    quiet = Case(case.registry, current, case.alias, case.now, case.revocations)
    found = newest(on_data(valid(quiet, current, trusted), case.alias.policy))
    return found[-1] if found else None
