"""Prior correction: Bayes' rule, where it is right, and that it is no parity method."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.errors import DataError
from fairkit.mitigators import Run
from fairkit_repair.scored_rows import ScoredRows
from fairkit_shift_inference import ShiftInference, odds_factors


def solve(rows, **values):
    return ShiftInference.with_values(values).solve(rows, None, Run())


def test_the_correction_is_exact_when_only_priors_differ():
    # two normal classes: the posterior under prior π is known in closed form
    x = np.linspace(-4, 4, 41)

    def posterior(prior):
        up, down = np.exp(-((x - 1) ** 2) / 2) * prior, np.exp(-((x + 1) ** 2) / 2) * (1 - prior)
        return up / (up + down)

    factor = odds_factors(np.array([0.2]), 0.6)[0]
    p = posterior(0.2)
    np.testing.assert_allclose(factor * p / (factor * p + 1 - p), posterior(0.6), atol=1e-12)


def test_base_rates_are_moved_to_the_overall_one():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 10_000)
    scores = np.where(codes == 0, rng.beta(1, 4, 10_000), rng.beta(3, 2, 10_000))
    favorable = (rng.random(10_000) < scores).astype(float)
    rows = ScoredRows(scores=scores, codes=codes, names=("a", "b"), favorable=favorable)
    solution = solve(rows)
    overall, own = favorable.mean(), [favorable[codes == k].mean() for k in range(2)]
    wanted = [overall / (1 - overall) * (1 - p) / p for p in own]
    np.testing.assert_allclose(solution.odds, [*wanted, 1.0])
    before = abs((scores[codes == 0] >= 0.5).mean() - (scores[codes == 1] >= 0.5).mean())
    assert 0.02 < solution.details["difference_on_fit_rows"] < before
    assert solve(rows, prior=0.3).details["prior"] == 0.3
    assert all(piece == (solution.pieces[0]) for piece in solution.pieces)


def test_weights_count():
    scores = np.array([0.2, 0.8, 0.3, 0.6])
    rows = ScoredRows(
        scores=scores,
        codes=np.array([0, 0, 1, 1]),
        names=("a", "b"),
        favorable=np.array([0.0, 1.0, 0.0, 1.0]),
        weights=np.array([1.0, 3.0, 2.0, 2.0]),
    )
    assert solve(rows).details["priors"] == {"a": 0.75, "b": 0.5}


def test_a_group_with_one_outcome():
    rows = ScoredRows(
        scores=np.full(4, 0.5), codes=np.array([0, 0, 1, 1]), names=("a", "b"), favorable=np.array([0.0, 1, 1, 1])
    )
    with pytest.raises(DataError, match="group 'b' have the same outcome"):
        solve(rows)
