"""Encoders that break the order of a column: what lies between two ends that answer alike is never lost."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import fairkit
from fairkit.errors import FairkitError, ModelError
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit_cli.pages.report import evidence_sections
from fairkit_registry.evidence.predicate import public_findings

from .test_all_inputs import CHANCE, FLIP, SCORE, trusted

helper, numpy_helper = onnx.helper, onnx.numpy_helper
ML = "ai.onnx.ml"


def node(kind, inputs, outputs, **told):
    domain = ML if kind in {"Imputer", "Scaler", "Binarizer"} else ""
    return helper.make_node(kind, inputs, outputs, domain=domain, **told)


def constant(name, *values, kind=np.float32):
    return numpy_helper.from_array(np.array(values, dtype=kind), name)


def built(path, encoders, constants=(), *, threshold=0.5, mode="BRANCH_LEQ", inner=0, kind="FLOAT"):
    """Write ``f = (e(x) <= threshold ? 4 (sex - 1/2) : 2)``, e made of the encoders' tensor ``e``, shape [n, 1]."""
    nodes = [
        *encoders,
        helper.make_node("Concat", ["e", "sex"], ["matrix"], axis=1),
        helper.make_node(
            "TreeEnsembleRegressor", ["matrix"], ["sum"], domain=ML, n_targets=1, nodes_treeids=[0] * 5,
            nodes_nodeids=list(range(5)), nodes_featureids=[inner, 1, 0, 0, 0], nodes_values=[threshold, 0.5, 0, 0, 0],
            nodes_modes=[mode, "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], nodes_truenodeids=[1, 3, 0, 0, 0],
            nodes_falsenodeids=[2, 4, 0, 0, 0], target_treeids=[0] * 3, target_nodeids=[2, 3, 4], target_ids=[0] * 3,
            target_weights=[2.0, -2.0, 2.0],
        ),
        helper.make_node("Sigmoid", ["sum"], ["score"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", getattr(onnx.TensorProto, kind), [None, 1]),
        helper.make_tensor_value_info("sex", onnx.TensorProto.FLOAT, [None, 1]),
    ]
    output = helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph(nodes, "g", inputs, [output], list(constants))
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(ML, 3)]
    proto = helper.make_model(graph, opset_imports=opsets)
    proto.ir_version = 8
    onnx.save(proto, path)
    return path


def audited(path, x, **settings):
    import pandas as pd

    x = np.asarray(x)
    table = pd.DataFrame({"x": x, "sex": np.arange(len(x)) % 2, "y": np.arange(len(x)) // 2 % 2})
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"], features=["x", "sex"])
    return fairkit.audit(
        trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": "sex", **settings}}
    )


def audit(path, x, **settings):
    return {finding.metric: finding for finding in audited(path, x, **settings).findings}


def flips(path, x):
    """Whether the file itself flips, at each x."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.asarray(x, dtype=np.float32).reshape(-1, 1)
    said = [session.run(None, {"x": x, "sex": np.full_like(x, s)})[0] >= 0.5 for s in (0, 1)]
    return (said[0] != said[1]).reshape(-1)


RANGE = [-2.0, 3.0]
BOOL, FLOAT, INT8 = onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT, onnx.TensorProto.INT8
CASES = {
    # an encoder, its constants, threshold and mode: equal answers at -2 and 3, another one in between
    "sentinel": ([node("Imputer", ["x"], ["e"], imputed_value_floats=[50.0], replaced_value_float=-1.0)], [], 40.0,
                 "BRANCH_GT"),
    "sentinel after a scaler": (
        [node("Scaler", ["x"], ["z"], offset=[1.0], scale=[2.0]),
         node("Imputer", ["z"], ["e"], imputed_value_floats=[50.0], replaced_value_float=-3.0)], [], 40.0, "BRANCH_GT"),
    "bool": ([node("Cast", ["x"], ["b"], to=BOOL), node("Cast", ["b"], ["e"], to=FLOAT)], [], 0.5, "BRANCH_LEQ"),
    "absolute": ([node("Abs", ["x"], ["e"])], [], 0.5, "BRANCH_LEQ"),
    "square root": ([node("Sqrt", ["x"], ["e"])], [], 1.0, "BRANCH_LEQ"),
    "where of a comparison": (
        [node("Less", ["x", "zero"], ["low"]), node("Where", ["low", "big", "x"], ["e"])],
        [constant("zero", 0.0), constant("big", 9.0)], 1.0, "BRANCH_LEQ"),
    "where of another node's NaN": (
        [node("Sqrt", ["x"], ["r"]), node("IsNaN", ["r"], ["no"]), node("Where", ["no", "big", "x"], ["e"])],
        [constant("big", 9.0)], 1.0, "BRANCH_LEQ"),
    "two of one column": ([node("Neg", ["x"], ["m"]), node("Max", ["x", "m"], ["e"])], [], 0.5, "BRANCH_LEQ"),
    "a power": ([node("Pow", ["x", "two"], ["e"])], [constant("two", 2.0)], 0.5, "BRANCH_LEQ"),
    "equality": ([node("Equal", ["x", "one"], ["b"]), node("Cast", ["b"], ["e"], to=FLOAT)], [constant("one", 1.0)],
                 0.5, "BRANCH_GT"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_an_inside_that_differs_from_equal_ends_is_found(tmp_path, name):
    nodes, constants, threshold, mode = CASES[name]
    path = built(tmp_path / "m.onnx", nodes, constants, threshold=threshold, mode=mode)
    x = np.round(np.linspace(*RANGE, 501), 2)
    inside = flips(path, x)
    assert inside.any()
    assert inside[0] == inside[-1]
    assert not inside[0]
    found = audit(path, x)
    assert found[FLIP].interval == (1.0, 1.0)
    assert found[SCORE].interval[1] >= 4.0
    assert found[CHANCE].interval[1] >= 0.76


def _cast(name, last="e"):
    return node("Cast", [name], [last], to=FLOAT)


ONE = [constant("one", 1.0)]
OPERATORS = {
    # after |x|, whose order turns inside: what the operator makes of it, and the threshold between 0 and 2.5
    "Identity": ([node("Identity", ["a"], ["e"])], [], 1.0),
    "Neg": ([node("Neg", ["a"], ["e"])], [], -1.0),
    "Floor": ([node("Floor", ["a"], ["e"])], [], 1.0),
    "Ceil": ([node("Ceil", ["a"], ["e"])], [], 1.0),
    "Round": ([node("Round", ["a"], ["e"])], [], 1.0),
    "Relu": ([node("Sub", ["a", "one"], ["b"]), node("Relu", ["b"], ["e"])], ONE, 0.5),
    "Abs": ([node("Sub", ["a", "one"], ["b"]), node("Abs", ["b"], ["e"])], ONE, 1.2),
    "Sqrt": ([node("Sqrt", ["a"], ["e"])], [], 1.0),
    "Exp": ([node("Exp", ["a"], ["e"])], [], 2.7),
    "Log": ([node("Add", ["a", "one"], ["b"]), node("Log", ["b"], ["e"])], ONE, 0.7),
    "Sigmoid": ([node("Sigmoid", ["a"], ["e"])], [], 0.7),
    "Tanh": ([node("Tanh", ["a"], ["e"])], [], 0.7),
    "Pow": ([node("Pow", ["a", "two"], ["e"])], [constant("two", 2.0)], 1.0),
    "Binarizer": ([node("Binarizer", ["a"], ["e"], threshold=1.0)], [], 0.5),
    "Scaler": ([node("Scaler", ["a"], ["e"], offset=[1.0], scale=[-2.0])], [], 0.0),
    "Imputer": ([node("Imputer", ["a"], ["e"], imputed_value_floats=[9.0], replaced_value_float=2.5)], [], 1.0),
    "Clip": ([node("Clip", ["a", "one"], ["e"])], ONE, 1.5),
    "Min": ([node("Min", ["a", "two"], ["e"])], [constant("two", 2.0)], 1.0),
    "Max": ([node("Max", ["a", "one"], ["e"])], ONE, 1.5),
    "Add": ([node("Add", ["one", "a"], ["e"])], ONE, 2.0),
    "Sub": ([node("Sub", ["one", "a"], ["e"])], ONE, 0.0),
    "Mul": ([node("Mul", ["a", "minus"], ["e"])], [constant("minus", -2.0)], -2.0),
    "Div": ([node("Add", ["a", "one"], ["b"]), node("Div", ["one", "b"], ["e"])], ONE, 0.5),
    "Greater": ([node("Greater", ["a", "one"], ["b"]), _cast("b")], ONE, 0.5),
    "GreaterOrEqual": ([node("GreaterOrEqual", ["a", "one"], ["b"]), _cast("b")], ONE, 0.5),
    "Less": ([node("Less", ["a", "one"], ["b"]), _cast("b")], ONE, 0.5),
    "LessOrEqual": ([node("LessOrEqual", ["one", "a"], ["b"]), _cast("b")], ONE, 0.5),
    "Equal": ([node("Equal", ["a", "one"], ["b"]), _cast("b")], ONE, 0.5),
    "Not": ([node("Greater", ["a", "one"], ["b"]), node("Not", ["b"], ["n"]), _cast("n")], ONE, 0.5),
    "And": ([node("Greater", ["a", "one"], ["b"]), node("And", ["b", "yes"], ["n"]), _cast("n")],
            [*ONE, constant("yes", True, kind=bool)], 0.5),
    "Or": ([node("Greater", ["a", "one"], ["b"]), node("Or", ["b", "no"], ["n"]), _cast("n")],
           [*ONE, constant("no", False, kind=bool)], 0.5),
    "Where": ([node("Less", ["a", "one"], ["b"]), node("Where", ["b", "one", "a"], ["e"])], ONE, 1.5),
    "IsNaN": ([node("Sub", ["one", "a"], ["b"]), node("Sqrt", ["b"], ["r"]), node("IsNaN", ["r"], ["n"]), _cast("n")],
              ONE, 0.5),
    "Cast to whole numbers": ([node("Cast", ["a"], ["i"], to=INT8), _cast("i")], [], 1.0),
    "Cast to truth": ([node("Floor", ["a"], ["b"]), node("Cast", ["b"], ["t"], to=BOOL), _cast("t")], [], 0.5),
    "Cast to doubles": ([node("Cast", ["a"], ["d"], to=onnx.TensorProto.DOUBLE), _cast("d")], [], 1.0),
    "Reshape": ([node("Reshape", ["a", "shape"], ["e"])], [constant("shape", -1, 1, kind=np.int64)], 1.0),
    "Squeeze and Unsqueeze": ([node("Unsqueeze", ["a", "at"], ["b"]), node("Squeeze", ["b", "at"], ["e"])],
                              [constant("at", 2, kind=np.int64)], 1.0),
    "Flatten": ([node("Flatten", ["a"], ["e"])], [], 1.0),
    "Concat and Slice": ([node("Concat", ["x", "a"], ["b"], axis=1), node("Slice", ["b", "at", "to", "at"], ["e"])],
                         [constant("at", 1, kind=np.int64), constant("to", 2, kind=np.int64)], 1.0),
    "Gather": ([node("Concat", ["x", "a"], ["b"], axis=1), node("Gather", ["b", "at"], ["e"], axis=1)],
               [constant("at", 1, kind=np.int64)], 1.0),
    "Split": ([node("Concat", ["x", "a"], ["b"], axis=1), node("Split", ["b"], ["first", "e"], axis=1)], [], 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_after_one_that_turns_an_order_shows_the_inside(tmp_path, name):
    nodes, constants, threshold = OPERATORS[name]
    nodes = [node("Abs", ["x"], ["a"]), *nodes]
    x = np.round(np.linspace(-2.5, 2.5, 201), 3)
    inside = None
    for mode in ("BRANCH_LEQ", "BRANCH_GT"):  # an operator may turn the order round
        path = built(tmp_path / "m.onnx", nodes, constants, threshold=threshold, mode=mode)
        inside = flips(path, x)
        if not inside[0]:
            break
    assert inside is not None
    assert inside.any()
    assert not inside[0]
    assert not inside[-1]
    assert audit(path, x)[FLIP].interval == (1.0, 1.0)


MORE = {
    # the same with other ranges: an inside that is not there must be proved not to be
    "no sentinel in the range": (CASES["sentinel"], (0.0, 3.0), False),
    "positive logarithm": (([node("Log", ["x"], ["e"])], [], 0.0, "BRANCH_LEQ"), (0.5, 3.0), True),
    "negative logarithm": (([node("Log", ["x"], ["e"])], [], 0.0, "BRANCH_LEQ"), (-2.0, 3.0), True),
    "exponential": (([node("Exp", ["x"], ["e"])], [], 1.0, "BRANCH_LEQ"), (-2.0, 3.0), True),
    "positive bool": (CASES["bool"], (0.5, 3.0), False),
    "reciprocal of positives": (
        ([node("Div", ["one", "x"], ["e"])], [constant("one", 1.0)], 1.0, "BRANCH_LEQ"), (0.5, 3.0), True),
    "whole part": (
        ([node("Cast", ["x"], ["i"], to=INT8), node("Cast", ["i"], ["e"], to=FLOAT)], [], 0.0, "BRANCH_LEQ"),
        (-2.0, 3.0), True),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_what_the_file_does_is_what_is_said(tmp_path, name):
    (nodes, constants, threshold, mode), ends, flip = MORE[name]
    path = built(tmp_path / "m.onnx", nodes, constants, threshold=threshold, mode=mode)
    x = np.round(np.linspace(*ends, 251), 2)
    assert flips(path, x).any() == flip
    assert audit(path, x)[FLIP].interval == (float(flip),) * 2


def test_a_column_of_which_only_the_tables_values_were_looked_at_decides_nothing(tmp_path):
    """The model flips between -0.5 and 0.5, where an exponential is read and the table has nobody."""
    path = built(tmp_path / "m.onnx", [node("Exp", ["x"], ["z"]), node("Abs", ["z"], ["e"])], threshold=0.5)
    table = np.r_[np.linspace(0.25, 3.0, 12)]
    assert flips(path, [-1.5]).all()
    assert not flips(path, table).any()
    report = audited(path, table)
    found = {finding.metric: finding for finding in report.findings}
    assert found[FLIP].interval == (0.0, 1.0)
    for metric in (FLIP, SCORE, CHANCE):
        finding = found[metric]
        assert finding.evidence["narrowed"] == "x"
        assert finding.evidence["decided"] is False
        assert finding.evidence["domain"] == {"x": ", ".join(f"{v:g}" for v in table), "sex": "0, 1"}
        assert "of x only the table's own values were looked at" in finding.inconclusive
        results, verdict = judge([Rule(metric=metric, sensitive="sex", max=1e9)], [finding])
        assert (verdict, results[0].reason) == ("inconclusive", finding.inconclusive)
    public = public_findings([found[FLIP].to_dict()])[0]["evidence"]
    assert (public["domain"], public["narrowed"]) == (found[FLIP].evidence["domain"], "x")
    page = next(one for one in evidence_sections(report) if one is not None)
    assert "The domain: x: 0.25, 0.5" in page.parts[0].content
    assert "inconclusive: of x only" in page.parts[1].rows[0][2]
    stated = audit(path, table, domain={"x": "0.25,0.5"})[FLIP]
    assert (stated.interval, stated.inconclusive) == ((0.0, 0.0), None)
    assert stated.evidence["domain"]["x"] == "0.25, 0.5"
    wider = audit(path, np.r_[-1.5, table])[FLIP]  # a witness is one whatever else was looked at
    assert (wider.interval, wider.inconclusive, wider.evidence["decided"]) == ((1.0, 1.0), None, True)


def codes(name, keys, values, output, **default):
    form = "keys_strings" if isinstance(keys[0], str) else "keys_int64s"
    told = {form: keys, "values_floats": values, "default_float": 0.0, **default}
    return helper.make_node("LabelEncoder", [name], [output], domain=ML, **told)


HIDDEN = {
    # what flips is a value that the table has not: encoders, threshold, the table's column, another value
    "an exponential": ([node("Exp", ["x"], ["e"])], 9.0, [2.5, 2.8, 3.0], 0.0, "BRANCH_LEQ"),
    "a power": ([node("Pow", ["x", "two"], ["e"])], 0.5, [-2.0, 1.5, 2.0], 0.0, "BRANCH_LEQ"),
    "a code of a whole number that nobody has": (
        [node("Cast", ["x"], ["i"], to=7), codes("i", [1, 3, 5], [0.0] * 3, "e", default_float=9.0)],
        5.0, [1.0, 3.0, 5.0], 2.0, "BRANCH_GT"),
    "a sine": ([node("Sin", ["x"], ["e"])], -0.5, [0.1, 1.5, 2.5, 7.5], 4.7, "BRANCH_LEQ"),
}  # fmt: skip


@pytest.mark.parametrize("device", HIDDEN)
def test_a_flip_between_the_tables_values_is_never_proved_away(tmp_path, device):
    nodes, threshold, x, other, mode = HIDDEN[device]
    path = built(tmp_path / "m.onnx", nodes, [constant("two", 2.0)], threshold=threshold, mode=mode)
    assert not flips(path, x).any()
    assert flips(path, [other]).all()
    try:
        found = audit(path, np.array(x * 4))
    except FairkitError:
        return  # refused by name
    for metric in (FLIP, SCORE, CHANCE):
        decided = found[metric].inconclusive is None and found[metric].evidence["decided"]
        assert not decided or (metric == FLIP and found[FLIP].interval == (1.0, 1.0))


def test_a_word_that_only_a_second_encoder_knows_is_looked_at(tmp_path):
    nodes = [codes("x", ["a", "b"], [0.0, 0.0], "c"), codes("x", ["a", "zed"], [0.0, 9.0], "d"),
             node("Max", ["c", "d"], ["e"])]  # fmt: skip
    path = built(tmp_path / "m.onnx", nodes, threshold=5.0, mode="BRANCH_GT", kind="STRING")
    assert audit(path, np.array(["a", "b"] * 8, dtype=object))[FLIP].interval == (1.0, 1.0)


def test_nothing_is_said_of_all_inputs_of_a_file_that_two_readers_read_otherwise(tmp_path):
    path = built(tmp_path / "m.onnx", [node("Abs", ["x"], ["e"])], threshold=0.5)
    proto = onnx.load(path)
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 12))
    onnx.save(proto, path)
    for finding in audit(path, [1.0, 2.0, 3.0, 4.0]).values():
        assert (finding.value, finding.interval) == (None, None)
        assert "no plain file" in finding.inconclusive


def test_the_domain_is_said_of_every_kind_of_column(tmp_path):
    path = built(tmp_path / "m.onnx", [node("Abs", ["x"], ["e"])], threshold=0.5)
    found = audit(path, [0.75, 2.0, 3.0, 1.0])
    assert {one.evidence["domain"]["x"] for one in found.values()} == {"0.75 to 3.0"}
    assert found[FLIP].interval == (0.0, 0.0)
    whole = audit(path, [1, 2, 3, 5])
    assert whole[FLIP].evidence["domain"]["x"] == "1.0 to 5.0, whole"


REFUSED = {
    "a division by zero": (([node("Div", ["one", "x"], ["e"])], [constant("one", 1.0)], 1.0, "BRANCH_LEQ"), "Div"),
    "a whole number that overflows": (
        ([node("Mul", ["x", "k"], ["y"]), node("Cast", ["y"], ["i"], to=INT8), node("Cast", ["i"], ["e"], to=FLOAT)],
         [constant("k", 100.0)], 0.0, "BRANCH_LEQ"), "Cast"),
    "infinity less itself": (
        ([node("Mul", ["x", "k"], ["y"]), node("Mul", ["y", "k"], ["z"]), node("Mul", ["z", "none"], ["e"])],
         [constant("k", 3e38), constant("none", 0.0)], 0.5, "BRANCH_GT"), "Mul"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shown_to_keep_an_order_is_refused_by_name(tmp_path, name):
    (nodes, constants, threshold, mode), kind = REFUSED[name]
    path = built(tmp_path / "m.onnx", nodes, constants, threshold=threshold, mode=mode)
    with pytest.raises(FairkitError, match=rf"the node {kind} .*x"):
        audit(path, np.round(np.linspace(-2, 3, 101), 2))


def linear(path, encoders, weights, constants=()):
    """Write a linear model of the features ``e`` and sex."""
    nodes = [
        *encoders,
        helper.make_node("Concat", ["e", "sex"], ["matrix"], axis=1),
        helper.make_node("LinearRegressor", ["matrix"], ["sum"], domain=ML, coefficients=weights, intercepts=[0.0]),
        helper.make_node("Sigmoid", ["sum"], ["score"]),
    ]
    inputs = [helper.make_tensor_value_info(name, FLOAT, [None, 1]) for name in ("x", "sex")]
    output = helper.make_tensor_value_info("score", FLOAT, [None, 1])
    graph = helper.make_graph(nodes, "g", inputs, [output], list(constants))
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(ML, 3)]
    proto = helper.make_model(graph, opset_imports=opsets)
    proto.ir_version = 8
    onnx.save(proto, path)
    return path


def test_a_linear_model_reads_a_sentinel_at_its_own_number(tmp_path):
    shift = node("Sub", ["e0", "c"], ["e"])
    imputer = node("Imputer", ["x"], ["e0"], imputed_value_floats=[50.0], replaced_value_float=-1.2345678)
    path = linear(tmp_path / "m.onnx", [imputer, shift], [1.0, 1.0], [constant("c", 50.5)])
    x = np.append(np.linspace(-2, 3, 40), -1.2345678)
    assert flips(path, x).tolist() == [False] * 40 + [True]
    assert audit(path, x)[FLIP].interval == (1.0, 1.0)


def test_a_linear_model_with_features_that_pull_against_each_other_inside_is_refused(tmp_path):
    """x - 2 max(x, 1/2): the largest sum is in the middle of the range, where no end shows it."""
    nodes = [node("Max", ["x", "half"], ["m"]), helper.make_node("Concat", ["x", "m"], ["e"], axis=1)]
    path = linear(tmp_path / "m.onnx", nodes, [1.0, -2.0, 0.5], [constant("half", 0.4999)])
    x = np.linspace(-2, 3, 41)
    with pytest.raises(ModelError, match=r"'x'.*pull"):
        audit(path, x)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_scikit_learn_pipeline_with_a_sentinel_is_what_its_rows_say(tmp_path, seed):
    """`SimpleImputer(missing_values=-1)`: no row changes more than the bound."""
    import pandas as pd
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier

    rng = np.random.default_rng(seed)
    table = np.stack([rng.integers(0, 2, 600), *rng.normal(0, 2, (2, 600)).round(2)], axis=1)
    for place in (1, 2):
        table[rng.random(600) < 0.2, place] = -1.0
    y = ((table[:, 1] == -1.0) * (2 * table[:, 0] - 1) + rng.normal(0, 0.3, 600) > 0).astype(int)
    filled = SimpleImputer(missing_values=-1.0, strategy="median")
    model = make_pipeline(filled, DecisionTreeClassifier(max_depth=5, random_state=0))
    model.fit(table.astype(np.float32), y)
    proto = to_onnx(
        model, initial_types=[("x", FloatTensorType([None, 3]))], target_opset={"": 15, "ai.onnx.ml": 3},
        options={"zipmap": False},
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    names = ["sex", "a", "b"]
    data = fairkit.load_data(pd.DataFrame(table, columns=names).assign(sex=table[:, 0].astype(int), y=y), label="y",
                             favorable=1, sensitive=["sex"], features=names)  # fmt: skip
    report = fairkit.audit(trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": "sex"}})
    found = {finding.metric: finding for finding in report.findings}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    said = []
    for sex in (0, 1):
        rows = table.astype(np.float32).copy()
        rows[:, 0] = sex
        said.append(session.run(None, {"x": rows}))
    assert np.abs(said[0][1] - said[1][1]).max() <= found[SCORE].interval[1] + 1e-6
    if (said[0][0] != said[1][0]).any():
        assert found[FLIP].interval == (1.0, 1.0)


# Pipelines in double precision: columns that float32 would make one number, and the models' own sums.
BASE = 1e9
"""Beside it, float32 tells only numbers apart that differ by 64."""


def table():
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"x": BASE + rng.uniform(0, 8, 600), "z": rng.normal(size=600), "male": rng.integers(0, 2, 600)}
    )
    chance = 1 / (1 + np.exp(-(rows["x"] - BASE - 4) - rows["male"] + 0.5 * rows["z"]))
    return rows.astype(float).assign(y=np.where(rng.random(600) < chance, "yes", "no"))


def written(model, path, target):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipe = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe.fit(table()[["x", "z", "male"]].to_numpy(), target)
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    proto = convert_sklearn(
        pipe,
        initial_types=[("x", DoubleTensorType([None, 3]))],
        target_opset={"": 15, "ai.onnx.ml": 3},
        options=options,
    )
    path.write_bytes(proto.SerializeToString())
    return path


def models():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression

    return {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
        "linear": LinearRegression(),
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", models())
def test_intervals_of_double_pipelines_hold_what_their_files_do(tmp_path, kind):
    model, rows = models()[kind], table()
    number = not hasattr(model, "predict_proba")
    target = rows["x"] - BASE + rows["male"] if number else rows["y"]
    path = written(model, tmp_path / "m.onnx", target)
    if number:
        told, rows = {"label": "target"}, rows.drop(columns="y").assign(target=target)
    else:
        told = {"label": "y", "favorable": "yes"}
    data = fairkit.load_data(rows, sensitive=["male"], features=["x", "z", "male"], **told)
    report = fairkit.audit(
        trusted(path), data, auditors=["all-inputs"], parameters={"all-inputs": {"columns": "male", "boxes": 500}}
    )
    found = {finding.metric: finding.interval for finding in report.findings}
    rng, size = np.random.default_rng(1), 4_000
    inputs = np.stack([rng.uniform(rows[c].min(), rows[c].max(), size) for c in ("x", "z", "male")], axis=1)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    said = []
    for value in (0.0, 1.0):
        inputs[:, 2] = value
        said.append(session.run(None, {"x": inputs}))
    if number:
        apart = np.abs(said[0][0] - said[1][0]).max()
        assert found[SCORE][0] <= found[SCORE][1]
        assert 0.9 * apart <= found[SCORE][1] <= 3.0 * apart + 1e-3
        assert apart <= found[SCORE][1]
        return
    assert (said[0][0] != said[1][0]).any()
    assert found[FLIP] == (1.0, 1.0)
    if CHANCE in found:
        assert np.abs(said[0][1] - said[1][1]).max() <= found[CHANCE][1] + 1e-9
