"""What holds for all inputs: whether anybody's decision could depend on a column, with a witness or a proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    from fairkit_all_inputs.findings import AllInputsAuditor

    return [AllInputsAuditor]


@hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Return how a witness is shown."""
    from fairkit_all_inputs.replaying import WitnessChart

    return [WitnessChart]
