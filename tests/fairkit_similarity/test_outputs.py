"""d_Y: one definition for networks with one logit, two or more, for numbers, and for files that show probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_similarity.networks import centred_logits, squared_difference


def logits(n=40, classes=3, seed=0):
    return np.random.default_rng(seed).normal(size=(2, n, classes)) * 3


def audited(here, there):
    """What the auditor's solver makes of the columns that it is given."""
    return ((centred_logits(there) - centred_logits(here)) ** 2).mean(axis=1)


@pytest.mark.parametrize("classes", [1, 2, 3, 7])
def test_training_and_audit_mean_the_same(classes):
    here, there = logits(classes=classes)
    assert squared_difference(there - here, logits=True)[0] == pytest.approx(audited(here, there))


def test_antisymmetric_logits_have_the_papers_value_a_quarter_of_the_log_odds():
    log_odds = np.array([[-4.0], [3.2595]])
    both = np.hstack([-log_odds / 2, log_odds / 2])
    papers = ((both[1] - both[0]) ** 2).mean()
    assert (log_odds[1, 0] - log_odds[0, 0]) ** 2 == pytest.approx(52.7, abs=0.01)
    assert papers == pytest.approx(13.175, abs=0.01)
    for shown in (both, log_odds):
        assert audited(shown[:1], shown[1:])[0] == pytest.approx(papers)


def test_logits_of_mean_0_have_the_papers_value_and_a_shift_changes_nothing():
    here, there = (one - one.mean(axis=1, keepdims=True) for one in logits())
    papers = ((there - here) ** 2).mean(axis=1)
    shift = np.random.default_rng(1).normal(size=(40, 1)) * 10
    assert audited(here + shift, there) == pytest.approx(papers)
    assert squared_difference(there - here - shift, logits=True)[0] == pytest.approx(papers)


def test_numbers_are_compared_as_they_are():
    gap = np.array([[3.0], [-1.0]])
    value, slope = squared_difference(gap, logits=False)
    assert value.tolist() == [9.0, 1.0]
    assert slope.tolist() == [[6.0], [-2.0]]


@pytest.mark.parametrize(("classes", "of_logits"), [(1, True), (2, True), (3, True), (3, False), (1, False)])
def test_slopes_are_those_of_finite_differences(classes, of_logits):
    gap, up = logits(n=5, classes=classes)
    step = 1e-6
    ends = [squared_difference(gap + sign * step * up, logits=of_logits)[0] for sign in (1, -1)]
    slope = squared_difference(gap, logits=of_logits)[1]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx((slope * up).sum(axis=1), rel=1e-5, abs=1e-7)


def test_tensors_and_arrays_agree():
    torch = pytest.importorskip("torch")
    for classes in (1, 2, 3):
        here, there = logits(classes=classes)
        assert centred_logits(torch.from_numpy(here)).numpy() == pytest.approx(centred_logits(here))
        for one, other in zip(
            squared_difference(torch.from_numpy(there - here), logits=True),
            squared_difference(there - here, logits=True),
            strict=True,
        ):
            assert one.numpy() == pytest.approx(other)
