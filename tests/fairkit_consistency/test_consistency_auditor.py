"""Consistency: dependent rows, and copies that are not scored again."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.data.hashing import BUCKETS
from fairkit.models.scorer import Predictions
from fairkit.results.report import ModelInfo
from fairkit_consistency import Flips, _change_interval, _share_interval
from fairkit_dependent import bucket_sums


def flips(rng, people=80, rows=10):
    """Each person's decisions change nearly all or nearly never with the sex; the truth is .6 and .2."""
    person = np.repeat(np.arange(people), rows)
    chance = rng.beta(1.2, 0.8, people)[person]
    same = (rng.random(people * rows) < chance).astype(float)
    change = 0.5 * (1 - same)
    one = np.ones(len(same))
    sums = np.array([one.sum(), same.sum(), change.sum()])
    squares = np.array([one.sum(), same.sum(), same.sum(), change.sum(), (change**2).sum()])
    return sums, squares, bucket_sums(rng.permutation(BUCKETS)[person], one, same, change)


def test_intervals_cover_with_clusters_and_do_not_without():
    rng = np.random.default_rng(0)
    hits = np.zeros(3)
    for _ in range(300):
        sums, squares, buckets = flips(rng)
        with_, without = (Flips(int(sums[0]), sums, squares, True, (), each) for each in (buckets, None))
        ends = _share_interval(with_, 0.95), _change_interval(with_, 1.0, 0.95), _share_interval(without, 0.95)
        hits += [low <= truth <= high for (low, high), truth in zip(ends, (0.6, 0.2, 0.6), strict=True)]
    assert min(hits[:2]) >= 0.93 * 300
    assert hits[2] < 0.8 * 300


class Model:
    task = "binary"
    columns = ("sex", "income")
    classes = ()
    info = ModelInfo(name="model", sha256=None, task="binary", notes=())

    def bind(self, dataset, options):
        return self

    def predict(self, columns):
        score = np.clip(0.5 + 0.1 * (columns["sex"] == "m") + 0.3 * columns["income"].astype(float), 0, 1)
        return Predictions(score=score, decision=(score >= 0.5).astype(float))


@pytest.mark.parametrize("people", [100, 20])
def test_an_audit_with_clusters_widens_and_few_of_them_give_no_verdict(people):
    rng = np.random.default_rng(1)
    table = {
        "sex": rng.choice(np.array(["f", "m"], dtype=object), 1_000),
        "income": np.repeat(rng.normal(size=people), 1_000 // people),
        "person": np.repeat(np.arange(people), 1_000 // people).astype(str),
        "paid": rng.choice(np.array(["yes", "no"], dtype=object), 1_000),
    }
    rule = fairkit.Rule(metric="consistency", sensitive="sex", min=0.1)
    wide, narrow = (
        fairkit.audit(
            Model(),
            fairkit.load_data(table, label="paid", favorable="yes", sensitive=["sex"], **roles),
            auditors=["consistency"],
            policy=[rule],
        )
        for roles in ({"cluster": "person"}, {})
    )
    one, other = (report.find("consistency", "sex") for report in (wide, narrow))
    assert one.value == other.value
    assert np.ptp(one.interval) > 2 * np.ptp(other.interval)
    assert (wide.verdict, narrow.verdict) == ("pass" if people == 100 else "inconclusive", "pass")


# Rows that have the values of a copy already are not scored again, and the findings are those of scoring all.
class Counting:
    """A model that notes how many rows it is asked."""

    task = "binary"
    columns = ("sex", "race", "income")
    classes = ()
    info = ModelInfo(name="counting", sha256=None, task="binary", notes=())

    def __init__(self):
        self.asked = 0

    def bind(self, dataset, options):
        return self

    def predict(self, columns):
        self.asked += len(columns["sex"])
        score = 0.5 + 0.2 * (columns["sex"] == "m") - 0.1 * (columns["race"] == "b") + 0.2 * columns["income"]
        score = np.clip(score.astype(float), 0.0, 1.0)
        return Predictions(score=score, decision=(score >= 0.5).astype(float))


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    table = {
        "sex": rng.choice(np.array(["f", "m"], dtype=object), 200),
        "race": rng.choice(np.array(["a", "b", "c"], dtype=object), 200),
        "income": rng.normal(size=200),
    }
    table["paid"] = np.where(table["income"] > 0, "yes", "no").astype(object)
    return table


def audited(people, flip):
    model = Counting()
    data = fairkit.load_data(people, label="paid", favorable="yes", sensitive=["sex", "race"])
    report = fairkit.audit(model, data, auditors=["consistency"], parameters={"consistency": {"sensitive": flip}})
    return report, model


@pytest.mark.parametrize(("flip", "copies"), [("sex", 1), ("race", 2), ("sex+race", 5)])
def test_each_row_is_scored_once_for_every_other_value(people, flip, copies):
    _, model = audited(people, [flip])
    assert model.asked == 200 * (1 + copies)


def test_the_findings_are_those_of_all_copies(people):
    report, model = audited(people, ["sex+race"])
    scores = np.stack(
        [
            model.predict({**people, "sex": np.full(200, sex, object), "race": np.full(200, race, object)}).score
            for sex in "fm"
            for race in "abc"
        ]
    )
    same = np.ptp((scores >= 0.5).astype(float), axis=0) == 0
    assert report.find("consistency", "sex+race").value == pytest.approx(same.mean(), abs=1e-12)
    own = model.predict(people).score
    expected = np.abs(scores - own).mean()
    assert report.find("counterfactual_score_change", "sex+race").value == pytest.approx(expected, abs=1e-12)
