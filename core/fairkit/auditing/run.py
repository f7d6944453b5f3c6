"""One audit: a model, a dataset, auditors; findings, a policy's verdict, a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.auditing.prepare import LoadedAuditors, prepared
from fairkit.data.loading import as_dataset, with_outcomes
from fairkit.engines.local import LocalEngine, opened
from fairkit.errors import ParameterError, RowsNeededError
from fairkit.models.columns import PredictedColumns
from fairkit.models.scorer import NoPredictions, bound
from fairkit.progress import Progress, no_progress
from fairkit.results.findings import facts_of
from fairkit.results.rules import rules_of
from fairkit.settings import AuditSettings, Copies, ModelOptions, at_threshold
from fairkit.support.calls import checked

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.labelled import Drawn
    from fairkit.engines.base import Engine
    from fairkit.functions import Function
    from fairkit.results.report import Report
    from fairkit.results.rules import Adjustment, Policy


@checked
@plugins.listed_once()
def audit(
    model: Any,
    data: Dataset | Any,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    favorable: Any = None,
    settings: AuditSettings | None = None,
    auditors: Sequence[str] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Policy | None = None,
    max: Mapping[str, float] | None = None,
    min: Mapping[str, float] | None = None,
    adjustment: Adjustment | None = None,
    confidence: float | None = None,
    seed: int | None = None,
    copies: Copies | None = None,
    options: ModelOptions | None = None,
    threshold: float | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
    about: Mapping[str, str] | None = None,
    signed: Report | None = None,
    metrics: Mapping[str, Function] | None = None,
    outcomes: Drawn | None = None,
) -> Report:
    """Audit a model on a dataset.

    The rows are read and scored once, in batches; every auditor sees each batch.

    Parameters
    ----------
    model
        See `fairkit.auditing.prepare.as_model`.
    data
        From `fairkit.load_data`; or a matrix or data frame X, with `y` beside it.
    y, sensitive_features, sample_weight, favorable
        What stands beside X, as scikit-learn has it: see `fairkit.load_data`.
    settings
        What decides what is found, in one value; each of the keywords that follow replaces one field of it.
    auditors, parameters, policy, adjustment, confidence, seed, copies, options
        The fields of `fairkit.settings.AuditSettings`: names of installed auditors (default: group), their parameters
        as ``{"restricted-dro": {"epsilon": 0.1}}``, rules (without any there is no verdict), the adjustment for their
        number, the confidence of every interval (default: 0.95), the seed of every random draw (default: 0),
        whether rows that look like copies are different people (``independent``), and what cannot be guessed about the
        model.
    max, min
        More rules: limits by name, ``max={"demographic_parity_difference:sex": 0.1}``.
    threshold
        Makes decisions from scores, in the score's own unit, in place of that of `options`.
    progress
        Told about long work.
    engine
        ``"dask"`` spreads the work over a cluster, with the same findings (see
        `fairkit.engines.local.opened`); ``"sql"`` has the database count, and reads rows only where it must; None:
        this machine.
    scheduler
        The cluster's address; None starts one on this machine.
    about
        Facts that stand in the report as they are: ``{"intended_use": ..., "owner": ..., "period": ...}``.
    signed
        The report of a certificate that this audit checks: auditors see its findings (see
        `fairkit.auditors.AuditContext`), and only plugins that it names bring metrics.
    metrics
        Functions of your own by name, as ``{"mcc": sklearn.metrics.matthews_corrcoef}``: measured in every group, with
        differences between groups and a bootstrap interval that says so (see `fairkit.functions.metrics_of`). Rows are
        kept in memory for them.
    outcomes
        Where outcomes are known for some rows only, how these were chosen: ``fairkit.Drawn("drawn.json")``. Rates of
        decisions are then those of all rows; without it they have bounds.

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
    data = data if outcomes is None else with_outcomes(data, outcomes)
    facts = facts_of(about or {})
    chosen = AuditSettings.of(
        {
            "auditors": auditors,
            "parameters": parameters,
            "policy": None if policy is None and not max and not min else rules_of(policy, max, min),
            "adjustment": adjustment,
            "confidence": confidence,
            "seed": seed,
            "copies": copies,
            "options": at_threshold(options or (None if settings is None else settings.options), threshold),
        },
        settings,
    )
    named = None if signed is None else [plugin["name"] for plugin in signed.environment.get("plugins", ())]
    loaded = LoadedAuditors.of(chosen, metrics or {}, named)
    loaded.check(data)
    with opened(engine, scheduler) as running, _closed_on_failure(data):
        if metrics and not running.here:
            raise ParameterError("functions are metrics of rows in memory; leave out `engine`, or `metrics`")
        running.check(*plugins.needs_of(loaded.used))

        if (
            model is None
            and data.roles.predictions is None
            and all(each.tasks == {"table"} for each in loaded.auditors)
        ):
            model = NoPredictions()
        reasons = _needs_rows(model, loaded, data)

        def audited(running: Engine, data: Dataset) -> Report:
            if not reasons:
                data.count_rows()
            (subject,) = prepared([model], data, running.total)
            one = loaded.about(
                bound(subject, data, chosen.options),
                data,
                running,
                progress,
                signed=() if signed is None else signed.findings,
            )
            totals = score_once(running, data, [one.scorer], one.readers, progress, counts=not reasons)
            return one.report(totals)

        try:
            cut = getattr(model, "threshold", None)
            placed = running.placed(data, reasons, chosen.options, cut)
            report = audited(running, placed)
        except RowsNeededError as reason:
            if not getattr(running, "pulls", False):
                raise
            report = audited(LocalEngine(), data)
            report = dataclasses.replace(report, warnings=(f"The rows were read: {reason}.", *report.warnings))
    return dataclasses.replace(report, about=facts)


@contextmanager
def _closed_on_failure(data: Dataset) -> Iterator[None]:
    """Close connections to databases where an audit fails: its traceback holds the table, perhaps for long."""
    try:
        yield
    except BaseException:
        data.source.close()
        raise


def _needs_rows(model: Any, loaded: LoadedAuditors, data: Dataset) -> list[str]:
    """Return why an audit must read rows one by one, if so."""
    asks = [auditor.needs_rows(loaded.metrics) for auditor in loaded.auditors]
    unseen = model is None or isinstance(model, PredictedColumns | NoPredictions)
    scored = None if unseen else "the model scores them here"
    design = data.roles.labelled
    listed = "the drawn list names rows by number" if design is not None and design.kind == "list" else None
    return [reason for reason in (scored, listed, *asks) if reason is not None]
