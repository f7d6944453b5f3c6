"""What an alias asks of a version before it points to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasPolicy:
    """The conditions of an alias; by default a certificate by a trusted key, and no key is trusted.

    Attributes
    ----------
    rules
        Policy rules (``{"metric", "sensitive", "max" | "min"}``) that the certified findings must meet.
        Without rules, the verdict that was signed must be ``pass``.
    keys
        PEM of the public keys whose certificates count.
    max_age_days
        How old (by the signed `auditedAt`) the certificate may be; None: any age.
    data
        SHA-256 of the data sets that the audit may have been made on; empty: any.
    no_worse
        Metrics (``accuracy``, ``accuracy_difference:sex``, or ``all``) in which the version must not be worse
        than the current version (significantly).
    confidence
        The least confidence of the intervals that rules are judged by.
    checks
        Names of promotion checks (from plugins) that must be installed and agree.
    open
        True asks for nothing: a place for work in progress.
    settings
        Settings that the audit must have had, by name (``model.threshold``); every other one must be the default.
        See `fairkit_registry.evidence.pins`.
    min_rows
        The least number of audited rows in every group; None: any.
    data_keys
        PEM of the public keys of which one must have signed the audited table; empty: nobody needs to.
    sequential
        Whether the numbers that the auditor's key gave its certificates must be in the registry without a gap.
    revokers
        PEM of the public keys whose revocation lists count against every signature, as when the auditor's key is lost.
    timestamp_roots
        PEM of the roots of time-stamping authorities, of which one must have stamped a certificate; empty: none must.
    pre_registered
        Whether the audit's policy, table and settings must have been locked, and registered, before the model came.
    unseen
        Whether the lock must be sealed, so that the model's author could not know the rows, and be signed by one of
        `data_keys` that has not signed the certificate.
    operators
        Operators at which the rows of a batch may meet, where it is not proved that they stay apart.
    outputs, inputs
        Outputs that nobody audited and inputs that were never fed, that the version may have.
    machines
        From how many unlike machines (processor, threads, system) certificates must agree.
    probation_days
        For how many days signed statements about the served decisions must keep the version after its promotion; None:
        none must.
    watch_keys
        PEM of the public keys of which one must have signed those statements; empty: those of `keys`.
    """

    rules: tuple[Mapping[str, Any], ...] = ()
    keys: tuple[str, ...] = ()
    max_age_days: float | None = None
    data: tuple[str, ...] = ()
    no_worse: tuple[str, ...] = ()
    confidence: float = 0.95
    checks: tuple[str, ...] = ()
    open: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    min_rows: int | None = None
    data_keys: tuple[str, ...] = ()
    sequential: bool = False
    revokers: tuple[str, ...] = ()
    timestamp_roots: tuple[str, ...] = ()
    pre_registered: bool = False
    unseen: bool = False
    operators: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    machines: int = 1
    probation_days: int | None = None
    watch_keys: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "rules": [dict(rule) for rule in self.rules],
            "keys": list(self.keys),
            "max_age_days": self.max_age_days,
            "data": list(self.data),
            "no_worse": list(self.no_worse),
            "confidence": self.confidence,
            "checks": list(self.checks),
            "open": self.open,
            "settings": dict(self.settings),
            "min_rows": self.min_rows,
            "data_keys": list(self.data_keys),
            "sequential": self.sequential,
            "revokers": list(self.revokers),
            "timestamp_roots": list(self.timestamp_roots),
            "pre_registered": self.pre_registered,
            "unseen": self.unseen,
            "operators": list(self.operators),
            "outputs": list(self.outputs),
            "inputs": list(self.inputs),
            "machines": self.machines,
            "probation_days": self.probation_days,
            "watch_keys": list(self.watch_keys),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also what an older version wrote, which asked for less."""
        return cls(
            rules=tuple(record["rules"]),
            keys=tuple(record["keys"]),
            max_age_days=record["max_age_days"],
            data=tuple(record["data"]),
            no_worse=tuple(record["no_worse"]),
            confidence=record["confidence"],
            checks=tuple(record["checks"]),
            open=record["open"],
            settings=record.get("settings", {}),
            min_rows=record.get("min_rows"),
            data_keys=tuple(record.get("data_keys", ())),
            sequential=record.get("sequential", False),
            revokers=tuple(record.get("revokers", ())),
            timestamp_roots=tuple(record.get("timestamp_roots", ())),
            pre_registered=record.get("pre_registered", False),
            unseen=record.get("unseen", False),
            operators=tuple(record.get("operators", ())),
            outputs=tuple(record.get("outputs", ())),
            inputs=tuple(record.get("inputs", ())),
            machines=record.get("machines", 1),
            probation_days=record.get("probation_days"),
            watch_keys=tuple(record.get("watch_keys", ())),
        )
