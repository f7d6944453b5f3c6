"""Compare models on the same rows: paired differences of every metric, and what is significant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.auditing.subject import as_model
from fairkit.comparing.collect import AllPairs, Class, Pairing, PairTotals, RankedRows
from fairkit.comparing.disparities import (
    change,
    differences,
    differences_within,
    levels,
    mirrored,
    ratios,
    ratios_within,
    root_mean_squares,
)
from fairkit.comparing.distributions import change_of_parity
from fairkit.comparing.joint import paired, paired_areas
from fairkit.comparing.records import Difference, Paired
from fairkit.data.dataset import need_dataset
from fairkit.engines.opening import opened
from fairkit.errors import ModelError, ParameterError
from fairkit.intervals import two_sided
from fairkit.metrics import field_names
from fairkit.models.scorer import ModelOptions, Scorer
from fairkit.progress import Progress, no_progress
from fairkit.results.comparisons import Change, Comparison, outcome_of
from fairkit.statistics import Scores

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.metrics import Metric
    from fairkit.results.findings import Better

FEWEST = 30
"""A group with fewer rows leaves a difference undecided."""


def compare(
    models: Sequence[Any],
    data: Dataset,
    *,
    confidence: float = 0.95,
    options: ModelOptions | Sequence[ModelOptions] | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> Comparison:
    """Compare models with the first of them on the same rows.

    Parameters
    ----------
    models
        Two or more; see `fairkit.auditing.subject.as_model`.
    data
        The rows, with a label.
    confidence
        Of every interval, in (0, 1).
    options
        What cannot be guessed about the models: the same for all, or one for each.
    progress
        Told how many rows are scored.
    engine
        ``"dask"`` scores the rows on a cluster, with the same numbers (see `fairkit.engines.opening.opened`); their
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
    need_dataset(data)
    if len(models) < 2:
        raise ParameterError("a comparison needs two models or more")
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence={confidence} is not between 0 and 1; 0.95 is usual")
    if data.roles.label is None:
        raise ParameterError("a comparison needs the outcome: name its column with `label`")
    told = [options or ModelOptions()] * len(models) if not isinstance(options, Sequence) else options
    with opened(engine, scheduler) as running:
        data.learn(running.total)
        scorers = [as_model(model).bind(data, each) for model, each in zip(models, told, strict=True)]
        pairing, used = paired_up(scorers, data)
        running.check(*plugins.needs_of(used))
        (total,) = score_once(running, data, scorers, [pairing], progress)
    return comparison(pairing, total, confidence)


def paired_up(scorers: Sequence[Scorer], data: Dataset) -> tuple[Pairing, list[plugins.Plugin]]:
    """Return what adds the models up, each jointly with the first, and the plugins whose metrics it uses.

    Raises
    ------
    ModelError
        The models have different tasks.
    """
    tasks = {scorer.task for scorer in scorers}
    if len(tasks) > 1:
        raise ModelError(f"models with different tasks cannot be compared: {', '.join(sorted(tasks))}")
    metrics, used = _metrics(scorers[0])
    return Pairing(tuple(scorers), data, tuple(metrics)), used


def comparison(pairing: Pairing, total: AllPairs, confidence: float) -> Comparison:
    """Turn joint totals into changes with intervals."""
    scorers, data, metrics = pairing.scorers, pairing.dataset, pairing.metrics
    return Comparison(
        models=tuple(scorer.info for scorer in scorers),
        data=data.info(),
        changes=tuple(tuple(_changes(pair, data, metrics, confidence)) for pair in total.pairs),
        confidence=confidence,
        notes=_notes(scorers),
    )


def _notes(scorers: Sequence[Scorer]) -> tuple[str, ...]:
    notes = [f"{scorer.info.name}: {note}" for scorer in scorers for note in scorer.info.notes]
    digests = [scorer.info.sha256 for scorer in scorers if scorer.info.sha256]
    if len(set(digests)) < len(digests):
        notes.append("Two of the models are the same file.")
    return tuple(dict.fromkeys(notes))


def _metrics(scorer: Scorer) -> tuple[list[Metric], list[plugins.Plugin]]:
    """Return the installed metrics that suit the task, and the plugins that they are of."""
    classes, used = plugins.installed_metrics()
    kind = "binary" if scorer.task == "multiclass" else scorer.task
    return [cls() for cls in classes if kind in cls.tasks], used


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two models on some rows: what `_changes` asks of them, for one class."""

    total: PairTotals
    ranked: RankedRows | None
    label: Class
    metrics: Sequence[Metric]
    confidence: float

    def numbers(self, sensitive: str | None, n_groups: int) -> Iterator[tuple[Metric, Paired]]:
        """Every metric's numbers in the groups of a column."""
        for metric in self.metrics:
            sums = self.total.sums.get((self.label, sensitive, metric.statistic.key))
            if sums is not None:
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    yield metric, paired(metric, sums, two_sided(self.confidence))
            elif metric.name == "roc_auc" and isinstance(metric.statistic, Scores) and self.ranked:
                rows = self.ranked
                yield (
                    metric,
                    paired_areas(rows.scores, rows.outcome, rows.weights, rows.groups[sensitive], n_groups),
                )


def _changes(
    total: PairTotals, data: Dataset, metrics: Sequence[Metric], confidence: float
) -> Iterator[Change]:
    """Every metric over all rows; then, column by column, the disparities and the groups; class by class."""
    for label in total.classes():
        parts = total.ranked.get(label)
        pair = _Pair(
            total,
            RankedRows.joined(parts) if parts else None,
            label,
            _for_class(metrics, total, label),
            confidence,
        )
        for one in _of_class(pair, data):
            yield one if label is None else dataclasses.replace(one, parameters={"class": label})


def _for_class(metrics: Sequence[Metric], total: PairTotals, label: Class) -> Sequence[Metric]:
    """Over all classes there is the accuracy alone."""
    alone = label is None and len(total.classes()) > 1
    return [m for m in metrics if m.name == "accuracy"] if alone else metrics


def _of_class(pair: _Pair, data: Dataset) -> Iterator[Change]:
    rows, confidence = data.profile.rows, pair.confidence
    for metric, found in pair.numbers(None, 1):
        yield from _levels(metric, found, None, {"all": rows}, confidence)
    for sensitive, sizes in data.profile.groups.items():
        names = data.group_names(sensitive)
        sized = {name: sizes[name] for name in names}
        smallest = min(sized.values())
        numbers = {m.name: (m, found) for m, found in pair.numbers(sensitive, len(names))}
        for metric, found in numbers.values():
            yield from _between(metric, found, sensitive, smallest, confidence)
        yield from _joint(numbers, sensitive, smallest, confidence)
        if pair.ranked is not None:
            seen = change_of_parity(
                pair.ranked.scores,
                pair.ranked.groups[sensitive],
                len(names),
                pair.ranked.weights,
                confidence,
            )
            yield _change("statistical_parity_ks", "lower", seen, sensitive, smallest)
        for metric, found in numbers.values():
            yield from _levels(metric, found, sensitive, sized, confidence)


def _levels(
    metric: Metric, found: Paired, sensitive: str | None, sizes: Mapping[str, int], confidence: float
) -> Iterator[Change]:
    for place, (name, rows) in enumerate(sizes.items()):
        one = Paired(found.values[:, [place]], found.covariance[[place]]).known()
        group = None if sensitive is None else name
        if one.values.shape[1] == 0:
            yield Change(
                metric=metric.name, sensitive=sensitive, group=group, better=metric.better,
                before=None, after=None, interval=None, outcome="undecided",
            )  # fmt: skip
            continue
        seen = change(levels(one), one, confidence)
        yield _change(metric.name, metric.better, seen, sensitive, rows, group=group)


def _between(
    metric: Metric, found: Paired, sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    known, names = found.known(), field_names([metric])
    groups = known.values.shape[1]
    if "extreme" in metric.between and groups:
        if metric.better != "lower":
            seen = mirrored(change(levels(known.negative()), known.negative(), confidence))
            yield _change(f"{metric.name}_group_min", metric.better, seen, sensitive, smallest)
        if metric.better != "higher":
            seen = change(levels(known), known, confidence)
            yield _change(f"{metric.name}_group_max", metric.better, seen, sensitive, smallest)
    if groups < 2:
        return
    if "difference" in metric.between:
        name = f"{metric.name}_difference"
        seen = change(differences(known), known, confidence)
        yield _change(names.get(name, name), "lower", seen, sensitive, smallest)
    if "ratio" in metric.between and bool((known.values > 0).all()):
        name = f"{metric.name}_ratio"
        seen = _within_one(mirrored(change(ratios(known), known, confidence)))
        yield _change(names.get(name, name), "higher", seen, sensitive, smallest)


def _within_one(found: Difference) -> Difference:
    """Cut the interval of a difference of ratios to what ratios in [0, 1] can differ by."""
    return Difference(found.first, found.second, max(found.low, -1.0), min(found.high, 1.0))


def _joint(
    numbers: Mapping[str, tuple[Metric, Paired]], sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Equalized odds and gaps from two rates over different rows; the worst group's loss."""
    rates = [numbers[n][1] for n in ("true_positive_rate", "false_positive_rate") if n in numbers]
    known = [rate.known() for rate in rates]
    if len(rates) == 2 and min(rate.values.shape[1] for rate in known) >= 2:
        both = known[0].beside(known[1])
        sizes = known[0].values.shape[1], known[1].values.shape[1]
        seen = change(differences_within(both, sizes), both, confidence)
        yield _change("equalized_odds_difference", "lower", seen, sensitive, smallest)
        yield _change("gap_max", "lower", seen, sensitive, smallest)
        if bool((both.values > 0).all()):
            seen = _within_one(mirrored(change(ratios_within(both, sizes), both, confidence)))
            yield _change("equalized_odds_ratio", "higher", seen, sensitive, smallest)
    if len(rates) == 2:
        first, second = rates[0].known_with(rates[1]), rates[1].known_with(rates[0])
        if first.values.shape[1] >= 2:
            forms = root_mean_squares(first, second)
            seen = change(forms, first.beside(second), confidence, directions=True)
            yield _change("gap_rms", "lower", _not_negative(seen), sensitive, smallest)
    loss = next((n for n in ("log_loss", "mean_squared_error") if n in numbers), None)
    if loss is not None:
        worst = numbers[loss][1].known()
        if worst.values.shape[1]:
            seen = change(levels(worst), worst, confidence)
            yield _change("worst_group_loss", "lower", seen, sensitive, smallest)


def _not_negative(found: Difference) -> Difference:
    """Turn the zero of a root that floats put below 0 into one."""
    return Difference(max(found.first, 0.0), max(found.second, 0.0), found.low, found.high)


def _change(
    metric: str,
    better: Better,
    seen: Difference,
    sensitive: str | None,
    rows: int,
    *,
    group: str | None = None,
) -> Change:
    return Change(
        metric=metric,
        sensitive=sensitive,
        group=group,
        before=seen.first,
        after=seen.second,
        interval=(seen.low, seen.high),
        better=better,
        outcome="undecided" if rows < FEWEST else outcome_of(seen.low, seen.high, better),
    )
