"""Walks: what they add up to, whether they are right, and whether their variance is."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_why.permutation_walks import walk


class Table:
    """A model of rows in memory."""

    def __init__(self, f, a, b):
        self.f, self.a, self.b, self.asked = f, a, b, 0

    def differ(self, x, z):
        return self.a[x] != self.b[z]

    def mixed(self, x, z, from_x):
        self.asked += len(x)
        return self.f(np.where(from_x, self.a[x], self.b[z]))

    @property
    def known(self):
        return self.f(self.a), self.f(self.b)


def decided(rows):
    return ((rows[:, 0] * rows[:, 1] - rows[:, 2] + 0.3 * rows[:, 3]) > 0.5).astype(float)


def groups(seed, n, m):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, 4)).astype(float) + 0.4, rng.integers(0, 3, (m, 4)).astype(float)


def run(table, calls=200_000, weights=(None, None), clusters=None, seed=0):
    rng = np.random.default_rng(seed)
    return walk(table, table.known, weights, clusters, 4, calls=calls, rng=rng)


def test_walks_find_what_enumeration_finds_and_add_up_to_the_gap(oracle):
    a, b = groups(0, 12, 9)
    found = run(Table(decided, a, b))
    truth = oracle.shapley_of_pairs(decided, a, b, [[j] for j in range(4)]).mean(axis=(0, 1))
    assert found.values == pytest.approx(truth, abs=0.035)
    assert found.values.sum() == pytest.approx(decided(a).mean() - decided(b).mean(), abs=1e-12)


def test_weighted_walks_add_up_to_the_weighted_gap(oracle):
    a, b = groups(1, 12, 9)
    rng = np.random.default_rng(5)
    w = rng.random(12) + 0.2, rng.random(9) + 0.2
    found = run(Table(decided, a, b), weights=w)
    u = [one / one.sum() for one in w]
    pairs = oracle.shapley_of_pairs(decided, a, b, [[j] for j in range(4)])
    assert found.values == pytest.approx(np.einsum("x,z,xzp->p", *u, pairs), abs=0.035)
    assert found.values.sum() == pytest.approx(u[0] @ decided(a) - u[1] @ decided(b), abs=1e-12)


def test_the_variance_is_that_of_new_rows_and_new_walks():
    a, b = groups(2, 4000, 4000)
    rng, found = np.random.default_rng(0), []
    for seed in range(120):
        x, z = rng.integers(0, 4000, 150), rng.integers(0, 4000, 90)
        found.append(run(Table(decided, a[x], b[z]), calls=4_000, seed=seed))
    spread = np.var([one.values for one in found], axis=0, ddof=1)
    stated = np.mean([one.variance for one in found], axis=0)
    assert stated == pytest.approx(spread, rel=0.45)
    assert all(0 < one.sampling < 1 for one in found)


def test_rows_in_copies_have_a_larger_variance_with_clusters():
    a, b = groups(3, 60, 60)
    table = Table(decided, a.repeat(5, axis=0), b.repeat(5, axis=0))
    clusters = np.arange(60.0).repeat(5), 500 + np.arange(60.0).repeat(5)
    plain, dependent = run(table, 40_000), run(table, 40_000, clusters=clusters)
    assert (dependent.variance > 2.5 * plain.variance)[plain.variance > 1e-9].all()


def test_the_budget_is_kept_and_equal_values_cost_nothing():
    a, b = groups(4, 500, 500)
    table = Table(decided, a, b)
    found = run(table, calls=10_000)
    assert table.asked == found.calls <= 10_000 + 4 * 2_000
    same = Table(decided, b, b[::-1].copy())
    same.a[:, 1:] = same.b[:, 1:] = 1.0  # one column differs: nothing between z and x
    assert run(same).calls == 0
