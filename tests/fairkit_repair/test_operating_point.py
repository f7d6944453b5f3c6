"""The operating point: a repair keeps what a model's cutoff decided, says what happens to people, and reads one aim."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper
from tests.exports import model_of

import fairkit
from fairkit.data.table import Table
from fairkit.errors import ParameterError, PolicyError
from fairkit.mitigators import Run
from fairkit.objective import Objective
from fairkit_datasets.loans import loans_table
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.graph import embedded_settings, parse
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.learned import sensitive_inputs

ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"], "drop": ["would_repay"]}
PARITY = fairkit.Rule("demographic_parity_difference", "sex", max=0.1)


def loans(rows, seed):
    return fairkit.load_data(loans_table(rows, seed=seed), **ROLES)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    table = Table.from_dataset(loans(2_000, 7))
    path = tmp_path_factory.mktemp("model") / "base.onnx"
    path.write_bytes(export_bytes(fit_learner("logistic", table, Run()), table))
    return path


@pytest.fixture(scope="module", autouse=True)
def own_looks(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("looks")))
        yield


@pytest.fixture(scope="module")
def rows():
    return loans(4_000, 1), loans(4_000, 2)


@pytest.fixture(scope="module")
def repaired(model, rows):
    """Repair the model by the cheapest way that keeps a rate."""
    way = {"threshold-optimizer": {"constraint": "demographic_parity", "randomized": False}}
    fixed = {"threads": 1, "methods": ["threshold-optimizer"], "parameters": way}

    def run(rules=(PARITY,), **more):
        return fairkit.repair(rows[0], rules, test=rows[1], model=model, **fixed | more)

    return run


@pytest.fixture(scope="module")
def kept(repaired):
    return repaired(threshold=0.8)


def test_a_cutoff_stays_and_people_are_counted_as_the_audits_count_them(kept):
    before, after = (one.find("selection_rate").value for one in (kept.before, kept.after))
    assert kept.after.verdict == "pass"
    assert abs(after - before) < 0.015
    people = kept.people
    assert people.approved.before == pytest.approx(before, abs=1e-9)
    assert people.approved.after == pytest.approx(after, abs=1e-6)
    bad = [one.find("false_positive_rate").value for one in (kept.before, kept.after)]
    assert [people.approved_bad.before, people.approved_bad.after] == pytest.approx(bad, abs=1e-6)
    moved = sum(one.to_favorable + one.to_unfavorable for one in people.moves)
    assert moved / people.rows == pytest.approx(people.changed, abs=1e-9)
    assert people.objective.kind == "rate"
    assert people.objective.before == pytest.approx(kept.before.find("precision").value, abs=1e-9)
    assert kept.search.alternatives[0].method == "unconstrained"  # the model as it is
    assert kept.to_dict()["people"]["approved"]["before"] == people.approved.before


def test_the_first_lines_and_the_file_say_what_happens_to_people_and_that_the_group_is_read(kept):
    from fairkit_cli.pages.mitigation import people_notes
    from fairkit_repair.mitigation.learned import decisions_told

    told = " ".join(str(note.content) for note in people_notes(kept))
    assert f"{1000 * kept.people.approved.before:.0f} of 1,000 people before" in told
    assert "get another answer" in told
    assert "GROUP-SPECIFIC: it reads sex" in decisions_told(kept.randomized, kept.reads)
    made = embedded_settings(parse(kept.onnx, "x"))["mitigation"]
    assert made["objective"] == "rate"
    assert made["decides_by"] == ["sex"]


@pytest.mark.long
def test_a_policy_on_the_rate_itself_is_met_by_one_threshold(repaired):
    plain = repaired(threshold=0.5).before.find("selection_rate").value
    rules = [fairkit.Rule("selection_rate", max=round(plain + 0.15, 2)), fairkit.Rule("false_positive_rate", max=0.6)]
    assert repaired(rules, threshold=0.5, parameters={}).after.verdict == "pass"


@pytest.mark.long
@pytest.mark.parametrize("text", ["cost=3:1", "balanced_accuracy"])
def test_other_objectives_are_made_best(repaired, text):
    result = repaired(objective=text)
    assert result.people.objective.kind == text
    # nothing that keeps the policy is predicted to be better
    sure = [one for one in result.search.measured if one.status != "left out" and one.chance >= 0.95]
    assert result.search.choice.accuracy == max(one.accuracy for one in sure)


@pytest.mark.long
def test_a_blind_repair_of_a_model_that_reads_the_group_keeps_its_rate_and_shows_the_price(repaired):
    result = repaired(threshold=0.8, blind=True, methods=["reweigh"], parameters={}, learner="logistic", anyway=True)
    assert result.search.alternatives[0].reason == "it reads the group to decide: sex"
    assert result.plugin == "reweigh"
    assert result.reads == ()
    assert abs(result.people.approved.after - result.people.approved.before) < 0.03
    assert result.people.objective.interval[0] < result.people.objective.difference


@pytest.mark.parametrize("features", [["sex", "x"], ["x"]])
def test_a_matrix_reads_the_group_where_it_is_a_feature(features):
    data = fairkit.load_data(
        {"x": [0.0, 1, 0, 1], "sex": [0, 0, 1, 1], "y": [0, 1, 0, 1]}, label="y", favorable=1, sensitive="sex",
        features=features,
    )  # fmt: skip
    sums = helper.make_node("ReduceMean", ["rows"], ["p"], axes=[1], keepdims=1)
    model = OnnxModel.load(model_of([sums], {"p": 1}, {}, inputs={"rows": (1, len(features))}))
    assert sensitive_inputs(model, Table.from_dataset(data)) == (("sex",) if "sex" in features else ())


@pytest.mark.long
def test_values_are_no_feature_and_their_sum_is_made_best():
    frame = loans_table(6_000, seed=1).to_pandas()
    frame["profit"] = np.where(frame["decision"] == "approved", 1.0, -3.0)
    data = fairkit.load_data(frame, **ROLES)
    result = fairkit.repair(data, [PARITY], value="profit", learner="logistic", threads=1, anyway=True,
                            methods=["threshold-optimizer"])  # fmt: skip
    assert "profit" not in json.dumps(embedded_settings(parse(result.onnx, "x")).get("features", []))
    assert result.people.objective.kind == "value=profit"
    # a false approval costs three times: fewer are approved than at the cutoff of accuracy
    assert result.people.approved.before < 0.9 * np.mean(frame["decision"] == "approved")


def test_what_an_objective_cannot_be_is_refused():
    for text, value in (("profit", None), ("rate=3", None), ("cost=-1:2", None), ("value", None), ("rate", "profit")):
        with pytest.raises(ParameterError):
            Objective.parse(text, value)
    with pytest.raises(ParameterError, match="no cutoff"):
        Objective.parse("cost").on(np.array([1.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.7]), np.ones(3))
    implied = Objective.parse("cost").on(np.array([0.0, 1.0]), np.array([0.75, 0.85]), np.ones(2))
    assert implied.costs == pytest.approx((0.8, 0.2))


def test_a_largest_ratio_and_a_smallest_difference_are_refused_with_the_other_option():
    with pytest.raises(PolicyError, match=r"from below, as in `min=demographic_parity_ratio:sex=0\.8`"):
        fairkit.Rule("demographic_parity_ratio", "sex", max=0.8)
    with pytest.raises(PolicyError, match=r"from above, as in `max=demographic_parity_difference=0\.1`"):
        fairkit.Rule.parse("demographic_parity_difference=0.1", "min")
