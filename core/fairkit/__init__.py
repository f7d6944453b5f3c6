"""Audit machine-learning models for fairness, mitigate what is found, keep signed evidence.

Names are loaded when they are used, so that ``import fairkit`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Auditor": "fairkit.auditors",
    "Choice": "fairkit.frontier_choice",
    "Sweep": "fairkit.sweeps",
    "frontier": "fairkit.frontiers",
    "compare": "fairkit.comparing",
    "AuditContext": "fairkit.auditors",
    "ConfigError": "fairkit.errors",
    "DataError": "fairkit.errors",
    "Dataset": "fairkit.data",
    "FairMetric": "fairkit.individual.metric",
    "FairkitError": "fairkit.errors",
    "Finding": "fairkit.findings",
    "GroupValue": "fairkit.findings",
    "Mean": "fairkit.metrics",
    "Metric": "fairkit.metrics",
    "MitigationResult": "fairkit.mitigation",
    "Mitigator": "fairkit.mitigators",
    "ModelError": "fairkit.errors",
    "ModelOptions": "fairkit.models",
    "OnnxModel": "fairkit.onnx.model",
    "ParameterError": "fairkit.errors",
    "PluginError": "fairkit.errors",
    "PolicyError": "fairkit.errors",
    "PredictedColumns": "fairkit.models",
    "Promotion": "fairkit.promotions",
    "PromotionCheck": "fairkit.promotions",
    "Rate": "fairkit.metrics",
    "Remark": "fairkit.promotions",
    "Report": "fairkit.findings",
    "Rows": "fairkit.statistics",
    "Rule": "fairkit.policy",
    "audit": "fairkit.auditing",
    "hookimpl": "fairkit.hookspecs",
    "load_data": "fairkit.data",
    "mitigate": "fairkit.mitigation",
    "mitigator": "fairkit.estimators",
    "parameter": "fairkit.parameters",
}

if TYPE_CHECKING:
    from fairkit.auditing import audit
    from fairkit.auditors import AuditContext, Auditor
    from fairkit.comparing import compare
    from fairkit.data import Dataset, load_data
    from fairkit.errors import (
        ConfigError,
        DataError,
        FairkitError,
        ModelError,
        ParameterError,
        PluginError,
        PolicyError,
    )
    from fairkit.estimators import mitigator
    from fairkit.findings import Finding, GroupValue, Report
    from fairkit.frontier_choice import Choice
    from fairkit.frontiers import frontier
    from fairkit.hookspecs import hookimpl
    from fairkit.individual.metric import FairMetric
    from fairkit.metrics import Mean, Metric, Rate
    from fairkit.mitigation import MitigationResult, mitigate
    from fairkit.mitigators import Mitigator
    from fairkit.models import ModelOptions, PredictedColumns
    from fairkit.onnx.model import OnnxModel
    from fairkit.parameters import parameter
    from fairkit.policy import Rule
    from fairkit.promotions import Promotion, PromotionCheck, Remark
    from fairkit.statistics import Rows
    from fairkit.sweeps import Sweep

__all__ = [
    "AuditContext",
    "Auditor",
    "Choice",
    "ConfigError",
    "DataError",
    "Dataset",
    "FairMetric",
    "FairkitError",
    "Finding",
    "GroupValue",
    "Mean",
    "Metric",
    "MitigationResult",
    "Mitigator",
    "ModelError",
    "ModelOptions",
    "OnnxModel",
    "ParameterError",
    "PluginError",
    "PolicyError",
    "PredictedColumns",
    "Promotion",
    "PromotionCheck",
    "Rate",
    "Remark",
    "Report",
    "Rows",
    "Rule",
    "Sweep",
    "audit",
    "compare",
    "frontier",
    "hookimpl",
    "load_data",
    "mitigate",
    "mitigator",
    "parameter",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fairkit")
    if name == "datasets":
        return importlib.import_module("fairkit.datasets")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fairkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
