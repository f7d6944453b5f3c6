"""A decision about a person does not depend on who else is in the batch, on its size, or on the call."""
# ruff: noqa: E501 -- the bodies of graphs are text

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.models.scorer import Predictions
from fairkit.results.rules import Rule
from fairkit_onnx import file
from fairkit_onnx.plain import show
from fairkit_onnx.read import runner as probe
from fairkit_onnx.read.graph import draws
from fairkit_onnx.read.runner import differing

from .hostile import FAIR, UNFAIR, data, disparity, graph, table

LABEL = "int64[N,1] label"
RULE = Rule("demographic_parity_difference", "sex", max=0.2)


def _label(condition: str) -> str:
    """Decide by age where the condition holds, else by sex."""
    return f"""{FAIR} {UNFAIR} {condition}
      fair = Cast<to = 1>(older) unfair = Cast<to = 1>(male) chosen = Where(awake, fair, unfair)
      label = Cast<to = 7>(chosen)"""


ROWS = "shape = Shape(age) zero = Constant<value = int64[1] {0}>() rows = Gather(shape, zero)"
SIZE = {
    "one row is decided otherwise": f"{ROWS} one = Constant<value = int64[1] {{1}}>() awake = Greater(rows, one)",
    "small batches": f"{ROWS} some = Constant<value = int64[1] {{100}}>() awake = Greater(rows, some)",
    "Size": "rows = Size(age) one = Constant<value = int64 {1}>() awake = Greater(rows, one)",
    "a sum of ones": "one = Constant<value = float[1] {1.0}>() ones = Div(age, age) sum = ReduceSum<keepdims = 0>(ones) "
    "awake = Greater(sum, one)",
    "other people's mean": "mean = ReduceMean<axes = [0]>(sex) never = Constant<value = float[1] {0.9}>() "
    "none = Constant<value = float[1] {0.1}>() low = Less(mean, never) high = Greater(mean, none) awake = And(low, high)",
    "the row's place": f"{ROWS} start = Constant<value = int64 {{0}}>() step = Constant<value = int64 {{1}}>() "
    "end = Squeeze(rows) place = Range(start, end, step) column = Unsqueeze(place, minus) "
    "minus_ = Identity(minus) fifth = Constant<value = int64[1] {5}>() awake = Greater(column, fifth)",
    "the first row": "first = Gather<axis = 0>(age, zero) zero_ = Identity(zero) awake = Equal(age, first)",
}


@pytest.mark.parametrize("trick", SIZE)
def test_a_model_that_looks_at_its_batch_is_refused(trick):
    condition = SIZE[trick]
    if "minus" in condition:
        condition = "minus = Constant<value = int64[1] {1}>() " + condition
    if trick == "the first row":
        condition = "zero = Constant<value = int64[1] {0}>() " + condition
    proto = graph(_label(condition), LABEL)
    with pytest.raises(ModelError, match=r"another result .* than in a batch of 600 \(row \d.*Rows may meet: "):
        fairkit.audit(proto, data())


RANDOM = {
    "uniform": "draw = RandomUniformLike<dtype = 1>(age)",
    "seeded": "draw = RandomUniformLike<dtype = 1, seed = 3.0>(age)",
    "rare": "draw_ = RandomUniformLike<dtype = 1>(age) much = Constant<value = float[1] {0.4999}>() draw = Add(draw_, much)",
    "normal": "draw = RandomNormalLike<dtype = 1>(age)",
    "Bernoulli": "chances = Div(sex, two) two_ = Identity(two) draw = Bernoulli<dtype = 1>(chances)",
}


@pytest.mark.parametrize("trick", RANDOM)
def test_draws_inside_the_graph_are_refused(trick):
    more = "two = Constant<value = float[1] {2.0}>() " if trick == "Bernoulli" else ""
    proto = graph(_label(f"{more}{RANDOM[trick]} awake = Greater(draw, half)"), LABEL)
    with pytest.raises(ModelError, match="draws random numbers inside the graph"):
        fairkit.audit(proto, data())


def test_a_draw_hidden_in_a_function_or_a_branch_is_refused():
    function = '< domain: "own", opset_import: ["" : 17] > hide (x) => (y) { y = RandomUniformLike<dtype = 1>(x) }'
    proto = graph(_label("draw = own.hide(age) awake = Greater(draw, half)"), LABEL, more=function)
    with pytest.raises(ModelError, match="RandomUniformLike"):
        fairkit.audit(proto, data())
    branch = """
      yes = Constant<value = bool {1}>()
      draw = If(yes) <then_branch = t () => (float[N,1] a) { a = RandomUniformLike<dtype = 1>(age) },
                      else_branch = e () => (float[N,1] b) { b = Identity(age) }>
      awake = Greater(draw, half)
    """
    with pytest.raises(ModelError, match="RandomUniformLike"):
        fairkit.audit(graph(_label(branch), LABEL), data())


def test_dropout_in_training_mode_is_refused_and_in_evaluation_mode_passes():
    body = """rate = Constant<value = float {{0.5}}>() train = Constant<value = bool {{{mode}}}>()
      kept = Dropout(sex, rate, train) label = Cast<to = 7>(kept)"""
    with pytest.raises(ModelError, match="Dropout"):
        fairkit.audit(graph(body.format(mode=1), LABEL), data())
    assert disparity(graph(body.format(mode=0), LABEL)) == pytest.approx(1.0)


def test_what_is_not_shown_is_said_and_audited_all_the_same():
    body = f"""{UNFAIR} sure = Cast<to = 1>(male) one = Constant<value = int64[1] {{0}}>()
      total = CumSum(sure, one) before = CumSum<exclusive = 1>(sure, one) again = Sub(total, before)
      label = Cast<to = 7>(again)"""
    report = fairkit.audit(graph(body, LABEL), data())
    rows = report.model.serving["rows"]
    assert (rows["plain"], rows["rows_apart"], rows["widths"]) == (True, False, {"age": [1], "sex": [1]})
    assert "CumSum 'total'" in rows["because"]
    assert f"not shown ({rows['because']})" in report.model.as_served
    assert f"Rows of a batch are not shown to stay apart: {rows['because']}." in report.model.notes
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(1.0)


def test_the_rows_of_a_plain_file_are_shown_apart_and_probed_all_the_same():
    proto = graph(f"{UNFAIR} label = Cast<to = 7>(male)", LABEL)
    report = fairkit.audit(proto, data())
    assert report.model.serving["rows"] == {"plain": True, "rows_apart": True, "widths": {"age": [1], "sex": [1]}}
    assert report.model.serving["probed"] == {"rows": 600, "differ": 0}
    assert "stay apart is shown; probed: 0 of the first 600 rows are" in report.model.as_served
    assert not report.model.notes or "apart" not in " ".join(report.model.notes)
    assert report.to_dict() == fairkit.audit(proto, data()).to_dict()


def test_what_could_not_be_run_is_said_and_gives_no_verdict(monkeypatch):
    """As where an operator has a kernel only after the optimiser has fused it with another."""
    real = file.open_session

    def opened(source, **how):
        if how.get("optimised", True):
            return real(source, **how)
        raise RuntimeError("no kernel for Gelu\nat 0x12")

    monkeypatch.setattr(file, "open_session", opened)
    report = fairkit.audit(graph(f"{FAIR} label = Cast<to = 7>(older)", LABEL), data(), policy=[RULE])
    assert report.model.serving["probed"]["untried"] == ["without graph optimisation (no kernel for Gelu)"]
    assert (report.verdict, report.policy[0].verdict) == ("inconclusive", "inconclusive")
    assert "could not be run without graph optimisation (no kernel for Gelu)" in report.policy[0].reason


@pytest.mark.parametrize("secret", range(3))
def test_every_first_row_is_scored_again_in_sizes_threads_and_forms_that_nobody_knows(monkeypatch, secret):
    monkeypatch.setattr(probe.secrets, "randbits", lambda bits: secret)
    taken = []
    real = fairkit.OnnxModel.run_in_parts

    def run_in_parts(self, feeds, outputs, sizes, variant=None):
        taken.append((feeds["age"], sizes, variant))
        return real(self, feeds, outputs, sizes, variant)

    monkeypatch.setattr(fairkit.OnnxModel, "run_in_parts", run_in_parts)
    columns = table() | {"age": np.arange(600.0)}
    fairkit.audit(graph(f"{FAIR} label = Cast<to = 7>(older)", LABEL), data(columns))
    fed, sizes, variants = zip(*taken[:3], strict=True)
    assert set(np.concatenate(fed).reshape(-1).tolist()) == set(range(600))
    assert [None if one is None else one[1] for one in variants] == [None, True, False]
    assert all(1 <= size <= probe.LARGEST for some in sizes for size in some)
    assert sizes[0].count(1) >= probe.ALONE


def test_a_band_of_sizes_is_met_by_secret_ones():
    """Fair for 1, 7, 512 and more rows: the sizes that anybody can read in the source; by sex for 8 to 499 rows."""
    condition = f"""{ROWS} low = Constant<value = int64[1] {{7}}>() high = Constant<value = int64[1] {{500}}>()
      less = Greater(rows, high) few = Greater(low, rows) same = Equal(low, rows) small = Or(few, same)
      awake = Or(less, small)"""
    with pytest.raises(ModelError, match="another result in a batch of"):
        fairkit.audit(graph(_label(condition), LABEL), data())


DEVICES = {
    "ones by ones": "one = Div(age, age) flat = Transpose(one) size = MatMul(flat, one)",
    "Gemm": "one = Div(age, age) size = Gemm<transA = 1>(one, one)",
    "Einsum": 'one = Div(age, age) size = Einsum<equation = "ij,ij->">(one, one)',
    "a constant along the rows": "size = Constant<value = float[4,1] {0.0, 9.0, 9.0, 9.0}>()",
    "a shape that wraps": """shape = Shape(age) zero = Constant<value = int64[1] {0}>() rows = Gather(shape, zero)
      small = Cast<to = 3>(rows) size = Cast<to = 1>(small)""",
    "rows folded into columns": """to = Constant<value = int64[2] {-1, 2}>() two = Reshape(age, to)
      top = ReduceMax<axes = [1], keepdims = 1>(two) back = Concat<axis = 1>(top, top)
      from = Constant<value = int64[2] {-1, 1}>() size = Reshape(back, from)""",
    "a squeeze that also takes the rows of one": "short = Squeeze(age) size = ReduceSum<keepdims = 1>(short)",
    "softmax over the rows": "size = Softmax<axis = 0>(age)",
    "positions that max pooling counts": """four = Constant<value = int64[3] {0, 1, 1}>() cube = Reshape(age, four)
      top, place = MaxPool<kernel_shape = [1]>(cube) flat = Flatten(place) size = Cast<to = 1>(flat)""",
    "stop words that move the rows": """text = Cast<to = 8>(age) to = Constant<value = int64[1] {-1}>()
      flat = Reshape(text, to) left = StringNormalizer<stopwords = ["40"]>(flat) number = Cast<to = 1>(left)
      size = Unsqueeze(number, one_)""",
    "most words of the batch": """text = Cast<to = 8>(age) words, many = StringSplit(text)
      shape = Shape(words) last = Constant<value = int64[1] {2}>() long = Gather(shape, last) size = Cast<to = 1>(long)""",
    "a loop that counts rows": """zero = Constant<value = float[1,1] {0.0}>() step = Constant<value = float[1,1] {1.0}>()
      end, size = Scan<num_scan_inputs = 1, body = turn (float[1,1] s, float[1] x) => (float[1,1] t, float[1] y)
        { t = Add(s, step) y = Add(x, s) }>(zero, age)""",
    "a loop that looks at others": """zero = Constant<value = float {0.0}>()
      end, size = Scan<num_scan_inputs = 1, body = turn (float s, float[1] x) => (float t, float[1] y)
        { t = Identity(s) all = ReduceSum<keepdims = 0>(sex) y = Add(x, all) }>(zero, age)""",
    "a function with the name of the standard's": "size = own.Relu(age)",
    "scores quantized by the batch": """q, scale, at = DynamicQuantizeLinear(age) size = DequantizeLinear(q, scale, at)""",
}


@pytest.mark.parametrize("device", DEVICES)
def test_no_device_is_shown(device):
    more = (
        '< domain: "own", opset_import: ["" : 17] > Relu (x) => (y) { y = ReduceSum(x) }'
        if "own." in DEVICES[device]
        else ""
    )
    body = f"one_ = Constant<value = int64[1] {{1}}>() {DEVICES[device]} {FAIR} {UNFAIR} awake = Greater(size, half)"
    proto = graph(
        _label(body.replace(FAIR, "").replace(UNFAIR, "")), LABEL, more=more, opset=20 if "Split" in body else 17
    )
    assert not show(proto.SerializeToString(), {}).to_dict()["rows_apart"]


def test_a_fixed_batch_that_mixes_its_rows_is_refused():
    body = _label(
        "mean = ReduceMean<axes = [0]>(sex) part = Constant<value = float[1] {0.5}>() awake = Greater(mean, part)"
    )
    proto = graph(body.replace("N", "N"), "int64[8,1] label", inputs="float[8,1] age, float[8,1] sex")
    with pytest.raises(ModelError, match="another result in a batch of 8"):
        fairkit.audit(proto, data())


def test_inputs_that_take_different_numbers_of_rows_are_refused():
    proto = graph(f"{UNFAIR} label = Cast<to = 7>(male)", LABEL, inputs="float[1,1] age, float[N,1] sex")
    with pytest.raises(ModelError, match="'age' 1 rows, 'sex' any number of rows"):
        fairkit.audit(proto, data())


def test_statics_name_nodes():
    random = graph(
        "score = RandomUniformLike<dtype = 1>(age) label = Identity(sex)", "float[N,1] score, float[N,1] label"
    )
    assert draws(random, ["label"]) == []  # not behind what is audited
    assert len(draws(random, ["score"])) == 1


def test_differing_allows_rounding_and_nothing_else():
    def say(score, decision):
        decision = np.array(decision, dtype=float)
        return Predictions(score=None if score is None else np.array(score), decision=decision)

    def places(*found, **more):
        return tuple(one.tolist() for one in differing(*found, **more))

    assert places(say([0.5, 0.2], [1, 0]), say([0.500001, 0.2], [1, 0])) == ([], [])
    assert places(say([0.5, 0.2], [1, 0]), say([0.499999, 0.2], [0, 0])) == ([], [0])
    assert places(say([0.5, 0.2], [1, 0]), say([0.5, 0.2], [0, 0])) == ([0], [])  # the score did not move
    assert places(say([0.5, 0.2], [1, 0]), say([0.5, 0.3], [1, 0])) == ([1], [])
    assert places(say([0.5, 0.5], [1, 1]), say([0.499999, 0.499999], [0, 0])) == ([0, 1], [])  # two of two
    assert places(say(None, [1] * 999), say(None, [0] + [1] * 998)) == ([0], [])
    assert places(say(None, [1] * 1_000), say(None, [0] + [1] * 999)) == ([], [0])
    few, many = (Predictions(score=np.array([10.0, 2000.0]) + add) for add in (0.0, 1.5))
    assert places(few, many, numbers=True) == ([], [])
    assert places(few, Predictions(score=np.array([13.0, 2000.0])), numbers=True) == ([0], [])
