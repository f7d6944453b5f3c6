"""Rows that have the values of a copy already are not scored again, and the findings are those of scoring all."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.models.scorer import Predictions
from fairkit.results.report import ModelInfo


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
