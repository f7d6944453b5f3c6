"""Before the pass over the rows and after it: auditors with their parameters, findings, a verdict, the report."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit import plugins
from fairkit.auditing.needs import by_design, check_columns, check_conditions, needed_auditors
from fairkit.auditing.polarity import Sense, judged, ranks_backwards, tied
from fairkit.auditors import AuditContext, Auditor
from fairkit.data.column_summary import beyond_two
from fairkit.data.roles import value_among
from fairkit.engines.local import LocalEngine
from fairkit.errors import ModelError, ParameterError
from fairkit.metrics import shown_of
from fairkit.models.columns import PredictedColumns
from fairkit.models.python import PythonModel
from fairkit.models.scorer import Recorded, is_own
from fairkit.parameters import parse_parameters
from fairkit.progress import Progress, no_progress
from fairkit.results.policy import COPIES, judge
from fairkit.results.report import Report
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.lazy_package import imported
from fairkit.support.timings import phase

if TYPE_CHECKING:
    from fairkit.auditing.measure import Reader
    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.profile import Total
    from fairkit.engines.base import Engine
    from fairkit.functions import Function
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Model, Predictions, Scorer
    from fairkit.results.findings import Finding
    from fairkit.settings import AuditSettings


_OF_LABELLED = "Of the rows with an outcome alone, weighted by what each stands for where their chances differ."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAuditors:
    """The settings of an audit with what they name loaded, whatever the model and the data: made by `of`."""

    settings: AuditSettings  # what the audit was asked for
    auditors: tuple[Auditor, ...]  # with their parameters
    metrics: tuple[type[Metric], ...]  # the group metrics that they are given
    used: tuple[plugins.Plugin, ...]  # the plugins that these come from
    failures: tuple[str, ...]  # what could not be loaded, in sentences

    @classmethod
    def of(
        cls,
        settings: AuditSettings,
        functions: Mapping[str, Function] | None = None,
        named: Collection[str] | None = None,
    ) -> Self:
        """Load what is named, the auditors that the policy needs, and functions that are metrics.

        Other people's plugins bring their metrics: all of them, or those that are `named`.
        """
        others, failures = plugins.third_party()
        if named is not None:
            others = [
                plugin if plugin.found.name in named else dataclasses.replace(plugin, metrics=()) for plugin in others
            ]
        names = list(settings.auditors)
        if functions and "group" not in names:
            names.append("group")
        chosen, used = _choose_auditors(names, settings.parameters, others)
        metrics, clashes = plugins.metrics_of(used)
        if functions:
            from fairkit.functions import metrics_of

            metrics += metrics_of(functions, [metric.name for metric in metrics])
        needed = needed_auditors(settings.policy, chosen, metrics, others)
        if needed:
            more, owners = _choose_auditors(needed, {}, others)
            chosen, used = [*chosen, *more], [*used, *(owner for owner in owners if owner not in used)]
            brought, clashes = plugins.metrics_of(used)
            metrics = [*brought, *(metric for metric in metrics if metric not in brought)]
        return cls(
            settings=settings,
            auditors=tuple(chosen),
            metrics=tuple(metrics),
            used=tuple(used),
            failures=(*failures, *clashes),
        )

    def check(self, data: Dataset) -> None:
        """Refuse rules about columns that the data does not name as sensitive."""
        for auditor in self.auditors:
            if auditor.name == "group":
                check_columns(self.settings.policy, data, auditor, self.metrics)

    def conditions(self) -> dict[str, str]:
        """What must be asked for some numbers to be measured, by name, as the auditors declare it."""
        every = {name: headline for auditor in self.auditors for name, headline in auditor.headlines.items()}
        return {name: form.condition for name, form in every.items() if form.condition}

    def about(
        self,
        scorer: Scorer,
        data: Dataset,
        engine: Engine,
        progress: Progress,
        *,
        index: int = 0,
        signed: Sequence[Finding] = (),
    ) -> Audit:
        """Prepare the audit of one model, which is number `index` of those that score the rows together."""
        context = AuditContext(
            dataset=data,
            scorer=Recorded.of(scorer, data),
            metrics=self.metrics,
            confidence=self.settings.confidence,
            seed=self.settings.seed,
            progress=progress,
            engine=engine,
            signed=signed,
        )
        _check_tasks(self.auditors, scorer)
        check_conditions(self.auditors, data)
        auditors = [type(auditor)(auditor.parameters) for auditor in self.auditors]
        readers = [
            Watching(
                auditor,
                next(each.found for each in self.used if type(auditor) in each.auditors),
                context,
                index,
                tuple(auditor.columns(context)),
            )
            for auditor in auditors
        ]
        for reader in readers:
            with plugins.blame(reader.owner, f"the auditor {reader.auditor.name!r} prepared"):
                reader.auditor.begin(context)
        sense = Sense.of(scorer, data, index)
        return Audit(loaded=self, context=context, watching=tuple(readers), sense=sense, scorer=scorer)


@dataclass(frozen=True)
class Watching:
    """An auditor that looks at one of the models (see `fairkit.auditing.measure.Reader`).

    On its way to a worker it leaves the rows, the progress and the engine of the audit behind.
    """

    auditor: Auditor
    owner: plugins.PluginInfo
    context: AuditContext
    place: int
    columns: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        context = dataclasses.replace(
            self.context, dataset=self.context.dataset.without_rows(), progress=no_progress, engine=LocalEngine()
        )
        return self.__dict__ | {"context": context}

    @property
    def spread(self) -> bool:
        """Whether partial results are as large as the rows."""
        return self.auditor.spread

    def measure(self, batch: Batch, said: Sequence[Predictions]) -> Any:
        """Turn one batch into a partial result."""
        with plugins.blame(self.owner, f"the auditor {self.auditor.name!r} measured a batch"):
            result = said[self.place]
            if self.auditor.name != "group" and is_own(self.context.scorer.info.outputs):
                result = dataclasses.replace(result, score=None)  # others would take it for a probability
            design = self.context.dataset.roles.labelled
            if design is not None and batch.labelled is not None and by_design(self.auditor, self.context.dataset):
                keep, batch = design.known(batch)
                result = result.take(keep)
                if not len(batch):
                    return None
            return self.auditor.measure(batch, result, self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """An audit of one model, ready for the pass over the rows."""

    loaded: LoadedAuditors
    context: AuditContext
    watching: tuple[Watching, ...]
    sense: Sense
    scorer: Scorer

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Who looks at the scored rows: the auditors, and what asks whether the predictions make sense."""
        return (*self.watching, self.sense)

    def report(self, totals: Sequence[Any]) -> Report:
        """Turn the readers' totals into findings, and judge them."""
        settings, context = self.loaded.settings, self.context
        findings: list[Finding] = []
        *parts, seen = totals
        for reader, total in zip(self.watching, parts, strict=True):
            blamed = plugins.blame(reader.owner, f"the auditor {reader.auditor.name!r} made its findings")
            with blamed, phase("intervals"):
                found = reader.auditor.findings(total, context)
                if by_design(reader.auditor, context.dataset):
                    found = [dataclasses.replace(f, notes=(*f.notes, _OF_LABELLED)) for f in found]
                findings += found
        remark = getattr(context.engine, "remarked", None)
        findings = findings if remark is None else remark(findings, context.metrics)
        sense = judged(self.sense, seen, context.dataset)
        doubt = sense.doubt or getattr(self.scorer, "doubt", None)
        if doubt is not None:
            findings = [dataclasses.replace(f, inconclusive=f.inconclusive or doubt) for f in findings]
        copied = context.dataset.profile.copied
        if copied is not None and settings.copies is None:
            findings = [_with_copies(finding, copied.bounds) for finding in findings]
        results, verdict = judge(
            settings.policy,
            findings,
            confidence=settings.confidence,
            adjustment=settings.adjustment,
            conditions=self.loaded.conditions(),
        )
        if settings.policy and context.dataset.profile.clusters is None:  # more rows are not more clusters
            from fairkit.planning.advice import advised

            wrong, alone = 1 - settings.confidence, settings.adjustment in (None, "holm")
            level = settings.confidence if alone else 1 - wrong / len(settings.policy)
            results, findings = advised(
                settings.policy, results, findings, self.loaded.metrics, confidence=level, seed=settings.seed,
                auditors=[reader.auditor for reader in self.watching],
            )  # fmt: skip
        info = context.scorer.info
        data = context.dataset.info()
        left_out = [*_no_probabilities(context), *_no_outcomes(context)]
        return Report(
            model=dataclasses.replace(
                info,
                notes=(
                    *info.notes,
                    *tied(self.sense, seen),
                    *getattr(getattr(self.scorer, "model", None), "unheld", ()),
                ),
            ),
            data=dataclasses.replace(data, notes=(*data.notes, *left_out)),
            findings=tuple(findings),
            policy=results,
            verdict=verdict,
            seed=settings.seed,
            confidence=settings.confidence,
            adjustment=settings.adjustment,
            environment=_environment(self.loaded.used, self.loaded.failures, self.scorer),
            warnings=(
                *sense.warnings,
                *getattr(self.scorer, "warnings", ()),
                *ranks_backwards(findings),
                *([] if copied is None else [copied.told(settings.copies)]),
                *context.dataset.profile.warnings,
                *_beyond_two(self.scorer, context.dataset),
            ),
        )


def _beyond_two(scorer: Scorer, dataset: Dataset) -> list[str]:
    """Say which values a binary label and decisions have beside the favorable one and one other."""
    roles, values, result = dataset.roles, dataset.profile.values, list[str]()
    decisions = getattr(scorer, "favorable", {})
    if scorer.task == "binary" and roles.label is not None:
        good = value_among(dataset.profile.label_values, roles.favorable)
        result += beyond_two(roles.label, values.get(roles.label) or {}, [good])
    for column in getattr(getattr(scorer, "roles", None), "noted", ()):
        counts = values.get(column) or {}
        result += beyond_two(column, counts, [value for value in counts if decisions.get(value)]) if decisions else []
    return result


def _choose_auditors(
    names: Sequence[str], parameters: Mapping[str, Mapping[str, Any]], others: Sequence[plugins.Plugin]
) -> tuple[list[Auditor], list[plugins.Plugin]]:
    """Load the auditors with their parameters, and the plugins whose metrics they use."""
    for owner in parameters:
        if owner not in names:
            raise ParameterError(
                f"parameters are given for the auditor {owner!r}, which is not asked for; name it in `auditors` too"
            )
    used: dict[str, plugins.Plugin] = {}
    chosen: list[Auditor] = []
    for name in dict.fromkeys(names):
        cls, plugin = plugins.find_auditor(name, others)
        used[plugin.found.name] = plugin
        chosen.append(cls(parse_parameters(cls.Parameters, parameters.get(name, {}), owner=name)))
    used.update({plugin.found.name: plugin for plugin in others if plugin.metrics})
    return chosen, list(used.values())


def _check_tasks(auditors: Sequence[Auditor], scorer: Scorer) -> None:
    for auditor in auditors:
        if scorer.task not in auditor.tasks:
            raise ParameterError(
                f"the auditor {auditor.name!r} looks at {' and '.join(sorted(auditor.tasks))} models; "
                f"this task is {scorer.task} (`task` overrides)"
            )
        if auditor.asks and is_own(scorer.info.outputs):
            raise ParameterError(
                f"the auditor {auditor.name!r} compares probabilities, and the scores are on a scale of their own; say "
                "what they are with `score_kind`: probability, percent or logit"
            )
        if auditor.asks and getattr(scorer, "recorded", False):
            raise ParameterError(
                f"the auditor {auditor.name!r} asks the model about rows that are not in the table, and no model was "
                "given: the predictions are columns of the table"
            )


def _no_probabilities(context: AuditContext) -> list[str]:
    if not is_own(context.scorer.info.outputs):
        return []
    names = [m.name for m in context.metrics if "score" in m.needs and not m.ranks and "binary" in m.tasks]
    return [
        "The scores are on a scale of their own, so nothing that takes them for probabilities was measured: "
        f"{', '.join(names)}. If they are probabilities in another form, `score_kind` says which: percent or logit."
    ]


def _no_outcomes(context: AuditContext) -> list[str]:
    if context.dataset.roles.label is not None:
        return []
    task = "binary" if context.scorer.task == "multiclass" else context.scorer.task
    names = [metric.name for metric in context.metrics if metric.outcome and task in metric.tasks]
    if not names:
        return []
    return [
        "There is no label, so nothing that compares with outcomes was measured: "
        f"{', '.join(names)}, and what is made of them."
    ]


def _with_copies(finding: Finding, bounds: Callable[[float], dict[str, Any]]) -> Finding:
    """Add evidence that rows are copies, where the finding has an interval that depends on their number."""
    if finding.value is None or finding.interval is None or "proved" in finding.evidence:
        return finding
    return dataclasses.replace(finding, evidence={**finding.evidence, COPIES: bounds(finding.value)})


def _environment(used: Sequence[plugins.Plugin], failures: Sequence[str], scorer: Scorer) -> dict[str, Any]:
    environment: dict[str, Any] = {
        "fairkit": next(info.version for info in plugins.find() if info.built_in),
        "python": platform.python_version(),
        "plugins": [plugin.to_dict() for plugin in used],
    }
    model: Any = getattr(scorer, "model", None)
    for name, value in (("sandbox", list(getattr(model, "held", ()))), ("machine", getattr(model, "machine", None))):
        if value:
            environment[name] = value
    others = [cls for plugin in used if not plugin.found.built_in for cls in plugin.metrics]
    if others:
        environment["metrics"] = {cls.name: shown_of(cls) for cls in others}
    if failures:
        environment["plugins_not_loaded"] = list(failures)
    return environment


# What is audited: anything that can take the form of a model.


ONNX = "fairkit_onnx.file:OnnxModel"
"""What reads a model's file."""


def prepared(models: Sequence[Any], data: Dataset, total: Total) -> list[Model]:
    """Make the first pass over the rows, with what the models must know of them; return the models."""
    result = [as_model(model, data) for model in models]
    for model in result:
        data.note(getattr(model, "noted", ()))
    data.learn(total)
    return result


def as_model(model: Any, data: Dataset | None = None) -> Model:
    """Return anything that can be audited as a model."""
    if model is None:
        named = None if data is None else data.roles.predictions
        if named is None:
            raise ModelError(
                "there is no model, and the data names no predictions: name the columns that hold them with "
                "`predictions`"
            )
        return PredictedColumns.of(named)
    if hasattr(model, "bind"):
        bindable: Model = model
        return bindable
    if isinstance(model, str | Path | bytes) or hasattr(model, "SerializeToString"):
        loaded: Model = imported(ONNX).load(model)
        return loaded
    return PythonModel(model, like=getattr(data, "like", None))
