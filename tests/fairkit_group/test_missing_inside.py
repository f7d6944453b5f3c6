"""Rows without a group inside strata: no way to give them one leaves the bounds, and no verdict rests on their loss."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.metrics import CONFUSION
from fairkit.models.columns import PredictedColumns
from fairkit.statistics import Rows
from fairkit_group.missing_groups import pooled_bounds
from fairkit_group.rates import FalsePositiveRate, SelectionRate, TruePositiveRate
from fairkit_group.strata import Strata

N, STRATA = 400, 4


def cells(sex, stratum, decision, outcome):
    codes = stratum * 2 + sex
    return CONFUSION.collect(Rows(outcome=outcome, decision=decision), codes, 2 * STRATA)


@pytest.mark.parametrize("metric", [SelectionRate(), TruePositiveRate(), FalsePositiveRate()], ids=lambda m: m.name)
def test_no_allocation_leaves_the_bounds_of_a_pooled_difference(metric):
    rng = np.random.default_rng(2)
    sex, stratum = rng.integers(0, 2, N), rng.integers(0, STRATA, N)
    decision, outcome = ((rng.random(N) < 0.4 + 0.1 * sex).astype(float) for _ in "do")
    gone = rng.random(N) < 0.1

    def pooled(codes, keep):
        totals = cells(codes[keep], stratum[keep], decision[keep], outcome[keep])
        strata = Strata(list("abcd"), 2, {CONFUSION.key: totals}, {})
        return strata, strata.pairs(metric, strata.cells(metric, rng))

    known, pairs = pooled(sex, ~gone)
    lost = CONFUSION.collect(Rows(outcome=outcome[gone], decision=decision[gone]), stratum[gone], STRATA).first
    low, high = pooled_bounds(metric, known.confusion(), lost, pairs.groups)[0]
    seen = []
    for _ in range(300):  # those that raise a rate to one group, the others to the other, or at random
        chance = rng.choice([0.0, 0.5, 1.0], size=(2, 2))[decision.astype(int), outcome.astype(int)]
        given = np.where(gone, rng.random(N) < chance, sex).astype(np.int64)
        seen.append(pooled(given, np.ones(N, dtype=bool))[1].differences[0])
    assert low <= min(seen)
    assert max(seen) <= high
    assert high - low < 1.3 * (max(seen) - min(seen))


def people(seed, gap):
    """1.9 % of the rows have no group: selected men of every department."""
    rng = np.random.default_rng(seed)
    sex = np.array(["f", "m"], dtype=object)[rng.integers(0, 2, 20_000)]
    dept = rng.choice(list("abc"), 20_000)
    decision = (rng.random(20_000) < 0.3 + 0.1 * (dept == "a") + gap * (sex == "m")).astype(int)
    sex[rng.permutation(np.flatnonzero((sex == "m") & (decision == 1)))[:380]] = None
    return {"sex": sex, "dept": dept, "decision": decision}


@pytest.mark.parametrize(
    ("gap", "most", "verdict"), [(0.055, 0.06, "inconclusive"), (0.15, 0.06, "fail"), (0, 0.1, "pass")]
)
def test_rules_inside_strata_have_a_verdict_where_the_missing_could_not_turn_it(gap, most, verdict):
    data = fairkit.load_data(people(1, gap), sensitive=["sex"], within=["dept"])
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", within=("dept",), max=most)
    report = fairkit.audit(PredictedColumns(decision="decision"), data, policy=[rule])
    assert report.verdict == verdict
    found = next(f for f in report.findings if f.metric == rule.metric and f.within)
    assert found.interval[1] < most or gap > 0.1  # the interval alone would pass
    assert found.evidence["missing_bounds"]["low"] <= found.value <= found.evidence["missing_bounds"]["high"]
