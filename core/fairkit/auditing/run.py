"""One audit: a model, a dataset, auditors; findings, a policy's verdict, a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.auditing.prepare import Asked
from fairkit.auditing.subject import prepared
from fairkit.data.loading import as_dataset
from fairkit.engines.opening import opened
from fairkit.models.ranking import bound
from fairkit.models.scorer import ModelOptions
from fairkit.progress import Progress, no_progress
from fairkit.results.about import facts_of

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.results.findings import Finding
    from fairkit.results.policy import Adjustment
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule


@plugins.listed_once()
def audit(
    model: Any,
    data: Dataset | Any,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    favorable: Any = None,
    auditors: Sequence[str] = plugins.DEFAULT_AUDITORS,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Sequence[Rule] = (),
    adjustment: Adjustment | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    options: ModelOptions | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
    about: Mapping[str, str] | None = None,
    signed: Sequence[Finding] = (),
) -> Report:
    """Audit a model on a dataset.

    The rows are read and scored once, in batches; every auditor sees each batch.

    Parameters
    ----------
    model
        See `fairkit.auditing.subject.as_model`.
    data
        From `fairkit.load_data`; or a matrix or data frame X, with `y` beside it.
    y, sensitive_features, sample_weight, favorable
        What stands beside X, as scikit-learn has it: see `fairkit.load_data`.
    auditors
        Names of installed auditors.
    parameters
        Parameters by auditor: ``{"restricted-dro": {"epsilon": 0.1}}``.
    policy
        Rules; without any there is no verdict.
    adjustment
        For the multiplicity of rules: None, ``holm``, ``bonferroni`` or ``benjamini-hochberg`` (see `judge`).
    confidence
        Of every interval, in (0, 1).
    seed
        For every random draw.
    options
        What cannot be guessed about the model.
    progress
        Told about long work.
    engine
        ``"dask"`` spreads the work over a cluster, with the same findings (see
        `fairkit.engines.opening.opened`); None: this machine.
    scheduler
        The cluster's address; None starts one on this machine.
    about
        Facts that stand in the report as they are: ``{"intended_use": ..., "owner": ..., "period": ...}``.
    signed
        The findings of a certificate that this audit checks (see `fairkit.auditors.AuditContext`).

    Returns
    -------
    Report
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        The model, the data, a parameter or a rule cannot be used.
    """
    data = as_dataset(data, y, sensitive_features, sample_weight, favorable)
    stated = facts_of(about or {})
    asked = Asked.of(
        auditors, parameters, policy=policy, adjustment=adjustment, confidence=confidence, seed=seed
    )
    with opened(engine, scheduler) as running:
        running.check(*plugins.needs_of(asked.used))
        (subject,) = prepared([model], data, running.total)
        one = asked.about(
            bound(subject, data, options or ModelOptions()), data, running, progress, signed=signed
        )
        report = one.report(score_once(running, data, [one.scorer], one.readers, progress))
    return dataclasses.replace(report, about=stated)
