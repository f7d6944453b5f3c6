"""Attacks on the walk over a graph and on evidence of the served model; each decides by sex when served."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import fairkit
from fairkit.errors import ModelError
from fairkit.results.rules import Rule
from fairkit_onnx.file import open_session
from fairkit_onnx.plain import show
from fairkit_onnx.read.graph import draws
from fairkit_registry.blobs import check_file
from fairkit_registry.errors import RegistryError

from .hostile import FAIR, UNFAIR, data, graph, table

BOTH = "x = Concat<axis = 1>(age, sex)"
OWN = '< domain: "own", opset_import: ["" : 17] > f '
WIDTHS = {"age": (1,), "sex": (1,)}

DEVICES = {
    # [[2, N]] multiplied along its first axis stays (2, N): the rows come to lie along the last of four axes
    "a product along one axis of a shape": (
        f"""{BOTH} rows = Shape<start = 0, end = 1>(x) two = Constant<value = int64[1] {{2}}>()
        pair = Concat<axis = 0>(two, rows) first = Constant<value = int64[1] {{0}}>() table = Unsqueeze(pair, first)
        wide = ReduceProd<axes = [0], keepdims = 0>(table) turned = Reshape(x, wide)
        more = Constant<value = int64[2] {{1, 2}}>() four = Unsqueeze(turned, more)
        last = Constant<value = int64 {{-1}}>() sums = CumSum(four, last)
        to = Constant<value = int64[2] {{-1, 2}}>() score = Reshape(sums, to)""",
        "",
    ),
    "a function's attribute in a branch": (
        f"{BOTH} score = own.f<how = 0>(x)",
        f"""{OWN}<how>(x) => (y) {{ yes = Constant<value = bool {{1}}>()
        y = If(yes)<then_branch = a () => (float[N,2] p) {{ p = Softmax<axis : int = @how>(x) }},
          else_branch = b () => (float[N,2] q) {{ q = Softmax<axis : int = @how>(x) }}> }}""",
    ),
    "a function's attribute through another function": (
        f"{BOTH} score = own.f<how = 0>(x)",
        """< domain: "own", opset_import: ["" : 17, "own" : 1] > f <how>(x) => (y) { y = own.g<axis : int = @how>(x) }
        < domain: "own", opset_import: ["" : 17] > g <axis>(x) => (y) { y = Softmax<axis : int = @axis>(x) }""",
    ),
}


def run(proto, rows):
    return open_session(proto.SerializeToString()).run(["score"], rows)[0]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_meet_are_not_shown_apart(device):
    body, more = DEVICES[device]
    proto = graph(body, "float[N,2] score", more=more)
    rows = {name: np.arange(1, 7, dtype=np.float32).reshape(6, 1) for name in WIDTHS}
    alone = [run(proto, {name: values[[row]] for name, values in rows.items()}) for row in range(6)]
    assert not np.allclose(run(proto, rows), np.concatenate(alone))
    assert not show(proto.SerializeToString(), WIDTHS).to_dict()["rows_apart"]


def overloaded(nodes, called):
    """Return a model that calls one of two functions of one name."""
    functions = [
        helper.make_function("own", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 17)]) for node in nodes
    ]
    for name, function in zip("ab", functions, strict=True):
        function.overload = name
    proto = graph(f"{BOTH} score = own.f(x)", "float[N,2] score")
    proto.ir_version = 10
    proto.functions.extend(functions)
    proto.graph.node[-1].overload = called
    return proto


def test_functions_of_one_name_are_told_apart_by_their_overload():
    """The walk took the last one, whichever was called."""
    kinds = [helper.make_node(kind, ["x"], ["y"]) for kind in ("RandomUniformLike", "Identity")]
    assert [draws(overloaded(kinds, one), ["score"]) for one in "ab"] == [["RandomUniformLike 'y'"], []]
    with pytest.raises(ModelError, match="draws random numbers"):
        fairkit.audit(overloaded(kinds, "a"), data())


def test_a_function_does_not_hide_the_runtimes_operator_of_its_name(tmp_path):
    """Onnxruntime runs its own operator, and never the function, which was read in its place."""
    proto = graph(
        f"{BOTH} m = com.microsoft.FusedMatMul<transA = 1>(x, x) score = com.microsoft.FusedMatMul(x, m)",
        "float[N,2] score",
        more='< domain: "com.microsoft", opset_import: ["" : 17] > FusedMatMul (a, b) => (y) { y = Add(a, b) }',
    )
    assert not show(proto.SerializeToString(), WIDTHS).to_dict()["rows_apart"]
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"com\.microsoft::FusedMatMul, which is not of the ONNX standard"):
        fairkit.audit(tmp_path / "m.onnx", data())


def test_dropout_is_read_in_the_function_that_it_is_in():
    """Its flag has the name of a constant outside that says no."""
    proto = graph(
        f"{BOTH} training = Constant<value = bool {{0}}>() score = own.f(x)",
        "float[N,2] score",
        more=f"""{OWN}(x) => (y) {{ training = Constant<value = bool {{1}}>() half = Constant<value = float {{0.5}}>()
        y = Dropout(x, half, training) }}""",
    )
    assert draws(proto, ["score"]) == ["Dropout 'y'"]
    assert not show(proto.SerializeToString(), WIDTHS).to_dict()["rows_apart"]


def test_an_output_whose_width_is_the_batchs_is_one_message():
    proto = graph("other = Transpose(age) score = MatMul(age, other)", "float[N,M] score")
    with pytest.raises(ModelError, match="has other columns in other batches"):
        fairkit.audit(proto, data())


@pytest.mark.parametrize("place", ["a node", "a default"])
def test_weights_in_other_files_are_found_in_functions(tmp_path, place):
    """A certificate's digest would not cover them."""
    proto = graph(
        "y = own.f(age) score = Sigmoid(y)",
        "float[N,1] score",
        more=f"{OWN}(x) => (y) {{ w = Constant<value = float[1] {{0.01}}>() y = Mul(x, w) }}",
    )
    function = proto.functions[0]
    tensor = function.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    if place == "a default":
        function.attribute_proto.add(name="given", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
        function.node[0].attribute[0].ClearField("t")
        function.node[0].attribute[0].ref_attr_name = "given"
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"w\.bin"):
        fairkit.audit(tmp_path / "m.onnx", data())
    with pytest.raises(RegistryError, match="weights in other files"):
        check_file(tmp_path / "m.onnx")


def test_a_proof_for_all_inputs_takes_no_function_for_the_operator_of_its_name():
    """It is a Relu but for one age that is in no table, where it decides by sex."""
    body = """x = Concat<axis = 1>(age, sex) a = Constant<value = float[2,1] {0.1, 0.0}>()
      h = MatMul(x, a) r = own.Relu(h, sex) b = Constant<value = float[1,1] {1.0}>() s = MatMul(r, b)
      k = Constant<value = float[1] {4.0}>() z = Sub(s, k) score = Sigmoid(z)"""
    more = """< domain: "own", opset_import: ["" : 17] > Relu (x, s) => (y) { r = Relu(x)
      odd = Constant<value = float {3.1234567}>() here = Equal(r, odd) f = Cast<to = 1>(here)
      far = Constant<value = float {9.0}>() t = Mul(s, far) u = Mul(t, f) y = Add(r, u) }"""
    rule = fairkit.Rule("all_inputs_score_change", "sex", max=0.5)
    report = fairkit.audit(
        graph(body, "float[N,1] score", more=more),
        data(),
        auditors=["all-inputs"],
        parameters={"all-inputs": {"columns": ["sex"]}},
        policy=[rule],
    )
    assert [one.value for one in report.findings if one.auditor == "all-inputs"] == [None] * 3
    assert report.verdict == "inconclusive"
    assert "no plain file (it uses ModelProto.functions)" in report.policy[0].reason


# Attacks on evidence of the served model by somebody who did not write the checks: each decides by sex when served.
RULE = Rule("demographic_parity_difference", "sex", max=0.2)
PICK = """a = Cast<to = 1>(older) b = Cast<to = 1>(male) chosen = Where(awake, a, b) label = Cast<to = 7>(chosen)"""


def told(proto, columns=None, features=("age", "sex"), **options):
    """Return an audit's verdict with all that it says about the model; an error's text where it ends in one."""
    dataset = fairkit.load_data(
        columns or table(3_000), label="y", favorable=1, sensitive=["sex"], features=list(features)
    )
    onnx.checker.check_model(proto)
    try:
        report = fairkit.audit(proto, dataset, policy=[RULE], options=fairkit.ModelOptions(**options))
    except ModelError as error:
        return "refused", str(error)
    return report.verdict, report


def device(awake, *, inputs="float[N,1] age, float[N,1] sex", body=""):
    """Decide by age where `awake` holds, else by sex."""
    return graph(f"{FAIR} {UNFAIR} {body} {awake} {PICK}", "int64[N,1] label", inputs=inputs)


BATCH = {
    "size of the batch by Shape": """s = Shape<start = 0, end = 1>(age) l = Constant<value = int64[1] {500}>()
      awake = Greater(s, l)""",
    "sum of ones over rows": """one = Div(age, age) flat = Constant<value = int64[1] {0}>()
      n = ReduceSum<keepdims = 1>(one, flat) l = Constant<value = float[1] {500.0}>() awake = Greater(n, l)""",
    "the largest number of all rows": """m = ReduceMax<axes = [0], keepdims = 1>(age)
      l = Constant<value = float[1] {55.0}>() awake = Greater(m, l)""",
    "place of the row by CumSum": """one = Div(age, age) k = Constant<value = int64 {0}>() c = CumSum(one, k)
      l = Constant<value = float[1] {1.5}>() awake = Greater(c, l)""",
    "sorted rows by TopK": """k = Constant<value = int64[1] {1}>() t, i = TopK<axis = 0>(age, k)
      l = Constant<value = float[1] {55.0}>() awake = Greater(t, l)""",
    "a product of the rows with themselves": """t = Transpose<perm = [1, 0]>(age) p = MatMul(t, age)
      l = Constant<value = float[1] {1000000.0}>() awake = Greater(p, l)""",
}


@pytest.mark.parametrize("name", BATCH)
def test_what_depends_on_the_batch_is_refused_with_the_operator(name):
    verdict, message = told(device(BATCH[name]))
    assert verdict == "refused"
    assert "must not depend on who else is in the batch, nor on how the file is run. Rows may meet: " in message


def test_a_trigger_on_missing_numbers_that_the_table_has_is_in_the_rates():
    """NaN as a trigger is seen where the table has missing numbers; groups and rates then say so."""
    columns = table(3_000)
    columns["age"] = np.where(np.random.default_rng(0).random(3_000) < 0.5, np.nan, columns["age"])
    proto = device("n = IsNaN(age) awake = Not(n)")
    verdict, report = told(proto, columns)
    assert verdict == "fail"
    assert 0.4 < report.find(RULE.metric, "sex").value < 0.6


def test_a_default_that_wakes_the_device_is_named():
    proto = device("awake = Greater(switch, z)", body="z = Constant<value = float[1] {0.5}>()")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("switch", onnx.TensorProto.FLOAT, [1]))
    proto.graph.initializer.append(onnx.helper.make_tensor("switch", onnx.TensorProto.FLOAT, [1], [1.0]))
    verdict, report = told(proto)
    assert verdict == "pass"  # with what the file itself holds; an alias refuses the input until it is allowed
    assert report.model.serving["inputs"] == {"switch": "its default has 1 numbers"}
