"""From counts to statements: each rule's interval and verdict, each group's rates and shares, at one look or many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit_watch import between
from fairkit_watch.between import Between, Ends
from fairkit_watch.questions import SELECTIVE, Question, among_accepted, needs_labels
from fairkit_watch.sequences import BURN_IN_ROWS, deviance_limits, factor, lambda_grid, mean_limits, rate_limits
from fairkit_watch.totals import NOT_DRAWN, point, rate_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate
    from fairkit_watch.settings import WatchSettings
    from fairkit_watch.totals import Split

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
        return max(len({one.same for one in self.questions}), 1)

    def interval(self, question: Question, split: Split, parts: Mapping[str, Array], part: float = 1.0) -> Path:
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
        return Path(pick(values, axis=0), pick(lows, axis=0), pick(highs, axis=0))

    def _one(self, question: Question, rate: type[Rate], ends: Ends, split: Split, alpha: float) -> tuple[Array, Array]:
        kind = question.target.kind
        how = Between(alpha, split.declared, self._best(question.split, split.groups))
        if kind == "difference":
            return between.difference(ends, how)
        if kind == "ratio":
            return between.ratio(ends, how)
        if self.settings.columns.weights is not None:
            return self._weighted(ends, alpha, largest=kind != "smallest")
        grid = lambda_grid(self._expected(question.split, split.groups, rate))
        return between.extreme(ends, how, grid, largest=kind != "smallest")

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

    def rates(self, rate: type[Rate], split: Split, parts: Mapping[str, Array], name: str) -> Path:
        """Return a rate's band in every group, shape [..., G]; all bands of all rates hold together."""
        ends = rate_ends(rate, parts)
        shares = between.spending(np.arange(len(split.groups)), split.declared)
        alpha = self.alpha / self.bands * shares
        if self.settings.columns.weights is not None:
            low, high = self._band(ends, alpha)
            return Path(point(rate, parts)[0], low, high)
        low, high = np.empty_like(ends.least), np.empty_like(ends.least)
        for g, group in enumerate(split.groups):
            grid = lambda_grid(self.settings.reference.rate(name, group, rate.name))
            least = np.nan_to_num(ends.least[..., g]) * ends.least_n[..., g]
            most = np.nan_to_num(ends.most[..., g]) * ends.most_n[..., g]
            low[..., g] = rate_limits(least, ends.least_n[..., g], alpha[g], grid)[0]
            high[..., g] = rate_limits(most, ends.most_n[..., g], alpha[g], grid)[1]
        return Path(point(rate, parts)[0], low, high)

    def means(self, split: Split, parts: Mapping[str, Array]) -> Path:
        """Return the band of the mean score in every group, shape [..., G]."""
        shares = between.spending(np.arange(len(split.groups)), split.declared)
        alpha = self.alpha / self.bands * shares
        return Path(*mean_limits(parts["m"], alpha, self.settings.review_rows / 10))

    @property
    def bands(self) -> int:
        """How many rates' bands share α."""
        return max(len(self.watched()) + (self.settings.columns.score is not None), 1)

    def watched(self) -> tuple[tuple[str, type[Rate]], ...]:
        """Return the rates that are shown for the groups of each split, in the order of the rules."""
        found = {(question.split, rate.name): rate for question in self.questions for rate in question.target.rates}
        return tuple((split, rate) for (split, _), rate in found.items())

    def shares(self, split: Split, parts: Mapping[str, Array], name: str, alpha: float) -> Path:
        """Return each group's share of the decisions, shape [..., G], with a sequence at α for all groups together."""
        rows = parts["d"].sum(axis=-1)
        total = np.broadcast_to(rows.sum(axis=-1, keepdims=True), rows.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(total > 0, rows / total, np.nan)
        own = alpha * between.spending(np.arange(len(split.groups)), split.declared)
        low, high = np.empty_like(rows), np.empty_like(rows)
        for g, group in enumerate(split.groups):
            grid = lambda_grid(self.settings.reference.shares.get(name, {}).get(group))
            low[..., g], high[..., g] = rate_limits(rows[..., g], total[..., g], own[g], grid)
        return Path(value, low, high)

    def _expected(self, split: str, groups: Sequence[str], rate: type[Rate]) -> float | None:
        rates = [self.settings.reference.rate(split, group, rate.name) for group in groups]
        known = [one for one in rates if one is not None]
        return sum(known) / len(known) if known else None

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
        known = parts["c"].reshape(*parts["c"].shape[:-1], 2, 2).sum(axis=-2)
        rows = known + parts[NOT_DRAWN]
        with np.errstate(all="ignore"):
            share = known.sum(axis=-1) / rows.sum(axis=-1)
            error = np.sqrt(share * (1 - share) * (1 / rows).sum(axis=-1))
            return bool((np.abs(np.diff(known / rows, axis=-1)[..., 0]) > FAR * error).any())


@dataclass(frozen=True, slots=True)
class Path:
    """A number with its interval, at one time or many: value, low, high of one shape; NaN where nothing is known."""

    value: Array
    low: Array
    high: Array

    def at(self, *place: int) -> tuple[float | None, tuple[float, float] | None]:
        """Return the number and the interval at a place, as plain numbers."""
        value, low, high = (float(np.asarray(part)[place]) for part in (self.value, self.low, self.high))
        known = math.isfinite(low) and math.isfinite(high)
        return (value if math.isfinite(value) else None), ((low, high) if known else None)


def _compared(kind: str, rates: Array, n: Array) -> Array:
    """Return the number of a rule from the groups' rates, shape [..., G]; groups without rows are left out."""
    known = (n > 0) & np.isfinite(rates)
    least = np.where(known, rates, np.inf).min(axis=-1, initial=np.inf)
    most = np.where(known, rates, -np.inf).max(axis=-1, initial=-np.inf)
    enough = known.sum(axis=-1) >= (2 if kind in ("difference", "ratio") else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        number = {"difference": most - least, "ratio": least / most, "smallest": least, "largest": most, "level": most}[
            kind
        ]
    return np.asarray(np.where(enough, number, np.nan))


def verdict(question: Question, low: float, high: float) -> Verdict:
    """Return an interval's verdict: pass, fail, or undecided where it has the limit inside or is missing."""
    kept = question.rule.settled((low, high)) if math.isfinite(low) and math.isfinite(high) else None
    return "undecided" if kept is None else "pass" if kept else "fail"


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
