"""From counts to statements: each rule's interval and verdict, each group's rates and shares, at one look or many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_watch import sequences
from fairkit_watch.sequences import (
    BURN_IN_ROWS,
    Between,
    Ends,
    deviance_limits,
    factor,
    lambda_grid,
    mean_limits,
    rate_limits,
)
from fairkit_watch.settings import POOLED, SELECTIVE, Question, Reference, among_accepted, needs_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate
    from fairkit.results.report import Report
    from fairkit_watch.settings import WatchSettings

    Array = NDArray[np.float64]


Verdict = Literal["pass", "fail", "undecided"]
MANY_UNRESOLVED = 0.05
FAR = 5.0
"""So many standard errors, at any look, are no chance."""
LEANING = "{metric} needs outcomes of decisions drawn at random; one decision's were looked up more often"


@dataclass(frozen=True, slots=True)
class Judge:
    """What intervals are made with: settings, and the questions that share α."""

    settings: WatchSettings  # of the watch
    questions: tuple[Question, ...]  # its rules

    @property
    def alpha(self) -> float:
        """The chance of a wrong statement that all verdicts, or all bands, share."""
        return 1 - self.settings.confidence

    @property
    def streams(self) -> int:
        """How many questions share α: rules that ask the same count once."""
        return max(len({question.same for question in self.questions}), 1)

    def interval(self, question: Question, split: Split, parts: Mapping[str, Array], part: float = 1.0) -> RulePath:
        """Return a rule's number and interval for totals of shape [..., G, K]."""
        alpha = part * self.alpha / self.streams
        values, lows, highs = [], [], []
        ratio, many = question.target.kind == "ratio", len(question.target.rates)
        for rate in question.target.rates:
            ends = rate_ends(rate, parts)
            value, n = point(rate, parts)
            values.append(_compared(question.target.kind, value, n))
            own = self._one(question, rate, ends, split, alpha)
            joint = own if many == 1 else self._one(question, rate, ends, split, alpha / many)
            # of the larger of two differences: the lower ends hold together, the upper ends each alone
            lows.append(own[0] if ratio else joint[0])
            highs.append(joint[1] if ratio else own[1])
        pick = np.min if ratio else np.max
        return RulePath(pick(values, axis=0), pick(lows, axis=0), pick(highs, axis=0))

    def _one(self, question: Question, rate: type[Rate], ends: Ends, split: Split, alpha: float) -> tuple[Array, Array]:
        kind = question.target.kind
        how = Between(alpha, split.declared, self._best(question.split, split.groups))
        if kind == "difference":
            return sequences.difference(ends, how)
        if kind == "ratio":
            return sequences.ratio(ends, how)
        if self.settings.columns.weights is not None:
            return self._weighted(ends, alpha, largest=kind != "smallest")
        rates = [self.settings.reference.rate(question.split, group, rate.name) for group in split.groups]
        expected = [value for value in rates if value is not None]
        grid = lambda_grid(sum(expected) / len(expected) if expected else None)
        return sequences.extreme(ends, how, grid, largest=kind != "smallest")

    def _weighted(self, ends: Ends, alpha: float, *, largest: bool) -> tuple[Array, Array]:
        low, high = self._band(ends, alpha / ends.least.shape[-1])
        pick = np.max if largest else np.min
        return pick(low, axis=-1), pick(high, axis=-1)

    def _band(self, ends: Ends, alpha: float | Array) -> tuple[Array, Array]:
        """Return the asymptotic sequence of weighted rates, after the burn-in."""
        sequences = []
        for rate, n, side in ((ends.least, ends.least_n, 0), (ends.most, ends.most_n, 1)):
            c = factor(n / (self.settings.review_rows / 10), alpha)
            whole = np.isfinite(c) & (n >= BURN_IN_ROWS)
            bounds = deviance_limits(np.nan_to_num(rate, nan=0.5), n, np.where(whole, c, 1.0) ** 2 / 2)[side]
            sequences.append(np.where(whole, bounds, np.nan))
        return sequences[0], sequences[1]

    def rates(self, rate: type[Rate], split: Split, parts: Mapping[str, Array], name: str) -> RulePath:
        """Return a rate's band in every group, shape [..., G]; all bands of all rates hold together."""
        ends = rate_ends(rate, parts)
        shares = sequences.spending(np.arange(len(split.groups)), split.declared)
        alpha = self.alpha / self.bands * shares
        if self.settings.columns.weights is not None:
            low, high = self._band(ends, alpha)
            return RulePath(point(rate, parts)[0], low, high)
        low, high = np.empty_like(ends.least), np.empty_like(ends.least)
        for g, group in enumerate(split.groups):
            grid = lambda_grid(self.settings.reference.rate(name, group, rate.name))
            least = np.nan_to_num(ends.least[..., g]) * ends.least_n[..., g]
            most = np.nan_to_num(ends.most[..., g]) * ends.most_n[..., g]
            low[..., g] = rate_limits(least, ends.least_n[..., g], alpha[g], grid)[0]
            high[..., g] = rate_limits(most, ends.most_n[..., g], alpha[g], grid)[1]
        return RulePath(point(rate, parts)[0], low, high)

    def means(self, split: Split, parts: Mapping[str, Array]) -> RulePath:
        """Return the band of the mean score in every group, shape [..., G]."""
        shares = sequences.spending(np.arange(len(split.groups)), split.declared)
        alpha = self.alpha / self.bands * shares
        return RulePath(*mean_limits(parts["m"], alpha, self.settings.review_rows / 10))

    @property
    def bands(self) -> int:
        """How many rates' bands share α."""
        return max(len(self.watched()) + (self.settings.columns.score is not None), 1)

    def watched(self) -> tuple[tuple[str, type[Rate]], ...]:
        """Return the rates that are shown for the groups of each split, in the order of the rules."""
        found = {(question.split, rate.name): rate for question in self.questions for rate in question.target.rates}
        return tuple((split, rate) for (split, _), rate in found.items())

    def shares(self, split: Split, parts: Mapping[str, Array], name: str, alpha: float) -> RulePath:
        """Return each group's share of the decisions, shape [..., G], with a sequence at α for all groups together."""
        rows = parts["d"].sum(axis=-1)
        total = np.broadcast_to(rows.sum(axis=-1, keepdims=True), rows.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(total > 0, rows / total, np.nan)
        spending = alpha * sequences.spending(np.arange(len(split.groups)), split.declared)
        low, high = np.empty_like(rows), np.empty_like(rows)
        for g, group in enumerate(split.groups):
            grid = lambda_grid(self.settings.reference.shares.get(name, {}).get(group))
            low[..., g], high[..., g] = rate_limits(rows[..., g], total[..., g], spending[g], grid)
        return RulePath(value, low, high)

    def _best(self, split: str, groups: Sequence[str]) -> Array:
        """Return information₀ of each pair: that of a tenth of the rows expected, split as the reference says."""
        rows = self.settings.review_rows / 10
        known = self.settings.reference.shares.get(split, {})
        even = 1 / max(len(groups), 2)
        n = rows * np.array([max(known.get(group, even), 1e-4) for group in groups])
        return np.asarray(1 / (1 / n[:, None] + 1 / n[None, :]))

    def refused(self, question: Question, parts: Mapping[str, Array]) -> str | None:
        """Return why a rule gets no verdict: outcomes exist for favorable decisions only."""
        rates = [rate for rate in question.target.rates if needs_labels(rate) and not among_accepted(rate)]
        if not rates:
            return None
        if NOT_DRAWN in parts and self._leaning(parts):
            return LEANING.format(metric=question.rule.metric)
        closed, open_ = parts["c"].sum(axis=-2), parts["u"].sum(axis=-2)
        no_labels = closed[0] + closed[2] == 0 and open_[0] > 0
        if no_labels and closed[1] + closed[3] > 0:
            return SELECTIVE.format(metric=question.rule.metric)
        return None

    @staticmethod
    def _leaning(parts: Mapping[str, Array]) -> bool:
        """Whether in some group outcomes were looked up for one decision clearly more often than for the other."""
        labels_known = parts["c"].reshape(*parts["c"].shape[:-1], 2, 2).sum(axis=-2)
        rows = labels_known + parts[NOT_DRAWN]
        with np.errstate(all="ignore"):
            share = labels_known.sum(axis=-1) / rows.sum(axis=-1)
            error = np.sqrt(share * (1 - share) * (1 / rows).sum(axis=-1))
            return bool((np.abs(np.diff(labels_known / rows, axis=-1)[..., 0]) > FAR * error).any())


@dataclass(frozen=True, slots=True)
class RulePath:
    """A number with its interval, at one time or many: value, low, high of one shape; NaN where nothing is known."""

    value: Array
    low: Array
    high: Array

    def at(self, *place: int) -> tuple[float | None, tuple[float, float] | None]:
        """Return the number and the interval at a place, as plain numbers."""
        value, low, high = (float(np.asarray(part)[place]) for part in (self.value, self.low, self.high))
        is_finite = math.isfinite(low) and math.isfinite(high)
        return (value if math.isfinite(value) else None), ((low, high) if is_finite else None)


def _compared(kind: str, rates: Array, n: Array) -> Array:
    """Return the number of a rule from the groups' rates, shape [..., G]; groups without rows are left out."""
    is_known = (n > 0) & np.isfinite(rates)
    least = np.where(is_known, rates, np.inf).min(axis=-1, initial=np.inf)
    most = np.where(is_known, rates, -np.inf).max(axis=-1, initial=-np.inf)
    enough = is_known.sum(axis=-1) >= (2 if kind in ("difference", "ratio") else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        number = {"difference": most - least, "ratio": least / most, "smallest": least, "largest": most, "level": most}[
            kind
        ]
    return np.asarray(np.where(enough, number, np.nan))


def verdict(question: Question, low: float, high: float) -> Verdict:
    """Return an interval's verdict: pass, fail, or undecided where it has the limit inside or is missing."""
    holds = question.rule.settled((low, high)) if math.isfinite(low) and math.isfinite(high) else None
    return "undecided" if holds is None else "pass" if holds else "fail"


def reason(question: Question, value: float | None, interval: tuple[float, float] | None, since: str) -> str:
    """Return the sentence of a verdict."""
    if value is None:
        return f"of all decisions since {since}, {question.name} is not known yet: a group has no rows"
    if interval is None:
        return f"of all decisions since {since}, {question.name} is {value:.4g}; too few rows for an interval"
    low, high = interval
    shown = f"of all decisions since {since}, {question.name} is {value:.4g}, in [{low:.4g}, {high:.4g}] at every look"
    limit, upper = question.limit, question.rule.upper
    found = verdict(question, low, high)
    if found == "undecided":
        return f"{shown}: the interval contains the limit {limit:g}"
    side = ("at most" if upper else "at least") if found == "pass" else ("above" if upper else "below")
    return f"{shown}: the whole interval is {side} the limit {limit:g}"


def unresolved(parts: Mapping[str, Any]) -> float:
    """Return the share of closed decisions whose outcome is not known."""
    closed, open_ = float(parts["c"].sum()), float(parts["u"].sum())
    return open_ / (closed + open_) if open_ else 0.0


# Counts by day and group: what every statement of a watch is a function of.


PARTS: Mapping[str, int] = {"d": 2, "c": 4, "u": 2, "m": 5, "dd": 2, "cc": 4, "uu": 2}
NOT_DRAWN = "n"
"""What a record holds for a day and group, and how many numbers: decisions (no, yes), closed cells (outcome 0 no,
0 yes,
1 no, 1 yes), unresolved (no, yes), moments of the score (Σw, Σw², Σwx, Σw²x, Σw²x²); under weights their squares'
sums."""

Increments = dict[str, dict[str, dict[str, dict[str, list[float]]]]]
"""Day, split, group, part: numbers to add."""


@dataclass(frozen=True, slots=True)
class Split:
    """The counts of one way to split people: arrays by day and group."""

    groups: tuple[str, ...]  # their names: the declared ones first, then in the order of their first day
    declared: int  # how many of them were declared
    parts: Mapping[str, Array]  # by the name of the part (see `PARTS`), shape [T, G, K]

    def window(self, start: int, stop: int) -> Split:
        """Return some days."""
        return Split(self.groups, self.declared, {key: part[start:stop] for key, part in self.parts.items()})

    def summed(self) -> dict[str, Array]:
        """Return the totals of all days, each [G, K]."""
        return {key: part.sum(axis=0) for key, part in self.parts.items()}

    def cumulated(self) -> dict[str, Array]:
        """Return the totals up to each day, each [T, G, K]."""
        return {key: part.cumsum(axis=0) for key, part in self.parts.items()}


@dataclass(frozen=True, slots=True)
class Daily:
    """All counts."""

    days: tuple[str, ...]  # every day that was reported, also one without decisions, in order
    splits: Mapping[str, Split]  # by name; `""` is everybody

    @property
    def rows(self) -> Array:
        """Decisions by day, shape [T]."""
        return np.asarray(self.splits[POOLED].parts["d"].sum(axis=(1, 2)))


def daily(
    records: Iterable[Increments], declared: Mapping[str, Sequence[str]], splits: Sequence[str], *, drawn: bool = False
) -> Daily:
    """Add increments up, in any order; where labels are `drawn`, unresolved decisions are those that were not."""
    summed = add_up(records)
    days = tuple(sorted(summed))
    by_split = {}
    for split in (POOLED, *splits):
        groups, declared_groups = _groups(summed, days, split, () if split == POOLED else declared.get(split, ()))
        index = {group: i for i, group in enumerate(groups)}
        parts = {key: np.zeros((len(days), len(groups), size)) for key, size in PARTS.items()}
        for t, day in enumerate(days):
            for group, sums in summed[day].get(split, {}).items():
                for key, numbers in sums.items():
                    parts[key][t, index[group]] = numbers
        if drawn:
            parts |= {NOT_DRAWN: parts["u"], "u": 0 * parts["u"], "uu": 0 * parts["uu"]}
        by_split[split] = Split(groups, declared_groups, parts)
    return Daily(days, by_split)


def add_up(records: Iterable[Increments]) -> Increments:
    """Return the sum of increments: the same for every order of the records, since floats are added exactly."""
    lists: dict[str, dict[str, dict[str, dict[str, list[list[float]]]]]] = {}
    for record in records:
        for day, splits in record.items():
            of_day = lists.setdefault(day, {})
            for split, groups in splits.items():
                of_split = of_day.setdefault(split, {})
                for group, parts in groups.items():
                    totals = of_split.setdefault(group, {})
                    for key, numbers in parts.items():
                        totals.setdefault(key, []).append(numbers)
    return {
        day: {
            split: {
                group: {key: [_sum(column) for column in zip(*rows, strict=True)] for key, rows in parts.items()}
                for group, parts in groups.items()
            }
            for split, groups in splits.items()
        }
        for day, splits in lists.items()
    }


def _sum(numbers: Sequence[float]) -> float:
    return numbers[0] if len(numbers) == 1 else _whole(math.fsum(numbers))


def _whole(value: float) -> float:
    return int(value) if value.is_integer() else value


def _groups(
    summed: Increments, days: Sequence[str], split: str, declared: Sequence[str]
) -> tuple[tuple[str, ...], int]:
    if split == POOLED:
        return (POOLED,), 1
    order: dict[str, None] = dict.fromkeys(declared)
    for day in days:
        order.update(dict.fromkeys(sorted(summed[day].get(split, {}))))
        if not declared and order:
            declared = tuple(order)
    return tuple(order), len(declared)


def rate_ends(rate: type[Rate], parts: Mapping[str, Array]) -> Ends:
    """Return a rate in every group, at both ends of what unresolved rows could make of it, shape [..., G].

    Rows are whole numbers, or effective ones where decisions have weights.
    """
    if not needs_labels(rate):
        return Ends.certain(*_rate(rate, parts["d"], parts["dd"]))
    if not parts["u"].any():
        return Ends.certain(*_rate(rate, parts["c"], parts["cc"]))
    corners = []
    for no in (0, 1):
        for yes in (0, 1):  # every unresolved no (yes) has the outcome 0, or every one has 1: extremes are at corners
            cells, squares = parts["c"].copy(), parts["cc"].copy()
            for target, open_ in ((cells, parts["u"]), (squares, parts["uu"])):
                target[..., 2 * no] += open_[..., 0]
                target[..., 2 * yes + 1] += open_[..., 1]
            corners.append(_rate(rate, cells, squares))
    values, sizes = np.array([value for value, _ in corners]), np.array([n for _, n in corners])
    low = np.nan_to_num(values, nan=0.0).argmin(axis=0)[None]
    high = np.nan_to_num(values, nan=1.0).argmax(axis=0)[None]
    ends = [np.take_along_axis(array, at, axis=0)[0] for at in (low, high) for array in (values, sizes)]
    return Ends(*ends)


def _rate(rate: type[Rate], cells: Array, squares: Array) -> tuple[Array, Array]:
    """Return a rate and the rows, or effective rows, that it is over."""
    width = cells.shape[-1]
    over, counted = np.array(rate.over, float)[:width], np.array(rate.counted, float)[:width]
    mass = cells @ over
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.asarray(np.where(mass > 0, cells @ counted / mass, np.nan))
        if not squares.any():
            return value, mass
        all_, inside = squares @ over, squares @ counted
        # of the residuals: the variance of the rate is spread / mass²
        spread = inside * (1 - 2 * value) + value**2 * all_
        kish = mass**2 / all_
        rows = np.where(spread > 0, value * (1 - value) * mass**2 / spread, kish)
        return value, np.nan_to_num(np.minimum(kish, rows), nan=0.0)


def point(rate: type[Rate], parts: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return a rate in every group from the rows that are resolved, and how many these are, shape [..., G]."""
    key = "c" if needs_labels(rate) else "d"
    return _rate(rate, parts[key], parts[key * 2])


def summary(increments: Increments) -> dict[str, Any]:
    """Return totals as plain JSON with sorted keys: equal totals give equal bytes."""
    return {day: increments[day] for day in sorted(increments)}


def whole(increments: Mapping[str, Any]) -> Increments:
    """Return increments with whole numbers as such."""
    return {
        day: {
            split: {
                group: {key: [_whole(float(x)) for x in numbers] for key, numbers in parts.items()}
                for group, parts in groups.items()
            }
            for split, groups in splits.items()
        }
        for day, splits in increments.items()
    }


# What an audit's report makes a watch expect.


def reference_of(report: Report) -> Reference:
    """Return the rates, shares and numbers of a report."""
    rates: dict[str, dict[str, dict[str, float]]] = {}
    numbers: dict[str, tuple[float, float, float]] = {}
    for finding in report.findings:
        if finding.value is None or not math.isfinite(finding.value):
            continue
        if finding.sensitive is None:
            rates.setdefault(POOLED, {}).setdefault(POOLED, {})[finding.metric] = finding.value
        elif finding.metric.endswith("_difference"):
            by_group = rates.setdefault(finding.sensitive, {})
            for group in finding.groups:
                if group.value is not None and math.isfinite(group.value):
                    by_group.setdefault(group.group, {})[finding.metric.removesuffix("_difference")] = group.value
        if finding.interval is not None and all(map(math.isfinite, finding.interval)):
            name = f"{finding.metric}:{finding.sensitive}" if finding.sensitive else finding.metric
            numbers[name] = (finding.value, *finding.interval)
    return Reference(rates=rates, shares=_shares(report.data.groups), numbers=numbers)


def groups_of(report: Report, sensitive: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of each split that a report names."""
    return {split: tuple(report.data.groups[split]) for split in sensitive if split in report.data.groups}


def _shares(groups: Any) -> dict[str, dict[str, float]]:
    return {
        split: {group: rows / sum(sizes.values()) for group, rows in sizes.items()}
        for split, sizes in groups.items()
        if sum(sizes.values()) > 0
    }
