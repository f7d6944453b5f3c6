"""An alias on probation: signed statements about served decisions keep it, and their absence or a broken rule ends it.

The state follows from the registry's log, the signed files in it and the time alone, so that nobody has to end it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence.attestations import verify_attestation
from fairkit_registry.evidence.heartbeats import read_heartbeats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.heartbeats import Heartbeat
    from fairkit_registry.evidence.keys import PublicKey

SILENCE = 7
"""Days that may pass without a statement, and without an attestation, before the probation ends: a week."""

State = Literal["running", "kept", "fallen"]
EvidenceKind = Literal["watch", "attestation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbationTerms:
    """What a model's file must keep after its promotion."""

    model_sha256: str  # the file's digest
    since: date  # the day of its first promotion (UTC), and for how long
    days: int  # the day of its first promotion (UTC), and for how long
    rules: tuple[Mapping[str, Any], ...]  # the alias's; without any, those of the statements

    @property
    def until(self) -> date:
        """The last day, whose decisions still count."""
        return self.since + timedelta(days=self.days)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probation:
    """The state of a probation."""

    state: State  # `running`; `kept`: its days are over, and every rule was kept; `fallen`: it has ended without that
    since: date  # its first and last day
    until: date  # its first and last day
    day: date | None  # the day on which it was kept or fell; None while it runs
    watched: date | None  # the newest day of a statement, and of an attestation; None: there is none
    attested: date | None  # the newest day of a statement, and of an attestation; None: there is none
    reason: str  # a sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        days = {name: getattr(self, name) for name in ("since", "until", "day", "watched", "attested")}
        return {
            "state": self.state,
            "reason": self.reason,
            **{name: None if day is None else day.isoformat() for name, day in days.items()},
        }


@dataclass(slots=True)
class ServedEvidence:
    """What has arrived about a served file: on which day each signed statement and attestation came.

    A watch is known by its first statement; it may only grow, and once begun it may not fall silent.
    """

    terms: ProbationTerms
    keys: Sequence[PublicKey]
    chains: dict[str, list[tuple[date, Heartbeat]]] = field(default_factory=lambda: defaultdict(list))
    attestations: list[tuple[date, date, bool]] = field(default_factory=list)

    def take(self, kind: EvidenceKind, raw: bytes, arrived: datetime) -> None:
        """Take a file that arrived, after those that arrived before it."""
        (self._take_watch if kind == "watch" else self._take_attestation)(raw, arrived)

    def _take_watch(self, raw: bytes, arrived: datetime) -> None:
        chain = read_heartbeats(raw, self.keys)
        if not chain:
            raise CertificateError("there is no statement of a watch in it")
        known = self.chains.get(chain[0].digest, [])
        if [one.digest for _, one in known] != [one.digest for one in chain[: len(known)]]:
            raise CertificateError("statements that came before are missing or were replaced")
        for number, statement in enumerate(chain, 1):
            self._check_statement(statement, chain[number - 2] if number > 1 else None, number, arrived)
        self.chains[chain[0].digest] = known + [(arrived.date(), one) for one in chain[len(known) :]]

    def _check_statement(self, statement: Heartbeat, before: Heartbeat | None, number: int, arrived: datetime) -> None:
        where = f"statement {number} of the watch ({statement.day})"
        if statement.subject[1] != self.terms.model_sha256:
            raise CertificateError(
                f"{where} is about another file: begin the watch with the model's name in this registry, as in "
                "fairkit watch init MODEL@ALIAS"
            )
        first, day = _day(statement.body.get("since"), where), _day(statement.day, where)
        if first < self.terms.since:
            raise CertificateError(
                f"{where} is about decisions since {first}, before the promotion on {self.terms.since}: begin a watch "
                "on that day, so that no older decisions hide the new ones"
            )
        if day > arrived.date() + timedelta(days=1) or day < first:
            raise CertificateError(f"{where} is about a day that has not come, or lies before the watch's first")
        if before is not None and day <= _day(before.day, where):
            raise CertificateError(f"{where} goes back behind the statement before it")
        if not _judged(statement):
            raise CertificateError(f"{where} does not say which rules it judges, with their limits")
        for rule in self.terms.rules:
            if not _verdicts(rule, statement):
                raise CertificateError(f"{where} does not judge {_named(rule)}, at the alias's limit or a stricter one")

    def _take_attestation(self, raw: bytes, arrived: datetime) -> None:
        body = verify_attestation(raw, self.keys)
        if body["model_sha256"] != self.terms.model_sha256:
            raise CertificateError("the attestation is about another file")
        try:
            at, rows = datetime.fromisoformat(body["attestedAt"]), body["rows"]
            agrees = body["matches"] is True and body["differ"] == 0 and type(rows) is int and rows > 0
        except (KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"the attestation does not say when, or what it compared: {error}") from None
        if at.tzinfo is None or at > arrived + timedelta(minutes=5):
            raise CertificateError("the attestation's time lies in the future, or has no zone")
        if at.date() >= self.terms.since:
            self.attestations.append((arrived.date(), at.date(), agrees))


def judge_probation(evidence: ServedEvidence, today: date) -> Probation:
    """Return the state of a probation on a day: every day before it is gone through as it was.

    A day's silence is judged by what had arrived before that day; so no file that comes later changes what has fallen.
    """
    terms = evidence.terms
    day = terms.since
    while day <= today:
        end = _broken(evidence, day) or _silent(evidence, day) or _over(evidence, day)
        if end is not None:
            return _state(evidence, day, *end)
        day += timedelta(days=1)
    text = f"on probation until {terms.until}: {_so_far(evidence)}"
    return _state(evidence, None, "running", text)


def _state(evidence: ServedEvidence, day: date | None, state: State, reason: str) -> Probation:
    terms = evidence.terms
    days = [_last(chain, date.max) for chain in evidence.chains.values()]
    return Probation(
        state=state,
        since=terms.since,
        until=terms.until,
        day=day,
        watched=max((one for one in days if one is not None), default=None),
        attested=max((at for _, at, agrees in evidence.attestations if agrees), default=None),
        reason=reason,
    )


def _broken(evidence: ServedEvidence, day: date) -> tuple[State, str] | None:
    """Return that a rule was broken, or that the endpoint answered otherwise, by what had arrived on a day."""
    for chain in evidence.chains.values():
        for arrived, statement in chain:
            failed = [rule for rule in _judged(statement) if rule["verdict"] == "fail" and arrived <= day]
            if failed:
                text = f"the served decisions broke the limit on {_named(failed[0])} (statement of {statement.day})"
                return "fallen", text
    if any(arrived <= day and not agrees for arrived, _, agrees in evidence.attestations):
        return "fallen", "the endpoint answered otherwise than the promoted file"
    return None


def _silent(evidence: ServedEvidence, day: date) -> tuple[State, str] | None:
    """Return that a watch or the attestations had been silent for too long, by what had arrived before a day."""
    since = evidence.terms.since
    known = [[one for one in chain if one[0] < day] for chain in evidence.chains.values()]
    days = [last for chain in known if (last := _last(chain, day)) is not None]
    if (day - min(days, default=since)).days > SILENCE:
        return "fallen", _silence("signed statement of a watch over its decisions", min(days, default=None))
    attested = [at for arrived, at, agrees in evidence.attestations if agrees and arrived < day]
    if (day - max(attested, default=since)).days > SILENCE:
        return "fallen", _silence("signed attestation that its endpoint serves this file", max(attested, default=None))
    return None


def _silence(what: str, last: date | None) -> str:
    return f"for more than {SILENCE} days there was no {what}" + (f" (the last: {last})" if last else "")


def _over(evidence: ServedEvidence, day: date) -> tuple[State, str] | None:
    """Return what the statements say once all of them reach the last day; None before."""
    known = [[one for one in chain if one[0] <= day] for chain in evidence.chains.values()]
    chains = [chain for chain in known if chain]
    reached = [last for chain in chains if (last := _last(chain, day)) is not None]
    if day < evidence.terms.until or not reached or min(reached) < evidence.terms.until:
        return None
    for chain in chains:
        newest = chain[-1][1]
        stated = [{key: rule[key] for key in rule if key != "verdict"} for rule in _judged(newest)]
        for rule in evidence.terms.rules or stated:
            if not all("pass" in verdicts for verdicts in _verdicts(rule, newest).values()):
                return "fallen", (
                    "its days are over, and the served decisions do not decide the limit on "
                    f"{_named(rule)}: more of them a day, or more days, would"
                )
    return ("kept", f"the served decisions of {evidence.terms.days} days kept the limits (until {min(reached)})")


def _so_far(evidence: ServedEvidence) -> str:
    """Say what came last, and by when the next must come."""
    days = [last for chain in evidence.chains.values() if (last := _last(chain, date.max)) is not None]
    attested = [at for _, at, agrees in evidence.attestations if agrees]
    parts = []
    for what, last in (("statement", min(days, default=None)), ("attestation", max(attested, default=None))):
        due = (last or evidence.terms.since) + timedelta(days=SILENCE)
        parts.append(f"{f'last {what} of {last}' if last else f'no {what} yet'}, the next by {due}")
    return "; ".join(parts)


def _last(chain: Sequence[tuple[date, Heartbeat]], by: date) -> date | None:
    days = [date.fromisoformat(statement.day) for arrived, statement in chain if arrived <= by]
    return max(days, default=None)


def _judged(statement: Heartbeat) -> list[Mapping[str, Any]]:
    """Return the rules of a statement that say their limit and a verdict."""
    rules = statement.body.get("rules")
    return [rule for rule in rules if _is_rule(rule)] if isinstance(rules, list) else []


def _is_rule(rule: object) -> bool:
    if not isinstance(rule, dict) or rule.get("verdict") not in ("pass", "fail", "undecided"):
        return False
    sides = [side for side in ("max", "min") if isinstance(rule.get(side), int | float)]
    return len(sides) == 1 and isinstance(rule.get("metric"), str) and "sensitive" in rule


def _verdicts(rule: Mapping[str, Any], statement: Heartbeat) -> dict[str | None, list[str]]:
    """Return the verdicts of a statement on a rule, at its limit or a stricter one, by sensitive column."""
    side = "max" if "max" in rule else "min"
    verdicts: dict[str | None, list[str]] = defaultdict(list)
    if set(rule) - {"metric", "sensitive", side}:  # a watch judges no rule with other conditions
        return verdicts
    for one in _judged(statement):
        meant = one["metric"] == rule["metric"] and rule["sensitive"] in (None, one["sensitive"])
        if meant and side in one and (one[side] <= rule[side] if side == "max" else one[side] >= rule[side]):
            verdicts[one["sensitive"]].append(one["verdict"])
    return verdicts


def _named(rule: Mapping[str, Any]) -> str:
    return f"{rule['metric']}:{rule['sensitive']}" if rule["sensitive"] else str(rule["metric"])


def _day(text: object, where: str) -> date:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise CertificateError(f"{where} does not say its days") from None
