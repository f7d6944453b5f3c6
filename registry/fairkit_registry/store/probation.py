"""Probations of aliases: what the log and the signed files in the store say about the version that one points to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.keys import parse_public
from fairkit_registry.evidence.probation import Probation, ProbationTerms, ServedEvidence, judge_probation
from fairkit_registry.evidence.revocations import read as read_list
from fairkit_registry.evidence.revoked import remembered
from fairkit_registry.store import events, tables

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from fairkit_registry.blobs import BlobStore
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.names import Reference
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.store.records import Alias

LARGEST = 16 << 20
"""Bytes of a file of statements."""


def probation_of(
    connection: sqlite3.Connection, blobs: BlobStore, alias: Alias, model: str | None = None
) -> Probation | None:
    """Return the state of an alias's probation; None where none is asked for, or nothing was promoted."""
    evidence = evidence_of(connection, blobs, alias, model)
    return None if evidence is None else judge_probation(evidence, present(connection).date())


def _standing(connection: sqlite3.Connection, blobs: BlobStore, alias: Alias) -> Alias:
    """Return an alias as it stands now: with the reason, where its probation has ended or its state cannot be told."""
    if alias.policy.probation_days is None or alias.version is None:
        return alias
    try:
        state = probation_of(connection, blobs, alias)
    except (CertificateError, RegistryError) as error:
        return replace(alias, ended=f"while the state of its probation cannot be told: {error}")
    if state is None or state.state != "fallen":
        return alias
    why = f"since {state.day}: {alias.name}@{alias.version} was on probation, and {state.reason}"
    return replace(alias, ended=why)


def standing_aliases(
    connection: sqlite3.Connection, blobs: BlobStore, name: str | None = None, alias: str | None = None
) -> list[Alias]:
    """Return aliases as they stand now; see `tables.find_aliases`."""
    return [_standing(connection, blobs, one) for one in tables.find_aliases(connection, name, alias)]


def refuse_fallen(connection: sqlite3.Connection, blobs: BlobStore, wanted: Reference) -> None:
    """Refuse a name whose probation has ended without success: from that day on it means nothing."""
    for alias in standing_aliases(connection, blobs, wanted.name, wanted.alias):
        if alias.ended is not None:
            named = f"{alias.name}@{alias.alias}"
            raise RegistryError(
                f"{named} means nothing {alias.ended}. `fairkit registry probation {named}` writes an end down and "
                f"goes back to the version before; `fairkit registry promote {alias.name}@VERSION {alias.alias}` "
                "points it to another one"
            )


def _beginnings(chain: Iterable[events.Event], alias: str) -> dict[str, datetime]:
    """Return when each file that an alias has pointed to began its probation, by digest.

    A file's first promotion counts for good: promoted again, or after another one, it does not begin anew. What was
    before the alias's policy asked for a probation, or asked again, does not count.
    """
    models: dict[int, str] = {}
    begun: dict[str, datetime] = {}
    asked, current = False, None
    for event, at in _timed(chain):
        body = event.body
        if event.action in ("add", "import"):
            models[body["version"]] = body["model"]
        elif body.get("alias") != alias:
            continue
        elif event.action == "remove-alias":
            asked, current = False, None
        elif event.action == "alias":
            asked = bool(body["policy"].get("probation_days"))
        elif event.action in ("promote", "demote"):
            current = models.get(body["version"])
        if not asked:
            begun.clear()
        elif current is not None:
            begun.setdefault(current, at)
    return begun


def _timed(chain: Iterable[events.Event]) -> Iterator[tuple[events.Event, datetime]]:
    """Return events with their times, none of which lies before that of an event before it.

    Who turns the clock back dates nothing back behind what the log says already.
    """
    latest = datetime.min.replace(tzinfo=UTC)
    for event in chain:
        latest = max(latest, datetime.fromisoformat(event.at))
        yield event, latest


def present(connection: sqlite3.Connection) -> datetime:
    """Return the time by the clock, or that of the log's newest event where the clock was turned back behind it."""
    newest = connection.execute("SELECT max(at) AS at FROM events").fetchone()["at"]
    return datetime.fromisoformat(max(events.now(), newest or ""))


def evidence_of(
    connection: sqlite3.Connection, blobs: BlobStore, alias: Alias, model: str | None = None
) -> ServedEvidence | None:
    """Return what has arrived about a file on probation, as in `probation_of`; None where it is not, or never was."""
    policy = alias.policy
    if policy.probation_days is None:
        return None
    chain = list(events.of_model(connection, alias.name))
    if model is None and alias.version is not None:
        model = tables.find_version(connection, alias.name, alias.version).model
    begun = _beginnings(chain, alias.alias)
    if model is None or model not in begun:
        return None
    terms = ProbationTerms(
        model_sha256=model, since=begun[model].date(), days=policy.probation_days, rules=policy.rules
    )
    evidence = ServedEvidence(terms, _keys(connection, blobs, policy, model))
    for event, at in _timed(chain):
        body: dict[str, Any] = event.body
        if event.action == "served" and (body["alias"], body["model"]) == (alias.alias, model):
            raw = blobs.read(body["file"], limit=LARGEST)
            try:
                evidence.take(body["kind"], raw, at)
            except CertificateError:  # by a key that counts no longer, or of a probation before this one
                continue
    return evidence


def _keys(connection: sqlite3.Connection, blobs: BlobStore, policy: AliasPolicy, model: str) -> list[PublicKey]:
    """Return the keys whose statements count: those that were not revoked."""
    keys = [parse_public(pem) for pem in policy.watch_keys or policy.keys]
    revokers = [parse_public(pem) for pem in policy.revokers]
    known = remembered(keys, revokers)
    for issuer, digest in events.revocations(connection).items():
        trusted = [key for key in (*keys, *revokers) if key.keyid == issuer]
        if trusted:
            raw = blobs.read(digest, limit=LARGEST)
            known = known.merge(read_list(raw, trusted), "is in the registry or was seen by this user")
    return [key for key in keys if known.against(key.keyid, ("model", model)) is None]
