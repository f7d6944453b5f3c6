"""Scores on any scale: points, percent, P(bad), in columns of a table; a threshold in the score's own unit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import fairkit

ROWS = 3_000
RNG = np.random.default_rng(5)
P = RNG.beta(2, 4, ROWS)  # of default
DEFAULT = (RNG.random(ROWS) < P).astype(int)
TABLE = {
    "pd": P,
    "good": 1 - P,
    "percent": 100 * P,
    "points": 850 - 550 * P,
    "logit": np.log(P / (1 - P)),
    "decile": np.ceil(10 * P),
    "decision": np.where(P < 0.3, "APPROVE", "DECLINE").astype(object),
    "default": DEFAULT,
    "sex": RNG.choice(["f", "m"], ROWS).astype(object),
}
AREA = roc_auc_score(1 - DEFAULT, 1 - P)


def audited(kind=None, **roles):
    data = fairkit.load_data(TABLE, label="default", favorable=0, sensitive=["sex"])
    return fairkit.audit(fairkit.PredictedColumns(**roles), data, options=fairkit.ModelOptions(score_kind=kind))


def accuracy(taken):
    return (taken == (DEFAULT == 0)).mean()


@pytest.mark.parametrize(
    ("column", "threshold", "kind", "taken"),
    [
        ("points", 600, None, 850 - 550 * P >= 600),
        ("decile", 4, None, np.ceil(10 * P) <= 4),  # lower is better: found from the labels
        ("percent", 30, None, 100 * P < 30),
        ("percent", 30, "percent", 100 * P <= 30),
        ("percent", None, "percent", P < 0.5),
        ("pd", None, None, P < 0.5),
        ("pd", 0.2, None, P <= 0.2),
        ("logit", 0.2, "logit", P <= 0.2),
        ("good", 0.6, None, 1 - P >= 0.6),
    ],
)
def test_every_scale_ranks_and_decides_as_it_should(column, threshold, kind, taken):
    report = audited(kind=kind, score=column, threshold=threshold)
    assert report.find("accuracy").value == pytest.approx(accuracy(taken))
    rule = report.model.outputs["rule"]
    compared = eval(rule, {"exp": np.exp, **TABLE})  # the sentence is the comparison that ran
    assert np.mean(compared) == pytest.approx(report.find("selection_rate").value)
    area = AREA if column != "decile" else roc_auc_score(1 - DEFAULT, -np.ceil(10 * P))
    assert report.find("roc_auc").value == pytest.approx(area, abs=1e-9)
    probabilities = column in ("pd", "good") or kind in ("percent", "logit")
    losses = [one.value for one in report.findings if one.metric == "log_loss" and one.sensitive is None]
    if probabilities:
        assert losses == [pytest.approx(log_loss(1 - DEFAULT, 1 - P))]
    else:
        assert losses == []
        assert any("nothing that takes them for probabilities was measured: " in note for note in report.data.notes)


def test_a_direction_that_is_stated_wins():
    assert audited(score="pd", favorable="0").find("roc_auc").value == pytest.approx(AREA)
    upside_down = audited(score="pd", favorable="1")
    assert upside_down.find("roc_auc").value == pytest.approx(1 - AREA)
    assert any("rank the wrong way round" in text for text in upside_down.warnings)
    with pytest.raises(fairkit.ParameterError, match="write score=pd,favorable=0 where low scores are good"):
        audited(score="pd", favorable="no default")


def test_a_score_beside_a_decision_only_ranks():
    report = audited(decision="decision", score="points", favorable="APPROVE")
    assert report.find("accuracy").value == pytest.approx(accuracy(P < 0.3))
    assert report.find("roc_auc").value == pytest.approx(AREA, abs=1e-9)
    assert not [one for one in report.findings if "calibration" in one.metric or one.metric == "log_loss"]


def test_messages_say_what_to_write():
    with pytest.raises(fairkit.ModelError, match="give the `threshold` in the score's own unit"):
        audited(score="points")
    with pytest.raises(fairkit.ParameterError, match="threshold=600 is not a probability"):
        audited(score="pd", threshold=600)


def test_the_same_groups_differ_by_as_much_on_every_scale():
    one, other = audited(score="points", threshold=600), audited(score="pd", threshold=250 / 550)
    for metric in ("demographic_parity_difference", "statistical_parity_ks", "equal_opportunity_difference"):
        found = one.find(metric, "sex")
        assert found.value == pytest.approx(other.find(metric, "sex").value, abs=1e-9)
        assert found.interval == pytest.approx(other.find(metric, "sex").interval, abs=1e-9)
