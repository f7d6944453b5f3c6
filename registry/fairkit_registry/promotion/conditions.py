"""What an alias can ask, each condition a small object with one method, and the TOML file that they are written in.

::

    keys = ["auditor.pub"]              # public keys whose certificates count
    data = ["test.parquet"]             # tables (files or SHA-256), or public keys of which one has signed the table
    max_age_days = 90
    min_rows = 200
    plain = true                        # rows stay apart, every output audited, every input fed
    locked = true                       # a policy lock was registered before the model came
    unseen = true                       # its rows were sealed by a key of `data`
    no_worse = ["all"]
    checks = ["legal"]                  # promotion checks of plugins
    like = "certificate.json"           # or [settings.data], [settings.model], [settings.audit], as in fairkit.toml

    [[rules]]
    metric = "demographic_parity_difference"
    sensitive = "sex"
    max = 0.1
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fairkit.errors import PolicyError, did_you_mean
from fairkit.results.rules import Rule
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry.blobs import is_digest, read_limited, summarise
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence import settings as pins
from fairkit_registry.evidence.certificate import Certificate, check_lock, signed_table, verify
from fairkit_registry.evidence.predicate import CLOCK_SKEW
from fairkit_registry.evidence.signed import PolicyLock
from fairkit_registry.evidence.signers import load_public, parse_public
from fairkit_registry.promotion.case import ALL, check_serving, worse_findings
from fairkit_registry.store.index import AliasPolicy

if TYPE_CHECKING:
    from fairkit_registry.promotion.case import Case
    from fairkit_registry.store.tables import Event

_SHOWN = 5
_HOW = "`fairkit policy lock`, `fairkit registry add NAME LOCK`, then the model, then `fairkit certify --lock LOCK`"


class Condition(Protocol):
    """Something that an alias asks of a certificate that decides."""

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Add reasons to the case: what refuses, what cannot be decided, and what is to be known."""


def conditions(policy: AliasPolicy) -> tuple[Condition, ...]:
    """Return what an alias asks, in the order in which reasons are told."""
    parts: list[Condition] = [Fresh(policy.max_age_days)]
    parts += [Rules(policy.rules, policy.confidence)] if policy.rules else [OwnVerdict(policy.confidence)]
    parts += [Settings(policy.settings), NothingDropped()]
    if policy.min_rows is not None:
        parts.append(MinRows(policy.min_rows))
    if policy.data_keys and not policy.unseen:  # who seals rows has signed for them
        parts.append(SignedRows(policy.data_keys))
    if policy.plain:
        parts.append(Plain())
    if policy.locked or policy.unseen:
        parts.append(Locked(policy.data_keys if policy.unseen else policy.keys, unseen=policy.unseen))
    if policy.no_worse:
        parts.append(NoWorse(policy.no_worse))
    if policy.gone:
        parts.append(Gone(policy.gone))
    return (*parts, Choices())


@dataclass(frozen=True, slots=True)
class Gone:
    """What an earlier version asked for, and no check is left for."""

    names: tuple[str, ...]

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse."""
        case.refuse(
            f"the alias asks for {', '.join(self.names)}, which fairkit no longer checks: set its policy anew with "
            f"`fairkit registry alias {case.version.name} {case.alias.alias} --policy FILE`"
        )


@dataclass(frozen=True, slots=True)
class Fresh:
    """An audit that is not too old, and does not lie in the future."""

    days: float | None

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse another one."""
        age = case.now - deciding.audited_at
        if age < -CLOCK_SKEW:
            case.refuse(f"the certificate's audit lies in the future ({deciding.audited_at.isoformat()})")
        if self.days is not None and age > timedelta(days=self.days):
            days = age.total_seconds() / 86_400
            case.refuse(f"the certificate is too old: audited {days:.1f} days ago, at most {self.days:g} are allowed")


@dataclass(frozen=True, slots=True)
class Rules:
    """The alias's rules, judged from the certificate's intervals, whatever rules the signer had."""

    rules: tuple[Mapping[str, Any], ...]
    confidence: float

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse what breaks a rule; doubt what is inconclusive."""
        from fairkit.results.policy import judge

        report = deciding.report
        for record in self.rules:
            try:
                results, _ = judge([Rule.from_dict(record)], report.findings, confidence=report.confidence)
            except PolicyError as error:
                case.refuse(f"the certificate does not cover what the alias asks for: {error}")
                continue
            rule = results[0]
            if rule.verdict == "fail":
                case.refuse(f"policy: {rule.reason}")
            elif rule.verdict == "inconclusive":
                case.doubt(f"policy, inconclusive: {rule.reason}")
            findings = [finding for finding in report.findings if finding.metric == rule.metric]
            low = [finding.confidence for finding in findings if finding.confidence < self.confidence]
            if low:
                case.refuse(
                    f"{rule.metric} was audited at confidence {min(low):g}; the alias asks for {self.confidence:g}"
                )
            between = sorted({finding.sensitive for finding in findings if finding.sensitive})
            if rule.sensitive is None and between and "data.sensitive" not in case.alias.policy.settings:
                case.refuse(
                    f"the alias's rule on {rule.metric} names no column and the alias does not pin data.sensitive, so "
                    f"the signer chose which groups count ({', '.join(between)}): name the column in the rule, as in "
                    f"--max {rule.metric}:{between[0]}=X, or pin the settings with like = CERT in --policy FILE"
                )


@dataclass(frozen=True, slots=True)
class OwnVerdict:
    """A pass by the rules that were signed, where the alias has none."""

    confidence: float

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse a fail, or no policy at all."""
        report = deciding.report
        reasons = {
            verdict: "; ".join(
                judgement.reason or judgement.metric for judgement in report.policy if judgement.verdict == verdict
            )
            for verdict in ("fail", "inconclusive")
        }
        if report.verdict is None:
            case.refuse(
                "neither the certificate nor the alias has a policy: certify with --max or --min, or give the alias "
                "rules"
            )
        elif report.verdict == "fail":
            case.refuse(f"the certificate says that the model failed its policy: {reasons['fail']}")
        elif report.verdict == "inconclusive":
            case.doubt(f"the certificate says that its policy is inconclusive: {reasons['inconclusive']}")
        if report.confidence < self.confidence:
            case.refuse(f"the audit's confidence is {report.confidence:g}; the alias asks for {self.confidence:g}")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the audit: pinned, or the default where nothing is pinned."""

    pinned: Mapping[str, Any]

    def fits(self, case: Case, one: Certificate) -> bool:
        """Tell whether a certificate's settings are these."""
        return not any(pins.deviations(_as_served(case, one), self.pinned))

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse others, naming each; what has no default is as in the current version's certificate."""
        settings = _as_served(case, deciding)
        how = (
            f"like = CERT in the file of `fairkit registry alias {case.version.name} {case.alias.alias} --policy FILE`"
        )
        for text in pins.deviations(settings, self.pinned):
            case.refuse(f"setting {text}. {how} pins the settings of a certificate")
        names = pins.named(settings)
        before = {} if case.current is None else pins.named(case.current.settings)
        for name in _free(case, names):
            if name in before and not pins.same(name, names[name], before[name]):
                case.refuse(
                    f"setting {name} is {pins.shown(names[name])}, in the certificate of the current version "
                    f"{case.version.name}@{case.alias.version} it is {pins.shown(before[name])}, and the alias does "
                    f"not pin it. {how} pins the settings of a certificate"
                )


def _free(case: Case, found: Mapping[str, object]) -> list[str]:
    """Return the settings without a default that the alias does not pin."""
    return [name for name in pins.CHOSEN if name not in case.alias.policy.settings and found.get(name)]


def _as_served(case: Case, deciding: Certificate) -> dict[str, Any]:
    """Return the settings without features that are only the names of the model's own inputs."""
    settings = dict(deciding.settings)
    features = settings.get("data", {}).get("features")
    if not features or len(features) < 2 or "data.features" in case.alias.policy.settings:
        return settings
    try:
        graph = summarise(case.registry.blobs.path(case.version.model))
    except (RegistryError, OSError):
        return settings
    names = {text.rpartition(": ")[0] for text in graph.inputs}
    return settings | ({"data": settings["data"] | {"features": None}} if names - {"u"} == set(features) else {})


@dataclass(frozen=True, slots=True)
class NothingDropped:
    """No rows left out through a sensitive column that no rule of the alias is about."""

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse where there are."""
        policy, data = case.alias.policy, deciding.report.data
        columns = {part for rule in policy.rules for part in str(rule.get("sensitive") or "").split("+")}
        extra = sorted({part for name in data.groups for part in name.split("+")} - columns)
        if data.dropped_rows and policy.rules and extra and "data.sensitive" not in policy.settings:
            case.refuse(
                f"{data.dropped_rows:,} rows were left out, and setting data.sensitive has columns that no rule of the "
                f"alias names and that the alias does not pin ({', '.join(extra)}): a row without a value there is "
                "left out"
            )


@dataclass(frozen=True, slots=True)
class MinRows:
    """So many audited rows in every group."""

    least: int

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse fewer."""
        data = deciding.report.data
        if not data.groups and data.rows < self.least:
            case.refuse(f"the audit has {data.rows:,} rows; the alias asks for at least {self.least:,}")
        for sensitive, sizes in data.groups.items():
            small = [f"{group} {rows:,}" for group, rows in sizes.items() if rows < self.least]
            if small:
                more = f" and {len(small) - _SHOWN} more" if len(small) > _SHOWN else ""
                case.refuse(
                    f"groups of {sensitive} with fewer than the {self.least:,} rows that the alias asks for: "
                    + ", ".join(small[:_SHOWN])
                    + more
                )


@dataclass(frozen=True, slots=True)
class SignedRows:
    """A table that one of these keys has signed."""

    keys: tuple[str, ...]

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse another one."""
        table, data = signed_table(deciding, [parse_public(pem) for pem in self.keys]), deciding.report.data
        if table is None:
            case.refuse(
                f"the alias asks for a table that one of its keys for tables has signed, and the certificate has no "
                f"such statement about {data.name} ({data.sha256[:16]}): `fairkit policy lock --data TABLE` without a "
                "policy makes one, `fairkit certify ... --signed-data FILE` takes it"
            )
            return
        purpose = f": {table.purpose}" if table.purpose else ""
        case.note(f"the table {table.name} is signed by key {table.keyids[0][:16]}{purpose}")


@dataclass(frozen=True, slots=True)
class Plain:
    """A file of which it is shown, here, that rows stay apart; nothing in it unaudited or never fed."""

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse what is not shown."""
        check_serving(case, deciding)


@dataclass(frozen=True, slots=True)
class Locked:
    """A policy lock by one of these keys that was registered before the model came."""

    keys: tuple[str, ...]
    unseen: bool = False

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse a certificate whose policy, table and settings were not locked before."""
        lock = self._lock(case, deciding)
        if lock is None:
            return
        log = case.registry.log()[::-1]
        arrived = next(
            event for event in log if event.action in ("add", "import") and event.body["model"] == case.version.model
        )
        locks = [event for event in log if event.action == "lock" and event.name == case.version.name]
        first = next((event for event in locks if event.body["statement"] == lock.statement_sha256), None)
        if first is None:
            case.refuse(f"the certificate's policy lock is not registered for {case.version.name}: {_HOW}")
        elif first.seq > arrived.seq:
            case.refuse(
                f"the policy lock was registered (event {first.seq}) after the model came (event {arrived.seq}): the "
                f"policy may have been chosen to fit it. {_HOW}"
            )
        else:
            _check_newest(case, lock, [event for event in locks if event.seq < arrived.seq])
            case.note(
                f"policy, table and settings were locked at {lock.locked_at:%Y-%m-%d %H:%M} UTC by key "
                f"{lock.keyids[0][:16]}, registered as event {first.seq}, before the model (event {arrived.seq})"
            )

    def _lock(self, case: Case, deciding: Certificate) -> PolicyLock | None:
        """Return the certificate's lock if it holds; what does not is a refusal."""
        if deciding.policy_lock is None:
            case.refuse(f"the alias asks for a policy lock, and the certificate refers to none: {_HOW}")
            return None
        if self.unseen and not self.keys:
            case.refuse("the alias asks for sealed rows and names no key of the rows' owner: data = [PUB]")
            return None
        try:
            lock = PolicyLock.verify(deciding.policy_lock, [parse_public(pem) for pem in self.keys])
            bad = [keyid for keyid in (lock.statement_sha256, *lock.keyids) if keyid in case.revoked]
            if bad:
                raise CertificateError(f"it was revoked: {case.revoked[bad[0]]}")
            check_lock(deciding, lock)
            shared_keys = set(lock.keyids) & set(deciding.keyids)
            if self.unseen and not lock.sealed:
                raise CertificateError("it names its table, and the alias asks for sealed rows (--data-salted)")
            if self.unseen and shared_keys:
                raise CertificateError(f"key {min(shared_keys)[:16]} has sealed the rows and signed the certificate")
        except CertificateError as error:
            case.refuse(f"the certificate's policy lock does not count: {error}")
            return None
        return lock


def _check_newest(case: Case, lock: PolicyLock, before: Sequence[Event]) -> None:
    """Refuse a lock that another one has replaced before the model came: of many nobody may pick."""
    newest = before[-1]
    if newest.body["statement"] != lock.statement_sha256:
        case.refuse(
            f"another policy lock was registered for {case.version.name} later (event {newest.seq}) and before the "
            "model: that one counts"
        )
    others = {event.body["statement"] for event in before} - {lock.statement_sha256}
    if others:
        case.note(f"{len(others)} earlier policy lock{'s' * (len(others) > 1)} of {case.version.name} were replaced")


@dataclass(frozen=True, slots=True)
class NoWorse:
    """Not significantly worse than the current version in these metrics."""

    metrics: tuple[str, ...]

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Refuse what is worse; doubt what cannot be compared."""
        if case.alias.version in (None, case.version.version):
            return
        current = f"{case.version.name}@{case.alias.version}"
        if case.current is None:
            case.doubt(f"{current}, which the alias means now, has no valid certificate to compare with")
            return
        worse, unknown = worse_findings(case.current.report, deciding.report, self.metrics)
        measured = {name for f in deciding.report.findings for name in (f.metric, f"{f.metric}:{f.sensitive}")}
        for wanted in self.metrics:
            if wanted not in measured | {ALL}:
                case.refuse(f"the certificate has no finding {wanted!r}, in which the alias allows nothing worse")
        for pair in worse:
            low, high = pair.interval or (float("nan"), float("nan"))
            case.refuse(
                f"significantly worse than {current}: {pair.title} goes from {pair.before:.4g} to "
                f"{pair.after:.4g}, difference [{low:.4g}, {high:.4g}]"
            )
        for pair in unknown:
            case.doubt(
                f"{pair.title} of {current} cannot be compared: it has other parameters, no value or no interval"
            )
        if case.current.report.data.sha256 != deciding.report.data.sha256:
            case.note(f"the certificates of {current} and {case.version.reference} are on different data")


@dataclass(frozen=True, slots=True)
class Choices:
    """Refuses nothing: it tells what the alias left to the signer, and what is not the default."""

    def judge(self, case: Case, deciding: Certificate) -> None:
        """Note it."""
        policy, report = case.alias.policy, deciding.report
        odd, names = pins.lines(deciding.settings), pins.named(deciding.settings)
        if odd:
            case.note(f"settings of the audit that are not the default: {'; '.join(odd)}")
        free = [f"{name} {pins.shown(names[name])}" for name in _free(case, names)]
        if free:
            case.note(f"the signer chose {', '.join(free)}; `like` in the alias's policy would fix it")
        if not policy.rules and report.verdict == "pass":
            rules = ", ".join(f"{judgement.metric}:{judgement.sensitive or 'all rows'}" for judgement in report.policy)
            case.note(f"the alias has no rules, so what a pass takes was the signer's choice: {rules}")
        if not policy.data and not policy.data_keys:
            case.note(
                f"the alias names no table (--data), so the rows were the signer's choice: {report.data.name}, "
                f"{report.data.rows:,} rows, content {report.data.sha256[:16]}"
            )
        if report.data.dropped_rows:
            case.note(f"{report.data.dropped_rows:,} rows of {report.data.name} were left out of the audit")
        for text in report.model.notes:
            case.note(f"from the audit: {text}")


def read_policy(path: Path) -> AliasPolicy:
    """Read the conditions of an alias from a TOML file; files that it names lie beside it."""
    try:
        record = tomllib.loads(read_limited(path, 1 << 20, "the policy of an alias").decode("utf-8-sig"))
    except ValueError as error:
        raise RegistryError(f"{path} is not valid TOML: {error}") from None
    names = {each.name for each in dataclasses.fields(AliasPolicy)} - {"gone", "data_keys"} | {"like"}
    for name in record:
        if name not in names:
            raise RegistryError(f"{path}: no alias asks for {name!r}. {did_you_mean(name, names, what='conditions')}")
    kinds: dict[str, tuple[type, ...]] = {"max_age_days": (int, float), "confidence": (int, float), "min_rows": (int,)}
    kinds |= dict.fromkeys(("plain", "locked", "unseen", "open"), (bool,)) | {"like": (str,), "settings": (dict,)}
    for name, value in record.items():
        listed = isinstance(value, list) and all(isinstance(item, dict if name == "rules" else str) for item in value)
        if not (isinstance(value, kinds[name]) if name in kinds else listed) or (
            isinstance(value, bool) and kinds.get(name) != (bool,)
        ):
            raise RegistryError(f"{path}: {name} = {str(value)[:80]!r} is not of the form that it has")
    if not 0 < record.get("confidence", 0.95) < 1:
        raise RegistryError(f"{path}: confidence = {record['confidence']} is not between 0 and 1; 0.95 is usual")
    if "like" in record and "settings" in record:
        raise RegistryError(f"{path}: like and [settings] both say what to pin; give one of them")
    folder = path.parent
    fields: dict[str, Any] = {
        name: record[name] for name in record if name in kinds and name not in ("like", "settings")
    }
    fields |= {name: tuple(record[name]) for name in ("no_worse", "checks") if name in record}
    fields["keys"] = tuple(load_public(folder / name).pem for name in record.get("keys", ()))
    fields["data"], fields["data_keys"] = read_data(record.get("data", ()), folder)
    try:
        fields["rules"] = tuple(Rule.from_dict(rule).to_dict() for rule in record.get("rules", ()))
    except (PolicyError, KeyError, TypeError) as error:
        raise RegistryError(f"{path}: [[rules]]: {error}") from None
    if "settings" in record:
        fields["settings"] = pins.of_tables(record["settings"], f"{path} [settings]")
    if "like" in record:
        if not fields["keys"]:
            raise RegistryError(f"{path}: like pins the settings of a certificate that the alias trusts: name its keys")
        signed = verify(Certificate.read_file(folder / record["like"]), [parse_public(pem) for pem in fields["keys"]])
        fields["settings"] = pins.named(signed.settings)
    return AliasPolicy(**fields)


def read_data(named: Sequence[str], beside: Path = Path()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return digests of tables, and keys of which one must have signed them, from files, digests and public keys."""
    from fairkit.data.loading import load_data

    digests, keys = [], []
    for name in named:
        if is_digest(name):
            digests.append(name)
        elif name.endswith((".pub", ".pem")):
            keys.append(load_public(beside / name).pem)
        else:
            digests.append(load_data(str(beside / name) if (beside / name).exists() else name).learn().sha256)
    return tuple(digests), tuple(keys)


def ask_plugins(case: Case, deciding: Certificate | None) -> None:
    """Ask every promotion check of every installed plugin.

    A check that raises vetoes, because nobody knows what it would have said. A plugin that does not load is noted; an
    alias that relies on its check names the check, and then its absence is a veto.
    """
    from fairkit import plugins
    from fairkit.promotions import Promotion

    loaded, failures = plugins.third_party()
    checks = [check for plugin in loaded for check in plugin.promotion_checks]
    version, alias = case.version, case.alias
    promotion = Promotion(
        name=version.name,
        version=version.version,
        alias=alias.alias,
        model_path=case.registry.blobs.path(version.model),
        model_sha256=version.model,
        report=None if deciding is None else deciding.report,
        mitigation=None if deciding is None else deciding.mitigation,
        keyids=() if deciding is None else deciding.keyids,
        holder=alias.version,
        holder_report=None if case.current is None else case.current.report,
        tags=version.tags,
    )
    for wanted in alias.policy.checks:
        if wanted not in {check.name for check in checks}:
            case.refuse(f"the alias asks for the check {wanted!r}, and no plugin that loads has it")
    for check in checks:
        try:
            for remark in check().check(promotion) or ():
                (case.refuse if remark.veto else case.note)(f"{check.name}: {remark.text}")
        except Exception as error:
            case.refuse(f"{check.name}: the check broke ({type(error).__name__}: {error})")
    for failure in failures:
        case.note(f"not asked, because it does not load: {failure}")
