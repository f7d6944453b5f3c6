"""What an alias asks of a version before it points to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from fairkit.support.records import read_record, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALWAYS = ("rules", "keys", "max_age_days", "data", "no_worse", "confidence", "checks", "open")
"""Conditions that the first version wrote, too."""


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
        return record_of(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also what an older version wrote, which asked for less.

        Raises
        ------
        TypeError
            A condition that every version wrote is absent: nothing is asked for less in silence.
        """
        return read_record(cls, record, _ALWAYS)
