"""For examiners: an inventory of models, the decisions about aliases, and what became of policy locks."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fairkit.errors import ConfigError, did_you_mean
from fairkit.support.records import record_of
from fairkit_registry.evidence.certificate import read
from fairkit_registry.evidence.locks import LARGEST, read_lock
from fairkit_registry.exchange.describe import certificates_of

if TYPE_CHECKING:
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.events import Event
    from fairkit_registry.store.records import Alias, Version
    from fairkit_registry.store.registry import Registry

TIERS = (1, 2, 3)
"""Tiers of materiality, by exposure and purpose; 1 is the most material. A person states them."""
_TEXTS = ("purpose", "owner", "limits", "exposure")
_DECISIONS = ("alias", "promote", "demote", "remove-alias")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFacts:
    """What a person states about a model: no registry knows it."""

    purpose: str | None = None
    owner: str | None = None
    limits: str | None = None
    exposure: str | None = None
    tier: int | None = None  # 1, 2 or 3; None: not stated
    next_review: datetime.date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model's version in the inventory, and what is missing about it."""

    model: str  # which; the aliases that mean it
    version: int  # which; the aliases that mean it
    aliases: tuple[str, ...]  # which; the aliases that mean it
    ended: tuple[str, ...]  # aliases that point to it and mean nothing any more, with the reason
    sha256: str  # which; the aliases that mean it
    tier: int | None  # as stated; None: nobody did
    purpose: str | None  # as stated; None: nobody did
    owner: str | None  # as stated; None: nobody did
    exposure: str | None  # as stated; None: nobody did
    limits: str | None  # as stated; None: nobody did
    data: str | None  # the audited table: name, rows, period, digest
    rules: str | None  # the limits that the certificate was judged by, with their verdicts
    last_validation: str | None  # day, verdict and signer of the newest certificate
    monitoring: str | None  # what the newest look at a watch said; None: no watch was named
    next_review: str | None  # the day, and whether it is over
    overdue: bool  # the day, and whether it is over
    missing: tuple[str, ...]  # the fields that a person has to state

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)


def read_stated(record: Mapping[str, Any], models: Sequence[str]) -> dict[str, StatedFacts]:
    """Read a person's facts, a table for each model."""
    allowed = {each.name for each in fields(StatedFacts)}
    stated_facts = {}
    for model, table in record.items():
        if model not in models:
            raise ConfigError(f"the registry has no model {model!r}. {did_you_mean(model, models, what='models')}")
        if not isinstance(table, Mapping):
            raise ConfigError(f"the facts on {model!r} are a table: begin it with [{model}]")
        for key, value in table.items():
            if key not in allowed:
                raise ConfigError(f"{model!r} has no fact {key!r}. {did_you_mean(key, allowed, what='facts')}")
            if key in _TEXTS and not (isinstance(value, str) and value.strip()):
                raise ConfigError(f"{key} of {model!r} takes a text, not {value!r}")
            if key == "tier" and (value not in TIERS or isinstance(value, bool)):
                raise ConfigError(f"tier of {model!r} is 1, 2 or 3, not {value!r}")
            if key == "next_review" and type(value) is not datetime.date:
                raise ConfigError(f"next_review of {model!r} is a date without quotes, as in 2027-01-31")
        stated_facts[model] = StatedFacts(**table)
    return stated_facts


def inventory(
    registry: Registry, stated: Mapping[str, StatedFacts], monitoring: Mapping[str, str], *, today: datetime.date
) -> list[Entry]:
    """Return an entry for each version that an alias points to, and for the newest of models without one."""
    entries = []
    for name in [one["name"] for one in registry.models()]:
        aliases: dict[int, list[Alias]] = {}
        for alias in registry.aliases(name):
            if alias.version is not None:
                aliases.setdefault(alias.version, []).append(alias)
        versions = [registry.version(f"{name}@{number}") for number in sorted(aliases)] or [registry.version(name)]
        for version in versions:
            facts = stated.get(name, StatedFacts())
            found = certificates_of(registry, version)
            entries.append(_entry(version, aliases.get(version.version, []), found, facts, monitoring, today))
    return sorted(entries, key=lambda one: (one.tier or len(TIERS) + 1, one.model, one.version))


def _entry(
    version: Version,
    aliases: Sequence[Alias],
    certificates: Sequence[Certificate],
    facts: StatedFacts,
    monitoring: Mapping[str, str],
    today: datetime.date,
) -> Entry:
    newest = next((one for one in certificates if one.verified), certificates[0] if certificates else None)
    about = {} if newest is None else dict(newest.report.about)
    ages = [one.policy.max_age_days for one in aliases if one.policy.max_age_days is not None]
    review = facts.next_review
    if review is None and newest is not None and ages:
        review = (newest.audited_at + datetime.timedelta(days=min(ages))).date()
    watched = monitoring.get(version.model)
    for certificate in certificates:
        watched = watched or monitoring.get(certificate.sha256)
    answers: dict[str, Any] = {
        "tier": facts.tier,
        "purpose": facts.purpose or about.get("intended_use"),
        "owner": facts.owner or about.get("owner"),
        "limits": facts.limits or about.get("limits"),
        "exposure": facts.exposure or about.get("exposure"),
        "last_validation": None if newest is None else _validated(newest),
        "monitoring": watched,
        "next_review": None if review is None else review.isoformat(),
    }
    return Entry(
        model=version.name,
        version=version.version,
        aliases=tuple(one.alias for one in aliases if one.ended is None),
        ended=tuple(f"{one.alias} means nothing {one.ended}" for one in aliases if one.ended is not None),
        sha256=version.model,
        data=None if newest is None else _data(newest),
        rules=None if newest is None else _rules(newest),
        overdue=review is not None and review < today,
        missing=tuple(key for key, value in answers.items() if value is None),
        **answers,
    )


def _validated(one: Certificate) -> str:
    signer = ", ".join(keyid[:16] for keyid in one.keyids)
    checked = f"signed by {signer}" if one.verified else f"as the file claims, by {signer}; no trusted key"
    return f"{one.audited_at:%Y-%m-%d}: {one.report.verdict or 'no limits'}, {checked}"


def _data(one: Certificate) -> str:
    data = one.report.data
    period = "" if not data.period else f", {data.period['from']} to {data.period['to']}"
    digest = "" if data.sha256 is None else f", SHA-256 {data.sha256[:16]}"
    return f"{data.name}, {data.rows:,} rows{period}{digest}"


def _rules(one: Certificate) -> str | None:
    said = [
        rule.rule.with_scenario(f"{rule.metric} ({rule.place or 'all rows'}) {rule.rule.say()}: {rule.verdict}")
        for rule in one.report.policy
    ]
    return " | ".join(said) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasDecision:
    """A line of the log about an alias: who did what, on which evidence."""

    event: int  # the event's number, when, the user of the machine, and what was done
    at: str  # the event's number, when, the user of the machine, and what was done
    by: str  # the event's number, when, the user of the machine, and what was done
    action: str  # the event's number, when, the user of the machine, and what was done
    model: str | None  # which alias of which model, to which version it points, and to which it did before
    alias: str  # which alias of which model, to which version it points, and to which it did before
    version: int | None  # which alias of which model, to which version it points, and to which it did before
    before: int | None  # which alias of which model, to which version it points, and to which it did before
    model_sha256: str | None  # the file, and the certificate that decided with what it says; None where none did
    certificate: str | None  # the file, and the certificate that decided with what it says; None where none did
    audited_at: str | None  # the file, and the certificate that decided with what it says; None where none did
    verdict: str | None  # the file, and the certificate that decided with what it says; None where none did
    signed_by: str | None  # the file, and the certificate that decided with what it says; None where none did
    reasons: str  # what the check of the alias's policy said; of a policy, its conditions; of a demotion, its evidence
    digest: str  # the event's, which covers the one before it


def alias_decisions(registry: Registry, name: str | None = None) -> list[AliasDecision]:
    """Return every decision about aliases in the log, the newest first."""
    events = [one for one in registry.log(name) if one.action in _DECISIONS]
    known: dict[str, Certificate] = {}
    for model, number in {(one.name, one.body["version"]) for one in events if one.body.get("version")}:
        version = registry.version(f"{model}@{number}")
        known |= {one.sha256: one for one in certificates_of(registry, version)}
    return [_decision(one, known) for one in events]


def _decision(event: Event, known: Mapping[str, Certificate]) -> AliasDecision:
    body = event.body
    deciding = known.get(str(body.get("certificate")))
    reasons = {
        "alias": json.dumps({key: value for key, value in body.get("policy", {}).items() if value}),
        "promote": "; ".join(body.get("reasons", ())),
        "demote": json.dumps(body.get("evidence", {})),
    }
    return AliasDecision(
        event=event.seq,
        at=event.at,
        by=str(body["by"]),
        action=event.action,
        model=event.name,
        alias=str(body["alias"]),
        version=body.get("version"),
        before=body.get("previous", body.get("taken_from")),
        model_sha256=body.get("model"),
        certificate=body.get("certificate"),
        audited_at=None if deciding is None else f"{deciding.audited_at:%Y-%m-%dT%H:%M:%SZ}",
        verdict=None if deciding is None else deciding.report.verdict,
        signed_by=None if deciding is None else ", ".join(deciding.keyids),
        reasons=reasons.get(event.action, ""),
        digest=event.digest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LockUse:
    """A policy lock in the log, and what was certified under it."""

    event: int  # the event's number, when, the user of the machine, and the name for which it was registered
    at: str  # the event's number, when, the user of the machine, and the name for which it was registered
    by: str  # the event's number, when, the user of the machine, and the name for which it was registered
    model: str | None  # the event's number, when, the user of the machine, and the name for which it was registered
    lock: str  # the digest of its statement, and what it says
    table: str  # the digest of its statement, and what it says
    rows: int  # the digest of its statement, and what it says
    purpose: str  # the digest of its statement, and what it says
    certificates: tuple[str, ...]


def lock_uses(registry: Registry, name: str | None = None, files: Sequence[bytes] = ()) -> list[LockUse]:
    """Return every policy lock in the log, the newest first, with the certificates made under it."""
    detached = registry.detached()
    raws = [*files, *map(registry.certificate, dict.fromkeys((*registry.certificates(), *detached)))]
    made: dict[str, dict[str, str]] = {}
    for one in map(read, raws):
        if one.policy_lock is not None:
            off = ", taken off" if one.sha256 in detached else ""
            said = f"{one.sha256[:12]}, {one.audited_at:%Y-%m-%d}: {one.report.verdict}{off}"
            made.setdefault(read_lock(one.policy_lock).statement_sha256, {})[one.sha256] = said
    uses = []
    for event in registry.log(name):
        if event.action == "lock":
            lock = read_lock(registry.blobs.read(event.body["lock"], limit=LARGEST))
            uses.append(LockUse(
                event=event.seq, at=event.at, by=str(event.body["by"]), model=event.name, lock=lock.statement_sha256,
                table=lock.name, rows=lock.rows, purpose=lock.purpose,
                certificates=tuple(made.get(lock.statement_sha256, {}).values()),
            ))  # fmt: skip
    return uses
