"""Looks and planning: published boundaries, simulated crossing, and planned power against simulated audits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairkit.errors import ParameterError
from fairkit_correspondence.client import confidence_at, quantiles
from fairkit_correspondence.planning import Cells, Size, Spread, documents_needed, forecast, limits, names_needed, parts


@pytest.mark.long
def test_the_boundaries_are_those_of_lan_and_demets():
    assert quantiles(5, 0.95) == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=1e-3)
    assert quantiles(1, 0.95) == pytest.approx((1.959964,), abs=1e-6)
    assert quantiles(2, 0.95) == pytest.approx((2.963, 1.969), abs=2e-3)
    assert confidence_at(5, 5, 0.95) == pytest.approx(0.9577, abs=1e-3)
    # twenty looks spend less at the first than floating point can tell from nothing: no interval is infinite
    many = quantiles(20, 0.95)
    assert many[:2] == pytest.approx((8.0, 7.015), abs=0.1)
    assert list(many) == sorted(many, reverse=True)
    assert 0.999 < confidence_at(1, 20, 0.99) < 1


@pytest.mark.parametrize("looks", [3, 8])
def test_all_looks_together_miss_one_time_in_ten(looks):
    rng = np.random.default_rng(looks)
    steps = rng.normal(size=(40_000, looks)).cumsum(axis=1) / np.sqrt(np.arange(1, looks + 1))
    crossed = (np.abs(steps) > np.array(quantiles(looks, 0.9))).any(axis=1).mean()
    assert crossed == pytest.approx(0.1, abs=0.006)


def audit(rng, T, J, m, base, names=0.0, interaction=0.0, probability=False):
    side = np.tile(np.repeat([True, False], m), T)
    document = np.repeat(np.arange(T), 2 * m)
    name = ((np.arange(T)[:, None] * m + np.arange(m)) % J)[:, None, :].repeat(2, axis=1).reshape(-1) + J * ~side
    x = math.log(base / (1 - base)) + rng.normal(size=T)[document] + rng.normal(0, names, 2 * J)[name]
    x += rng.normal(0, interaction, (T, 2))[document, side.astype(int)]
    p = 1 / (1 + np.exp(-x))
    y = p if probability else (rng.random(len(p)) < p).astype(float)
    return Cells(document, np.zeros(len(p), dtype=int), name, side, y, y, T)


@pytest.mark.long
@pytest.mark.parametrize(("base", "m"), [(0.5, 2), (0.5, 8), (0.1, 2)])
def test_the_planned_power_is_the_simulated_one(base, m):
    limit = 0.08
    odds = math.log(base / (1 - base)) + np.random.default_rng(0).normal(size=100_000)
    spread = Spread.of_rate(float(np.mean(1 / (1 + np.exp(-odds)))))
    T = documents_needed(spread, Size(names=40, each=m, limit=limit))
    rng = np.random.default_rng(m)
    passed = 0
    for _ in range(300):
        low, high = limits(parts(audit(rng, T, 40, m, base)), 0.95)
        passed += -limit < low and high < limit
    # 300 audits: the standard error is .023
    assert passed / 300 == pytest.approx(0.8, abs=0.07)


def test_a_pilot_says_what_its_population_is():
    rng = np.random.default_rng(0)
    found = [Spread.of_pilot(audit(rng, 60, 30, 8, 0.5, names=0.5, interaction=0.6)) for _ in range(40)]
    # var of p at log-odds 0: slope² · variance, averaged over the documents
    assert np.mean([one.answer for one in found]) == pytest.approx(0.40, abs=0.04)
    assert np.mean([one.name for one in found]) == pytest.approx(2 * 0.19**2 * 0.25, rel=0.4)
    assert np.mean([one.interaction for one in found]) == pytest.approx(2 * 0.19**2 * 0.36, rel=0.5)


def test_names_that_differ_too_much_need_more_names():
    spread = Spread(name=0.04)
    J = names_needed(spread, 0.05)
    assert math.sqrt(0.04 / J) <= 0.05 / 3.5
    assert names_needed(Spread(), 0.05) == 40
    assert documents_needed(Spread(name=0.5), Size(names=40, each=2, limit=0.05)) is None
    size = Size(names=40, each=2, limit=0.08)
    widths, passes, _ = zip(*(forecast(Spread(), T, size, audits=100) for T in (100, 400)), strict=True)
    assert widths[0] > 1.7 * widths[1]
    assert passes[0] < 0.5 < passes[1]


@pytest.mark.parametrize(("limit", "power"), [(0, 0.8), (0.05, 1.0), (2, 0.5)])
def test_what_cannot_be_planned_is_refused(limit, power):
    with pytest.raises(ParameterError, match="above 0"):
        documents_needed(Spread(), Size(names=40, each=2, limit=limit), power)
