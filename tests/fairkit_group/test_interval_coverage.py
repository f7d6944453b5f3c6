"""How often intervals between groups hold the truth, by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fairkit.intervals import Spread
from fairkit.metrics import CONFUSION, Estimate
from fairkit.results.findings import Finding
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit.statistics import Rows, Scores, Sums
from fairkit_group.between import comparisons, odds
from fairkit_group.errors import BrierScore
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import FalsePositiveRate, SelectionRate, TruePositiveRate

SIMULATIONS = 250
LEAST = SIMULATIONS * 0.95 - 2.6 * math.sqrt(SIMULATIONS * 0.95 * 0.05)  # 2.6 standard errors below the nominal rate
Z = 1.959963984540054


def _selection_rates(rng: np.random.Generator, sizes: np.ndarray, rates: np.ndarray) -> Estimate:
    yes = rng.binomial(sizes, rates).astype(float)
    first = np.zeros((len(sizes), 4))
    first[:, 2], first[:, 3] = sizes - yes, yes
    return SelectionRate().estimate(Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4)), rng)


def _spread(estimate: Estimate, kind: str) -> Spread:
    found = comparisons("selection_rate", "none", frozenset({kind}), estimate)
    return found[0].spread(0.95)


def _holds(spread: Spread, truth: float) -> bool:
    return spread.low - 1e-12 <= truth <= spread.high + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 10])
@pytest.mark.parametrize("small", [False, True], ids=["balanced", "one of 50"])
@pytest.mark.parametrize("gap", [0.0, 0.1])
@pytest.mark.parametrize("base", [0.1, 0.4])
def test_differences_and_ratios_are_covered(groups: int, small: bool, gap: float, base: float) -> None:
    sizes = np.full(groups, 1_000)
    if small:
        sizes[-1] = 50
    rates = np.full(groups, base)
    rates[0] += gap
    rng = np.random.default_rng(groups)
    held, width, normal = {"difference": 0, "ratio": 0}, 0.0, 0.0
    for _ in range(SIMULATIONS):
        estimate = _selection_rates(rng, sizes, rates)
        difference, ratio = _spread(estimate, "difference"), _spread(estimate, "ratio")
        held["difference"] += _holds(difference, gap)
        held["ratio"] += _holds(ratio, base / (base + gap))
        width += difference.high - difference.low
        normal += 2 * Z * math.sqrt(float((estimate.values * (1 - estimate.values) / sizes).sum()))
    assert held["difference"] >= LEAST
    assert held["ratio"] >= LEAST
    if groups == 2:
        assert width / normal <= 1.1


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 10])
@pytest.mark.parametrize("base", [0.3, 0.5])
def test_the_same_groups_pass_a_rule_and_never_fail_it(groups: int, base: float) -> None:
    sizes, rates = np.full(groups, 5_000), np.full(groups, base)
    rng = np.random.default_rng(0)
    rule = Rule(metric="demographic_parity_difference", max=0.05)
    verdicts = []
    for _ in range(SIMULATIONS):
        spread = _spread(_selection_rates(rng, sizes, rates), "difference")
        finding = Finding(
            auditor="group", metric=rule.metric, sensitive="g", value=spread.value, interval=(spread.low, spread.high)
        )
        verdicts.append(judge([rule], [finding])[1])
    assert verdicts.count("pass") >= 0.9 * SIMULATIONS
    assert verdicts.count("fail") == 0


def _world(rng: np.random.Generator, sizes: tuple[int, ...], shift: float) -> tuple[Rows, np.ndarray]:
    group = np.repeat(np.arange(len(sizes)), sizes)
    merit = rng.standard_normal(len(group)) + shift * (group == 0)
    outcome = (merit + rng.standard_normal(len(group)) > 0).astype(float)
    score = np.round(1 / (1 + np.exp(-(1.4 * merit + 0.5 * rng.standard_normal(len(group))))), 3)
    return Rows(outcome=outcome, decision=(score > 0.5).astype(float), score=score), group


def _spreads(rows: Rows, group: np.ndarray, n: int) -> dict[str, Callable[[float], Spread]]:
    rng = np.random.default_rng(0)
    cells = CONFUSION.collect(rows, group, n)
    tpr, fpr = TruePositiveRate().estimate(cells, rng), FalsePositiveRate().estimate(cells, rng)
    found = {c.metric: c.spread for c in odds(tpr, fpr)}
    brier = BrierScore().estimate(BrierScore().statistic.collect(rows, group, n), rng)
    table = Scores().collect(rows, group, n)
    area = RocAuc().estimate(table, rng)
    found |= {c.metric: c.spread for c in comparisons("brier_score", "lower", frozenset({"difference"}), brier)}
    found |= {c.metric: c.spread for c in comparisons("roc_auc", "higher", frozenset({"difference"}), area)}
    apart = distances(table)

    def distance(confidence: float) -> Spread:
        low = apart.limits(confidence ** (1 / n))[0].max()
        return Spread(float(apart.values.max()), float(low), float(apart.limits(confidence)[1].max()))

    found["statistical_parity_ks"] = distance
    return found


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(600, 600), (600, 60), (400,) * 5])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_other_disparities_are_covered(sizes: tuple[int, ...], shift: float) -> None:
    rng = np.random.default_rng(1)
    large = _spreads(*_world(rng, tuple(size * 300 for size in sizes), shift), len(sizes))
    truth = {name: 0.0 if shift == 0 and "ratio" not in name else spread(0.95).value for name, spread in large.items()}
    if shift == 0:
        truth["equalized_odds_ratio"] = 1.0
    held = dict.fromkeys(truth, 0)
    simulations = 200
    for _ in range(simulations):
        for name, spread in _spreads(*_world(rng, sizes, shift), len(sizes)).items():
            held[name] += _holds(spread(0.95), truth[name])
    # .91 is 2.6 standard errors of 200 simulations below the nominal rate
    assert {name: count for name, count in held.items() if count < 0.91 * simulations} == {}


def test_fractional_decisions_have_narrower_intervals_than_draws() -> None:
    """A chance near one half has a small spread of its own; a coin for each person adds to it."""
    rng = np.random.default_rng(2)
    group, chance = np.arange(2_000) % 2, rng.uniform(0.3, 0.7, 2_000)
    outcome = rng.integers(0, 2, 2_000).astype(float)
    soft = CONFUSION.collect(Rows(outcome=outcome, decision=chance), group, 2)
    hard = CONFUSION.collect(Rows(outcome=outcome, decision=(rng.random(2_000) < chance).astype(float)), group, 2)
    widths = []
    for totals in (soft, hard):
        low, high = SelectionRate().estimate(totals, rng).limits(Z)
        widths.append(float((high - low).mean()))
    assert widths[0] < 0.5 * widths[1]


def test_fractional_decisions_are_covered() -> None:
    rng = np.random.default_rng(3)
    held, simulations, n = 0, 500, 400
    for _ in range(simulations):
        chance = rng.beta(0.5, 0.5, n) * np.repeat([1.0, 0.8], n // 2)  # means .5 and .4
        rows = Rows(outcome=np.ones(n), decision=chance)
        estimate = SelectionRate().estimate(CONFUSION.collect(rows, np.repeat([0, 1], n // 2), 2), rng)
        held += _holds(_spread(estimate, "difference"), 0.1)
    assert held >= 0.94 * simulations


def test_weighted_rates_are_covered() -> None:
    rng = np.random.default_rng(4)
    held, simulations, n = 0, 500, 600
    group = np.repeat([0, 1], n // 2)
    for _ in range(simulations):
        decision = (rng.random(n) < np.where(group == 0, 0.5, 0.4)).astype(float)
        rows = Rows(outcome=np.ones(n), decision=decision, weights=rng.exponential(1.0, n))
        held += _holds(_spread(SelectionRate().estimate(CONFUSION.collect(rows, group, 2), rng), "difference"), 0.1)
    assert held >= 0.94 * simulations
