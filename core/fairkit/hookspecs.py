"""The hooks of fairkit. A hook returns classes and does nothing else: the class is the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart
    from fairkit.exporters import Exporter
    from fairkit.learners import Learner
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.models.scorer import ModelSource
    from fairkit.packs import Pack
    from fairkit.promotions import PromotionCheck
    from fairkit.signers import Signer
    from fairkit.sources import DataSource

PROJECT = "fairkit"
"""The pluggy project, and the entry-point group in which plugins are found."""

INTERFACE = 1
"""The version of the plugin interface; a plugin's module may say which it was written for: FAIRKIT_INTERFACE = 1."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def fairkit_metrics() -> list[type[Metric]]:  # type: ignore[empty-body]
    """Return the plugin's group metrics (see `fairkit.Metric`)."""


@hookspec
def fairkit_auditors() -> list[type[Auditor]]:  # type: ignore[empty-body]
    """Return the plugin's auditors (see `fairkit.Auditor`)."""


@hookspec
def fairkit_mitigators() -> list[type[Mitigator]]:  # type: ignore[empty-body]
    """Return the plugin's mitigator, at most one, named like the plugin (see `fairkit.Mitigator`)."""


@hookspec
def fairkit_learners() -> list[type[Learner]]:  # type: ignore[empty-body]
    """Return the plugin's learners, which ``--learner`` names (see `fairkit.learners.Learner`)."""


@hookspec
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:  # type: ignore[empty-body]
    """Return the plugin's charts of evidence (see `fairkit.charts.EvidenceChart`)."""


@hookspec
def fairkit_sources() -> list[type[DataSource]]:  # type: ignore[empty-body]
    """Return the plugin's sources of data, which addresses name by scheme (see `fairkit.sources.DataSource`)."""


@hookspec
def fairkit_model_sources() -> list[type[ModelSource]]:  # type: ignore[empty-body]
    """Return the plugin's sources of models that are no file (see `fairkit.models.scorer.ModelSource`)."""


@hookspec
def fairkit_promotion_checks() -> list[type[PromotionCheck]]:  # type: ignore[empty-body]
    """Return the plugin's promotion checks (see `fairkit.PromotionCheck`)."""


@hookspec
def fairkit_signers() -> list[type[Signer]]:  # type: ignore[empty-body]
    """Return the plugin's signer, at most one, named like the plugin (see `fairkit.signers.Signer`)."""


@hookspec
def fairkit_exporters() -> list[type[Exporter]]:  # type: ignore[empty-body]
    """Return the plugin's exporters of a model's versions (see `fairkit.exporters.Exporter`)."""


@hookspec
def fairkit_packs() -> list[type[Pack]]:  # type: ignore[empty-body]
    """Return the plugin's renderings for laws or house rules (see `fairkit.packs.Pack`)."""
