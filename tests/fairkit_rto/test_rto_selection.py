"""Choosing γ, ρ and ε: what is tried, what is admissible, what is best."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fairkit.mitigators import Run
from fairkit_repair.scored_rows import ScoredRows
from fairkit_rto.constraints import EqualRates, Setting, covariance_of, exact_thresholds, ramp, sorted_margins
from fairkit_rto.mitigator import EPSILONS, GAMMAS, NEAR, RHO_SHIFTS, RandomizedThresholds, Wishes, choose
from fairkit_threshold_optimizer import ThresholdOptimizer


@pytest.fixture
def rows() -> ScoredRows:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 4_000)
    scores = 1 / (1 + np.exp(-rng.normal(1.2 * codes - 1.2, 1.5)))
    return ScoredRows(
        scores=scores, codes=codes, names=("a", "b"), favorable=(rng.random(4_000) < scores).astype(float)
    )


def measured(setting, folds):
    """The slow twin: every row's chance from the thresholds of the fold that held it out."""
    held = [part for _, part in folds]
    h = np.concatenate(
        [
            ramp(
                2 * part.scores - 1,
                exact_thresholds(EqualRates(), sorted_margins(fit), setting)[part.codes],
                setting.gamma,
            )
            for fit, part in folds
        ]
    )
    codes, y = (np.concatenate([getattr(part, name) for part in held]) for name in ("codes", "favorable"))
    w = np.concatenate([part.row_weights for part in held])
    rates = [np.average(h[codes == k], weights=w[codes == k]) for k in (0, 1)]
    return abs(rates[1] - rates[0]), np.average(y * h + (1 - y) * (1 - h), weights=w)


def test_what_is_given_is_kept_and_the_rest_comes_from_the_grids(rows):
    given = Wishes(gamma=0.3, rho=0.2, epsilon=0.0)
    assert given.given == Setting(gamma=0.3, rho=0.2, epsilon=0.0)
    assert given.settings(rows) == [given.given]
    free = Wishes(epsilon=None)
    assert free.given is None
    settings = free.settings(rows)
    assert {setting.gamma for setting in settings} == set(GAMMAS)
    assert {setting.epsilon for setting in settings} == set(EPSILONS)
    share = rows.favorable.mean()
    wanted = sorted([rows.scores.mean(), *(share + shift for shift in RHO_SHIFTS)])
    np.testing.assert_allclose(sorted({setting.rho for setting in settings}), wanted)
    assert {-0.1, -0.05, 0, 0.05, 0.1} <= set(RHO_SHIFTS)
    assert {setting.rho for setting in Wishes(has_rho=False).settings(rows)} == {None}
    assert Wishes(gamma=0.1, has_rho=False).given == Setting(gamma=0.1, rho=None, epsilon=0.0)


@pytest.mark.parametrize("count", [1, 3])
def test_the_most_accurate_admissible_setting_is_chosen(rows, count):
    folds = rows.folds(max(count, 2), np.random.default_rng(1))[: max(count, 2) if count > 1 else 1]
    wishes = Wishes()
    choice = choose(EqualRates(), rows, folds, wishes)
    tried = {setting: measured(setting, folds) for setting in wishes.settings(rows)}
    sizes = [sum((part.codes == k).sum() for _, part in folds) for k in (0, 1)]
    allowed = 2 * np.sqrt(0.25 / min(sizes))
    assert choice.allowed == pytest.approx(allowed)
    good = {setting: accuracy for setting, (gap, accuracy) in tried.items() if gap <= allowed}
    best = max(good, key=good.get)
    assert choice.setting.gamma == best.gamma
    assert choice.accuracy == pytest.approx(good[best], abs=1e-12)
    near = [s.rho for s, value in good.items() if s.gamma == best.gamma and value >= good[best] - NEAR]
    assert len(near) > 1
    assert choice.setting.rho == pytest.approx(np.mean(near), abs=1e-12)


def test_where_nothing_is_admissible_the_smallest_excess_is_taken(rows):
    shifted = dataclasses.replace(rows, scores=rows.scores * (1 - 0.5 * rows.codes))
    wishes = Wishes()
    choice = choose(EqualRates(), rows, [(rows, shifted)], wishes)
    assert choice.violation > choice.allowed
    for setting in wishes.settings(rows)[::7]:
        assert measured(setting, [(rows, shifted)])[0] >= choice.violation - 1e-12


def test_a_given_rate_is_not_refined(rows):
    choice = choose(EqualRates(), rows, rows.folds(2, np.random.default_rng(0)), Wishes(rho=0.3))
    assert choice.setting.rho == 0.3


def test_with_a_free_epsilon_the_tolerance_decides(rows):
    folds = rows.folds(2, np.random.default_rng(0))
    strict, loose = (
        choose(EqualRates(), rows, folds, Wishes(gamma=0.1, epsilon=None, tolerance=value)) for value in (0.0, 0.2)
    )
    assert strict.violation <= strict.allowed < loose.allowed
    assert loose.setting.epsilon > strict.setting.epsilon
    assert loose.accuracy > strict.accuracy


def test_weights_count_in_rates_and_accuracy(rows):
    weights = np.random.default_rng(2).integers(1, 4, len(rows)).astype(float)
    index = np.repeat(np.arange(len(rows)), weights.astype(int))
    weighted = dataclasses.replace(rows, weights=weights)
    wishes = Wishes(rho=0.3)
    one = choose(EqualRates(), weighted, [(weighted, weighted)], wishes)
    other = choose(EqualRates(), rows.take(index), [(rows.take(index), rows.take(index))], wishes)
    assert one.setting == other.setting
    assert one.accuracy == pytest.approx(other.accuracy, abs=1e-12)
    assert one.allowed > other.allowed  # weights are not rows


def test_folds_keep_groups_and_outcomes(rows):
    folds = rows.folds(3, np.random.default_rng(3))
    held = np.concatenate([part.scores for _, part in folds])
    np.testing.assert_array_equal(np.sort(held), np.sort(rows.scores))
    for others, part in folds:
        assert len(others) + len(part) == len(rows)
    for k in (0, 1):
        for y in (0, 1):
            counts = [((part.codes == k) & (part.favorable == y)).sum() for _, part in folds]
            assert max(counts) - min(counts) <= 1


def test_covariance_pairs_the_groups_of_each_subgroup():
    rows = ScoredRows(
        scores=np.linspace(0, 1, 9),
        codes=np.array([0, 0, 1, 1, 1, 2, 2, 3, 4]),
        names=("F & X", "M & X", "F & Y", "M & Y", "M & Z"),
        favorable=np.zeros(9),
        cells=((1, 1), (2, 1), (1, 2), (2, 2), (2, 3)),
    )
    constraint = covariance_of(rows)
    assert constraint.pairs == ((1, 0), (3, 2), (4, None))
    assert constraint.shares == pytest.approx((3 / 5, 1 / 3, 1.0))
    rates = np.array([0.2, 0.7, 0.5, 0.1, 0.9])
    assert constraint.violation(rates) == pytest.approx(max(0.24 * 0.5, 2 / 9 * 0.4))


def test_equal_opportunity_looks_around_the_groups_own_true_positive_rates():
    """A quarter is favorable, but a model with a true positive rate of .7 is not levelled down to that quarter."""
    rng = np.random.default_rng(1)
    n = 12_000
    codes = rng.integers(0, 2, n)
    favorable = (rng.random(n) < np.where(codes == 1, 0.3, 0.18)).astype(float)
    margins = np.where(favorable > 0, 1.0 + 0.4 * codes, -2.6) + rng.normal(0, 1.6, n)
    rows = ScoredRows(scores=1 / (1 + np.exp(-margins)), codes=codes, names=("a", "b"), favorable=favorable)
    own = rows.take(favorable > 0).rates((margins[favorable > 0] >= 0).astype(float))
    assert own.min() > 0.65
    folds = rows.folds(5, np.random.default_rng(0))
    choice = choose(EqualRates(), rows, folds, Wishes(favorable_only=True))
    assert own.min() - 0.1 < choice.setting.rho < own.max() + 0.05
    assert choice.accuracy > rows.accuracy((margins >= 0).astype(float)) - 0.01


def applicants(seed, size):
    """People whose scores are the chance of their outcome; the second group is half as large."""
    rng = np.random.default_rng(seed)
    codes = np.arange(size) % 3 // 2
    share, high = np.where(codes == 0, 0.45, 0.3), 0.8 + 0.6 * codes
    favorable = (rng.random(size) < share).astype(float)
    margin = rng.normal(np.where(favorable == 1, high, -1.2), 1.1)
    odds = np.log(share / (1 - share)) + ((high + 1.2) * margin - 0.5 * (high**2 - 1.44)) / 1.21
    return ScoredRows(scores=1 / (1 + np.exp(-odds)), codes=codes, names=("a", "b"), favorable=favorable)


@pytest.mark.long
@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_equal_opportunity_is_as_accurate_on_other_rows_as_the_linear_program_over_threshold_rules(tolerance):
    fresh = applicants(1, 100_000)

    def accuracy(pieces):
        chance = np.zeros(len(fresh))
        for group in (0, 1):
            own = fresh.scores[fresh.codes == group]
            for start, width, weight in pieces[group]:
                chance[fresh.codes == group] += weight * (
                    np.clip((own - start) / width, 0, 1) if width else own >= start
                )
        return np.where(fresh.favorable == 1, chance, 1 - chance).mean()

    settings = {"constraint": "equal_opportunity", "tolerance": tolerance}
    apart = [
        accuracy(RandomizedThresholds.with_values(settings).solve(rows, None, Run()).pieces)
        - accuracy(ThresholdOptimizer.with_values(settings).solve(rows, None, Run()).pieces)
        for rows in (applicants(seed, 6_000) for seed in (2, 3, 4, 5))
    ]
    assert np.mean(apart) > -0.001
