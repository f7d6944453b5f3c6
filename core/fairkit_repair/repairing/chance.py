"""The chance that decisions will pass a policy: audits that were not made yet, judged as audits are judged."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairkit.errors import PolicyError
from fairkit.planning.draws import LEAST, intervals, settled
from fairkit.planning.run import installed
from fairkit.planning.search import search
from fairkit.planning.targets import target_of
from fairkit_repair.repairing.cells import CalibrationCells
from fairkit_repair.repairing.missing import furthest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.results.rules import Rule
    from fairkit.totals.sums import CellSums
    from fairkit_repair.repairing.cells import Planned

    Array = NDArray[np.float64]

WANTED = 0.9
"""The chance at which needed rows are planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """One limit: its rule, between the groups of which split, and the rates (a `Target`) that its number is made of."""

    rule: Rule
    split: str | None
    target: Any = None

    @property
    def label(self) -> str:
        """``demographic_parity_difference:sex``."""
        return self.rule.metric if self.split is None else f"{self.rule.metric}:{self.split}"


def limits_of(rules: Sequence[Rule], splits: Sequence[str], *, of_rates: bool = True) -> list[Limited]:
    """Return the limits of a policy; a rule without a column is one limit for each split.

    A rule on a rate itself is judged in every group, and without a column among all people, too.
    """
    limits = []
    for rule in rules:
        try:
            target = target_of(rule.metric, installed()) if of_rates else None
        except PolicyError as error:
            raise PolicyError(f"a search predicts verdicts on numbers that are made of rates. {error}") from error
        level = target is not None and target.kind == "level"
        over: list[str | None] = [*splits] if rule.sensitive is None else [rule.sensitive]
        over = [None, *over] if level and rule.sensitive is None else over
        limits += [Limited(rule=rule, split=split, target=target) for split in over]
    return limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an audit of the planned size will find."""

    chance: float  # that every limit is kept by the whole interval: the verdict is *pass*
    chances: Mapping[str, float]  # of each limit by itself, by its label; empty where it is not known
    values: Mapping[str, float]  # the number under each limit, as it is on the calibration rows
    accuracy: float  # on the calibration rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(ABC):
    """Predicts what an audit of the planned rows will find: from rates, or from audits of rows drawn again."""

    few: ClassVar[int]
    draws: ClassVar[int]
    many: ClassVar[int]
    planned: Planned  # who the test rows are; of rankings only the number of queries counts
    confidence: float = 0.95  # of the audit's intervals

    @abstractmethod
    def predict(
        self, said: Array, rng: np.random.Generator, draws: int | None = None, *, fixed_rates: bool = False
    ) -> Prediction:
        """Predict from what models that did not see the calibration rows say of them."""

    @abstractmethod
    def pilot(self, rows: NDArray[np.int64], said: Array) -> tuple[Self, Array]:
        """Return the forecast for what a quick model says of some of the calibration rows."""

    @abstractmethod
    def equal(self, said: Array) -> tuple[Self, Array | None]:
        """Return the forecast for limits on disparities only, and answers without any; None where none are known."""

    @abstractmethod
    def splits(self) -> Iterable[str | None]:
        """Return the splits whose groups must be large enough for a verdict."""

    @abstractmethod
    def needed(self, at: Callable[[float], float]) -> float | None:
        """Return the rows at which a chance, by multiples of the planned rows, is `WANTED`; None where none are."""

    @property
    def rows(self) -> int:
        """How many rows the test has; of rankings, queries."""
        return int(self.planned.sizes.sum())

    def scaled(self, factor: float) -> Self:
        """Return the same for so many times the test rows."""
        return dataclasses.replace(self, planned=self.planned.scaled(factor))

    def small(self) -> tuple[str, ...]:
        """Return the groups with too few test rows for any verdict."""
        return tuple(
            f"{name} ({size} rows)"
            for split in dict.fromkeys(self.splits())
            if split is not None and split in self.planned.names
            for name, size in zip(self.planned.names[split], self.planned.group_sizes(split), strict=True)
            if size < LEAST
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRates(Forecast):
    """Predicts verdicts on binary decisions, whose policy is on numbers that are made of rates.

    Rates are drawn from what the calibration rows say of them, then totals of the planned size, and every drawn audit
    is judged by the functions that judge audits; all limits on the same draw, so that their dependence counts.
    """

    few, draws, many = 300, 600, 2_400  # a chance of .95 has a standard error of .013, .009, .004
    limits: Sequence[Limited]

    def predict(
        self, said: Array, rng: np.random.Generator, draws: int | None = None, *, fixed_rates: bool = False
    ) -> Prediction:
        """Predict from probabilities of the favorable decision, shape [n]."""
        cells = CalibrationCells.of(self.planned, said)
        counts = cells.draw(rng, draws or self.draws, fixed_rates=fixed_rates)
        passed = np.ones(len(counts), dtype=bool)
        chances, values = {}, {}
        for limited in self.limits:
            kept = self._kept(cells, counts, limited, rng)
            passed &= kept
            chances[limited.label] = float(kept.mean())
            rates = _rates(cells, limited, limited.split)
            known = rates[:, np.isfinite(rates).all(axis=0)]
            lowest = limited.target.kind == "level" and not limited.rule.upper
            number = limited.target.value if not lowest else np.min
            values[limited.label] = float(number(known)) if known.size else float("nan")
        right = np.where(cells.outcome > 0, cells.chance, 1 - cells.chance)
        return Prediction(
            chance=float(passed.mean()),
            chances=chances,
            values=values,
            accuracy=float(np.average(right, weights=cells.mass)),
        )

    def _kept(
        self, cells: CalibrationCells, counts: Array, limited: Limited, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Return which drawn audits keep a limit with the whole interval, shape [draws]."""
        totals = cells.totals(counts, limited.split)
        groups = len(totals.count) // len(counts)
        estimates = [rate().estimate(totals, rng) for rate in limited.target.rates]
        enough = np.asarray((totals.count >= LEAST).reshape(-1, groups).all(axis=1))
        for estimate in estimates:
            if estimate.sizes is not None:
                enough &= (np.round(estimate.sizes, 6) >= LEAST).reshape(-1, groups).all(axis=1)
        far = self._furthest(cells, totals, limited, len(counts))
        passes = np.zeros(len(counts), dtype=bool)
        for draw, (low, high) in intervals(limited.target, estimates, enough, self.confidence):
            ends = low, high
            if far is not None:
                part = slice(draw * groups, (draw + 1) * groups)
                value = limited.target.value(np.stack([estimate.values[part] for estimate in estimates]))
                ends = min(low, far[draw] - (value - low)), max(high, far[draw] + (high - value))
            passes[draw] = bool(settled(limited.rule, ends))
        return passes

    def _furthest(self, cells: CalibrationCells, totals: CellSums, limited: Limited, draws: int) -> Array | None:
        """Return how far the number can be from its limit whatever the groups of missing values are, shape [draws].

        Their rows are like everybody's. None where there are few of them, or no bound is known.
        """
        missing = self.planned.missing.get(limited.split or "", 0)
        if not missing:
            return None
        everybody = cells.totals(cells.count[None, :], None).first[0]
        without = missing * everybody / everybody.sum()
        return furthest(limited.target, totals.first.reshape(draws, -1, 4), without)

    def pilot(self, rows: NDArray[np.int64], said: Array) -> tuple[Self, Array]:
        """Return decisions whose rates by outcome are those of a quick model on the rows."""
        decisions = np.empty(len(self.planned.outcome))
        for outcome in (0.0, 1.0):
            seen = self.planned.outcome[rows] == outcome
            decisions[self.planned.outcome == outcome] = said[seen].mean() if seen.any() else outcome
        return self, decisions

    def equal(self, said: Array) -> tuple[Self, Array | None]:
        """Return decisions with the same rates in every group."""
        between = [one for one in self.limits if one.target.kind in ("difference", "ratio")]
        demographic = any(all(rate.over) for one in between for rate in one.target.rates)
        equal = equal_decisions(self.planned, said, by_outcome=not demographic) if between else None
        return dataclasses.replace(self, limits=between), equal

    def splits(self) -> Iterable[str | None]:
        """Return the limits' splits."""
        return (one.split for one in self.limits)

    def needed(self, at: Callable[[float], float]) -> float | None:
        """Return the rows by a line through the probits of the chances."""
        rows = self.rows
        rounds = ((0.8, 0.9, 1.0, 1.1, 1.2),)
        curve = search(lambda some: at(some / rows), 2.0 * rows, WANTED, self.few, rounds)
        return None if curve is None else max(curve.rows, rows)


def _rates(cells: CalibrationCells, limited: Limited, split: str | None) -> Array:
    """Return a limit's rates on the calibration rows, shape [K, G]; NaN where nobody is counted."""
    totals = cells.totals(cells.mass[None, :], split)
    with np.errstate(all="ignore"):
        return np.stack([rate().compute(totals.first) for rate in limited.target.rates])


def equal_decisions(planned: Planned, chance: Array, *, by_outcome: bool) -> Array:
    """Return decisions with the same rate in every group, shape [n]: 0 or 1, up to one row of a group.

    With `by_outcome` the rates among either outcome are those of `chance` over all rows; else the share of favorable
    decisions is, for every outcome alike.
    """
    key = 2 * planned.atoms + (planned.outcome > 0)
    order = np.argsort(key, kind="stable")
    sizes = np.bincount(key, minlength=2 * len(planned.sizes))
    rank = np.empty(len(key))
    rank[order] = np.arange(len(key)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rate = np.full(len(key), np.average(chance, weights=planned.weights))
    for outcome in (False, True):
        own = (planned.outcome > 0) == outcome
        if by_outcome and own.any():
            weights = None if planned.weights is None else planned.weights[own]
            rate[own] = np.average(chance[own], weights=weights)
    return np.asarray(np.clip(sizes[key] * rate - rank, 0.0, 1.0))
