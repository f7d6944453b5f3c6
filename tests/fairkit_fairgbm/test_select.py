from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairkit_fairgbm.constraints import Constraints, Rates
from fairkit_fairgbm.parameters import choose, choose_best, choose_mixture
from fairkit_fairgbm.trainer import Moment

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


def test_last_and_all():
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
