"""Weights against AIF360's numbers and an exact oracle in fractions; what the weights do to shares."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fairkit
from fairkit.mitigators import Run, Table
from fairkit_reweigh import Reweigh, independent_weights

# AIF360 0.6.1, Reweighing(unprivileged_groups=[{"sex": 0}], privileged_groups=[{"sex": 1}]) on all 48,842 rows
AIF360_ADULT = {
    ("Female", "<=50K"): 0.8540213305062391,
    ("Female", ">50K"): 2.190192396895711,
    ("Male", "<=50K"): 1.092620550330306,
    ("Male", ">50K"): 0.7877142216063205,
}
# the same with instance weights fnlwgt: the factor on top of them
AIF360_ADULT_WEIGHTED = {
    ("Female", "<=50K"): 0.8548555565589975,
    ("Female", ">50K"): 2.1943298229461736,
    ("Male", "<=50K"): 1.088695696504045,
    ("Male", ">50K"): 0.7929192611739201,
}
# counts of the same cells, taken from the table by hand
ADULT_COUNTS = {("Female", "<=50K"): 14423, ("Female", ">50K"): 1769, ("Male", "<=50K"): 22732, ("Male", ">50K"): 9918}


def _adult(public_data, weights=None):
    data = fairkit.load_data(
        public_data / "adult.parquet", label="income", favorable=">50K", sensitive="sex", weights=weights
    )
    table = Table.from_dataset(data)
    groups = table.groups["sex"]
    return table, groups, np.array([">50K" if y else "<=50K" for y in table.target])


def test_the_weights_on_adult_are_those_of_aif360(public_data):
    table, groups, labels = _adult(public_data)
    factors = independent_weights(groups.codes, table.target.astype(np.int64), np.ones(len(table)))
    for (sex, label), expected in AIF360_ADULT.items():
        cell = (np.array(groups.names)[groups.codes] == sex) & (labels == label)
        assert cell.sum() == ADULT_COUNTS[sex, label]
        assert np.abs(factors[cell] - expected).max() <= 1e-12


def test_weighted_rows_on_adult_too(public_data):
    table, groups, labels = _adult(public_data, weights="fnlwgt")
    factors = independent_weights(groups.codes, table.target.astype(np.int64), table.row_weights())
    for (sex, label), expected in AIF360_ADULT_WEIGHTED.items():
        cell = (np.array(groups.names)[groups.codes] == sex) & (labels == label)
        assert np.abs(factors[cell] - expected).max() <= 1e-12


def test_the_recorded_numbers_follow_from_the_counts():
    total = sum(ADULT_COUNTS.values())
    for (sex, label), count in ADULT_COUNTS.items():
        of_sex = sum(n for (s, _), n in ADULT_COUNTS.items() if s == sex)
        of_label = sum(n for (_, y), n in ADULT_COUNTS.items() if y == label)
        assert abs(float(Fraction(of_sex * of_label, total * count)) - AIF360_ADULT[sex, label]) <= 1e-12


def test_weighted_shares_are_equal_and_totals_stay():
    rng = np.random.default_rng(0)
    codes, labels = rng.integers(0, 3, 500), rng.integers(0, 4, 500)
    labels[codes == 0] = np.minimum(labels[codes == 0], 2 + (rng.random((codes == 0).sum()) < 0.3))
    given = rng.random(500) + 0.1
    weights = given * independent_weights(codes, labels, given)
    cells = np.zeros((3, 4))
    np.add.at(cells, (codes, labels), weights)
    shares = cells / cells.sum(axis=1, keepdims=True)
    assert np.abs(shares - shares[0]).max() < 1e-12
    assert np.abs(cells.sum(axis=1) - np.bincount(codes, given)).max() < 1e-9
    assert np.abs(cells.sum(axis=0) - np.bincount(labels, given)).max() < 1e-9


def test_independent_groups_are_left_alone_and_absent_cells_do_not_matter():
    codes, labels = np.repeat([0, 1], 6), np.tile([0, 0, 1], 4)
    assert np.allclose(independent_weights(codes, labels, np.ones(12)), 1.0, atol=1e-15)
    only = independent_weights(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), np.ones(4))
    assert np.isfinite(only).all()


def test_strength_zero_is_the_baseline_and_one_brings_groups_together():
    rng = np.random.default_rng(1)
    sex = rng.choice(["f", "m"], 2_000)
    skill = rng.normal(size=2_000)
    hired = np.where(skill + (sex == "m") + rng.normal(size=2_000) > 0.5, "yes", "no")
    data = fairkit.load_data(
        {"sex": sex, "skill": skill, "hired": hired}, label="hired", favorable="yes", sensitive="sex"
    )
    table, run = Table.from_dataset(data), Run(learner="logistic")

    def rates(model, weights):
        score = model.predict(table.columns).score
        return [np.average(score[sex == s], weights=weights[sex == s]) for s in ("f", "m")]

    ones = np.ones(len(table))
    factors = independent_weights(table.groups["sex"].codes, table.target.astype(np.int64), ones)
    plain = rates(Reweigh().baseline(table, run), ones)
    assert rates(Reweigh.with_values({"strength": 0}).fit(table, run), ones) == plain
    assert plain[1] - plain[0] > 0.25
    # a logistic regression that reads the group gives each group its weighted share of favorable labels
    fair = rates(Reweigh().fit(table, run), factors)
    assert abs(fair[1] - fair[0]) < 0.005


def test_a_strength_out_of_range_is_refused():
    with pytest.raises(fairkit.ParameterError, match="strength must be 0 to 1"):
        Reweigh.with_values({"strength": "2"})
