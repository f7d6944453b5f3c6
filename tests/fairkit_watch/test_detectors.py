"""Detectors of recent change, what carries it, and outcomes that are known late."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairkit import ParameterError
from fairkit_watch.alarms import gap_change
from fairkit_watch.detectors import EXCESSES, Detector, batches, contrast_increments, contrasts, locate, rate_increments
from fairkit_watch.judging import LEANING


def test_increments_are_those_of_the_paper():
    found = rate_increments(np.array([130.0]), np.array([1000.0]), 0.1)[0]
    for d, value in zip(EXCESSES, found, strict=True):
        grid = math.log((0.1 + d) * 0.9 / (0.1 * (0.9 - d)))
        assert value == pytest.approx(130 * grid - 1000 * math.log(1 + 0.1 * (math.exp(grid) - 1)))
        assert value == pytest.approx(130 * math.log((0.1 + d) / 0.1) + 870 * math.log((0.9 - d) / 0.9))


def run(increments, length):
    """Batches until the alarm; one more than there are where there is none."""
    detector = Detector(np.ones(increments.shape[1]) / increments.shape[1], length)
    for t, step in enumerate(increments):
        if detector.step(step) >= length:
            return t + 1
    return len(increments) + 1


def test_the_mean_run_length_keeps_its_promise():
    rng = np.random.default_rng(0)
    counted = rng.binomial(1000, 0.1, (150, 400)).astype(float)
    steps = rate_increments(counted, np.full(counted.shape, 1000.0), 0.1)
    assert np.mean([run(one[:, None], 100) for one in steps]) >= 100


@pytest.mark.parametrize(("rate", "most"), [(0.11, 13), (0.12, 5), (0.15, 2)])
def test_the_delay_is_that_of_the_table(rate, most):
    rng = np.random.default_rng(1)
    counted = rng.binomial(1000, rate, (60, 60)).astype(float)
    steps = rate_increments(counted, np.full(counted.shape, 1000.0), 0.1)
    assert np.median([run(one[:, None], 1000) for one in steps]) <= most


def drawn(rng, days, a, b, rates):
    n = np.full(days, float(a)), np.full(days, float(b))
    return [(rng.binomial(m.astype(int), p).astype(float), m) for m, p in zip(n, rates, strict=True)]


@pytest.mark.parametrize(("gap", "least", "most"), [(0.05, 150, 1000), (0.07, 1, 30), (0.10, 1, 8), (0.15, 1, 3)])
def test_differences_at_the_limit_are_silent_and_beyond_it_are_found(gap, least, most):
    rng = np.random.default_rng(2)
    found = []
    for _ in range(30):
        high, low = drawn(rng, 200, 700, 300, (0.2 + gap, 0.2))
        value, information = contrasts(high, low, 1.0, (0.5, 0.5))
        back, weight = contrasts(low, high, 1.0, (0.5, 0.5))
        steps = np.stack(
            [contrast_increments(value, information, 0.05), contrast_increments(back, weight, 0.05)], axis=1
        )
        found.append(run(steps, 1000))
    assert least <= np.median(found) <= most


def test_small_days_are_taken_together_and_the_last_ones_wait():
    ones = np.array([60.0, 60, 200, 40, 40, 40, 10])
    np.testing.assert_array_equal(batches(ones, ones), [0, 0, 1, 2, 2, 2, -1])
    value, information = contrasts((ones * 0.5, ones), (ones * 0.25, ones), 1.0, (0.5, 0.5))
    np.testing.assert_array_equal(np.isfinite(value), [False, True, True, False, False, True, False])
    assert (information[~np.isfinite(value)] == 0).all()
    np.testing.assert_allclose(value[np.isfinite(value)], 0.25)


def test_a_batch_does_not_choose_its_own_weight():
    n = np.full(5, 500.0)
    counted = np.full(5, 100.0)
    other = counted.copy()
    other[3] = 400
    first, second = (contrasts((c, n), (counted, n), 1.0, (0.2, 0.2))[1] for c in (counted, other))
    np.testing.assert_array_equal(first[:4], second[:4])
    assert first[4] != second[4]


def test_the_place_of_a_change_is_in_its_range():
    rng = np.random.default_rng(4)
    inside, near = 0, 0
    for _ in range(200):
        value = np.where(np.arange(80) <= 49, 0.0, 1.0) + rng.standard_normal(80)
        best, first, last = locate(value, np.ones(80))
        assert first <= best <= last
        inside += first <= 49 <= last
        near += abs(best - 49) <= 5
    assert inside >= 180
    assert near >= 150


def test_two_days_are_enough_and_none_are_no_error():
    assert locate(np.array([0.0, 5.0]), np.array([1.0, 1.0]))[0] == 0
    assert locate(np.array([np.nan, 1.0]), np.array([0.0, 1.0])) == (1, -1, 1)


# What carries a change of the gap between two periods.
def counts(rows, pi, t, f):
    return rows * np.array([(1 - pi) * (1 - f), (1 - pi) * f, pi * (1 - t), pi * t])


def test_a_change_of_one_groups_true_positive_rate_is_carried_by_it():
    before = np.stack([counts(4_000, 0.4, 0.8, 0.1), counts(3_000, 0.4, 0.8, 0.1)])
    since = np.stack([counts(2_000, 0.4, 0.8, 0.1), counts(1_500, 0.4, 0.5, 0.1)])
    found = gap_change(("men", "women"), before, since)
    assert found is not None
    told = found.evidence
    assert (told["higher"], told["lower"]) == ("men", "women")
    assert told["gap_change"] == pytest.approx(0.12)
    assert told["true_positive_rate_part"] == pytest.approx(0.12)
    assert told["base_rate_part"] == pytest.approx(0.0, abs=1e-12)
    assert told["true_positive_rate_part_low"] < 0.12 < told["true_positive_rate_part_high"]
    assert "true positive rates carry +0.120" in found.sentence


def test_nothing_is_said_where_outcomes_are_not_known():
    some, none = np.stack([counts(400, 0.4, 0.8, 0.1)] * 2), np.zeros((2, 4))
    assert gap_change(("men", "women"), none, some) is None
    assert gap_change(("men", "women"), some, some / 10) is None


def test_intervals_of_changes_cover():
    rng, hits = np.random.default_rng(0), []
    for _ in range(300):
        drawn = [
            np.stack([rng.multinomial(n, counts(1, *rates)) for n, rates in ((500, (0.4, 0.8, 0.1)), (300, women))])
            for women in ((0.3, 0.8, 0.1), (0.3, 0.5, 0.1))
        ]
        before, since = (one.astype(float) for one in drawn)
        told = gap_change(("men", "women"), before, since).evidence
        hits.append(told["true_positive_rate_part_low"] <= 0.105 <= told["true_positive_rate_part_high"])
    assert np.mean(hits) > 0.92


# Outcomes of some decisions, looked up late: a sample drawn at random narrows, one that leans is refused.
LATE = {"label": "outcome", "id": "id", "horizon": 2}
TPR = ("true_positive_rate=0.1", "min")


def watched(watch, decisions, day, chance, days=5):
    """Look up outcomes with the chance of each decision; return the true positive rate of all decisions."""
    rng = np.random.default_rng(0)
    tables = [decisions(t, rows=1_000) for t in range(days)]
    for t, table in enumerate(tables):
        watch.add({k: v for k, v in table.items() if k != "outcome"}, day=day(t))
        known = rng.random(1_000) < np.where(np.array(table["decision"]) == 1, *chance)
        watch.label({name: np.array(table[name])[known] for name in ("id", "outcome")})
    watch.add(decisions(days + 4), day=day(days + 4))
    yes, good = (np.concatenate([np.array(table[name]) for table in tables]) for name in ("decision", "outcome"))
    return yes[good == 1].mean(), watch.look()


def test_a_random_sample_of_outcomes_is_enough(begun, decisions, day):
    with begun("watch", TPR, labelled="random", **LATE) as watch, begun("other", TPR, **LATE) as other:
        truth, look = watched(watch, decisions, day, (0.3, 0.3))
        rule, bare = look.rules[0], watched(other, decisions, day, (0.3, 0.3))[1].rules[0]
        assert rule.interval[0] < truth < rule.interval[1]
        assert np.ptp(rule.interval) < 0.3 * np.ptp(bare.interval)
        assert (rule.verdict, bare.verdict) == ("pass", "undecided")
        assert rule.unresolved == 0
        assert any("drawn at random by whoever looked them up" in note for note in look.notes)


def test_labels_that_lean_to_a_decision_get_no_verdict(begun, decisions, day):
    with begun("watch", TPR, labelled="random", **LATE) as watch:
        rule = watched(watch, decisions, day, (0.5, 0.1))[1].rules[0]
        assert (rule.verdict, rule.reason) == ("undecided", LEANING.format(metric="true_positive_rate"))


@pytest.mark.parametrize("more", [{"labelled": "some"}, {"labelled": "random", "selective": True}])
def test_what_is_no_design_is_refused(begun, more):
    with pytest.raises(ParameterError, match="drawn at random"), begun("watch", TPR, **LATE, **more):
        pass
