"""Attacks on evidence of the served model by somebody who did not write the checks: each decides by sex when served."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.results.rules import Rule

from .hostile import FAIR, UNFAIR, graph, table

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
