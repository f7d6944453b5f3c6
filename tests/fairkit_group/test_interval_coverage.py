"""How often intervals between groups hold the truth, by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from fairkit.intervals import Spread, pairwise, spread_quantiles, two_sided
from fairkit.metrics import CONFUSION, Estimate
from fairkit.results.findings import Finding
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit.statistics import Rows, Scores, Sums
from fairkit_group.between import comparisons, odds, surely_apart
from fairkit_group.calibration import MEAN, Ecce, brownian_quantile
from fairkit_group.errors import BrierScore, LogLoss
from fairkit_group.ranking import RocAuc, distances
from fairkit_group.rates import FalsePositiveRate, SelectionRate, TruePositiveRate
from fairkit_group.simultaneous import largest_difference
from fairkit_group.strata import Strata

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


# Scores of rare outcomes and rounded scores: intervals hold although the sample shows next to nothing.
RUNS = 400


def estimated(metric, score, outcome):
    """One estimate of many samples at once: each is a group. Shapes [runs, n]."""
    runs, n = outcome.shape
    rows = Rows(
        outcome=outcome.reshape(-1).astype(float),
        decision=np.zeros(runs * n),
        score=np.broadcast_to(score, (runs, n)).reshape(-1).astype(float),
    )
    totals = metric.statistic.collect(rows, np.repeat(np.arange(runs), n), runs)
    return metric.estimate(totals, np.random.default_rng(0))


CALIBRATED = {
    "one in a thousand": (0.001, 500),
    "one in ten thousand": (0.0001, 1_000),
    "one in five thousand": (0.0002, 1_000),
    "one in two hundred": (0.005, 400),
    "one in twenty": (0.05, 300),
    "half": (0.5, 300),
}


@pytest.mark.parametrize("name", CALIBRATED)
def test_calibrated_scores_of_rare_outcomes_have_no_calibration_error(name):
    share, n = CALIBRATED[name]
    rng = np.random.default_rng(1)
    score = np.clip(share * rng.uniform(0.2, 1.8, n), 0, 1)
    found = estimated(Ecce(), score, rng.random((RUNS, n)) < score)
    low, high = found.limits(Z)
    # the truth is 0; a one-sided 2.5 % with 2.5 standard errors of 400 runs
    assert (low > 0).mean() <= 0.025 + 2.5 * np.sqrt(0.025 * 0.975 / RUNS)
    assert (high >= 0).all()


@pytest.mark.parametrize(("certain", "share"), [(0.3, 0.005), (0.9, 0.002)])
def test_the_loss_of_rounded_scores_is_within_its_limits(certain, share):
    """A small group with scores of .005 rounded to 0 (once in 200 rows that costs 36), in a table of others."""
    n, others, runs = 400, 4_000, 120
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(runs):
        sure = rng.random(n) < certain
        true = np.where(sure, share, rng.uniform(0.3, 0.7, n))
        more = rng.uniform(0.3, 0.7, others)
        score = np.where(sure, 0.0, true)
        given = np.clip(np.stack([1 - score, score]), 2.0**-52, 1 - 2.0**-52)
        truth = float(-((1 - true) * np.log(given[0]) + true * np.log(given[1])).mean())
        outcome = (rng.random(n + others) < np.r_[true, more]).astype(float)
        rows = Rows(outcome=outcome, decision=np.zeros(n + others), score=np.r_[score, more])
        totals = LogLoss().statistic.collect(rows, np.repeat([0, 1], [n, others]), 2)
        missed += LogLoss().estimate(totals, rng).limits(Z)[1][0] < truth
    assert missed <= 0.025 * runs + 2.5 * np.sqrt(0.025 * 0.975 * runs)


def test_scores_that_are_not_rounded_pay_nothing():
    rng = np.random.default_rng(3)
    score = rng.uniform(0.01, 0.99, 500)
    outcome = rng.random((1, 500)) < score
    found = estimated(LogLoss(), score, outcome)
    rounded = score.copy()
    rounded[0] = float(outcome[0, 0])
    more = estimated(LogLoss(), rounded, outcome)
    assert more.limits(Z)[1][0] - found.limits(Z)[1][0] < 0.1
    assert found.limits(Z)[1][0] < 0.75


def test_the_totals_of_certain_scores_add_up():
    rng = np.random.default_rng(4)
    score, outcome = np.round(rng.random(300), 1), rng.integers(0, 2, 300).astype(float)
    metric, groups = LogLoss(), rng.integers(0, 3, 300)

    def total(some):
        rows = Rows(outcome=outcome[some], decision=np.zeros(len(outcome[some])), score=score[some])
        return metric.statistic.collect(rows, groups[some], 3)

    whole, parts = total(slice(None)), total(slice(0, 100)) + total(slice(100, None))
    assert np.allclose(whole.certain, parts.certain)
    known = np.isin(score, (0.0, 1.0))
    assert whole.certain[:, 0].sum() == known.sum()
    assert whole.certain[:, 1].sum() == (known & (score != outcome)).sum()
    assert np.allclose(whole.pooled().certain, whole.certain.sum(axis=0, keepdims=True))


# Differences of ECCE: both groups' numbers are too large on average, so that the difference needs more room.
@pytest.mark.parametrize("ratio", [0.2, 1.0, 4.0])
def test_the_upper_limit_covers_a_normal_number_and_the_largest_of_a_brownian_motion(ratio):
    # the first group's true number is far from 0, the second one's is 0: its value is max |W| standard errors
    rng = np.random.default_rng(4)
    draws = 6_000
    largest = np.abs(np.cumsum(rng.standard_normal((draws, 600)), axis=1)).max(axis=1) / np.sqrt(600)
    values = np.concatenate([0.5 + 0.01 * rng.standard_normal(draws), 0.01 * ratio * largest])
    errors = np.repeat([0.01, 0.01 * ratio], draws)
    estimate = Estimate(
        values,
        lambda z: (values - z * errors, values + z * errors),
        inflated=(MEAN, lambda z: brownian_quantile(0.025)),
    )
    one, two = np.arange(draws), np.arange(draws, 2 * draws)
    high = surely_apart(estimate, two_sided(0.95), one, two)
    assert 0.97 <= (high >= 0.5).mean() <= 0.985
    assert largest.mean() == pytest.approx(MEAN, abs=0.06)


def test_an_upper_end_holds_where_one_of_two_groups_is_calibrated():
    # .88 of the intervals held, and one in eight audits passed falsely, while the pair had the limits of other numbers
    grid = np.linspace(0, 1, 20_001)[1:-1]
    density = grid * (1 - grid) ** 3 / (grid * (1 - grid) ** 3).sum()
    truth = float(np.abs(np.cumsum(density * (np.clip(1.4 * grid, 0, 1) - grid))).max())
    rng = np.random.default_rng(8)
    group = np.repeat([0, 1], 1_500)
    passed = held = 0
    for _ in range(250):
        score = rng.beta(2, 4, len(group))
        chance = np.clip(np.where(group == 0, 1.4, 1.0) * score, 0, 1)
        rows = Rows(outcome=(rng.random(len(group)) < chance).astype(float), score=score)
        estimate = Ecce().estimate(Scores().collect(rows, group, 2), rng)
        (found,) = comparisons("ecce", "lower", frozenset({"difference"}), estimate)
        spread = found.spread(0.95)
        passed += spread.high < truth
        held += spread.low <= truth <= spread.high
    assert passed <= 14  # .025 of 250, and 3.2 standard errors
    assert held >= 230


def _inside(strata: int, sizes: tuple[int, int], factors: tuple[float, float], rng: np.random.Generator):
    """The pooled interval of the difference: scores in hundredths, outcome rates so many times the score."""
    stratum, group = np.divmod(np.repeat(np.arange(2 * strata), np.tile(sizes, strata)), 2)
    score = np.round(rng.beta(2, 4, len(group)), 2)
    chance = np.clip(np.array(factors)[group] * score, 0, 1)
    rows = Rows(outcome=(rng.random(len(group)) < chance).astype(float), score=score)
    metric = Ecce()
    totals = metric.statistic.collect(rows, stratum * 2 + group, 2 * strata)
    cells = Strata([str(place) for place in range(strata)], 2, {metric.statistic.key: totals}, {})
    return largest_difference(cells.pairs(metric, cells.cells(metric, rng)), 0.95)


@pytest.mark.long
@pytest.mark.parametrize(
    ("strata", "sizes", "factors", "truth"),
    [
        (1, (300, 300), (1.4, 1.0), 0.1312),
        (8, (400, 60), (1.0, 1.0), 0.0),
        (8, (400, 60), (1.4, 1.0), 0.1312),
        (8, (60, 400), (1.4, 1.0), 0.1312),
        (8, (200, 200), (1.4, 1.4), 0.0),
    ],
)
def test_pooled_over_strata_the_interval_holds(strata, sizes, factors, truth):
    # with the limits of other numbers .16 of those of two calibrated groups of unlike size held, and none in the third
    rng = np.random.default_rng(12)
    found = [_inside(strata, sizes, factors, rng) for _ in range(100)]
    assert sum(one.high < truth for one in found) <= 8  # .025 of 100, and 3.5 standard errors
    assert sum(one.low <= truth <= one.high for one in found) >= 88


def test_no_two_numbers_are_further_apart_than_1():
    values = np.array([0.9, 0.1])
    estimate = Estimate(values, lambda z: (values - z, np.minimum(values + z, 1.0)), inflated=(MEAN, lambda z: 2.24))
    one, two = np.array([0, 1]), np.array([1, 0])
    assert surely_apart(estimate, 1.96, one, two).max() == 1.0


def test_of_many_groups_the_largest_difference_and_gap_are_those_of_all_pairs():
    rng = np.random.default_rng(2)
    values, other = rng.beta(2, 5, (2, 200))
    error = rng.exponential(0.01, 200)
    first = Estimate(values, lambda z: (values - z * error, values + z * error), inflated=(0.4, lambda z: 0.5 * z))
    second = Estimate(other, lambda z: (other - z * error, other + z * error))
    a, b = np.nonzero(~np.eye(200, dtype=bool))
    seen = next(c for c in comparisons("x", "lower", frozenset({"difference"}), first)).spread(0.95)
    assert seen.high == surely_apart(first, two_sided(0.95), a, b).max()
    gap = next(c for c in odds(first, second) if c.metric == "gap_rms").spread(0.95)
    inner, outer = spread_quantiles(200, 0.95**0.5)
    both = {z: [pairwise(e.values, e.limits, z) for e in (first, second)] for z in (inner, outer)}
    rms = [np.sqrt((both[z][0][i] ** 2 + both[z][1][i] ** 2) / 2).max() for i, z in enumerate((inner, inner, outer))]
    assert (gap.value, gap.low, gap.high) == pytest.approx(tuple(rms), rel=1e-13)
