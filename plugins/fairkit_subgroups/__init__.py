"""The worst-treated group that nobody named: every conjunction of conditions, with one bound for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    from fairkit_subgroups.auditor import SubgroupAuditor

    return [SubgroupAuditor]
