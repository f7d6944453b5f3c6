"""One audit: a model, a dataset, auditors; findings, a policy's verdict, a report."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditors import AuditContext, Auditor, measured
from fairkit.data.dataset import need_dataset
from fairkit.engines.base import opened
from fairkit.errors import DataError, ParameterError
from fairkit.models.scorer import ModelOptions, PythonModel, Scorer
from fairkit.parameters.declare import parse_parameters
from fairkit.planning.advice import advised
from fairkit.progress import Progress, no_progress
from fairkit.results.findings import Finding, Report
from fairkit.results.policy import Adjustment, Rule, judge
from fairkit.timings import phase

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.models.scorer import Model


def as_model(model: Any) -> Model:
    """Return anything that can be audited as a model.

    Parameters
    ----------
    model
        A path, bytes or a proto of an ONNX model; an `OnnxModel`; an object with ``bind``; or an estimator
        with ``predict`` and perhaps ``predict_proba``.

    Raises
    ------
    ModelError
        It is none of these.
    """
    if hasattr(model, "bind"):
        bindable: Model = model
        return bindable
    if isinstance(model, str | Path | bytes) or hasattr(model, "SerializeToString"):
        from fairkit.onnx.model import OnnxModel

        return OnnxModel.load(model)
    return PythonModel(model)


def audit(
    model: Any,
    data: Dataset,
    *,
    auditors: Sequence[str] = ("group",),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Sequence[Rule] = (),
    adjustment: Adjustment | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    options: ModelOptions | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> Report:
    """Audit a model on a dataset.

    The rows are read and scored once, in batches; every auditor sees each batch.

    Parameters
    ----------
    model
        See `as_model`.
    data
        From `fairkit.load_data`.
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
        ``"dask"`` spreads the work over a cluster, with the same findings (see `fairkit.engines.opened`); None: this
        machine.
    scheduler
        The cluster's address; None starts one on this machine.

    Returns
    -------
    Report
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        The model, the data, a parameter or a rule cannot be used.
    """
    need_dataset(data)
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence={confidence} is not between 0 and 1; 0.95 is usual")
    if seed < 0:
        raise ParameterError(f"seed={seed} is negative; seeds are 0 or more")
    chosen, used, notes = _choose_auditors(auditors, parameters or {})
    metrics, clashes = plugins.metrics_of(used)
    with opened(engine, scheduler) as running:
        if running is not None:
            running.check(used)
            if not data.profiled:
                data.learn(running.tally)
        scorer = as_model(model).bind(data, options or ModelOptions())
        context = AuditContext(
            dataset=data,
            scorer=scorer,
            metrics=tuple(metrics),
            confidence=confidence,
            seed=seed,
            progress=progress,
            engine=running,
        )
        _check_tasks(chosen, scorer)
        _check_rows(chosen, data)
        findings: list[Finding] = []
        for auditor, total in zip(chosen, _measure(chosen, context, used), strict=True):
            with (
                plugins.blame(_owner(auditor, used), f"the auditor {auditor.name!r} made its findings"),
                phase("intervals"),
            ):
                findings += auditor.findings(total, context)
    results, verdict = judge(policy, findings, confidence=confidence, adjustment=adjustment)
    if policy:
        level = confidence if adjustment in (None, "holm") else 1 - (1 - confidence) / len(policy)
        results, findings = advised(policy, results, findings, metrics, confidence=level, seed=seed)
    return Report(
        model=scorer.info,
        data=data.info(),
        findings=tuple(findings),
        policy=results,
        verdict=verdict,
        seed=seed,
        confidence=confidence,
        adjustment=adjustment,
        environment=_environment(used, [*notes, *clashes]),
    )


def _choose_auditors(
    names: Sequence[str], parameters: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Auditor], list[plugins.Plugin], list[str]]:
    """Load the auditors with their parameters, and the plugins whose metrics they use."""
    for owner in parameters:
        if owner not in names:
            raise ParameterError(
                f"parameters are given for the auditor {owner!r}, which is not asked for; add --auditor {owner}"
            )
    others, failures = plugins.third_party()
    used: dict[str, plugins.Plugin] = {}
    chosen: list[Auditor] = []
    for name in dict.fromkeys(names):
        cls, plugin = plugins.find_auditor(name, others)
        used[plugin.found.name] = plugin
        chosen.append(cls(parse_parameters(cls.Parameters, parameters.get(name, {}), owner=name)))
    used.update({plugin.found.name: plugin for plugin in others if plugin.metrics})
    return chosen, list(used.values()), failures


def _check_tasks(auditors: Sequence[Auditor], scorer: Scorer) -> None:
    for auditor in auditors:
        if scorer.task not in auditor.tasks:
            raise ParameterError(
                f"the auditor {auditor.name!r} looks at {' and '.join(sorted(auditor.tasks))} models; "
                f"this task is {scorer.task} (--task overrides)"
            )


def _check_rows(auditors: Sequence[Auditor], data: Dataset) -> None:
    """Refuse an auditor that needs every group of a row where no row has them all."""
    needy = [auditor.name for auditor in auditors if not auditor.partial]
    if needy and not data.profile.complete:
        raise DataError(
            f"{data.name}: no row has a value in every sensitive column, which the auditor {needy[0]!r} needs; "
            "leave a column out, or keep missing values as a group (--missing group)"
        )


def _owner(auditor: Auditor, used: Sequence[plugins.Plugin]) -> plugins.Found:
    return next(plugin.found for plugin in used if type(auditor) in plugin.auditors)


def _measure(auditors: Sequence[Auditor], context: AuditContext, used: Sequence[plugins.Plugin]) -> list[Any]:
    """Stream the data once; every auditor adds up what it measures."""
    extra = [column for auditor in auditors for column in auditor.columns(context)]
    columns = list(dict.fromkeys([*context.scorer.columns, *extra]))
    owners = [_owner(auditor, used) for auditor in auditors]
    for auditor, owner in zip(auditors, owners, strict=True):
        with plugins.blame(owner, f"the auditor {auditor.name!r} prepared"):
            auditor.begin(context)
    if context.engine is not None:
        return context.engine.measure(auditors, context, columns, used)
    rows = context.dataset.profile.rows
    totals: list[Any] = [None] * len(auditors)
    done = 0
    for batch in context.dataset.batches(columns, partial=True):
        predictions = context.scorer.predict(batch.columns(context.scorer.columns))
        for place, auditor in enumerate(auditors):
            with plugins.blame(owners[place], f"the auditor {auditor.name!r} measured a batch"):
                with phase("measure"):
                    part = measured(auditor, batch, predictions, context)
                if part is not None:
                    totals[place] = part if totals[place] is None else totals[place] + part
        done += len(batch)
        context.progress("scoring rows", done, rows)
    return totals


def _environment(used: Sequence[plugins.Plugin], failures: Sequence[str]) -> dict[str, Any]:
    environment: dict[str, Any] = {
        "fairkit": version("fairkit"),
        "python": platform.python_version(),
        "plugins": [plugin.to_dict() for plugin in used],
    }
    if failures:
        environment["plugins_not_loaded"] = list(failures)
    return environment
