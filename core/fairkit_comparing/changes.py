"""From joint totals of two models to changes: every metric over all rows, the disparities, the groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.hashing import BUCKETS
from fairkit.data.roles import HIGHEST, LARGEST, reference_of
from fairkit.intervals import two_sided
from fairkit.metrics import ODDS, Rate, field_names
from fairkit.results.policy import Change, outcome_of
from fairkit.statistics import Scores
from fairkit.support.lazy_dataclass import dataclass
from fairkit_comparing.collect import (
    Class,
    Difference,
    Paired,
    PairTotals,
    RankedRows,
    dependent,
    inside,
    paired,
    paired_areas,
)
from fairkit_comparing.disparities import (
    against,
    change,
    change_of_parity,
    differences,
    differences_within,
    levels,
    mirrored,
    ratios,
    ratios_within,
    root_mean_squares,
    within_strata,
)
from fairkit_dependent import noise_of
from fairkit_rankings import TOP, QueryMetric, queries_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.results.findings import Better
    from fairkit.statistics import Sums
    from fairkit_rankings import Items, Queries

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two models on some rows: what `changes` asks of them, for one class."""

    total: PairTotals
    ranked: RankedRows | None  # all rows
    known: RankedRows | None  # those with an outcome
    label: Class
    metrics: Sequence[Metric]
    confidence: float

    def numbers(self, sensitive: str | None, n_groups: int) -> Iterator[tuple[Metric, Paired]]:
        """Every metric's numbers in the groups of a column."""
        for metric in self.metrics:
            sums, buckets = self.total.sums_of(self.label, sensitive, metric)
            if sums is not None:
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    yield metric, self._paired(metric, sums, buckets)
            elif metric.ranks and isinstance(metric.statistic, Scores) and self.known:
                rows, groups = self.known, self.known.groups[sensitive]
                yield (metric, paired_areas(rows.scores, rows.outcome, rows.weights, groups, n_groups, rows.clusters))

    def _paired(self, metric: Metric, sums: Sums, buckets: Array | None) -> Paired:
        z = two_sided(self.confidence)
        if buckets is None:
            return paired(metric, sums, z)
        return dependent(metric, sums, buckets.reshape(len(sums.count), BUCKETS, -1), z)


def changes(total: PairTotals, data: Dataset, metrics: Sequence[Metric], confidence: float) -> Iterator[Change]:
    """Every metric over all rows; then, column by column, the disparities and the groups; class by class."""
    for label in total.classes():
        ranked = [total.ranked_of(label, outcome=outcome) for outcome in (False, True)]
        pair = _Pair(total, ranked[0], ranked[1], label, _for_class(metrics, total, label), confidence)
        for one in _of_class(pair, data):
            yield one if label is None else dataclasses.replace(one, parameters={"class": label})


def _for_class(metrics: Sequence[Metric], total: PairTotals, label: Class) -> Sequence[Metric]:
    """Over all classes there is the accuracy alone."""
    alone = label is None and len(total.classes()) > 1
    return [m for m in metrics if "multiclass" in m.tasks] if alone else metrics


def _of_class(pair: _Pair, data: Dataset) -> Iterator[Change]:
    rows, confidence = data.profile.rows, pair.confidence
    for metric, values in pair.numbers(None, 1):
        yield from level_changes(metric, values, None, {"all": rows}, confidence)
    for sensitive, sizes in data.profile.groups.items():
        names = data.group_names(sensitive)
        sized = {name: sizes[name] for name in names}
        smallest = min(sized.values())
        numbers = {m.name: (m, numbers) for m, numbers in pair.numbers(sensitive, len(names))}
        for metric, values in numbers.values():
            yield from disparity_changes(metric, values, sensitive, smallest, confidence)
        yield from _joint(numbers, sensitive, smallest, confidence)
        yield from _against(numbers, data, sensitive, smallest, confidence)
        yield from _inside(pair, data, sensitive, smallest)
        if pair.ranked is not None and pair.ranked.clusters is None:
            seen = change_of_parity(
                pair.ranked.scores, pair.ranked.groups[sensitive], len(names), pair.ranked.weights, confidence
            )
            yield written("statistical_parity_ks", "lower", seen, sensitive, smallest)
        for metric, values in numbers.values():
            yield from level_changes(metric, values, sensitive, sized, confidence)


def _against(
    numbers: Mapping[str, tuple[Metric, Paired]], data: Dataset, sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Every group's signed difference from the reference, where one was named."""
    named = dict(reference_of(text, list(data.profile.groups)) for text in data.roles.reference)
    if sensitive not in named:
        return
    names, sizes = data.group_names(sensitive), data.profile.groups[sensitive]
    for metric, values in numbers.values():
        base = _reference(named[sensitive], names, sizes, numbers)
        if "difference" not in metric.between or base is None:
            continue
        name = _difference_of(metric)
        for index, group in enumerate(names):
            pair = values.chosen(np.array([index, base])).known()
            if index != base and pair.values.shape[1] == 2:
                seen = change(against(pair, 0, 1), pair, confidence)
                yield written(name, "none", seen, sensitive, smallest, group=group, reference=names[base])


def _reference(
    reference: str, names: Sequence[str], sizes: Mapping[str, int], numbers: Mapping[str, tuple[Metric, Paired]]
) -> int | None:
    """Return the reference's place; the highest is that of the first model."""
    if reference == LARGEST:
        return max(range(len(names)), key=lambda index: sizes[names[index]])
    if reference != HIGHEST:
        return names.index(reference)
    by = next((numbers for metric, numbers in numbers.values() if not metric.outcome), None)
    return None if by is None or np.isnan(by.values[0]).all() else int(np.nanargmax(by.values[0]))


def _inside(pair: _Pair, data: Dataset, sensitive: str, smallest: int) -> Iterator[Change]:
    """Every difference inside the strata of each column that was named, pooled with the first model's weights."""
    groups = len(data.group_names(sensitive))
    for split in data.roles.within:
        inside_of = inside(sensitive, split.name)
        for metric, values in pair.numbers(inside_of, len(data.stratum_names(split.name)) * groups):
            sums, _ = pair.total.sums_of(pair.label, inside_of, metric)
            if "difference" not in metric.between or sums is None:
                continue
            forms = within_strata(values, _mass(metric, sums), groups)
            if not forms.values.shape[1]:
                continue
            seen = change(forms, _without_gaps(values), pair.confidence)
            yield written(_difference_of(metric), "lower", seen, sensitive, smallest, within=split.columns)


def _difference_of(metric: Metric) -> str:
    """Return the field's name of a metric's difference, else its own."""
    name = f"{metric.name}_difference"
    return field_names([metric]).get(name, name)


def _mass(metric: Metric, sums: Sums) -> Array:
    """Return the denominators of the first model's numbers, by place: those of a rate, else rows."""
    if isinstance(metric, Rate):
        return np.asarray(sums.first[:, :4] @ np.array(metric.over, dtype=np.float64))
    return sums.count


def _without_gaps(found: Paired) -> Paired:
    """Return it with zeros in the places that are not known, which no form has a slope in."""
    pull = None if found.pull is None else np.nan_to_num(found.pull)
    return Paired(np.nan_to_num(found.values), np.nan_to_num(found.covariance, posinf=0.0), pull)


def _joint(
    numbers: Mapping[str, tuple[Metric, Paired]], sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Equalized odds and gaps from two rates over different rows; the worst group's loss."""
    rates = [numbers[name][1] for name in ODDS if name in numbers]
    rates_known = [rate.known() for rate in rates]
    if len(rates) == 2 and min(rate.values.shape[1] for rate in rates_known) >= 2:
        both = rates_known[0].beside(rates_known[1])
        sizes = rates_known[0].values.shape[1], rates_known[1].values.shape[1]
        seen = change(differences_within(both, sizes), both, confidence)
        yield written("equalized_odds_difference", "lower", seen, sensitive, smallest)
        yield written("gap_max", "lower", seen, sensitive, smallest)
        if bool((both.values > 0).all()):
            seen = within_one(mirrored(change(ratios_within(both, sizes), both, confidence)))
            yield written("equalized_odds_ratio", "higher", seen, sensitive, smallest)
    if len(rates) == 2:
        first, second = rates[0].known_with(rates[1]), rates[1].known_with(rates[0])
        if first.values.shape[1] >= 2:
            forms = root_mean_squares(first, second)
            seen = change(forms, first.beside(second), confidence, directions=True)
            yield written("gap_rms", "lower", _not_negative(seen), sensitive, smallest)
    loss = next((n for n in ("log_loss", "mean_squared_error") if n in numbers), None)
    if loss is not None:
        worst = numbers[loss][1].known()
        if worst.values.shape[1]:
            seen = change(levels(worst), worst, confidence)
            yield written("worst_group_loss", "lower", seen, sensitive, smallest)


def _not_negative(found: Difference) -> Difference:
    """Turn the zero of a root that floats put below 0 into one."""
    return Difference(max(found.first, 0.0), max(found.second, 0.0), found.low, found.high)


# Changes of one metric: over all rows or in a group, and of the disparities between groups.


FEWEST = 30
"""A group with fewer rows leaves a difference undecided."""


def level_changes(
    metric: Metric, values: Paired, sensitive: str | None, sizes: Mapping[str, int], confidence: float
) -> Iterator[Change]:
    """Return how the numbers of groups (or of all rows) differ."""
    for index, (name, rows) in enumerate(sizes.items()):
        group_values = values.chosen(np.array([index])).known()
        group = None if sensitive is None else name
        if group_values.values.shape[1] == 0:
            yield Change(
                metric=metric.name, sensitive=sensitive, group=group, better=metric.better,
                before=None, after=None, interval=None, outcome="undecided",
            )  # fmt: skip
            continue
        seen = change(levels(group_values), group_values, confidence)
        yield written(metric.name, metric.better, seen, sensitive, rows, group=group)


def disparity_changes(
    metric: Metric, found: Paired, sensitive: str, smallest: int, confidence: float
) -> Iterator[Change]:
    """Return how the disparities of one metric differ."""
    defined, names = found.known(), field_names([metric])
    groups = defined.values.shape[1]
    if "extreme" in metric.between and groups:
        if metric.better != "lower":
            seen = mirrored(change(levels(defined.negative()), defined.negative(), confidence))
            yield written(f"{metric.name}_group_min", metric.better, seen, sensitive, smallest)
        if metric.better != "higher":
            seen = change(levels(defined), defined, confidence)
            yield written(f"{metric.name}_group_max", metric.better, seen, sensitive, smallest)
    if groups < 2:
        return
    if "difference" in metric.between:
        name = f"{metric.name}_difference"
        seen = change(differences(defined), defined, confidence)
        yield written(names.get(name, name), "lower", seen, sensitive, smallest)
    if "ratio" in metric.between and bool((defined.values > 0).all()):
        name = f"{metric.name}_ratio"
        seen = within_one(mirrored(change(ratios(defined), defined, confidence)))
        yield written(names.get(name, name), "higher", seen, sensitive, smallest)


def within_one(found: Difference) -> Difference:
    """Cut the interval of a difference of ratios to what ratios in [0, 1] can differ by."""
    return Difference(found.first, found.second, max(found.low, -1.0), min(found.high, 1.0))


def written(
    metric: str,
    better: Better,
    seen: Difference,
    sensitive: str | None,
    rows: int,
    *,
    group: str | None = None,
    reference: str | None = None,
    within: tuple[str, ...] = (),
) -> Change:
    """Write a difference down as a change of some metric."""
    return Change(
        metric=metric,
        sensitive=sensitive,
        group=group,
        reference=reference,
        within=within,
        before=seen.first,
        after=seen.second,
        interval=(seen.low, seen.high),
        better=better,
        outcome="undecided" if rows < FEWEST else outcome_of(seen.low, seen.high, better),
    )


# Changes between rankings: every number of both models over the same queries, and its paired difference.


def changes_of_rankings(
    items: Items, models: int, data: Dataset, metrics: Sequence[Metric], confidence: float
) -> Iterator[list[Change]]:
    """Compare each model with the first."""
    whole = items.whole()
    splits: list[tuple[str | None, int]] = [(None, 1)]
    splits += [(name, len(data.group_names(name))) for name in data.profile.groups]
    each = [queries_of(whole, TOP, splits, model) for model in range(models)]
    chosen = [metric for metric in metrics if isinstance(metric, QueryMetric) and metric.has(each[0][0])]
    for ranking in each[1:]:
        yield list(_changes(each[0], ranking, splits, data, chosen, confidence))


def _changes(
    before: list[Queries],
    after: list[Queries],
    splits: list[tuple[str | None, int]],
    data: Dataset,
    metrics: Sequence[QueryMetric],
    confidence: float,
) -> Iterator[Change]:
    for (sensitive, _), old, new in zip(splits, before, after, strict=True):
        if sensitive is None:
            for metric in metrics:
                if metric.over != "groups of queries":
                    sizes = {"all": data.profile.rows}
                    yield from level_changes(metric, paired_rankings(metric, old, new), None, sizes, confidence)
            continue
        sized = {name: data.profile.groups[sensitive][name] for name in data.group_names(sensitive)}
        grouped = [(metric, paired_rankings(metric, old, new)) for metric in metrics if metric.over != "rankings"]
        for metric, numbers in grouped:
            yield from disparity_changes(metric, numbers, sensitive, min(sized.values()), confidence)
        for metric, numbers in grouped:
            yield from level_changes(metric, numbers, sensitive, sized, confidence)


def paired_rankings(metric: QueryMetric, one: Queries, two: Queries) -> Paired:
    """Return a number of two models in every group, with how far each query pulls both."""
    parts = [metric.pulls(queries) for queries in (one, two)]
    pull = np.stack([noise_of(influence, there).influence for _, influence, there in parts])
    return Paired(
        np.stack([values for values, _, _ in parts]), np.einsum("asq,bsq->sab", pull, pull), np.nan_to_num(pull)
    )
