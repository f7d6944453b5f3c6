"""Was the question fixed before the answer? An alias with `--pre-registered` asks for a policy lock that came first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence.certificate import check_lock
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.locks import PolicyLock, verify_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.promotion.decision import Case
    from fairkit_registry.store.events import Event

_HOW = "`fairkit policy lock`, `fairkit registry lock NAME LOCK`, then the model, then `fairkit certify --lock LOCK`"


def check_registered(case: Case, deciding: Certificate) -> None:
    """Refuse a certificate whose policy, table and settings were not locked before the model came here."""
    lock = _lock(case, deciding)
    if lock is None:
        return
    log = case.registry.log()[::-1]
    arrived = next(one for one in log if one.action in ("add", "import") and one.body["model"] == case.version.model)
    locks = [one for one in log if one.action == "lock" and one.name == case.version.name]
    own = [one for one in locks if one.body["statement"] == lock.statement_sha256]
    first = own[0] if own else None
    if first is None:
        case.refuse(f"the certificate's policy lock is not registered for {case.version.name}: {_HOW}")
        return
    if first.seq > arrived.seq:
        case.refuse(
            f"the policy lock was registered (event {first.seq}) after the model came (event {arrived.seq}): the "
            f"policy may have been chosen to fit it. {_HOW}"
        )
        return
    _check_newest(case, lock, [one for one in locks if one.seq < arrived.seq])
    case.note(
        f"policy, table and settings were locked at {lock.locked_at:%Y-%m-%d %H:%M} UTC by key {lock.keyids[0][:16]}, "
        f"registered as event {first.seq}, before the model (event {arrived.seq})"
    )


def _lock(case: Case, deciding: Certificate) -> PolicyLock | None:
    """Return the certificate's lock if it holds; what does not is a refusal."""
    if deciding.policy_lock is None:
        case.refuse(f"the alias asks for a policy lock, and the certificate refers to none: {_HOW}")
        return None
    policy = case.alias.policy
    if policy.unseen and not policy.data_keys:
        case.refuse("the alias asks for sealed rows and names no key of the rows' owner: --data-key PUB")
        return None
    trusted = [parse_public(pem) for pem in (policy.data_keys if policy.unseen else policy.keys)]
    try:
        lock = verify_lock(deciding.policy_lock, trusted)
        case.revocations.standing(lock.keyids, statement_sha256=lock.statement_sha256, model_sha256=None)
        check_lock(deciding, lock)
        if policy.unseen:
            _check_sealed(lock, deciding)
    except CertificateError as error:
        case.refuse(f"the certificate's policy lock does not count: {error}")
        return None
    return lock


def _check_sealed(lock: PolicyLock, deciding: Certificate) -> None:
    """Refuse a lock that told the model's author which rows it is about, or that the certifier made."""
    if not lock.sealed:
        raise CertificateError("it names its table, and the alias asks for sealed rows (--data-salted)")
    own = set(lock.keyids) & set(deciding.keyids)
    if own:
        raise CertificateError(f"key {min(own)[:16]} has sealed the rows and signed the certificate")


def _check_newest(case: Case, lock: PolicyLock, before: Sequence[Event]) -> None:
    """Refuse a lock that another one has replaced before the model came: of many nobody may pick."""
    newest = before[-1]
    if newest.body["statement"] != lock.statement_sha256:
        case.refuse(
            f"another policy lock was registered for {case.version.name} later (event {newest.seq}) and before the "
            "model: that one counts"
        )
    others = {one.body["statement"] for one in before} - {lock.statement_sha256}
    if others:
        case.note(f"{len(others)} earlier policy lock{'s' * (len(others) > 1)} of {case.version.name} were replaced")
