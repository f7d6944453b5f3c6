"""May an alias point to a version? All reasons against it at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fairkit_registry import names
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.current import check_current
from fairkit_registry.promotion.decision import Case, Decision, Reason
from fairkit_registry.promotion.demands import check_age, check_rules
from fairkit_registry.promotion.pinned import check_rows, check_settings, fitting, note_choices
from fairkit_registry.promotion.registered import check_registered
from fairkit_registry.promotion.sequential import check_sequence
from fairkit_registry.promotion.serving import check_serving, from_machines
from fairkit_registry.promotion.valid import newest, of_current, on_data, revoked, trusted_keys, valid
from fairkit_registry.store.records import Alias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.store.registry import Registry

__all__ = ["Decision", "Reason", "evaluate", "promote", "trusted_keys"]


def evaluate(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Say whether a version may be promoted, and give every reason against it.

    An alias that was not made has the default policy, which trusts no key: it refuses.
    """
    version = registry.version(reference)
    holder = registry.alias(version.name, names.check_alias(alias))
    if holder is None:
        holder = Alias(
            name=version.name, alias=alias, policy=AliasPolicy(), version=None, certificate=None, changed_at=""
        )
    case = Case(registry, version, holder, now or datetime.now(UTC))
    _heed_revocations(case)
    problem = registry.blobs.problem(version.model)
    if problem is not None:
        case.refuse(f"the model file is not what was added: {problem}")
    trusted = trusted_keys(holder.policy)
    held = of_current(case, trusted) if trusted else None
    deciding = None if holder.policy.open else _decide(case, trusted, held)
    if problem is None:
        _ask_plugins(case, deciding, held)
    return Decision(version=version, alias=holder, reasons=case.sorted(), certificate=deciding)


def promote(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Point an alias to a version if its policy allows it."""
    while True:
        head = registry.head()
        decision = evaluate(registry, reference, alias, now=now)
        if decision.verdict != "pass":
            return decision
        counted = None if decision.certificate is None else decision.certificate.sha256
        version, pointer = decision.version, decision.alias
        reasons = [one.text for one in decision.reasons]
        body = {"previous": pointer.version, "model": version.model, "reasons": reasons}
        if registry.point("promote", pointer, version.version, counted, body, head=head):
            return decision


def _decide(case: Case, trusted: Sequence[PublicKey], current: Certificate | None) -> Certificate | None:
    """Find the certificate that decides, and hold it against the policy."""
    policy = case.alias.policy
    reference, alias = case.version.reference, case.alias.alias
    if not trusted:
        case.refuse(
            f"the alias {alias!r} trusts no key, so no certificate counts: "
            f"fairkit registry alias {case.version.name} {alias} --key KEY.pub"
        )
    if not case.version.certificates:
        case.refuse(
            f"{reference} has no certificate: make one with `fairkit certify`, and attach it with "
            f"`fairkit registry add {reference} --certificate CERT`"
        )
    certificates = list(valid(case, case.version, trusted)) if trusted else []
    if not certificates:
        return None
    usable = on_data(certificates, policy)
    if not usable:
        given = ", ".join(sorted({one.report.data.sha256[:16] for one in certificates}))
        case.refuse(
            f"no certificate of {reference} is about the data that {alias!r} asks for "
            f"({', '.join(digest[:16] for digest in policy.data)}); they are about {given}"
        )
    candidates = newest(fitting(case, usable) or usable or certificates)
    for candidate in candidates:
        _hold_against(case, candidate, current)
        if policy.pre_registered or policy.unseen:
            check_registered(case, candidate)
        if policy.sequential:
            check_sequence(case, candidate, trusted)
    if policy.machines > 1:
        for candidate in from_machines(case, fitting(case, usable), candidates):
            _hold_against(case, candidate, current)
    return candidates[-1]


def _heed_revocations(case: Case) -> None:
    """Learn what was revoked; what cannot be known is a refusal or a doubt."""
    try:
        case.revocations = revoked(case.registry, case.alias.policy)
    except (CertificateError, RegistryError) as error:
        case.refuse(f"what was revoked cannot be told: {error}")
    for text in case.revocations.overdue(case.now):
        case.doubt(text)
    entry = case.revocations.listed("model", case.version.model)
    if entry is not None:
        case.refuse(f"the model {case.version.model[:16]} was revoked at {time_text(entry.at)}: {entry.reason}")


def _hold_against(case: Case, deciding: Certificate, current: Certificate | None) -> None:
    """Hold a certificate that decides against everything that the alias asks for."""
    check_age(case, deciding)
    check_rules(case, deciding)
    check_settings(case, deciding, current)
    check_rows(case, deciding)
    check_serving(case, deciding)
    if case.alias.policy.no_worse:
        check_current(case, deciding, current)
    note_choices(case, deciding)


def _ask_plugins(case: Case, deciding: Certificate | None, held: Certificate | None) -> None:
    from fairkit_registry.promotion.checks import ask

    for reason in ask(case.registry, case.version, case.alias, deciding, held):
        (case.refuse if reason.veto else case.note)(reason.text)
