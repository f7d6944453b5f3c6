"""Why there is a gap: which columns carry it, which parts of the confusion table, and what is left between equals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    from fairkit_why.auditor import WhyAuditor

    return [WhyAuditor]


@hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Return how divided gaps are shown."""
    from fairkit_why.chart import LeftChart, WaterfallChart

    return [LeftChart, WaterfallChart]
