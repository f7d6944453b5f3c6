"""One promotion while it is looked at, and the sentences about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

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


@dataclass(slots=True)
class Case:
    """One promotion while it is looked at."""

    registry: Registry
    version: Version
    alias: Alias
    now: datetime
    revoked: Mapping[str, str] = field(default_factory=dict)
    current: Certificate | None = None  # the newest valid certificate of the version that the alias points to
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
