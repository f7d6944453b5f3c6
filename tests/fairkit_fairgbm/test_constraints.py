"""Constraints of groups, and which model of a search is kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit.errors import DataError
from fairkit_fairgbm.constraints import Constraints, Multipliers, Rates, Scale, make_cells, scale
from fairkit_fairgbm.parameters import choose, choose_best, choose_mixture
from fairkit_fairgbm.trainer import Moment


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


# Which model of a search is kept.
FNR = Constraints(("fnr",), (0.05,))


def moment(error, rates, loss=None, violation=None, constraints=FNR, accepted=0.3):
    found = Rates(np.array([rates], dtype=float), np.empty(0))
    worst = constraints.worst(found) if violation is None else violation
    return Moment(
        loss=error if loss is None else loss,
        error=error,
        rates=found,
        violation=worst,
        gap=constraints.gap(found),
        excess=worst,
        accepted=accepted,
    )


def test_best_is_the_least_error_plus_violation():
    path = [
        moment(0.3, [0.2, 0.2], loss=0.1),
        moment(0.2, [0.21, 0.2], loss=9.0),
        moment(0.1, [0.3, 0.1]),
        moment(0.25, [0.2, 0.2]),
    ]
    choice = choose_best(path)  # .2 + 0, against .1 + .15
    assert choice.rounds == (2,)
    assert choice.notes == ()
    path[2] = moment(0.1, [0.24, 0.1])
    assert choose_best(path).rounds == (3,)  # .1 + .09


def test_where_no_round_holds_it_says_so():
    path = [moment(0.1, [0.5, 0.1]), moment(0.2, [0.3, 0.1]), moment(0.1, [0.4, 0.1])]
    choice = choose_best(path)
    assert choice.rounds == (2,)
    assert choice.notes == ("No round meets the constraints on the validation rows.",)


def test_a_round_that_decides_all_alike_is_never_chosen_while_another_exists():
    path = [moment(0.24, [0.0, 0.0], accepted=0.0), moment(0.3, [0.6, 0.1]), moment(0.2, [1, 1], accepted=1.0)]
    assert choose_best(path).rounds == (2,)
    assert choose_mixture(path, FNR).rounds == (2,)
    constant = choose_best(path[:1])
    assert constant.rounds == (1,)
    assert "decides all people alike" in constant.notes[0]
    assert choose_mixture(path[:1], FNR) == constant


def test_a_mixture_of_two_beats_every_single_round():
    path = [moment(0.1, [0.3, 0.1]), moment(0.14, [0.1, 0.3]), moment(0.3, [0.2, 0.2])]
    choice = choose_mixture(path, FNR)
    gap = sum(w * (path[r - 1].rates.by_group[0] @ [1, -1]) for r, w in zip(choice.rounds, choice.weights, strict=True))
    assert abs(gap) <= 0.05 + 1e-9
    assert choice.rounds == (1, 2)
    assert choice.weights == pytest.approx((0.625, 0.375))


def test_an_infeasible_mixture_violates_least_and_says_so():
    path = [moment(0.1, [0.5, 0.1]), moment(0.2, [0.3, 0.1])]
    choice = choose_mixture(path, FNR)
    assert choice.rounds == (2,)
    assert "violates them least, by 0.15" in choice.notes[0]


def oracle(path, tolerance):
    """All vertices by brute force: every distribution over at most three rounds on a fine grid."""
    best = np.inf
    for trio in itertools.combinations(range(len(path)), 3):
        for a in np.linspace(0, 1, 41):
            for b in np.linspace(0, 1 - a, 41):
                weights = np.array([a, b, 1 - a - b])
                rates = sum(w * path[t].rates.by_group[0] for w, t in zip(weights, trio, strict=True))
                if rates.max() - rates.min() <= tolerance:
                    best = min(best, sum(w * path[t].error for w, t in zip(weights, trio, strict=True)))
    return best


@pytest.mark.long
@given(st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_the_mixture_is_at_least_as_good_as_any_on_a_grid_and_is_small(seed):
    rng = np.random.default_rng(seed)
    path = [moment(rng.random(), rng.random(2)) for _ in range(5)]
    choice = choose_mixture(path, FNR)
    assert len(choice.rounds) <= 3
    assert sum(choice.weights) == pytest.approx(1)
    best = oracle(path, 0.05)
    if np.isfinite(best):
        assert choice.notes == ()
        error = sum(w * path[r - 1].error for r, w in zip(choice.rounds, choice.weights, strict=True))
        assert error <= best + 1e-9


def test_last_is_one_model_and_all_are_drawn_alike():
    path = [moment(0.1, [0.1, 0.1])] * 4
    assert choose("last", path, FNR).rounds == (4,)
    every = choose("all", path, FNR)
    assert every.rounds == (1, 2, 3, 4)
    assert every.weights == (0.25,) * 4


def test_targets_enter_the_mixture():
    constraints = Constraints((), (), (("fpr", 0.1),))

    def with_rate(error, rate):
        found = Rates(np.empty((0, 2)), np.array([rate]))
        return Moment(error, error, found, constraints.worst(found), 0.0, constraints.worst(found), 0.3)

    choice = choose_mixture([with_rate(0.1, 0.2), with_rate(0.3, 0.0)], constraints)
    assert choice.weights == pytest.approx((0.5, 0.5))
