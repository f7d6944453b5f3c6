"""Compare models on the same rows: paired differences of every metric, and what is beyond noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditors import Progress, no_progress
from fairkit.changes import Difference, change, differences, differences_within, levels, mirrored, ratios
from fairkit.comparisons import Change, Comparison, outcome_of
from fairkit.errors import ModelError, ParameterError
from fairkit.intervals import two_sided
from fairkit.models import ModelOptions, Predictions, Scorer
from fairkit.pairing import Paired, contributions, joint_sums, paired, paired_areas
from fairkit.statistics import Rows, Scores, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data import Batch, Dataset
    from fairkit.findings import Better
    from fairkit.metrics import Metric

    Array = NDArray[np.float64]

FEWEST = 30
"""A group with fewer rows leaves a difference undecided."""

FIELD_NAMES: Mapping[str, str] = {
    "selection_rate_difference": "demographic_parity_difference",
    "selection_rate_ratio": "demographic_parity_ratio",
    "true_positive_rate_difference": "equal_opportunity_difference",
    "true_positive_rate_ratio": "equal_opportunity_ratio",
}
"""The field's own names for some disparities: here each has one name."""


def compare(
    models: Sequence[Any],
    data: Dataset,
    *,
    confidence: float = 0.95,
    options: ModelOptions | Sequence[ModelOptions] | None = None,
    progress: Progress = no_progress,
) -> Comparison:
    """Compare models with the first of them on the same rows.

    Parameters
    ----------
    models
        Two or more; see `fairkit.auditing.as_model`.
    data
        The rows, with a label.
    confidence
        Of every interval, in (0, 1).
    options
        What cannot be guessed about the models: the same for all, or one for each.
    progress
        Told how many rows are scored.

    Returns
    -------
    Comparison
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        A model or the data cannot be used, or the models have different tasks.
    """
    from fairkit.auditing import as_model

    if len(models) < 2:
        raise ParameterError("a comparison needs two models or more")
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence={confidence} is not between 0 and 1; 0.95 is usual")
    if data.roles.label is None:
        raise ParameterError("a comparison needs the outcome: name its column with --label")
    told = [options or ModelOptions()] * len(models) if not isinstance(options, Sequence) else options
    scorers = [as_model(model).bind(data, each) for model, each in zip(models, told, strict=True)]
    tasks = {scorer.task for scorer in scorers}
    if len(tasks) > 1:
        raise ModelError(f"models with different tasks cannot be compared: {', '.join(sorted(tasks))}")
    metrics = _metrics(scorers[0])
    totals = _collect(scorers, data, metrics, progress)
    z = two_sided(confidence)
    return Comparison(
        models=tuple(scorer.info for scorer in scorers),
        data=data.info(),
        changes=tuple(tuple(_changes(total, data, metrics, z, confidence)) for total in totals),
        confidence=confidence,
        notes=_notes(scorers),
    )


def _notes(scorers: Sequence[Scorer]) -> tuple[str, ...]:
    notes = [f"{scorer.info.name}: {note}" for scorer in scorers for note in scorer.info.notes]
    digests = [scorer.info.sha256 for scorer in scorers if scorer.info.sha256]
    if len(set(digests)) < len(digests):
        notes.append("Two of the models are the same file.")
    if scorers[0].task == "multiclass":
        notes.append("Of a multi-class model the accuracy is compared.")
    return tuple(dict.fromkeys(notes))


def _metrics(scorer: Scorer) -> list[Metric]:
    """The installed metrics that suit the task."""
    from fairkit import plugins

    others, _ = plugins.third_party()
    _, own = plugins.find_auditor("group", others)
    classes = dict.fromkeys(metric for plugin in (own, *others) for metric in plugin.metrics)
    kind = "binary" if scorer.task == "multiclass" else scorer.task
    chosen = [cls() for cls in classes if kind in cls.tasks]
    return [m for m in chosen if m.name == "accuracy"] if scorer.task == "multiclass" else chosen


@dataclass(slots=True)
class _Rows:
    """Rows that were scored, for metrics of ranks: two models' scores."""

    scores: tuple[Array, Array]
    outcome: Array
    weights: Array | None
    groups: dict[str | None, NDArray[np.int64]]


@dataclass(slots=True)
class _Totals:
    """What two models leave behind: joint sums by (column, metric), and rows for metrics of ranks."""

    sums: dict[tuple[str | None, str], Sums]
    ranked: list[_Rows]


def _collect(
    scorers: Sequence[Scorer], data: Dataset, metrics: Sequence[Metric], progress: Progress
) -> list[_Totals]:
    """Score all rows once with every model, and add up jointly with the first."""
    columns = list(dict.fromkeys(column for scorer in scorers for column in scorer.columns))
    totals = [_Totals({}, []) for _ in scorers[1:]]
    done = 0
    for batch in data.batches(columns):
        views = [_view(batch, s.predict(batch.columns(s.columns)), s, data) for s in scorers]
        for total, other in zip(totals, views[1:], strict=True):
            _add(total, views[0], other, batch, data, metrics)
        done += len(batch)
        progress("scoring rows", done, data.profile.rows)
    return totals


def _view(batch: Batch, predictions: Predictions, scorer: Scorer, data: Dataset) -> Rows:
    """The rows as metrics see them."""
    p = predictions
    if scorer.task == "regression":
        low, high = data.profile.label_range or (0.0, 0.0)
        target = np.asarray(batch.label, dtype=np.float64)
        middle = low + (high - low) / 2
        return Rows(
            outcome=target,
            score=p.score,
            weights=batch.weights,
            origin=middle,
            members=p.members,
            shares=p.shares,
        )
    if scorer.task == "multiclass":
        index = {value: place for place, value in enumerate(scorer.classes)}
        truth = np.array([index.get(value, -1) for value in np.asarray(batch.label).tolist()])
        right = (truth == p.predicted).astype(np.float64)
        return Rows(outcome=np.ones(len(batch)), decision=right, weights=batch.weights)
    assert batch.favorable is not None  # noqa: S101 -- a binary task has a favorable value
    return Rows(
        outcome=batch.favorable.astype(np.float64), decision=p.decision, score=p.score, weights=batch.weights
    )


def _has(metric: Metric, *views: Rows) -> bool:
    return all(getattr(rows, need) is not None for need in metric.needs for rows in views)


def _add(
    total: _Totals, first: Rows, second: Rows, batch: Batch, data: Dataset, metrics: Iterable[Metric]
) -> None:
    splits = dict(_splits(batch, data))
    known: dict[str, tuple[Array, Array]] = {}
    ranked = False
    for metric in metrics:
        if not _has(metric, first, second):
            continue
        if isinstance(metric.statistic, Scores):
            ranked = True
            continue
        key = metric.statistic.key
        if key not in known:
            known[key] = (contributions(metric, first), contributions(metric, second))
            for sensitive, (codes, n_groups) in splits.items():
                part = joint_sums(*known[key], first.weights, codes, n_groups)
                have = total.sums.get((sensitive, key))
                total.sums[sensitive, key] = part if have is None else have + part
    if ranked and first.score is not None and second.score is not None:
        groups = {sensitive: codes for sensitive, (codes, _) in splits.items()}
        total.ranked.append(_Rows((first.score, second.score), first.outcome, first.weights, groups))


def _splits(batch: Batch, data: Dataset) -> Iterator[tuple[str | None, tuple[NDArray[np.int64], int]]]:
    yield None, (np.zeros(len(batch), dtype=np.int64), 1)
    for sensitive, codes in batch.groups.items():
        yield sensitive, (codes, len(data.group_names(sensitive)))


def _changes(
    total: _Totals, data: Dataset, metrics: Sequence[Metric], z: float, confidence: float
) -> Iterator[Change]:
    """Every metric over all rows; then, column by column, the disparities and the groups."""
    rows = data.profile.rows
    for metric, found in _numbers(total, None, 1, metrics, z):
        yield from _levels(metric, found, None, {"all": rows}, confidence)
    for sensitive, sizes in data.profile.groups.items():
        names = data.group_names(sensitive)
        sized = {name: sizes[name] for name in names}
        numbers = {m.name: (m, found) for m, found in _numbers(total, sensitive, len(names), metrics, z)}
        for metric, found in numbers.values():
            yield from _between(metric, found, sensitive, min(sized.values()), confidence)
        yield from _joint(numbers, sensitive, min(sized.values()), confidence)
        for metric, found in numbers.values():
            yield from _levels(metric, found, sensitive, sized, confidence)


def _numbers(
    total: _Totals, sensitive: str | None, n_groups: int, metrics: Sequence[Metric], z: float
) -> Iterator[tuple[Metric, Paired]]:
    """Every metric's numbers in the groups of a column."""
    for metric in metrics:
        sums = total.sums.get((sensitive, metric.statistic.key))
        if sums is not None:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                yield metric, paired(metric, sums, z)
        elif isinstance(metric.statistic, Scores) and metric.name == "roc_auc" and total.ranked:
            parts = total.ranked
            weights = [part.weights for part in parts if part.weights is not None]
            yield (
                metric,
                paired_areas(
                    (
                        np.concatenate([p.scores[0] for p in parts]),
                        np.concatenate([p.scores[1] for p in parts]),
                    ),
                    np.concatenate([part.outcome for part in parts]),
                    np.concatenate(weights) if weights else None,
                    np.concatenate([part.groups[sensitive] for part in parts]),
                    n_groups,
                ),
            )


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
    known = found.known()
    if known.values.shape[1] < 2:
        return
    if "difference" in metric.between:
        name = f"{metric.name}_difference"
        seen = change(differences(known), known, confidence)
        yield _change(FIELD_NAMES.get(name, name), "lower", seen, sensitive, smallest)
    if "ratio" in metric.between and bool((known.values > 0).all()):
        name = f"{metric.name}_ratio"
        seen = _within_one(mirrored(change(ratios(known), known, confidence)))
        yield _change(FIELD_NAMES.get(name, name), "higher", seen, sensitive, smallest)


def _within_one(found: Difference) -> Difference:
    """Cut the interval of a difference of ratios to what ratios in [0, 1] can differ by."""
    return Difference(found.first, found.second, max(found.low, -1.0), min(found.high, 1.0))


def _joint(
    numbers: Mapping[str, tuple[Metric, Paired]], sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Equalized odds from two rates over different rows; the worst group's loss."""
    rates = [numbers[n][1].known() for n in ("true_positive_rate", "false_positive_rate") if n in numbers]
    if len(rates) == 2 and min(rate.values.shape[1] for rate in rates) >= 2:
        both = rates[0].beside(rates[1])
        forms = differences_within(both, (rates[0].values.shape[1], rates[1].values.shape[1]))
        seen = change(forms, both, confidence)
        yield _change("equalized_odds_difference", "lower", seen, sensitive, smallest)
    loss = next((n for n in ("log_loss", "mean_squared_error") if n in numbers), None)
    if loss is not None:
        known = numbers[loss][1].known()
        if known.values.shape[1]:
            seen = change(levels(known), known, confidence)
            yield _change("worst_group_loss", "lower", seen, sensitive, smallest)


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
