"""Algorithm 1: its updates, and that it comes near the exact solution."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_rto.constraints import Duals, parity_threshold, ramp, sgd_thresholds, shuffled_epochs, sort_groups


def parity(groups: int, rho: float, epsilon: float = 0.0) -> Duals:
    return Duals(owner=np.arange(groups), factors=np.ones(groups), offset=rho, slack=epsilon / 2)


def test_two_steps_by_hand():
    # rate .1 √(1/2); first h = clip(.5/1) = .5: λ = max(0, -η(.3 - .5)) = .2η, μ = max(0, -η(-.3 + .5)) = 0
    eta = 0.1 * np.sqrt(1 / 2)
    rows = [(np.array([0.5, 0.4]), np.zeros(2, dtype=int), np.ones(2))]
    found = sgd_thresholds(rows, parity(1, 0.3), gamma=1.0, steps=2)
    first = 0.2 * eta
    h = 0.4 - first
    second = max(0.0, first - eta * (0.3 - h)) - max(0.0, -eta * (h - 0.3))
    assert found[0] == pytest.approx(second, abs=1e-15)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_comes_near_the_exact_thresholds(gamma):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 20_000)
    margins = np.clip(rng.normal(0.4 * codes - 0.5, 0.4), -1, 1)
    exact = np.array([parity_threshold([g], gamma, 0.3, 0.0) for g in sort_groups(margins, codes, 2)])
    stream = shuffled_epochs((margins, codes, np.ones(len(margins))), 5, rng)
    found = sgd_thresholds(stream, parity(2, 0.3), gamma=gamma, steps=5 * len(margins))
    np.testing.assert_allclose(found, exact, atol=0.02)
    error = [abs(ramp(margins, t[codes], gamma)[codes == 0].mean() - 0.3) for t in (exact, found)]
    assert error[0] < 1e-9 < error[1] < 0.02


def test_a_slack_constraint_stays_at_zero():
    margins = np.tile([-1.0, 1.0], 500)
    rows = [(margins, np.zeros(1000, dtype=int), np.ones(1000))]
    assert sgd_thresholds(rows, parity(1, 0.5, epsilon=2.0), gamma=0.1, steps=1000)[0] == 0.0


def test_epochs_give_every_row_once_each_and_depend_on_the_seed_alone():
    rows = (np.arange(10.0), np.arange(10), np.ones(10))
    a, b = ([part[0] for part in shuffled_epochs(rows, 2, np.random.default_rng(7))] for _ in range(2))
    np.testing.assert_array_equal(np.concatenate(a), np.concatenate(b))
    np.testing.assert_array_equal(np.sort(np.concatenate(a)), np.repeat(np.arange(10.0), 2))
