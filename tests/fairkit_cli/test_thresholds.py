"""Thresholds: in the score's own unit, one for each model of a comparison, and none over a repaired file's rule."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import helper
from tests.commands import invoke
from tests.exports import model_of

import fairkit

ROWS = 2_000
RNG = np.random.default_rng(4)
SEX = RNG.choice(["f", "m"], ROWS).astype(object)
LOGIT = (RNG.normal(-1, 1, ROWS) + 0.5 * (SEX == "f")).astype(np.float32)
PD = 1 / (1 + np.exp(-LOGIT))
TABLE = {"x": LOGIT, "sex": SEX, "default": (RNG.random(ROWS) < PD).astype(int), "pd": PD, "vendor": 1 - PD**1.1}
ROLES = {"label": "default", "favorable": 0, "sensitive": ["sex"]}
ABOUT = ("--data", "rows.parquet", "--label", "default", "--favorable", "0", "--sensitive", "sex", "--features", "x")


def base(link="Sigmoid"):
    return model_of([helper.make_node(link, ["x"], ["pd"])], {"pd": 1}, {}, inputs={"x": (1, 1)})


@pytest.fixture(scope="module")
def repaired():
    data = fairkit.load_data(TABLE, **ROLES, features=["x"])
    return fairkit.mitigate("threshold-optimizer", data, model=base(), threshold=0.2, constraint="demographic_parity")


@pytest.fixture
def run(tmp_path, monkeypatch, repaired):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(TABLE), "rows.parquet")
    (tmp_path / "base.onnx").write_bytes(base().SerializeToString())
    (tmp_path / "fair.onnx").write_bytes(repaired.onnx)
    return invoke


def rates(result):
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    (rate,) = [one for one in record["changes"][0] if one["metric"] == "selection_rate" and one["sensitive"] is None]
    return (rate["before"], rate["after"]), record


@pytest.mark.parametrize(
    ("link", "rule"), [("Sigmoid", "pd <= 0.2"), ("Identity", "1 / (1 + exp(-pd)) <= 0.2")], ids=["pd", "logit"]
)
def test_a_pd_is_cut_in_its_own_unit_and_the_sentence_is_the_comparison(link, rule):
    data = fairkit.load_data(TABLE, **ROLES, features=["x"])
    report = fairkit.audit(base(link), data, threshold=0.2)
    assert report.find("selection_rate").value == pytest.approx((PD <= 0.2).mean())
    assert report.model.outputs["rule"] == rule
    assert f"Decisions are made from scores: favorable where {rule}." in report.model.notes


def test_a_repair_keeps_the_rate_of_the_pd_s_threshold(repaired):
    assert repaired.before.find("selection_rate").value == pytest.approx((PD <= 0.2).mean(), abs=0.07)
    rates = [one.find("selection_rate").value for one in (repaired.before, repaired.after)]
    assert rates[0] == pytest.approx(rates[1], abs=0.04)


def test_a_repaired_file_keeps_its_rule_beside_its_base(run, repaired):
    typed = ("compare", "base.onnx", "fair.onnx", *ABOUT, "--format", "json", "--threshold")
    (before, after), record = rates(run(*typed, 0.2))
    assert before == pytest.approx((PD <= 0.2).mean())
    alone = fairkit.audit("fair.onnx", fairkit.load_data("rows.parquet", **ROLES))
    assert not any("decides otherwise" in text for text in alone.warnings)  # its rule is no mistake
    assert after == pytest.approx(alone.find("selection_rate").value)
    gap = next(one for one in record["changes"][0] if one["metric"] == "demographic_parity_difference")
    assert gap["after"] < gap["before"] - 0.05  # it is not the base again
    assert any("keeps its own rule" in note or "decides by its own rule" in note for note in record["notes"])
    refused = run(*typed, "fair.onnx=0.3")
    assert refused.exit_code == 2
    assert "fair.onnx is a repaired file and keeps its own rule" in " ".join(refused.stderr.split())


def test_each_subject_has_its_own_threshold(run):
    typed = ("compare", "base.onnx", "--predictions", "score=vendor", *ABOUT, "--format", "json")
    own = ("--threshold", "base.onnx=0.2", "--threshold", "score=vendor=0.7")
    assert rates(run(*typed, *own))[0] == pytest.approx([(PD <= 0.2).mean(), (1 - PD**1.1 >= 0.7).mean()])
    both = fairkit.compare(
        [base(), fairkit.PredictedColumns(score="vendor")],
        fairkit.load_data(TABLE, **ROLES, features=["x"]),
        threshold=[0.2, 0.7],
    )
    change = next(one for one in both.changes[0] if one.metric == "selection_rate" and one.sensitive is None)
    assert (change.before, change.after) == pytest.approx(((PD <= 0.2).mean(), (1 - PD**1.1 >= 0.7).mean()))
    for text, words in (("other.onnx=0.2", "names none of the models"), ("base.onnx=high", "does not end in a number")):
        refused = run(*typed, "--threshold", text)
        assert refused.exit_code == 2
        assert words in " ".join(refused.stderr.split())


def test_a_threshold_that_nothing_reads_is_refused():
    class Plain:
        classes_ = (0, 1)

        def predict(self, rows):
            return (np.asarray(rows)[:, 0] > 0).astype(int)

    data = fairkit.load_data(TABLE, **ROLES, features=["x"])
    with pytest.raises(fairkit.ParameterError, match="the object gives no probabilities"):
        fairkit.audit(Plain(), data, threshold=0.2)
    with pytest.raises(fairkit.ParameterError, match="1 values of `options` or `threshold` for 2 models"):
        fairkit.compare([base(), base()], data, threshold=[0.2])
