"""Compare models on the same rows: paired differences of every metric, and what is significant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.auditing.polarity import Sense, judged
from fairkit.auditing.prepare import LoadedAuditors, prepared
from fairkit.data.loading import as_dataset
from fairkit.engines.local import opened
from fairkit.errors import ModelError, ParameterError
from fairkit.models.scorer import bound
from fairkit.progress import Progress, no_progress
from fairkit.results.policy import Comparison
from fairkit.results.rules import rules_of
from fairkit.settings import AuditSettings, ModelOptions, at_threshold
from fairkit.support.calls import checked
from fairkit.support.timings import phase
from fairkit_comparing.changes import changes, changes_of_rankings
from fairkit_comparing.collect import AllPairs, Pairing

if TYPE_CHECKING:
    from fairkit.auditing.prepare import Audit
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Scorer
    from fairkit.results.policy import Change
    from fairkit.results.rules import Policy, RuleResult


@checked
def compare(
    models: Sequence[Any],
    data: Dataset | Any,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    favorable: Any = None,
    policy: Policy = (),
    max: Mapping[str, float] | None = None,
    min: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    options: ModelOptions | Sequence[ModelOptions] | None = None,
    threshold: float | Sequence[float | None] | None = None,
    features: Sequence[Sequence[str] | None] | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> Comparison:
    """Compare models with the first of them on the same rows.

    Parameters
    ----------
    models
        Two or more; see `fairkit.auditing.prepare.as_model`.
    data
        The rows, from `fairkit.load_data`, without a label for what needs no outcomes; or a matrix or data frame X,
        with `y` beside it.
    y, sensitive_features, sample_weight, favorable
        What stands beside X, as scikit-learn has it: see `fairkit.load_data`.
    policy
        Rules, which every model is judged by on these rows; ``verdict`` is the worst on a model beside the first.
    max, min
        More rules: limits by name, ``max={"demographic_parity_difference:sex": 0.1}``.
    confidence
        Of every interval, in (0, 1).
    seed
        For the rules.
    options
        What cannot be guessed about the models: the same for all, or one for each.
    threshold
        Makes decisions from scores, in the score's own unit: the same for all, or one for each; None: the model's own.
        Files that fairkit has repaired keep their rule.
    features
        For each model the columns that it gets, in its order; None: those of the data.
    progress
        Told how many rows are scored.
    engine
        ``"dask"`` scores the rows on a cluster, with the same numbers (see `fairkit.engines.local.opened`); their
        scores and groups come here, for what needs ranks.
    scheduler
        The cluster's address; None starts one on this machine.

    Returns
    -------
    Comparison
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        A model or the data cannot be used, or the models have different tasks.
    """
    data = as_dataset(data, y, sensitive_features, sample_weight, favorable)
    if len(models) < 2:
        raise ParameterError(
            "a comparison needs two models or more, the base first: `fairkit compare BASE.onnx OTHER.onnx --data TABLE`"
        )
    if data.roles.sensitive_probability:
        raise ParameterError(
            "a comparison has no groups of which only probabilities are known; leave out `sensitive_probability`, and "
            "audit each model with it"
        )
    model_options = [
        at_threshold(option, cut) or ModelOptions()
        for option, cut in zip(_each(options, models), _each(threshold, models), strict=True)
    ]
    settings = AuditSettings(policy=rules_of(policy, max, min), confidence=confidence, seed=seed)
    judges = LoadedAuditors.of(settings) if settings.policy else None
    if judges is not None:
        judges.check(data)
    with opened(engine, scheduler) as running:
        subjects = prepared(models, data, running.total)
        columns = [None] * len(models) if features is None else features
        scorers = [
            bound(model, data.with_features(column), said)
            for model, said, column in zip(subjects, model_options, columns, strict=True)
        ]
        pairing, used = paired_up(scorers, data)
        senses = [Sense.of(scorer, data, index) for index, scorer in enumerate(scorers)]
        running.check(*plugins.needs_of(used))
        judging = []
        if judges is not None:
            judging = [
                judges.about(scorer, data, running, progress, index=index) for index, scorer in enumerate(scorers)
            ]
        rules = [reader for audit in judging for reader in audit.readers]
        *totals, total = score_once(running, data, scorers, [*senses, *rules, pairing], progress)
        return replace(
            comparison(pairing, total, confidence),
            warnings=_warnings(senses, totals[: len(senses)], scorers, data),
            policy=_judged(judging, totals[len(senses) :]),
        )


def _each(given: Any, models: Sequence[Any]) -> Sequence[Any]:
    """Return one value for each model."""
    if not isinstance(given, Sequence):
        return [given] * len(models)
    if len(given) != len(models):
        raise ParameterError(f"{len(given)} values of `options` or `threshold` for {len(models)} models: give one each")
    return given


def _judged(audits: Sequence[Audit], totals: Sequence[Any]) -> tuple[tuple[RuleResult, ...], ...]:
    """Return the verdicts of the rules on each model; `totals` are of all readers, model by model."""
    judgements, start = [], 0
    for audit in audits:
        end = start + len(audit.readers)
        judgements.append(audit.report(totals[start:end]).policy)
        start = end
    return tuple(judgements)


def paired_up(scorers: Sequence[Scorer], data: Dataset) -> tuple[Pairing, list[plugins.Plugin]]:
    """Return the pairing of each model with the first, and the plugins whose metrics it uses."""
    tasks = {scorer.task for scorer in scorers}
    if len(tasks) > 1:
        raise ModelError(f"models with different tasks cannot be compared: {', '.join(sorted(tasks))}")
    metrics, used = _metrics(scorers[0], labelled=data.roles.label is not None)
    return Pairing(tuple(scorers), data, tuple(metrics)), used


def _warnings(
    senses: Sequence[Sense], seen: Sequence[Any], scorers: Sequence[Scorer], data: Dataset
) -> tuple[str, ...]:
    """Return the warnings about each model's predictions, and about the rows."""
    sentences = [
        f"{scorer.info.name}: {text}"
        for sense, total, scorer in zip(senses, seen, scorers, strict=True)
        for text in judged(sense, total, data).warnings
    ]
    copied = data.profile.copied
    copies = () if copied is None else (f"{copied.sentence}.",)
    return (*dict.fromkeys(sentences), *copies, *data.profile.warnings)


@phase("intervals")
def comparison(pairing: Pairing, total: AllPairs, confidence: float) -> Comparison:
    """Turn joint totals into changes with intervals."""
    scorers, data, metrics = pairing.scorers, pairing.dataset, pairing.metrics
    by_model: Iterable[Iterable[Change]]
    if total.items is not None:
        by_model = changes_of_rankings(total.items, len(scorers), data, metrics, confidence)
    else:
        by_model = (changes(pair, data, metrics, confidence) for pair in total.pairs)
    return Comparison(
        models=tuple(scorer.info for scorer in scorers),
        data=data.info(),
        changes=tuple(map(tuple, by_model)),
        confidence=confidence,
        notes=_notes(scorers, data),
    )


def _notes(scorers: Sequence[Scorer], data: Dataset) -> tuple[str, ...]:
    notes = [f"{scorer.info.name}: {note}" for scorer in scorers for note in scorer.info.notes]
    digests = [scorer.info.sha256 for scorer in scorers if scorer.info.sha256]
    if len(set(digests)) < len(digests):
        notes.append("Two of the models are the same file.")
    if data.roles.label is None:
        notes.append("There is no label, so nothing that compares with outcomes was compared.")
    profile, design = data.profile, data.roles.labelled
    if profile.unlabelled:
        rows_text = f"the {profile.rows - profile.unlabelled:,} of {profile.rows:,} rows with an outcome"
        drawn = design is not None and design.kind != "selective"
        how = ", by what each stands for" if drawn else " alone: nothing tells how the others would change them"
        notes.append(f"Changes that need outcomes are of {rows_text}{how}; the others are of all rows.")
    return tuple(dict.fromkeys(notes))


def _metrics(scorer: Scorer, *, labelled: bool) -> tuple[list[Metric], list[plugins.Plugin]]:
    """Return the installed metrics that suit the task and the data, and the plugins that they are of."""
    classes, used = plugins.installed_metrics()
    kind = "binary" if scorer.task == "multiclass" else scorer.task
    suiting = [cls for cls in classes if kind in cls.tasks and (labelled or not cls.outcome)]
    return [cls() for cls in suiting], used
