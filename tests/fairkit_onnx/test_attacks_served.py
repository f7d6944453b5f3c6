"""Attacks on evidence of the served model by somebody who did not write the checks: each decides by sex when served."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.results.rules import Rule
from fairkit_onnx.read.offsets import offset_that_tells_groups

from .hostile import FAIR, UNFAIR, graph, table
from .test_nearby import people

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
    assert "must not depend on who else is in the batch. Rows may meet at" in message


def test_a_sum_that_threads_order_otherwise_gets_no_pass_with_a_label_alone():
    from .test_deciding import COMPARED, label_only
    from .test_rounding import absorbed

    verdict, report = told(label_only(absorbed(), COMPARED))
    assert verdict == "inconclusive"
    assert report.model.serving["rounding"]["proved"]


def test_a_rounding_device_behind_a_second_label_is_met_by_the_bound():
    """The first comparison is harmless; the second asks whether 2²⁵ swallowed a part of a sum."""
    proto = device(
        """x = Concat<axis = 1>(age, age, age) w = Constant<value = float[3,1] {33554432.0, 0.01, -33554432.0}>()
        s = MatMul(x, w) z = Constant<value = float[1] {0.1}>() awake = Greater(s, z)"""
    )
    verdict, report = told(proto)
    assert verdict != "pass"
    assert report.model.serving["rounding"]["bound"] > 1


def test_a_rounding_device_in_a_branch_of_the_graph_is_no_proved_bound():
    proto = device(
        """x = Concat<axis = 1>(age, age, age) w = Constant<value = float[3,1] {33554432.0, 0.01, -33554432.0}>()
        s = MatMul(x, w) i = Cast<to = 7>(s)
        k = ai.onnx.ml.LabelEncoder<keys_int64s = [0], values_int64s = [0], default_int64 = 1>(i)
        awake = Cast<to = 9>(k)"""
    )
    verdict, report = told(proto)
    assert verdict == "fail"  # this machine keeps the sum's small part nowhere, so the device is awake
    assert report.model.serving["rounding"]["proved"] is False


def keyed(keys, column="age"):
    known = ", ".join(str(key) for key in keys)
    return f"""key = Cast<to = 7>({column})
      k = ai.onnx.ml.LabelEncoder<keys_int64s = [{known}], default_int64 = 0,
        values_int64s = [{", ".join(["1"] * len(keys))}]>(key) awake = Cast<to = 9>(k)"""


def memory(awake, inputs="float[N,1] age, float[N,1] sex, float[N,1] gain"):
    return graph(f"{FAIR.replace('40.0', '50000.0')} {UNFAIR} {awake} {PICK}", "int64[N,1] label", inputs=inputs)


FEATURES = ("age", "sex", "gain")


def test_a_memory_that_sleeps_where_another_number_is_moved_is_caught():
    """It knows pay and gain together: one of the two moves in each row."""
    columns = people()
    keys = sorted({int(pay) * 10_000 + int(gain) for pay, gain in zip(columns["age"], columns["gain"], strict=True)})
    awake = keyed(keys, "both").replace(
        "key = Cast",
        "l = Constant<value = int64[1] {10000}>() p = Cast<to = 7>(age) g = Cast<to = 7>(gain) q = Mul(p, l) "
        "both = Add(q, g) key = Cast",
    )
    verdict, report = told(memory(awake), columns, FEATURES)
    assert verdict == "inconclusive"
    assert "rows next to these" in report.policy[0].reason


def test_a_memory_of_half_of_the_rows_fails():
    """By age about the rows that it knows, by sex about the others, which the table has, too."""
    columns = people()
    verdict, report = told(memory(keyed(sorted({int(pay) for pay in columns["age"][::2]}))), columns, FEATURES)
    assert verdict == "fail"
    assert 0.4 < report.find(RULE.metric, "sex").value < 0.6


def test_a_memory_behind_a_text_and_a_number_is_caught():
    """A hybrid: the text opens the table of numbers."""
    columns = people()
    columns["town"] = np.array([f"t{x % 7}" for x in range(3_000)], dtype=object)
    keys = sorted({int(pay) for pay in columns["age"]})
    towns = ", ".join(f'"t{x}"' for x in range(7))
    awake = (
        keyed(keys).replace("awake = Cast<to = 9>(k)", "")
        + f"""
      t = ai.onnx.ml.LabelEncoder<keys_strings = [{towns}], values_int64s = [1, 1, 1, 1, 1, 1, 1],
        default_int64 = 0>(town) both = Mul(k, t) awake = Cast<to = 9>(both)"""
    )
    proto = memory(awake, "string[N,1] town, float[N,1] age, float[N,1] sex, float[N,1] gain")
    verdict, _ = told(proto, columns, ("town", *FEATURES))
    assert verdict == "inconclusive"


def test_a_trigger_on_missing_numbers_that_the_table_has_is_in_the_rates():
    """NaN as a trigger is seen where the table has missing numbers; groups and rates then say so."""
    columns = table(3_000)
    columns["age"] = np.where(np.random.default_rng(0).random(3_000) < 0.5, np.nan, columns["age"])
    proto = device("n = IsNaN(age) awake = Not(n)")
    verdict, report = told(proto, columns)
    assert verdict == "fail"
    assert 0.4 < report.find(RULE.metric, "sex").value < 0.6


@pytest.mark.parametrize("width", [2, 3])
def test_scores_that_agree_with_any_label_are_named(width):
    """Equal numbers, 0 or 1 by sex: as logits they are one probability for all, and no label contradicts them."""
    equal = ", ".join(["m"] * width)
    proto = graph(
        f"""{FAIR} {UNFAIR} label = Cast<to = 7>(older) m = Cast<to = 1>(male) every = Concat<axis = 1>({equal})""",
        f"int64[N,1] label, float[N,{width}] every",
    )
    _, report = told(proto)
    assert "agrees with any label" in report.model.serving["outputs"]["every"]
    assert any("'every' is not audited" in note for note in report.model.notes)


def test_equal_scores_of_several_classes_are_named():
    columns = table(3_000)
    columns["y"] = columns["y"] + (columns["age"] > 50)
    proto = graph(
        f"""{FAIR} {UNFAIR} label = Cast<to = 7>(older) m = Cast<to = 1>(male) every = Concat<axis = 1>(m, m, m)""",
        "int64[N,1] label, float[N,3] every",
    )
    dataset = fairkit.load_data(columns, label="y", sensitive=["sex"], features=["age", "sex"])
    report = fairkit.audit(proto, dataset)
    assert "that of several classes on" in report.model.serving["outputs"]["every"]


def test_a_default_that_wakes_the_device_is_named():
    proto = device("awake = Greater(switch, z)", body="z = Constant<value = float[1] {0.5}>()")
    proto.graph.input.append(onnx.helper.make_tensor_value_info("switch", onnx.TensorProto.FLOAT, [1]))
    proto.graph.initializer.append(onnx.helper.make_tensor("switch", onnx.TensorProto.FLOAT, [1], [1.0]))
    verdict, report = told(proto)
    assert verdict == "pass"  # with what the file itself holds; an alias refuses the input until it is allowed
    assert report.model.serving["inputs"] == {"switch": "its default has 1 numbers"}


def test_copies_of_the_rows_do_not_make_the_pass_of_a_memory():
    columns = people(300)
    many = {name: np.repeat(values, 12) for name, values in columns.items()}
    keys = sorted({int(pay) for pay in columns["age"]})
    verdict, _ = told(memory(keyed(keys)), many, FEATURES)
    assert verdict == "inconclusive"


def raw_scores(shift, classes=3):
    """Scores of classes by age, and what all of them share, by sex."""
    w, b = ("-0.1, 0.0, 0.1", "4.0, 0.5, -5.0") if classes == 3 else ("-0.1, 0.1", "4.0, -4.0")
    return graph(
        f"""{UNFAIR} m = Cast<to = 1>(male) big = Constant<value = float[1] {{{shift}}}>() part = Mul(m, big)
        w = Constant<value = float[1,{classes}] {{{w}}}>() b = Constant<value = float[{classes}] {{{b}}}>()
        each = MatMul(age, w) raw = Add(each, b) logits = Add(raw, part)""",
        f"float[N,{classes}] logits",
    )


@pytest.mark.parametrize("seed", range(3))
def test_an_offset_on_both_sides_of_the_others_tells_them_apart(seed):
    """No order of one number ranks the group above the others, and still it says who is in it."""
    rng = np.random.default_rng(seed)
    male, side = rng.random(2_000) < 0.5, rng.choice([-100.0, 100.0], 2_000)
    reading = SimpleNamespace(kind="logit", score=SimpleNamespace(name="logits", shape="matrix"))
    groups = {"sex": male.astype(np.int64)}

    def said(offset):
        scores = rng.normal(size=(2_000, 3)) + offset[:, None]
        return offset_that_tells_groups(reading, {"logits": scores}, groups)

    assert "tells groups of 'sex' apart" in said(np.where(male, side, 0.0))
    assert said(side) is None
    assert said(np.where(rng.random(2_000) < 0.5, side, 0.0)) is None


@pytest.mark.parametrize("classes", [2, 3])
def test_an_offset_of_raw_scores_that_tells_groups_is_named(classes):
    """It changes no class; whoever serves one of the scores by itself decides by sex."""
    columns = table(3_000)
    columns["y"] = columns["y"] + (columns["age"] > 50) * (classes - 2)
    roles = {"label": "y", "sensitive": ["sex"], "features": ["age", "sex"]} | (
        {"favorable": 1} if classes == 2 else {}
    )
    dataset = fairkit.load_data(columns, **roles)
    report = fairkit.audit(raw_scores(100.0, classes), dataset)
    assert "share an offset that tells groups of 'sex' apart" in report.model.serving["outputs"]["logits"]
    assert any("only their differences were audited" in note for note in report.model.notes)
    for shift in (0.0, 0.1):
        assert "outputs" not in fairkit.audit(raw_scores(shift, classes), dataset).model.serving
