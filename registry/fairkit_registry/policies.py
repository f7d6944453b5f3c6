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
    """The conditions of an alias; by default a certificate by a trusted key, and no key is trusted."""

    rules: tuple[Mapping[str, Any], ...] = ()
    keys: tuple[str, ...] = ()  # PEM of the public keys whose certificates count
    max_age_days: float | None = None  # how old (by the signed `auditedAt`) the certificate may be; None: any age
    data: tuple[str, ...] = ()  # SHA-256 of the data sets that the audit may have been made on; empty: any
    no_worse: tuple[str, ...] = ()
    confidence: float = 0.95  # the least confidence of the intervals that rules are judged by
    checks: tuple[str, ...] = ()  # names of promotion checks (from plugins) that must be installed and agree
    open: bool = False  # true asks for nothing: a place for work in progress
    settings: Mapping[str, Any] = field(default_factory=dict)
    min_rows: int | None = None  # the least number of audited rows in every group; None: any
    data_keys: tuple[str, ...] = ()
    sequential: bool = False
    revokers: tuple[str, ...] = ()
    pre_registered: bool = False
    unseen: bool = False
    operators: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    machines: int = 1  # from how many unlike machines (processor, threads, system) certificates must agree
    probation_days: int | None = None
    watch_keys: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also what an older version wrote, which asked for less."""
        return read_record(cls, record, _ALWAYS)
