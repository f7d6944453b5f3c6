"""What a promotion comes to: reasons, and the verdict that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fairkit_registry.evidence.revoked import Revocations

if TYPE_CHECKING:
    from datetime import datetime

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.records import Alias, Version
    from fairkit_registry.store.registry import Registry

Kind = Literal["refused", "inconclusive", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A sentence about a promotion: a refusal, something that cannot be decided, or a note."""

    kind: Kind
    text: str

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"kind": self.kind, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a version may be what an alias means."""

    version: Version  # what was asked for
    alias: Alias  # what was asked for
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


@dataclass(slots=True)
class Case:
    """One promotion while it is looked at."""

    registry: Registry
    version: Version
    alias: Alias
    now: datetime
    revocations: Revocations = field(default_factory=Revocations)
    reasons: list[Reason] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        """Add a refusal."""
        self.reasons.append(Reason(kind="refused", text=text))

    def doubt(self, text: str) -> None:
        """Add something that cannot be decided."""
        self.reasons.append(Reason(kind="inconclusive", text=text))

    def note(self, text: str) -> None:
        """Add a note."""
        self.reasons.append(Reason(kind="note", text=text))

    def sorted(self) -> tuple[Reason, ...]:
        """Return the reasons: refusals first, notes last."""
        order = ("refused", "inconclusive", "note")
        return tuple(sorted(self.reasons, key=lambda reason: order.index(reason.kind)))
