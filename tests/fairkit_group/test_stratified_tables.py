"""Mantel and Haenszel's ratios and the tests that go with them, against statsmodels and against slow twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit.limits import chi_square_tail
from fairkit_group.references import dunnett_quantile
from fairkit_group.stratified import equal_odds, odds_ratio, same_difference, same_odds

ADMISSIONS = np.array(
    [
        [[512, 313], [89, 19]],
        [[353, 207], [17, 8]],
        [[120, 205], [202, 391]],
        [[138, 279], [131, 244]],
        [[53, 138], [94, 299]],
        [[22, 351], [24, 317]],
    ],
    dtype=float,
)
"""Admitted and rejected, men then women, in the six largest departments of Berkeley in 1973."""
SPARSE = np.array(
    [
        [[8, 9], [1, 9]],
        [[6, 6], [7, 4]],
        [[11, 1], [4, 5]],
        [[7, 5], [2, 1]],
        [[1, 1], [2, 11]],
        [[3, 8], [9, 3]],
        [[4, 5], [3, 11]],
        [[2, 10], [9, 10]],
        [[2, 5], [7, 6]],
    ],
    dtype=float,
)
# statsmodels 0.15.0, StratifiedTable: oddsratio_pooled, logodds_pooled_se, test_equal_odds (statistic, p-value), the
# same with adjust=True
KNOWN = {
    "admissions": (ADMISSIONS, 0.9046968282586231, 0.08098890965622091, 18.825513705236514, 0.0020713903499175457,
                   18.82550125205323, 0.0020714013978808676),
    "sparse": (SPARSE, 0.9562367432654562, 0.29719228765229333, 22.145950383887175, 0.004652549783895954,
               22.145652614432098, 0.004653072882339293),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_pooled_odds_are_those_of_statsmodels(name: str) -> None:
    tables, *known = KNOWN[name]
    pooled = odds_ratio(tables)
    plain, adjusted = equal_odds(tables, tarone=False), equal_odds(tables)
    found = [pooled.value, pooled.log_error, plain.statistic, plain.p_value]
    found += [adjusted.statistic, adjusted.p_value]
    assert found == pytest.approx(known, rel=1e-10, abs=1e-12)


def test_strata_that_tell_nothing_change_nothing() -> None:
    empty = np.array([[[0, 0], [3, 4]], [[5, 0], [9, 0]]], dtype=float)  # one group only; everybody says yes
    more = np.concatenate([ADMISSIONS, empty])
    assert odds_ratio(more).value == pytest.approx(odds_ratio(ADMISSIONS).value, abs=1e-12)
    assert equal_odds(more).statistic == pytest.approx(equal_odds(ADMISSIONS).statistic, abs=1e-9)
    assert equal_odds(more).degrees == 5
    assert math.isnan(odds_ratio(empty).value)
    assert math.isnan(equal_odds(empty).p_value)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_ratio_turned_round(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = rng.integers(1, 40, (rng.integers(1, 8), 2, 2)).astype(float)
    turned = odds_ratio(tables[:, ::-1])
    assert turned.value == pytest.approx(1 / odds_ratio(tables).value)
    assert turned.log_error == pytest.approx(odds_ratio(tables).log_error)


def test_the_score_test_of_two_groups_is_tarones() -> None:
    """Three groups of which the third is empty take the other road: the fit by maximum likelihood."""
    yes, rows = ADMISSIONS[:, :, 0], ADMISSIONS.sum(axis=2)
    two = same_odds(yes, rows)
    padded = same_odds(np.pad(yes, ((0, 0), (0, 1))), np.pad(rows, ((0, 0), (0, 1))))
    assert padded.degrees == two.degrees == 5
    assert padded.statistic == pytest.approx(two.statistic, rel=2e-3)


def test_tests_of_agreement_have_their_level() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(20, 200, (6, 3)).astype(float)
    level = rng.normal(0, 0.8, 6)[:, None] + np.array([0.0, 0.7, -0.4])
    p = 1 / (1 + np.exp(-level))
    small = [same_odds(rng.binomial(rows.astype(int), p).astype(float), rows).p_value < 0.05 for _ in range(400)]
    assert 0.02 < np.mean(small) < 0.09
    errors = rng.uniform(0.5, 2, 8)
    drawn = [same_difference(rng.normal(0.3, errors), errors**2).p_value < 0.05 for _ in range(400)]
    assert 0.02 < np.mean(drawn) < 0.09


@pytest.mark.parametrize(("value", "degrees"), [(3.84, 1), (0.1, 5), (200, 50), (12.3, 7), (500, 10), (0.001, 1)])
def test_the_tail_of_chi_square_is_scipys(value: float, degrees: int) -> None:
    from scipy import stats

    assert chi_square_tail(value, degrees) == pytest.approx(stats.chi2.sf(value, degrees), rel=1e-9)


def test_dunnetts_quantiles_are_those_of_his_table() -> None:
    from scipy import stats

    assert dunnett_quantile([0.5], 0.95) == pytest.approx(1.959964, abs=1e-6)
    assert dunnett_quantile([0.5] * 3, 0.95) == pytest.approx(2.349, abs=1e-3)  # Dunnett (1964), table II
    assert dunnett_quantile([0.5] * 9, 0.95) == pytest.approx(2.686, abs=1e-3)
    ratios = [0.1, 0.3, 0.9]
    slope = np.sqrt(ratios)
    together = np.outer(slope, slope)
    np.fill_diagonal(together, 1)
    c = dunnett_quantile(ratios, 0.9)
    inside = stats.multivariate_normal(cov=together).cdf([c] * 3, lower_limit=[-c] * 3)
    assert inside == pytest.approx(0.9, abs=2e-4)
