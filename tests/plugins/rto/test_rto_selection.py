"""Choosing γ, ρ and ε: what is tried, what is admissible, what is best."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.postprocess import ScoredRows
from fairkit_rto.constraints import EqualRates, Setting, covariance_of, exact_thresholds
from fairkit_rto.selection import EPSILONS, GAMMAS, candidates, choose
from fairkit_rto.solver import ramp


@pytest.fixture
def rows() -> ScoredRows:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 4_000)
    scores = 1 / (1 + np.exp(-rng.normal(1.2 * codes - 1.2, 1.5)))
    return ScoredRows(
        scores=scores, codes=codes, names=("a", "b"), favorable=(rng.random(4_000) < scores).astype(float)
    )


def test_what_is_given_is_kept_and_the_rest_comes_from_the_grids(rows):
    assert candidates(rows, 0.3, 0.2, 0.0, has_rho=True) == [Setting(gamma=0.3, rho=0.2, epsilon=0.0)]
    free = candidates(rows, None, None, None, has_rho=True)
    assert {setting.gamma for setting in free} == set(GAMMAS)
    assert {setting.epsilon for setting in free} == set(EPSILONS)
    share = rows.favorable.mean()
    wanted = [rows.scores.mean(), share, share - 0.05, share + 0.05, share - 0.1, share + 0.1]
    np.testing.assert_allclose(sorted({setting.rho for setting in free}), sorted(wanted))
    assert {setting.rho for setting in candidates(rows, None, None, 0.0, has_rho=False)} == {None}


def test_the_most_accurate_admissible_setting_is_chosen(rows):
    fit, held_out = rows.halves(np.random.default_rng(1))
    settings = candidates(rows, None, None, 0.0, has_rho=True)
    choice = choose(EqualRates(), fit, held_out, settings)
    figures = []
    for setting in settings:
        thresholds = exact_thresholds(EqualRates(), fit, setting)
        h = ramp(2 * held_out.scores - 1, thresholds[held_out.codes], setting.gamma)
        rates = [h[held_out.codes == k].mean() for k in range(2)]
        accuracy = np.mean(held_out.favorable * h + (1 - held_out.favorable) * (1 - h))
        figures.append((abs(rates[1] - rates[0]), accuracy))
    smallest = min((held_out.codes == k).sum() for k in range(2))
    allowed = 2 * np.sqrt(0.25 / smallest)
    best = max(accuracy for gap, accuracy in figures if gap <= allowed)
    assert choice.allowed == pytest.approx(allowed)
    assert choice.accuracy == pytest.approx(best, abs=1e-12)
    assert figures[settings.index(choice.setting)] == pytest.approx((choice.violation, choice.accuracy))


def test_where_nothing_is_admissible_the_smallest_excess_is_taken(rows):
    shifted = ScoredRows(
        scores=rows.scores * (1 - 0.5 * rows.codes),
        codes=rows.codes,
        names=rows.names,
        favorable=rows.favorable,
    )
    settings = candidates(rows, None, None, 0.0, has_rho=True)
    choice = choose(EqualRates(), rows, shifted, settings)
    assert choice.violation > choice.allowed
    for setting in settings:
        h = ramp(
            2 * shifted.scores - 1,
            exact_thresholds(EqualRates(), rows, setting)[shifted.codes],
            setting.gamma,
        )
        assert abs(h[rows.codes == 1].mean() - h[rows.codes == 0].mean()) >= choice.violation - 1e-12


def test_weights_count_in_rates_and_accuracy(rows):
    weights = np.random.default_rng(2).integers(1, 4, len(rows)).astype(float)
    index = np.repeat(np.arange(len(rows)), weights.astype(int))
    weighted = ScoredRows(
        scores=rows.scores, codes=rows.codes, names=rows.names, favorable=rows.favorable, weights=weights
    )
    settings = [Setting(gamma=0.1, rho=0.3, epsilon=0.0), Setting(gamma=0.5, rho=0.3, epsilon=0.0)]
    one = choose(EqualRates(), weighted, weighted, settings)
    other = choose(EqualRates(), rows.take(index), rows.take(index), settings)
    assert one.setting == other.setting
    assert one.accuracy == pytest.approx(other.accuracy, abs=1e-12)
    assert one.allowed > other.allowed  # weights are not rows


def test_halves_keep_groups_and_outcomes(rows):
    one, other = rows.halves(np.random.default_rng(3))
    assert len(one) + len(other) == len(rows)
    np.testing.assert_array_equal(np.sort(np.concatenate([one.scores, other.scores])), np.sort(rows.scores))
    for k in (0, 1):
        for y in (0, 1):
            counts = [((part.codes == k) & (part.favorable == y)).sum() for part in (one, other)]
            assert abs(counts[0] - counts[1]) <= 1


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
