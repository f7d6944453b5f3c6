"""The chance that decisions will pass a policy: audits that were not made yet, judged as audits are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fairkit.errors import PolicyError
from fairkit.planning.draws import LEAST, intervals, settled
from fairkit.planning.run import installed
from fairkit.planning.targets import Target, target_of
from fairkit_repair.repairing.cells import CalibrationCells
from fairkit_repair.repairing.missing import furthest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.results.rules import Rule
    from fairkit.totals.sums import CellSums
    from fairkit_repair.repairing.cells import Planned

    Array = NDArray[np.float64]

DRAWS = 600
"""Audits that are drawn: a chance of .95 has a standard error of .009."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """One limit: what it is on, between the groups of which split, and at which confidence it is judged."""

    rule: Rule
    target: Target
    split: str | None
    confidence: float

    @property
    def is_ratio(self) -> bool:
        """Whether it is on a ratio."""
        return self.target.kind == "ratio"

    @property
    def at(self) -> float:
        """The limit."""
        return float(self.rule.limit)

    @property
    def label(self) -> str:
        """``demographic_parity_difference:sex``."""
        return self.rule.metric if self.split is None else f"{self.rule.metric}:{self.split}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A limit of a policy on other numbers than rates: what methods are looked for by."""

    rule: Rule
    split: str | None

    @property
    def is_ratio(self) -> bool:
        """Whether it is on a ratio."""
        return self.rule.metric.endswith("_ratio")

    @property
    def at(self) -> float:
        """The limit."""
        return float(self.rule.limit)

    @property
    def label(self) -> str:
        """``statistical_parity_ks:sex``."""
        return self.rule.metric if self.split is None else f"{self.rule.metric}:{self.split}"


def wanted_of(rules: Sequence[Rule], splits: Sequence[str]) -> list[Wanted]:
    """Return the limits of a policy on any numbers; a rule without a column is one limit for each split."""
    return [
        Wanted(rule=rule, split=split)
        for rule in rules
        for split in ([rule.sensitive] if rule.sensitive is not None else splits)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an audit of the planned size will find.

    Attributes
    ----------
    chance
        That every limit is kept by the whole interval: the verdict is *pass*.
    chances
        Of each limit by itself, by its label.
    values
        The number under each limit, as it is on the calibration rows.
    accuracy
        On the calibration rows.
    rate
        The rate of everybody there that the first limit between groups is on; None where there is no such limit.
    """

    chance: float
    chances: Mapping[str, float]
    values: Mapping[str, float]
    accuracy: float
    rate: float | None = None


class Forecast(Protocol):
    """Predicts what an audit of the planned rows will find: from rates, or from audits of rows drawn again."""

    def predict(
        self, said: Array, rng: np.random.Generator, draws: int | None = None, *, fixed_rates: bool = False
    ) -> Prediction:
        """Predict from what models that did not see the calibration rows say of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRates:
    """Predicts verdicts on binary decisions, whose policy is on numbers that are made of rates: see `predict`."""

    planned: Planned
    limits: Sequence[Limited]

    def predict(
        self, said: Array, rng: np.random.Generator, draws: int | None = None, *, fixed_rates: bool = False
    ) -> Prediction:
        """Predict from probabilities of the favorable decision, shape [n]."""
        return predict(self.planned, said, self.limits, rng, draws or DRAWS, fixed_rates=fixed_rates)


def limits_of(rules: Sequence[Rule], splits: Sequence[str], confidence: float) -> list[Limited]:
    """Return the limits of a policy; a rule without a column is one limit for each split.

    Raises
    ------
    PolicyError
        A rule is on a number that is not made of rates.
    """
    metrics = installed()
    limits = []
    for rule in rules:
        try:
            target = target_of(rule.metric, metrics)
        except PolicyError as error:
            raise PolicyError(
                f"a search predicts verdicts on numbers that are made of rates. {error}"
            ) from error
        over = [rule.sensitive] if rule.sensitive is not None else list(splits)
        for split in [None] if target.kind == "level" else over:
            limits.append(Limited(rule=rule, target=target, split=split, confidence=confidence))
    return limits


def predict(
    planned: Planned,
    chance: Array,
    limits: Sequence[Limited],
    rng: np.random.Generator,
    draws: int = DRAWS,
    *,
    fixed_rates: bool = False,
) -> Prediction:
    """Predict the verdict on the planned rows from decisions on the calibration rows.

    Rates are drawn from what the calibration rows say of them, then totals of the planned size, and every drawn audit
    is judged by the functions that judge audits; all limits on the same draw, so that their dependence counts.

    Parameters
    ----------
    planned
        The rows to be judged on.
    chance
        Probabilities of the favorable decision on the calibration rows, from models that did not see them, shape [n].
    limits
        The policy's.
    rng, draws
        How many audits are drawn, and from what.
    fixed_rates
        Whether the rates on the calibration rows are the true ones.
    """
    cells = CalibrationCells.of(planned, chance)
    counts = cells.draw(planned, rng, draws, fixed_rates=fixed_rates)
    passed = np.ones(draws, dtype=bool)
    chances, values = {}, {}
    for limited in limits:
        kept = _kept(cells, counts, planned, limited, rng)
        passed &= kept
        chances[limited.label] = float(kept.mean())
        values[limited.label] = _value(cells, planned, limited)
    right = np.where(cells.outcome > 0, cells.chance, 1 - cells.chance)
    accuracy = float(np.average(right, weights=cells.mass))
    between = next((one for one in limits if one.split is not None), None)
    rate = None if between is None else _level(cells, planned, between)
    return Prediction(
        chance=float(passed.mean()), chances=chances, values=values, accuracy=accuracy, rate=rate
    )


def _kept(
    cells: CalibrationCells, counts: Array, planned: Planned, limited: Limited, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which drawn audits keep a limit with the whole interval, shape [draws]."""
    totals = cells.totals(counts, planned, limited.split)
    groups = len(totals.count) // len(counts)
    estimates = [rate().estimate(totals, rng) for rate in limited.target.rates]
    enough = np.asarray((totals.count >= LEAST).reshape(-1, groups).all(axis=1))
    for estimate in estimates:
        if estimate.sizes is not None:
            enough &= (np.round(estimate.sizes, 6) >= LEAST).reshape(-1, groups).all(axis=1)
    far = _furthest(cells, totals, planned, limited, len(counts))
    passes = np.zeros(len(counts), dtype=bool)
    for draw, (low, high) in intervals(limited.target, estimates, enough, limited.confidence):
        ends = low, high
        if far is not None:
            part = slice(draw * groups, (draw + 1) * groups)
            value = limited.target.value(np.stack([estimate.values[part] for estimate in estimates]))
            ends = min(low, far[draw] - (value - low)), max(high, far[draw] + (high - value))
        passes[draw] = bool(settled(limited.rule, ends))
    return passes


def _furthest(
    cells: CalibrationCells, totals: CellSums, planned: Planned, limited: Limited, draws: int
) -> Array | None:
    """Return how far the number can be from its limit whatever the groups of missing values are, shape [draws].

    Their rows are like everybody's. None where there are few of them, or no bound is known.
    """
    missing = planned.missing.get(limited.split or "", 0)
    if not missing:
        return None
    everybody = cells.totals(cells.count[None, :], planned, None).first[0]
    without = missing * everybody / everybody.sum()
    return furthest(limited.target, totals.first.reshape(draws, -1, 4), without)


def _level(cells: CalibrationCells, planned: Planned, one: Limited) -> float:
    """Return the rate of everybody on the calibration rows; NaN where nobody is counted."""
    totals = cells.totals(cells.mass[None, :], planned, None)
    with np.errstate(all="ignore"):
        return float(one.target.rates[0]().compute(totals.first)[0])


def _value(cells: CalibrationCells, planned: Planned, limited: Limited) -> float:
    """Return the number on the calibration rows."""
    totals = cells.totals(cells.mass[None, :], planned, limited.split)
    with np.errstate(all="ignore"):
        rates = np.stack([rate().compute(totals.first) for rate in limited.target.rates])
    known = rates[:, np.isfinite(rates).all(axis=0)]
    return limited.target.value(known) if known.size else float("nan")
