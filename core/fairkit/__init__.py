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

_MODULES = {
    "fairkit.auditing.run": "audit", "fairkit.auditors": "Auditor AuditContext", "fairkit.data.dataset": "Dataset",
    "fairkit.data.labelled": "Drawn", "fairkit.data.loading": "load_data",
    "fairkit.errors": "ConfigError DataError FairkitError ModelError ParameterError PluginError PolicyError",
    "fairkit.hookspecs": "hookimpl", "fairkit.metrics": "Mean Metric Rate", "fairkit.mitigators": "Mitigator",
    "fairkit.models.columns": "PredictedColumns", "fairkit.parameters": "parameter",
    "fairkit.planning.results": "Plan", "fairkit.planning.run": "plan",
    "fairkit.promotions": "Promotion PromotionCheck Remark", "fairkit.results.findings": "Finding GroupValue",
    "fairkit.results.report": "Report", "fairkit.results.rules": "Rule",
    "fairkit.settings": "AuditSettings ModelOptions", "fairkit.statistics": "Rows", "fairkit_alternatives.laws": "Law",
    "fairkit_alternatives.record": "Alternatives", "fairkit_alternatives.search": "alternatives",
    "fairkit_comparing.parity": "Parity parity", "fairkit_comparing.run": "compare",
    "fairkit_guide.advice": "Advice advise", "fairkit_onnx.file": "OnnxModel",
    "fairkit_repair.frontiers.run": "Choice frontier", "fairkit_repair.frontiers.training": "Sweep",
    "fairkit_repair.mitigation.run": "MitigationResult mitigate", "fairkit_repair.repairing.run": "repair",
    "fairkit_repair.sklearn.base": "scorer", "fairkit_repair.sklearn.estimators": "mitigator",
    "fairkit_repair.sklearn.pipelines": "to_onnx", "fairkit_similarity.metric": "FairMetric",
    "fairkit_watch.watch": "Watch",
}  # fmt: skip
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_PUBLIC)


def _source_of(scheme: str) -> Any:
    """Return the plugins' source of data for a scheme: what reads data knows no plugin."""
    from fairkit.plugins import source_of

    return source_of(scheme)


add_finder(_source_of)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fairkit")
    if name == "datasets":
        return importlib.import_module("fairkit_datasets")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'fairkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "datasets"]
