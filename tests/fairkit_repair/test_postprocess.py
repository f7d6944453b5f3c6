"""Post-processing of model files: what the base must give, what comes out, what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit.parameters import parameter
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.write.export import check_parity, export
from fairkit_onnx.write.rules import Piece
from fairkit_repair.mitigation.run import mitigate
from fairkit_repair.postprocess import RULE_KEY, PostParameters, PostProcessor, Solution
from fairkit_repair.scored_rows import ScoredRows

ROWS = 600


class Ramps(PostProcessor):
    """A fixed ramp for every group; keeps what it was given."""

    name = "ramps"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PostParameters):
        width: float = parameter(0.3, help="Of the ramp.")

    def solve(self, rows, validation, run):
        self.seen = rows, validation
        pieces = tuple((Piece(0.2 + 0.1 * k, self.parameters.width),) for k in range(len(rows.names) + 1))
        return Solution(pieces=pieces, details={"mine": 1}, notes=("A note.",))


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, ROWS)
    x0, x1 = rng.normal(size=(2, ROWS)).astype(np.float32)
    good = x0 + 0.5 * sex + rng.normal(size=ROWS) > 0
    return {
        "x0": x0.astype(float),
        "x1": x1.astype(float),
        "SEX": sex + 1,
        "sex": np.array(["F", "M"], dtype=object)[sex],
        "age": rng.integers(18, 80, ROWS).astype(float),
        "outcome": np.array(["refused", "granted"], dtype=object)[good.astype(int)],
    }


def table_of(frame, sensitive="sex", features=("x0", "x1"), **roles) -> Table:
    data = fairkit.load_data(
        frame, label="outcome", favorable="granted", sensitive=sensitive, features=features, **roles
    )
    return Table.from_dataset(data)


def graph(nodes, inputs, outputs, initializers=()):
    """A model by hand; inputs and outputs are (name, width) or (name, width, type)."""

    def info(name, width, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, [None, width])

    built = helper.make_graph(
        nodes, "hand", [info(*one) for one in inputs], [info(*one) for one in outputs], initializer=list(initializers)
    )
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def linear(out="probability", link="Sigmoid", width=2, scale=1.0):
    weights = numpy_helper.from_array(np.full((width, 1), scale, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["X", "w"], ["margin"]), helper.make_node(link, ["margin"], [out])]
    return graph(nodes, [("X", width)], [(out, 1)], [weights])


def load(model) -> OnnxModel:
    return OnnxModel.load(model)


def fit(model, table, validation=None, **values):
    return Ramps.with_values(values).fit(table, Run(), validation=validation, model=load(model))


def scores_of(frame):
    margin = (frame["x0"].astype(np.float32) + frame["x1"].astype(np.float32)).astype(float)
    return 1 / (1 + np.exp(-margin))


def test_the_file_gives_what_the_model_in_memory_gives(frame):
    table = table_of(frame)
    fitted = fit(linear(), table)
    prediction = fitted.predict(table.columns)
    np.testing.assert_allclose(prediction.score, scores_of(frame), atol=1e-6)
    h = np.clip((prediction.score - np.where(frame["sex"] == "F", 0.2, 0.3)) / 0.3, 0, 1)
    np.testing.assert_allclose(prediction.decision_probability, h, atol=1e-6)
    proto = export(fitted, table)
    assert check_parity(proto, fitted, table.columns, tolerance=1e-6) <= 1e-6
    assert [entry.name for entry in proto.graph.input] == ["X", "sex", "u"]
    # the base's own output is left out: whoever went on reading it would serve what the rule has not repaired
    assert [entry.name for entry in proto.graph.output] == ["score", "decision_probability", "decision"]
    described = json.loads({entry.key: entry.value for entry in proto.metadata_props}[RULE_KEY])
    assert [row["group"] for row in described["groups"]] == ["F", "M", "(any other value)"]
    assert "pooled" in described["unseen"]
    assert fitted.details["mine"] == 1
    assert len(fitted.details["base_model"]) == 64
    assert "A note." in fitted.notes


def test_an_audit_reads_the_repaired_file_exactly(frame, tmp_path):
    table = table_of(frame)
    fitted = fit(linear(), table)
    path = tmp_path / "fair.onnx"
    path.write_bytes(export(fitted, table).SerializeToString())
    data = fairkit.load_data(frame, label="outcome", favorable="granted", sensitive="sex")
    report = fairkit.audit(path, data)
    h = fitted.predict(table.columns).decision_probability
    gap = abs(h[frame["sex"] == "F"].mean() - h[frame["sex"] == "M"].mean())
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(gap, abs=1e-9)


def test_a_matrix_with_the_sensitive_column_in_it_beside_its_own_input(frame, tmp_path):
    table = table_of(frame, "SEX", ("x0", "SEX", "x1"))
    fitted = fit(linear(width=3), table)
    proto = export(fitted, table)
    assert [entry.name for entry in proto.graph.input] == ["X", "SEX", "u"]
    path = tmp_path / "fair.onnx"
    path.write_bytes(proto.SerializeToString())
    data = fairkit.load_data(frame, label="outcome", favorable="granted", sensitive="SEX")
    value = fairkit.audit(path, data).find("selection_rate").value
    assert value == pytest.approx(fitted.predict(table.columns).decision_probability.mean(), abs=1e-9)


def test_columns_as_inputs_under_converted_names(frame):
    renamed = {"x-0": frame["x0"], "sex+": frame["sex"], "outcome": frame["outcome"]}
    table = table_of(renamed, "sex+", ("x-0",))
    nodes = [helper.make_node("Sigmoid", ["x_0"], ["p"]), helper.make_node("Identity", ["sex_"], ["echo"])]
    base = graph(nodes, [("x_0", 1), ("sex_", 1, TensorProto.STRING)], [("p", 1), ("echo", 1, TensorProto.STRING)])
    fitted = Ramps.with_values({"score_output": "p"}).fit(table, Run(), model=load(base))
    proto = export(fitted, table)
    assert [entry.name for entry in proto.graph.input] == ["x_0", "sex_", "u"]


def test_a_fixed_batch_of_one_row(frame):
    base = linear()
    for entry in [*base.graph.input, *base.graph.output]:
        entry.type.tensor_type.shape.dim[0].dim_value = 1
    small = {name: values[:80] for name, values in frame.items()}
    table = table_of(small)
    export(fit(base, table), table)


def test_shapes_that_converters_leave_open_are_stated(frame):
    base = linear()
    base.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    base.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    proto = fit(base, table_of(frame)).to_onnx()
    assert proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 2
    assert not proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value


def test_tensors_beside_the_file_come_into_it(frame, tmp_path):
    path = tmp_path / "base.onnx"
    onnx.save(linear(), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    table = table_of(frame)
    fitted = fit(path, table)
    proto = export(fitted, table)
    assert all(not tensor.external_data for tensor in proto.graph.initializer)
    (tmp_path / "weights.bin").unlink()
    check_parity(proto, fit(linear(), table), table.columns)


def test_logits_are_read_as_an_audit_reads_them(frame):
    base = linear(out="logit", link="Identity")
    for said in ({}, {"score_kind": "logit"}):
        fitted = fit(base, table_of(frame), **said)
        np.testing.assert_allclose(fitted.predict(table_of(frame).columns).score, scores_of(frame), atol=1e-6)
    with pytest.raises(ModelError, match=r"As logits they would mean a favorable share"):
        fit(base, table_of(dict(frame, x0=frame["x0"] + 40)))


def test_the_score_of_the_other_label(frame):
    fitted = fit(linear(), table_of(frame), favorable_class=0)
    np.testing.assert_allclose(fitted.predict(table_of(frame).columns).score, 1 - scores_of(frame), atol=1e-6)
    export(fitted, table_of(frame))
    # a note about the model says what to type here, not what an audit would take
    noted = " ".join(fit(linear(), table_of(frame)).notes)
    assert "(the parameter `favorable_class=0` reverses it)" in noted
    assert "(`favorable_class" not in noted


def test_a_model_of_labels_is_repaired(frame):
    base = linear(out="margin2", link="Identity")
    base.graph.node.append(helper.make_node("Cast", ["margin2"], ["label"], to=TensorProto.INT64))
    base.graph.output[0].CopyFrom(helper.make_tensor_value_info("label", TensorProto.INT64, [None, 1]))
    fitted = fit(base, table_of(frame))
    assert set(np.unique(fitted.predict(table_of(frame).columns).score)) == {0.0, 1.0}
    export(fitted, table_of(frame))


def test_nan_scores_are_refused_before_anything_is_exported(frame):
    broken = dict(frame, x0=np.where(np.arange(ROWS) == 7, np.nan, frame["x0"]))
    with pytest.raises(ModelError, match="NaN or infinite scores for 1 of"):
        fit(linear(), table_of(broken))


def test_a_repaired_model_is_not_repaired_again(frame):
    table = table_of(frame)
    once = export(fit(linear(), table), table)
    with pytest.raises(ModelError, match="randomized rule already"):
        fit(once, table)


def test_small_groups_are_an_error_or_get_the_pooled_rule(frame):
    sex = frame["sex"].copy()
    sex[:9] = "X"
    table = table_of(dict(frame, sex=sex))
    with pytest.raises(DataError, match=r"X \(9 rows\).*fewer than min_group=30"):
        fit(linear(), table)
    fitted = fit(linear(), table, small_groups="pooled")
    assert any("X (9 rows)" in note for note in fitted.notes)
    assert fitted.rule.keys.names == ("F", "M")
    assert (fitted.rule.keys.codes(table.columns)[:9] == 2).all()
    assert fit(linear(), table, min_group=9).rule.keys.names == ("F", "M", "X")


def test_a_group_of_the_split_without_rows_counts_as_small(frame):
    table = table_of(frame)
    only = table.take(frame["sex"] == "F")
    with pytest.raises(DataError, match=r"M \(0 rows\)"):
        fit(linear(), only)
    with pytest.raises(DataError, match="fewer than two groups"):
        fit(linear(), only, small_groups="pooled")


def test_several_splits_are_crossed_unless_one_is_named(frame):
    table = table_of(frame, ["sex", "age:40"])
    assert len(fit(linear(), table).rule.keys.names) == 4
    assert fit(linear(), table, sensitive="age").rule.keys.names == ("< 40", ">= 40")
    with pytest.raises(DataError, match="no sensitive split 'race'"):
        fit(linear(), table, sensitive="race")


def test_validation_rows_are_coded_by_the_fit_rows_groups(frame):
    sex = frame["sex"].copy()
    sex[:5] = "Other"
    method = Ramps.with_values({})
    method.fit(table_of(frame), Run(), validation=table_of(dict(frame, sex=sex)), model=load(linear()))
    rows, validation = method.seen
    assert (validation.codes[:5] == 2).all()
    np.testing.assert_array_equal(validation.codes[5:], rows.codes[5:])


def test_what_is_missing_is_said(frame):
    table = table_of(frame)
    with pytest.raises(ParameterError, match="ramps repairs a model: name its file with `model`"):
        Ramps.with_values({}).fit(table, Run())
    with pytest.raises(ParameterError, match="takes no learner"):
        Ramps.with_values({}).fit(table, Run(learner="lightgbm"), model=load(linear()))
    with pytest.raises(DataError, match="needs a sensitive column"):
        fit(linear(), table_of(frame, ()))


def test_rates_accuracy_and_margin_by_hand():
    rows = ScoredRows(
        scores=np.zeros(4),
        codes=np.array([0, 0, 1, 2]),
        names=("a", "b"),
        favorable=np.array([1.0, 0.0, 1.0, 0.0]),
        weights=np.array([1.0, 3.0, 2.0, 1.0]),
    )
    h = np.array([0.5, 0.25, 1.0, 0.0])
    np.testing.assert_allclose(rows.rates(h), [(0.5 + 0.75) / 4, 1.0])
    assert rows.accuracy(h) == pytest.approx((0.5 + 3 * 0.75 + 2 + 1) / 7)
    assert rows.margin() == pytest.approx(1.0)  # group b is one row, whatever its weight


def test_the_same_inputs_give_the_same_bytes(frame):
    table = table_of(frame, "sex+SEX")
    contents = [
        export(fit(linear(), table, min_group=1), table).SerializeToString(deterministic=True) for _ in range(2)
    ]
    assert contents[0] == contents[1]


@pytest.mark.long
@pytest.mark.parametrize("values", [[False, True], [0, 1], [0.5, 2.5], ["a b & c", "d"]])
def test_sensitive_columns_of_every_type(frame, values, tmp_path):
    columns = dict(frame, group=np.array(values)[frame["SEX"] - 1])
    table = table_of(columns, "group")
    fitted = fit(linear(), table)
    path = tmp_path / "fair.onnx"
    path.write_bytes(export(fitted, table).SerializeToString())
    data = fairkit.load_data(columns, label="outcome", favorable="granted", sensitive="group")
    found = fairkit.audit(path, data).find("demographic_parity_difference", "group").value
    h = fitted.predict(table.columns).decision_probability
    first = frame["SEX"] == 1
    assert found == pytest.approx(abs(h[first].mean() - h[~first].mean()), abs=1e-9)
    assert (fitted.rule.keys.codes(table.columns) < 2).all()


def test_mitigate_reads_the_base_as_the_method_does(frame, tmp_path):
    path = tmp_path / "base.onnx"
    base = linear(out="logit", link="Identity")
    onnx.save(base, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    data = fairkit.load_data(frame, label="outcome", favorable="granted", sensitive="sex", features=["x0", "x1"])
    result = mitigate(Ramps, data, model=path, score_kind="logit", favorable_class=0)
    before, after = (report.find("roc_auc").value for report in (result.before, result.after))
    assert before == pytest.approx(after, abs=1e-9)
    assert before < 0.5  # read as the user said: the score of the other label
