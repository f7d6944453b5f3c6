from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit.errors import DataError
from fairkit_fairgbm.constraints import Constraints, Multipliers, Rates, Scale, make_cells, scale


def rates(*by_group, overall=()):
    return Rates(np.array(by_group, dtype=float), np.array(overall, dtype=float))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(0, 0.2))
@settings(max_examples=60)
def test_feasible_sets_of_both_forms_are_the_same(values, tolerance):
    """The maximum over the other groups asks for the same as the paper's over all."""
    constraints = Constraints(("fnr",), (tolerance,))
    by_group, _ = constraints.violations(rates(values))
    paper = max(values) - np.array(values) - tolerance
    assert (by_group.max() <= 0) == (paper.max() <= 0)
    assert constraints.gap(rates(values)) == pytest.approx(max(values) - min(values))


ONE = Scale(np.ones((1, 1)), np.ones(1))


def test_the_worst_groups_multiplier_falls_and_the_smallest_is_zero():
    constraints = Constraints(("fnr",), (0.0,))
    wide = Scale(np.array([[9.0]]), np.empty(0))
    start = Multipliers(np.array([[0.5, 0.5, 0.9]]), np.empty(0))
    moved = start.step(constraints, rates([0.3, 0.1, 0.2]), Scale(np.ones((1, 1)), np.empty(0)), wide)
    np.testing.assert_allclose(moved.by_group, [[0.0, 0.3, 0.6]])


def test_steps_stay_between_zero_and_the_cap():
    constraints = Constraints(("fnr",), (0.0,), (("fpr", 0.1),))
    cap = Scale(np.array([[0.6]]), np.array([0.2]))
    start = Multipliers(np.array([[0.1, 0.5]]), np.array([0.15]))
    moved = start.step(constraints, rates([0.9, 0.1], overall=[0.9]), ONE, cap)
    assert moved.by_group.tolist() == [[0.0, 0.6]]
    assert moved.overall.tolist() == [0.2]


def test_a_two_sided_target_presses_both_ways():
    constraints = Constraints((), (), (("fpr", 0.1),), two_sided=True)
    cells = make_cells(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1.0]), ["a", "b"])
    start = Multipliers(np.empty((0, 2)), np.zeros(1))
    none = Rates(np.empty((0, 2)), np.array([0.0]))
    low = start.step(constraints, none, Scale(np.empty((0, 1)), np.ones(1)), scale(constraints, cells, 5.0))
    assert low.overall[0] == pytest.approx(-0.1)
    error, positive = constraints.coefficients(low, none, cells)
    assert positive is None
    assert error[0::2].tolist() == [0, 0]  # nothing on negatives: positives are pushed up instead
    assert (error[1::2] > 0).all()


def test_rates_by_hand():
    codes, labels = np.array([0, 0, 0, 1, 1, 1]), np.array([1, 1, 0, 1, 0, 0.0])
    cells = make_cells(codes, labels, ["a", "b"], np.array([1, 3, 1, 1, 1, 1.0]))
    positive = np.array([0.0, 3.0, 1.0, 0.0])  # cells: a-, a+, b-, b+
    constraints = Constraints(("fnr", "fpr", "positive_rate"), (0, 0, 0), (("fpr", 0.1),))
    found = constraints.true_rates(positive, cells)
    np.testing.assert_allclose(found.by_group, [[0.25, 1], [0, 0.5], [0.6, 1 / 3]])
    np.testing.assert_allclose(found.overall, [1 / 3])
    assert constraints.worst(found) == pytest.approx(0.75)


@pytest.mark.parametrize(("name", "label", "rows"), [("fnr", 0.0, "favorable"), ("fpr", 1.0, "unfavorable")])
def test_a_group_without_rows_for_its_rate_is_named(name, label, rows):
    cells = make_cells(np.array([0, 0, 1, 1]), np.array([0, 1, label, label]), ["men", "women"])
    with pytest.raises(DataError, match=f"group 'women' has no {rows} labels, so it has no {name}"):
        Constraints((name,), (0.01,)).among(cells, 1, what="the data")


def test_a_tolerance_below_one_row_is_told():
    labels = np.ones(60)
    cells = make_cells(np.repeat([0, 1], [50, 10]), labels, ["a", "b"])
    notes = Constraints(("fnr",), (0.05,)).resolution(cells)
    assert len(notes) == 1
    assert "'b' (10 favorable labels) moves the rate by 0.1" in notes[0]
    assert Constraints(("fnr",), (0.2,)).resolution(cells) == []


def test_scale_is_the_smallest_share_of_every_constraint():
    cells = make_cells(np.repeat([0, 1], [90, 10]), np.tile([0.0, 1.0], 50), ["a", "b"])
    found = scale(Constraints(("fnr", "positive_rate"), (0.0, 0.0), (("fpr", 0.1),)), cells, 2.0)
    np.testing.assert_allclose(found.by_group, [[0.1], [0.2]])
    np.testing.assert_allclose(found.overall, [1.0])


def test_one_group_is_never_violated():
    constraints = Constraints(("fnr",), (0.0,))
    assert constraints.worst(rates([0.4])) == 0.0
    assert constraints.gap(rates([0.4])) == 0.0


def test_excess_is_the_violation_less_a_standard_error():
    cells = make_cells(np.repeat([0, 1], [100, 100]), np.ones(200), ["a", "b"])
    constraints = Constraints(("fnr",), (0.0,))
    smoothed = [(31 / 102, 71 / 102), (11 / 102, 91 / 102)]
    error = np.sqrt(sum(a * b / 102 for a, b in smoothed))
    assert constraints.excess(rates([0.3, 0.1]), cells) == pytest.approx(0.2 - error)
