"""Paired-name audits: what a language model, or anybody, answers about the same text under another name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    from fairkit_correspondence.auditor import CorrespondenceAuditor

    return [CorrespondenceAuditor]


@hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Return the charts of its evidence."""
    from fairkit_correspondence.auditor import ChangedChart, DriftChart, ForestChart, RefusalChart

    return [ForestChart, RefusalChart, ChangedChart, DriftChart]
