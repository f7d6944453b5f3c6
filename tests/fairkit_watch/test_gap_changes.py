"""What carries a change of the gap between two periods."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit_watch.alarms import gap_change


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
