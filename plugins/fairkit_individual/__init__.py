"""Individual fairness: two exact certificates for any model, however it was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditors."""
    from fairkit_individual.dif import DifAuditor, RestrictedDroAuditor

    return [RestrictedDroAuditor, DifAuditor]
