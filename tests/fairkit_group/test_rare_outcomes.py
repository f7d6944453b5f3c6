"""Scores of rare outcomes and rounded scores: intervals hold although the sample shows next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.statistics import Rows
from fairkit_group.calibration import Ecce
from fairkit_group.errors import LogLoss

Z = 1.959964
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
