"""May an alias point to a version? All reasons against it at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry import jsonio as names
from fairkit_registry.errors import CertificateError, ContradictionError, RegistryError, RevokedError
from fairkit_registry.evidence import certificate as certificates
from fairkit_registry.evidence.signers import PublicKey, parse_public
from fairkit_registry.promotion.case import Case, Reason
from fairkit_registry.promotion.conditions import Settings, ask_plugins, conditions
from fairkit_registry.store.index import Alias, AliasPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.index import Version
    from fairkit_registry.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a version may be what an alias means."""

    version: Version  # what was asked for
    alias: Alias
    reasons: tuple[Reason, ...]  # everything that speaks against it, and notes
    certificate: Certificate | None

    @property
    def verdict(self) -> Literal["pass", "fail", "inconclusive"]:
        """Pass; fail where anything refuses; else inconclusive where something cannot be decided."""
        kinds = {reason.kind for reason in self.reasons}
        return "fail" if "refused" in kinds else "inconclusive" if "inconclusive" in kinds else "pass"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "version": self.version.reference,
            "alias": self.alias.alias,
            "verdict": self.verdict,
            "promoted": self.verdict == "pass",
            "reasons": [reason.to_dict() for reason in self.reasons],
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


def evaluate(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Say whether a version may be promoted, and give every reason against it.

    An alias that was not made has the default policy, which trusts no key: it refuses.
    """
    version = registry.version(reference)
    alias_record = registry.alias(version.name, names.check_alias(alias))
    if alias_record is None:
        alias_record = Alias(
            name=version.name, alias=alias, policy=AliasPolicy(), version=None, certificate=None, changed_at=""
        )
    case = Case(registry, version, alias_record, now or datetime.now(UTC))
    try:
        case.revoked = registry.revoked()
    except RegistryError as error:
        case.refuse(str(error))
    problem = registry.blobs.problem(version.model)
    if problem is not None:
        case.refuse(f"the model file is not what was added: {problem}")
    trusted = trusted_keys(alias_record.policy)
    case.current = _of_current(case, trusted) if trusted else None
    deciding = None if alias_record.policy.open else _decide(case, trusted)
    if problem is None:
        ask_plugins(case, deciding)
    order = ("refused", "inconclusive", "note")
    reasons = tuple(sorted(case.reasons, key=lambda reason: order.index(reason.kind)))
    return Decision(version=version, alias=alias_record, reasons=reasons, certificate=deciding)


def promote(registry: Registry, reference: str, alias: str, *, now: datetime | None = None) -> Decision:
    """Point an alias to a version if its policy allows it."""
    while True:
        head = registry.head()
        decision = evaluate(registry, reference, alias, now=now)
        if decision.verdict != "pass":
            return decision
        counted = None if decision.certificate is None else decision.certificate.sha256
        version, pointer = decision.version, decision.alias
        reasons = [reason.text for reason in decision.reasons]
        body = {"previous": pointer.version, "model": version.model, "reasons": reasons}
        if registry.point("promote", pointer, version.version, counted, body, head=head):
            return decision


def trusted_keys(policy: AliasPolicy) -> list[PublicKey]:
    """Return the keys that an alias trusts."""
    return [parse_public(pem) for pem in policy.keys]


def _decide(case: Case, trusted: Sequence[PublicKey]) -> Certificate | None:
    """Find the certificate that decides, and hold it against the policy."""
    policy, reference, alias = case.alias.policy, case.version.reference, case.alias.alias
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
    found = list(_valid(case, case.version, trusted)) if trusted else []
    if not found:
        return None
    usable = _on_data(found, policy)
    if not usable:
        digests = ", ".join(sorted({certificate.report.data.sha256[:16] for certificate in found}))
        case.refuse(
            f"no certificate of {reference} is about the data that {alias!r} asks for "
            f"({', '.join(digest[:16] for digest in policy.data)}); they are about {digests}"
        )
    fitting = [certificate for certificate in usable if Settings(policy.settings).fits(case, certificate)]
    candidates = _newest(fitting or usable or found)
    for candidate in candidates:
        for condition in conditions(policy):
            condition.judge(case, candidate)
    return candidates[-1]


def _valid(case: Case, version: Version, trusted: Sequence[PublicKey]) -> Iterator[Certificate]:
    """Yield the certificates of a version that hold; each that does not becomes a reason against it.

    Copies of one statement are one certificate. Those of other versions with the same file count too: a file added
    again does not leave a bad one behind. A certificate by somebody else is a note where another one holds, as is one
    that was revoked. One by a trusted key that contradicts itself, or a damaged file, is a refusal in any case: what it
    should have said may be worse than what the others say.
    """
    good: dict[str, Certificate] = {}
    refused: list[str] = []
    elsewhere = set(case.registry.certificates(model=version.model)) - set(version.certificates)
    for digest in (*version.certificates, *sorted(elsewhere)):
        try:
            raw = case.registry.certificate(digest)
            certificate = certificates.verify(raw, trusted, model_sha256=version.model, revoked=case.revoked)
            earlier = good.get(certificate.statement_sha256, certificate)
            # of two copies the one with more trusted keys stands for the statement
            good[certificate.statement_sha256] = min(
                certificate, earlier, key=lambda certificate: (-len(certificate.keyids), certificate.sha256)
            )
            continue
        except (CertificateError, RegistryError) as error:
            text = f"certificate {digest[:12]} of {version.reference} does not count: {error}"
            grave = isinstance(error, ContradictionError | RegistryError)
            revoked = isinstance(error, RevokedError)
        if grave:
            case.refuse(text)
        elif revoked or digest not in elsewhere:
            refused.append(text)
    for text in refused:
        (case.note if good else case.refuse)(text)
    yield from good.values()


def _newest(found: Iterable[Certificate]) -> list[Certificate]:
    """Return the certificates with the latest audit; more than one where they state the same time.

    Of several the newest decides, so that nobody can pick the audit that came out best.
    """
    listed = sorted(found, key=lambda certificate: (certificate.audited_at, certificate.statement_sha256))
    return [certificate for certificate in listed if certificate.audited_at == listed[-1].audited_at]


def _on_data(found: Iterable[Certificate], policy: AliasPolicy) -> list[Certificate]:
    """Return the certificates about a table that the alias names, or all where it names none."""
    return [certificate for certificate in found if not policy.data or certificate.report.data.sha256 in policy.data]


def _of_current(case: Case, trusted: Sequence[PublicKey]) -> Certificate | None:
    """Return the newest valid certificate of the version that the alias points to; None where there is none."""
    if case.alias.version is None:
        return None
    current = case.registry.version(f"{case.version.name}@{case.alias.version}")
    quiet = Case(case.registry, current, case.alias, case.now, case.revoked)
    newest = _newest(_on_data(_valid(quiet, current, trusted), case.alias.policy))
    return newest[-1] if newest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """What became of an alias that was to be taken back."""

    name: str  # the model's
    alias: str  # which
    version: int  # the version that it was taken from
    now: int | None  # what it points to now; None: nothing
    done: bool  # whether anything was changed: False where the alias points elsewhere already
    reason: str  # a sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)


def demote(registry: Registry, name: str, version: int, alias: str, evidence: Mapping[str, Any]) -> Demotion:
    """Take an alias back from a version.

    It then points to the version that it pointed to last before, and that was not taken back itself, if that one still
    passes the alias's policy; else to nothing.
    """
    names.check_alias(alias)
    while True:
        head = registry.head()
        pointer = registry.alias(name, alias)
        if pointer is None:
            raise RegistryError(f"{name} has no alias {alias!r}: there is nothing to take back")
        if pointer.version != version:
            where = "nothing" if pointer.version is None else f"{name}@{pointer.version}"
            reason = f"{name}@{alias} points to {where}, not to {name}@{version}: nothing was changed"
            return Demotion(name=name, alias=alias, version=version, now=pointer.version, done=False, reason=reason)
        before, certificate, reason = _former(registry, pointer)
        body = {"taken_from": pointer.version, "evidence": {**evidence, "reason": reason}}
        if not registry.point("demote", pointer, before, certificate, body, head=head):
            continue
        return Demotion(name=name, alias=alias, version=version, now=before, done=True, reason=reason)


def _former(registry: Registry, pointer: Alias) -> tuple[int | None, str | None, str]:
    """Return the version to go back to with its certificate, and why."""
    candidates, bad = [], {pointer.version}
    for event in registry.log(pointer.name):  # the newest first
        if event.body.get("alias") != pointer.alias:
            continue
        if event.action == "demote":
            bad.add(event.body["taken_from"])
        elif event.action == "promote":
            candidates.append(event.body["version"])
    previous = next((candidate for candidate in candidates if candidate not in bad), None)
    if previous is None:
        return None, None, "no other version was promoted before: the alias points to nothing"
    decision = evaluate(registry, f"{pointer.name}@{previous}", pointer.alias)
    if decision.verdict != "pass":
        return (
            None,
            None,
            f"{pointer.name}@{previous}, promoted before, does not pass the alias's policy any more: the alias "
            "points to nothing",
        )
    certificate = None if decision.certificate is None else decision.certificate.sha256
    return (
        previous,
        certificate,
        f"back to {pointer.name}@{previous}, which was promoted before and passes the policy",
    )
