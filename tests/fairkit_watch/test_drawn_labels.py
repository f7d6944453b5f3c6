"""Outcomes of some decisions, looked up late: a sample drawn at random narrows, one that leans is refused."""

import numpy as np
import pytest

from fairkit import ParameterError
from fairkit_watch.judging import LEANING

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
