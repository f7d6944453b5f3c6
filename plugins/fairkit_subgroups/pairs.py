"""Two models: each group that was found in either, measured in both on the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.results.comparisons import Change, outcome_of
from fairkit.results.conditions import in_words
from fairkit_subgroups.parameters import SINGLE
from fairkit_subgroups.searching.exact import Level, share_limits
from fairkit_subgroups.searching.measures import LOSS, ONE, RESIDUAL, SOFT, STATES, Measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fairkit.results.values import Better
    from fairkit_subgroups.searching.search import Group
    from fairkit_subgroups.searching.tables import RowSample
    from fairkit_subgroups.statement import Statement

    Array = NDArray[np.float64]

_BETTER: dict[int, Better] = {1: "lower", -1: "higher", 0: "none"}


class PairRows(NamedTuple):
    """What each kept row adds: its number under a model, its weight, and whether the denominator has it."""

    values: Array
    weights: Array
    inside: NDArray[np.bool_]


def paired_changes(statements: tuple[Statement, Statement]) -> Iterator[Change]:
    """Yield the paired change of each group that is listed for either model.

    Both models see the same rows, so that only rows count on which they differ. The parts of rows that gain and that
    lose have exact limits at the level of single groups: the intervals hold for all groups at once.
    """
    first = statements[0]
    samples = tuple(_sorted(one.people.kept) for one in statements)
    for measure in first.searched.measures:
        listed = [[one.group for one in statement.listed(measure)] for statement in statements]
        pairs = tuple(_rows(measure, rows, statement) for rows, statement in zip(samples, statements, strict=True))
        for group in dict.fromkeys([*listed[0], *listed[1]]):
            named = "both" if group in listed[0] and group in listed[1] else ("first", "second")[group in listed[1]]
            yield _change(measure, group, named, statements, samples[0], (pairs[0], pairs[1]))


def _sorted(kept: RowSample) -> RowSample:
    return kept.take(np.argsort(kept.keys, kind="stable"))


def _change(
    measure: Measure,
    group: Group,
    named: str,
    statements: tuple[Statement, Statement],
    sample: RowSample,
    pairs: tuple[PairRows, PairRows],
) -> Change:
    first = statements[0]
    alpha = max(one.alpha(measure, one.confidence) for one in statements)
    before, after = (one.searches[measure.name].at(group, alpha) for one in statements)
    unit = first.searched.unit if measure.kind == "loss" else 1.0
    low, high = _limits(measure, group, first, sample, pairs, alpha)
    shift = after.difference - before.difference
    ends = (min(low, shift) * unit, max(high, shift) * unit)
    conditions = first.searched.family.conditions(group.table, group.number)
    within = first.searched.stratum(group.layer * first.searched.halves)
    sure = [one.searches[measure.name].at(group, alpha).surely > 0 for one in statements]
    better = _BETTER[measure.worse]
    return Change(
        metric=SINGLE,
        group=in_words(conditions, within),
        parameters={
            "measure": measure.name,
            "conditions": conditions,
            **({"within": within} if within else {}),
            "rows": round(before.rows),
            "named_in": named,
            "differs": {"first": sure[0], "second": sure[1]},
        },
        before=before.difference * unit,
        after=after.difference * unit,
        interval=ends,
        better=better,
        outcome=outcome_of(*ends, better),
    )


def _limits(
    measure: Measure, group: Group, first: Statement, sample: RowSample, pairs: tuple[PairRows, PairRows], alpha: float
) -> tuple[float, float]:
    """Return limits of the change of the difference: of the group, minus that of the rest."""
    member = first.searched.family.member(sample.codes, group.table, group.number)
    layer = sample.layer == group.layer
    moved = pairs[1].values - pairs[0].values
    over = pairs[0].inside & layer
    scale = first.people.scale
    inside = _mean_limits(moved, pairs[0].weights, over & member, scale, alpha)
    if measure.kind == "residual":
        return inside[1], inside[2]
    rest = _mean_limits(moved, pairs[0].weights, over & ~member, scale, alpha)
    shift = inside[0] - rest[0]
    low = shift - float(np.hypot(inside[0] - inside[1], rest[2] - rest[0]))
    return low, shift + float(np.hypot(inside[2] - inside[0], rest[0] - rest[1]))


def _mean_limits(
    moved: Array, weights: Array, keep: NDArray[np.bool_], scale: float, alpha: float
) -> tuple[float, float, float]:
    """Return a mean of numbers in [-1, 1] with limits from those of its positive and of its negative part."""
    some, w = moved[keep], weights[keep]
    if not len(some) or not w.sum():
        return 0.0, -1.0, 1.0
    n = np.array([w.sum() ** 2 / (w**2).sum() * scale])
    whole = bool(np.isin(some, (-1.0, 0.0, 1.0)).all()) and bool((w == w[0]).all())
    level = Level(alpha / 2, "rate" if whole else "loss")
    parts = [np.array([np.average(np.maximum(sign * some, 0.0), weights=w)]) for sign in (1, -1)]
    (up, down), ends = parts, [share_limits(part, n, level) for part in parts]
    low = up - down - (up - ends[0][0]) - (ends[1][1] - down)
    high = up - down + (ends[0][1] - up) + (down - ends[1][0])
    return float((up - down)[0]), float(low[0]), float(high[0])


def _rows(measure: Measure, kept: RowSample, statement: Statement) -> PairRows:
    name = measure.statistic(statement.soft)
    values: NDArray[Any] = kept.values[name]
    weighted = statement.searched.weight > 0
    n = len(values)
    everybody = np.ones(n, dtype=bool)
    over, counted = np.array(measure.over, dtype=bool), np.array(measure.counted, dtype=np.float64)
    if name == STATES:
        return PairRows(counted[values], np.ones(n), over[values])
    scaled = values / ONE
    if name == SOFT:
        yes = values[:, 6] > 0
        w = np.where(yes, scaled[:, 7], scaled[:, 1])
        chance = np.where(yes, scaled[:, 8], scaled[:, 2]) / np.where(w > 0, w, 1.0)
        no = np.where(yes, counted[2], counted[0])
        slope = np.where(yes, counted[3], counted[1]) - no
        return PairRows(no + slope * chance, w, np.where(yes, over[2], over[0]))
    assert name in (RESIDUAL, LOSS)  # noqa: S101 -- there are no others
    if not weighted:
        plain = scaled[:, 1] - scaled[:, 2] if name == RESIDUAL else scaled[:, 1]
        return PairRows(plain, np.ones(n), everybody)
    w = scaled[:, 1]
    moved = scaled[:, 2] - scaled[:, 3] if name == RESIDUAL else scaled[:, 2]
    return PairRows(moved / np.where(w > 0, w, 1.0), w, everybody)
