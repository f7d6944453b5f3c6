"""Audit machine-learning models for fairness, repair what is found, keep signed evidence.

A first session, on a model that scikit-learn holds::

    import fairkit

    report = fairkit.audit(model, X, y, sensitive_features=sex)   # a notebook shows it as a page
    report.find("demographic_parity_difference")                  # a number with its interval
    report.plot()                                                 # an Altair chart
    report.save("report.html")

    policy = [fairkit.Rule("equal_opportunity_difference", max=0.05)]
    fairkit.audit(model, X, y, sensitive_features=sex, policy=policy).verdict   # pass, fail or inconclusive

The same on files, where the model is one ONNX file and the table names its columns::

    data = fairkit.load_data("test.parquet", label="income", favorable=">50K", sensitive=["sex", "race"])
    fairkit.audit("model.onnx", data)

Ask
    advise       which metric, limit and groups fit a table and its use, with the reasons

Measure
    audit        what is unequal, how sure are we, does it keep a policy
    compare      paired differences of models on the same rows
    parity       does a file decide as the model did, row by row
    plan         how many rows decide a policy, or what an audit of this size can see
    scorer       a metric for scikit-learn's cross-validation and searches
    Watch        a model's decisions over time, with statements that hold at every look

Repair
    mitigate     train or repair a model by one method; the result is one ONNX file
    repair       from a policy to the most accurate model that will surely keep it
    frontier     accuracy against disparity along a method's parameters
    alternatives could it have been fairer? What a search for less discriminatory models shows
    mitigator    a method as a scikit-learn estimator class
    to_onnx      a fitted pipeline as one ONNX file over its raw columns

Data
    load_data    a table with roles: label, favorable value, sensitive columns
    Drawn        which rows have a known outcome, and why these
    datasets     built-in synthetic loans, and public data sets

Extend
    Metric, Rate, Mean, Auditor, Mitigator, PromotionCheck, hookimpl, parameter: for authors of plugins

Every error that a user can cause is a `FairkitError` whose message says how to fix it. ``help(fairkit.audit)`` and the
like have the details; the command ``fairkit`` does the same on files. A result is a statement under its metric, on its
data. Names are loaded when they are used, so that ``import fairkit`` stays light.
"""

from __future__ import annotations

import importlib
from typing import Any

from fairkit.sources.interface import add_finder

_PUBLIC = {
    "Advice": "fairkit_guide.advice",
    "advise": "fairkit_guide.advice",
    "Auditor": "fairkit.auditors",
    "Alternatives": "fairkit_alternatives.record",
    "Law": "fairkit_alternatives.laws",
    "alternatives": "fairkit_alternatives.search",
    "Choice": "fairkit_repair.frontiers.run",
    "Sweep": "fairkit_repair.frontiers.training",
    "frontier": "fairkit_repair.frontiers.run",
    "compare": "fairkit_comparing.run",
    "AuditContext": "fairkit.auditors",
    "AuditSettings": "fairkit.settings",
    "ConfigError": "fairkit.errors",
    "DataError": "fairkit.errors",
    "Dataset": "fairkit.data.dataset",
    "Drawn": "fairkit.data.labelled",
    "FairMetric": "fairkit_similarity.metric",
    "FairkitError": "fairkit.errors",
    "Finding": "fairkit.results.findings",
    "GroupValue": "fairkit.results.findings",
    "Mean": "fairkit.metrics",
    "Metric": "fairkit.metrics",
    "MitigationResult": "fairkit_repair.mitigation.run",
    "Mitigator": "fairkit.mitigators",
    "ModelError": "fairkit.errors",
    "ModelOptions": "fairkit.settings",
    "OnnxModel": "fairkit_onnx.file",
    "ParameterError": "fairkit.errors",
    "PluginError": "fairkit.errors",
    "PolicyError": "fairkit.errors",
    "PredictedColumns": "fairkit.models.columns",
    "Promotion": "fairkit.promotions",
    "PromotionCheck": "fairkit.promotions",
    "Rate": "fairkit.metrics",
    "Remark": "fairkit.promotions",
    "Report": "fairkit.results.report",
    "Rows": "fairkit.statistics",
    "Rule": "fairkit.results.rules",
    "Watch": "fairkit_watch.watch",
    "audit": "fairkit.auditing.run",
    "plan": "fairkit.planning.run",
    "Plan": "fairkit.planning.results",
    "hookimpl": "fairkit.hookspecs",
    "load_data": "fairkit.data.loading",
    "mitigate": "fairkit_repair.mitigation.run",
    "mitigator": "fairkit_repair.sklearn.estimators",
    "Parity": "fairkit_comparing.parity",
    "parameter": "fairkit.parameters",
    "parity": "fairkit_comparing.parity",
    "repair": "fairkit_repair.repairing.run",
    "scorer": "fairkit_repair.sklearn.base",
    "to_onnx": "fairkit_repair.sklearn.pipelines",
}

__all__ = list(_PUBLIC)


def _source_of(scheme: str) -> Any:
    """Return the plugins' source of data for a scheme: what reads data knows no plugin."""
    from fairkit.plugins import source_of

    return source_of(scheme)


add_finder(_source_of)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fairkit.installed import fairkit_version

        return fairkit_version()
    if name == "datasets":
        return importlib.import_module("fairkit_datasets")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fairkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "datasets"]
