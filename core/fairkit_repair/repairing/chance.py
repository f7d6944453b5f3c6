"""The chance that decisions will pass a policy: audits that were not made yet, judged as audits are judged."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairkit.errors import DataError, PolicyError
from fairkit.planning.advice import search
from fairkit.planning.assumptions import LEAST, intervals, settled, target_of
from fairkit.planning.run import installed
from fairkit.progress import Progress, no_progress
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit.totals.rows import CellSums
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import strata_of
from fairkit_repair.scored_rows import even_folds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.profile import Profile
    from fairkit.data.table import Groups, Table
    from fairkit.data.task import Task
    from fairkit.fitted import Prediction, Run
    from fairkit.planning.assumptions import Target
    from fairkit.results.rules import Rule

    Array = NDArray[np.float64]
    Codes = NDArray[np.int64]


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
class ChancePrediction:
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
    ) -> ChancePrediction:
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
    ) -> ChancePrediction:
        """Predict from probabilities of the favorable decision, shape [n]."""
        cells = CalibrationCells.of(self.planned, said)
        counts = cells.draw(rng, draws or self.draws, fixed_rates=fixed_rates)
        passed = np.ones(len(counts), dtype=bool)
        chances, values = {}, {}
        for limited in self.limits:
            keep = self._kept(cells, counts, limited, rng)
            passed &= keep
            chances[limited.label] = float(keep.mean())
            rates = _rates(cells, limited, limited.split)
            finite_rates = rates[:, np.isfinite(rates).all(axis=0)]
            lowest = limited.target.kind == "level" and not limited.rule.upper
            number = limited.target.value if not lowest else np.min
            values[limited.label] = float(number(finite_rates)) if finite_rates.size else float("nan")
        right = np.where(cells.outcome > 0, cells.chance, 1 - cells.chance)
        return ChancePrediction(
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
        between = [limit for limit in self.limits if limit.target.kind in ("difference", "ratio")]
        demographic = any(all(rate.over) for limit in between for rate in limit.target.rates)
        equal = equal_decisions(self.planned, said, by_outcome=not demographic) if between else None
        return dataclasses.replace(self, limits=between), equal

    def splits(self) -> Iterable[str | None]:
        """Return the limits' splits."""
        return (limit.split for limit in self.limits)

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
        of_outcome = (planned.outcome > 0) == outcome
        if by_outcome and of_outcome.any():
            weights = None if planned.weights is None else planned.weights[of_outcome]
            rate[of_outcome] = np.average(chance[of_outcome], weights=weights)
    return np.asarray(np.clip(sizes[key] * rate - rank, 0.0, 1.0))


# Test rows without a group: what they could do to a drawn audit, whatever their groups are.


BINDING = 0.02
"""The share from which it must (`group.missing_share`)."""


def missing_of(profile: Profile, splits: Sequence[str]) -> dict[str, int]:
    """Return, by split, the rows without a group, where a verdict must hold whatever it is."""
    return {
        name: int(profile.missing[name]) for name in splits if profile.missing.get(name, 0) > BINDING * profile.rows
    }


def told_missing(missing: Mapping[str, int], rows: int) -> str:
    """Say it: ``625 of 16,281 test rows have no value of sex``."""
    return " and ".join(f"{count:,} of {rows:,} test rows have no value of {name}" for name, count in missing.items())


def furthest(target: Target, counts: Array, without: Array) -> Array | None:
    """Return the largest difference (the smallest ratio) that drawn audits can have."""
    if target.kind not in ("difference", "ratio"):
        return None
    extremes = []
    for rate in target.rates:
        over, counted = np.array(rate.over, float), np.array(rate.counted, float)
        inside, base = counts @ counted, counts @ over
        for_it, against = without @ counted, without @ (over - counted)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = inside / (base + against), (inside + for_it) / (base + for_it)
            pairs = low[:, :, None] / high[:, None, :] if target.kind == "ratio" else high[:, :, None] - low[:, None, :]
        pairs[:, np.eye(counts.shape[1], dtype=bool)] = np.nan
        ends = np.nanmin if target.kind == "ratio" else np.nanmax
        extremes.append(ends(pairs.reshape(len(pairs), -1), axis=1))
    stacked = np.stack(extremes)
    return np.asarray(stacked.min(axis=0) if target.kind == "ratio" else stacked.max(axis=0))


# Decisions on rows outside training as counts, and audits of the planned size drawn from them.


LEVELS = 64
"""Decision probabilities between 0 and 1 are rounded to so many levels."""
_PRIOR = 0.5
REFITTED = 1.5
"""How much the variance of a rate exceeds that of its rows: the file's model is none of those that scored them, and
its rule was learned from all. On ACSIncome, against 200,000 other rows, it was 0.9 to 1.5 times as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The rows that decisions will be judged on: who they are, not what came of them."""

    atoms: Codes  # each calibration row's combination of groups, shape [n], from 0
    members: Mapping[str, Codes]  # by split, the group of every combination, shape [A]
    names: Mapping[str, tuple[str, ...]]  # by split, the groups' names
    sizes: Codes  # how many test rows each combination has, shape [A]
    outcome: Array  # the outcomes of the calibration rows, 0 or 1, shape [n]
    weights: Array | None = None  # shape [n]; None where all rows count the same
    missing: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, groups: Mapping[str, Groups], outcome: Array, weights: Array | None, test: Mapping[str, Codes], rows: int
    ) -> Planned:
        """Cross the splits of the calibration rows, and count the test rows in each combination."""
        length = len(outcome)
        both = [np.concatenate([groups[name].codes, test[name]]) for name in groups]
        codes = strata_of(both, length + rows)
        present, first, places = np.unique(codes[:length], return_index=True, return_inverse=True)
        at = np.searchsorted(present, codes[length:])
        is_present = present[np.minimum(at, len(present) - 1)] == codes[length:]
        return cls(
            atoms=places.ravel().astype(np.int64),
            members={name: split.codes[first] for name, split in groups.items()},
            names={name: split.names for name, split in groups.items()},
            sizes=np.bincount(at[is_present], minlength=len(present)),
            outcome=outcome,
            weights=weights,
        )

    def group_sizes(self, split: str) -> Codes:
        """Return the test rows of each group of a split, shape [G]."""
        counts = np.bincount(self.members[split], self.sizes, len(self.names[split]))
        return np.asarray(counts.astype(np.int64))

    def scaled(self, factor: float) -> Planned:
        """Return the same plan with so many times the test rows."""
        return replace(
            self,
            sizes=np.round(self.sizes * factor).astype(np.int64),
            missing={name: round(count * factor) for name, count in self.missing.items()},
        )


@dataclass(frozen=True, slots=True)
class CalibrationCells:
    """Calibration rows counted by combination of groups, outcome and decision probability."""

    planned: Planned  # the rows that decisions will be judged on
    atom: Codes  # a number for each kind of row, shape [M]
    outcome: Array  # its outcome
    chance: Array  # the chance that the model gives it
    count: Array  # rows (effective ones under weights) of each kind, shape [M]
    mass: Array  # the sum of the weights of each kind, shape [M]
    shrink: Array  # effective rows for each row, by combination of groups: 1 without weights, shape [A]

    @classmethod
    def of(cls, planned: Planned, chance: Array) -> CalibrationCells:
        """Count decisions: probabilities of the favorable one for the calibration rows, shape [n]."""
        level = np.round(np.clip(chance, 0.0, 1.0) * LEVELS).astype(np.int64)
        level = np.where((level == 0) & (chance > 0), 1, np.where((level == LEVELS) & (chance < 1), LEVELS - 1, level))
        size = LEVELS + 1
        flat = (2 * planned.atoms + (planned.outcome > 0)) * size + level
        mass: Array = np.bincount(flat, planned.weights, 2 * size * len(planned.sizes)).astype(np.float64)
        # the mean within a level keeps the rates exact
        inner = np.bincount(flat, chance if planned.weights is None else chance * planned.weights, len(mass))
        occupied = np.flatnonzero(mass > 0)
        atom = occupied // (2 * size)
        shrink = _shrink(planned)
        total = np.bincount(atom, mass[occupied], len(planned.sizes))
        rows = np.bincount(planned.atoms, minlength=len(planned.sizes))
        count: Array = mass[occupied] * (rows * shrink / np.where(total > 0, total, 1.0))[atom]
        outcome: Array = ((occupied // size) % 2).astype(np.float64)
        return cls(planned, atom, outcome, inner[occupied] / mass[occupied], count, mass[occupied], shrink)

    def draw(self, rng: np.random.Generator, draws: int, *, fixed_rates: bool = False) -> Array:
        """Draw test counts of every kind, shape [draws, M]: first the rates from what is known of them, then rows.

        The rates of a combination of groups come from a Bayesian bootstrap of its calibration rows, so that their
        error, and that of training again (`REFITTED`), is in the draws; `fixed_rates` takes the rates as they are.
        """
        counts = np.zeros((draws, len(self.count)))
        gammas = (
            np.broadcast_to(self.count, counts.shape)
            if fixed_rates
            else rng.standard_gamma((self.count + _PRIOR / 4) / REFITTED, size=counts.shape)
        )
        for atom in np.unique(self.atom):
            members = self.atom == atom
            share = gammas[:, members] / gammas[:, members].sum(axis=1, keepdims=True)
            size = round(float(self.planned.sizes[atom] * self.shrink[atom]))
            counts[:, members] = rng.multinomial(size, share)
        return counts

    def totals(self, counts: Array, split: str | None) -> CellSums:
        """Return the totals of drawn rows, with a line for each draw and group, shape [draws · G, ...]."""
        features = self._features()
        groups = np.zeros_like(self.planned.sizes) if split is None else self.planned.members[split]
        size = 1 if split is None else len(self.planned.names[split])
        width = features.shape[1]
        spread = np.zeros((len(self.count), size, width))
        spread[np.arange(len(self.count)), groups[self.atom]] = features
        summed = (counts @ spread.reshape(len(self.count), size * width)).reshape(-1, width)
        return CellSums(
            summed[:, 0], summed[:, 1:5], summed[:, 5:21].reshape(-1, 4, 4), summed[:, 21:29].reshape(-1, 2, 4)
        )

    def _features(self) -> Array:
        """Return the addends of a row of each kind: 1, cells, products, powers of h by outcome, [M, 29]."""
        h, size = self.chance, len(self.count)
        cells = np.zeros((size, 4))
        outcome_code = (2 * self.outcome).astype(np.int64)
        cells[np.arange(size), outcome_code] = 1 - h
        cells[np.arange(size), outcome_code + 1] = h
        products = cells[:, :, None] * cells[:, None, :]
        cubes = np.zeros((size, 2, 4))
        cubes[np.arange(size), self.outcome.astype(np.int64)] = np.stack([h**power for power in range(4)], axis=1)
        return np.column_stack([np.ones(size), cells, products.reshape(size, 16), cubes.reshape(size, 8)])


def _shrink(planned: Planned) -> Array:
    """Return Kish's effective rows for each row: (Σ w)² / (n Σ w²)."""
    size = len(planned.sizes)
    if planned.weights is None:
        return np.ones(size)
    rows = np.bincount(planned.atoms, minlength=size)
    mass = np.bincount(planned.atoms, planned.weights, size)
    square = np.bincount(planned.atoms, planned.weights**2, size)
    return np.asarray(np.where(square > 0, mass**2 / np.maximum(rows * square, 1e-300), 1.0))


# Scores of rows that training did not see: every fold is scored by a model of the other folds.


FOLDS = 3


def folds_of(table: Table, count: int, seed: int) -> NDArray[np.int64]:
    """Number the rows' folds, shape [n]: each holds its share of every group and class, or of the queries."""
    rng = np.random.default_rng([seed, count])
    if table.queries is not None:
        return np.asarray((rng.permutation(int(table.queries.max()) + 1) % count)[table.queries])
    codes = [groups.codes for groups in table.groups.values()]
    if table.task != "regression":
        codes.append(table.target.astype(np.int64))
    return even_folds(strata_of(codes, len(table)), count, rng)


def out_of_folds(
    table: Table,
    fold: NDArray[np.int64],
    answers: Callable[[Table, Table, NDArray[np.bool_]], Sequence[NDArray[np.floating[Any]]]],
    progress: Progress = no_progress,
) -> list[Array]:
    """Return answers for every row by models of the other folds."""
    whole: list[Array] = []
    count = int(fold.max()) + 1
    for index in range(count):
        progress("out-of-fold models", index, count)
        inside = fold == index
        answer = answers(table.take(~inside), table.take(inside), inside)
        whole = whole or [np.empty((len(table), *values.shape[1:])) for values in answer]
        for target, part in zip(whole, answer, strict=True):
            if part.shape[1:] != target.shape[1:]:
                raise DataError(
                    f"{table.name}: a class has so few rows that training rows of a fold lack it; merge classes, or "
                    "add rows"
                )
            target[inside] = part
    return whole


def said(prediction: Prediction, task: Task) -> Array:
    """Return the probability of the favorable decision, shape [n]; in other tasks than binary ones the score.

    That is the value, shape [n], or the probabilities of the classes, shape [n, K].
    """
    if task != "binary":
        return prediction.score
    if prediction.decision_probability is None:
        return np.asarray(prediction.score >= 0.5, dtype=np.float64)
    return prediction.decision_probability


def learner_scores(table: Table, fold: NDArray[np.int64], learner: str, run: Run) -> tuple[Array, Array]:
    """Return out-of-fold scores of a plain learner, and what it then says of the rows (see `said`)."""

    def answers(part: Table, held: Table, _: NDArray[np.bool_]) -> list[Array]:
        answer = fit_learner(learner, part, run).predict(held.columns)
        return [answer.score, said(answer, table.task)]

    scores, decisions = out_of_folds(table, fold, answers)
    return scores.astype(np.float32).astype(np.float64), decisions
