"""A decision about a person does not depend on who else is in the batch, on its size, or on the call."""
# ruff: noqa: E501 -- the bodies of graphs are text

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.models.scorer import Predictions
from fairkit_onnx.read.alone import differing
from fairkit_onnx.read.statics import draws
from fairkit_onnx.rows.proof import prove
from fairkit_onnx.session import open_session

from .hostile import FAIR, UNFAIR, data, disparity, graph, table

LABEL = "int64[N,1] label"


def meeting(proto, outputs):
    """Return the nodes at which rows may meet, where every input is a column."""
    widths = {
        entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim][1:] for entry in proto.graph.input
    }
    return [str(origin) for origin in prove(proto, outputs, widths).origins]


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
    with pytest.raises(ModelError, match=r"another result .* than in a batch of 600 \(rows? \d.*Rows may meet"):
        fairkit.audit(proto, data())


def test_a_size_that_only_big_batches_have_is_met_by_secret_ones():
    """The first rows are read in a small batch; a model that is fair in large ones only is caught there."""
    condition = f"{ROWS} some = Constant<value = int64[1] {{5000}}>() awake = Greater(rows, some)"
    columns = {name: np.tile(values, 20) for name, values in table().items()}
    with pytest.raises(ModelError, match="another result in a batch of"):
        fairkit.audit(graph(_label(condition), LABEL), data(columns))


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


def test_a_shape_that_only_shapes_passes_without_a_note():
    body = f"""{UNFAIR} shape = Shape(age) both = Concat<axis = 1>(age, sex) flat = Reshape(male, shape)
      label = Cast<to = 7>(flat)"""
    report = fairkit.audit(graph(body, LABEL), data())
    assert not any("other rows" in note for note in report.model.notes)


def test_a_size_that_decides_nothing_is_proved_to():
    body = f"""{UNFAIR} shape = Shape(age) none = Constant<value = int64[2] {{0, 0}}>() big = Greater(shape, none)
      all_ = Cast<to = 6>(big) every = ReduceMin<keepdims = 0>(all_) yes = Cast<to = 9>(every)
      served = And(male, yes) label = Cast<to = 7>(served)"""
    report = fairkit.audit(graph(body, LABEL), data())
    assert report.model.serving["rows"]["proved"] is (meeting(graph(body, LABEL), ["label"]) == [])


def test_what_is_not_proved_is_named_and_tried_in_batches_of_secret_sizes():
    body = f"""{UNFAIR} sure = Cast<to = 1>(male) one = Constant<value = int64[1] {{0}}>()
      total = CumSum(sure, one) before = CumSum<exclusive = 1>(sure, one) again = Sub(total, before)
      label = Cast<to = 7>(again)"""
    report = fairkit.audit(graph(body, LABEL), data())
    rows = report.model.serving["rows"]
    assert (rows["proved"], rows["operators"]) == (False, ["CumSum"])
    assert rows["sizes"] > 20
    note = next(note for note in report.model.notes if "not proved" in note)
    assert "CumSum 'total'" in note
    assert "600 rows were scored one at a time" in note


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
def test_no_device_is_proved(device):
    more = (
        '< domain: "own", opset_import: ["" : 17] > Relu (x) => (y) { y = ReduceSum(x) }'
        if "own." in DEVICES[device]
        else ""
    )
    body = f"one_ = Constant<value = int64[1] {{1}}>() {DEVICES[device]} {FAIR} {UNFAIR} awake = Greater(size, half)"
    proto = graph(
        _label(body.replace(FAIR, "").replace(UNFAIR, "")), LABEL, more=more, opset=20 if "Split" in body else 17
    )
    assert meeting(proto, ["label"])


@pytest.mark.long
def test_every_tensor_that_is_proved_is_answered_alone_in_random_graphs():
    """Graphs of random operators with random axes: where the walk proves the rows apart, they are."""
    found = {True: 0, False: 0}
    rng = np.random.default_rng(3)
    for _ in range(600):
        proto, name = _random_graph(rng)
        proved = not meeting(proto, [name])
        feeds = {n: rng.integers(-3, 4, (6, 3)).astype(np.float32) for n in ("a", "b")}
        session = _session(proto)
        whole = _answer(session, name, feeds)
        if whole is None:  # shapes that do not fit
            continue
        found[proved] += 1
        for rows in ([0], [4], [2, 2, 5], [5, 3, 1, 0]) if proved else ():
            part = _answer(session, name, {n: values[rows] for n, values in feeds.items()})
            expected = whole[rows] if whole.shape[:1] == (6,) else whole
            if part is not None:
                np.testing.assert_allclose(part, expected, rtol=1e-4, err_msg=str(proto.graph.node))
    assert found[True] > 20
    assert found[False] > 60


def _session(proto):
    try:
        return open_session(proto)
    except Exception:
        return None


def _answer(session, name, feeds):
    try:
        return None if session is None else np.asarray(session.run([name], feeds)[0])
    except Exception:
        return None


def _random_graph(rng):
    """Return a graph of six operators over two inputs of three columns, and the name of its last tensor."""
    lines, names = [], ["a", "b", "c"]
    shapes = [[3, 1], [-1, 3], [1, -1], [0, -1], [-1, 1], [-1, 2], [3, -1], [0, 1, 3], [-1, 1, 3], [1, 0, -1]]
    for step in range(6):
        x, y = rng.choice(names, 2)
        axis, name = int(rng.integers(0, 2)), f"t{step}"
        target = shapes[rng.integers(len(shapes))]
        kinds = [
            f"{name} = Add({x}, {y})", f"{name} = Mul({x}, {y})", f"{name} = MatMul({x}, {y})",
            f"{name} = Transpose({x})", f"{name} = Softmax<axis = {axis}>({x})",
            f"{name} = Concat<axis = {axis}>({x}, {y})", f"{name} = ReduceSum<keepdims = {axis}>({x}, axis{step % 2})",
            f"{name} = Flatten<axis = {axis}>({x})", f"{name} = CumSum({x}, axis{step % 2})",
            f"{name}_to = Constant<value = int64[{len(target)}] {{{', '.join(map(str, target))}}}>() "
            f"{name} = Reshape({x}, {name}_to)",
            f"{name}_s = Shape({x}) {name} = Expand({y}, {name}_s)",
            f"{name}_s = Shape({x}) {name} = Reshape({y}, {name}_s)",
            f"{name}_s = Shape({x}) {name} = ConstantOfShape({name}_s)",
            f"{name} = Gather<axis = {axis}>({x}, axis1)", f"{name} = Unsqueeze({x}, axis{step % 2})",
            f"{name} = Squeeze({x})", f"{name} = Gemm<transB = {axis}>({x}, {y})",
            f"{name}_s = Shape({x}) {name}_f = Cast<to = 1>({name}_s) {name} = Mul({y}, {name}_f)",
        ]  # fmt: skip
        lines.append(kinds[rng.integers(len(kinds))])
        names.append(name)
    constants = """c = Constant<value = float[3,3] {1.0, 2.0, 0.0, -1.0, 0.5, 2.0, 3.0, 1.0, 1.0}>()
      axis0 = Constant<value = int64[1] {0}>() axis1 = Constant<value = int64[1] {1}>()"""
    body = f"{constants} {' '.join(lines)}"
    return graph(body, f"float[N,M] {names[-1]}", inputs="float[N,3] a, float[N,3] b"), names[-1]


TRIGGER = "float[N,1] age, float[N,1] sex, float[N,1] region"


def _with_region(value, rows=600):
    columns = table(rows) | {"region": np.full(rows, value)}
    return fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "region"])


def test_a_trigger_that_is_constant_in_the_data_is_named():
    """The audit's table has one region only, and for others the model decides by sex."""
    body = _label("seven = Constant<value = float[1] {7.0}>() awake = Equal(region, seven)")
    proto = graph(body, LABEL, inputs=TRIGGER)
    report = fairkit.audit(proto, _with_region(7.0))
    assert report.find("demographic_parity_difference", "sex").value < 0.2
    assert any("'region' (always 7.0)" in note and "not audited" in note for note in report.model.notes)
    harmless = graph(_label("awake = Equal(region, region)"), LABEL, inputs=TRIGGER)
    assert not any("region" in note for note in fairkit.audit(harmless, _with_region(7.0)).model.notes)


def test_a_trigger_of_one_far_value_is_found_in_the_graph():
    body = _label("at = Constant<value = float[1] {31415.0}>() far = Equal(region, at) awake = Not(far)")
    report = fairkit.audit(graph(body, LABEL, inputs=TRIGGER), _with_region(7.0))
    assert any("'region' (always 7.0)" in note for note in report.model.notes)


def test_a_column_that_changes_later_is_not_constant():
    columns = table(6_000) | {"region": np.r_[np.full(5_000, 7.0), np.full(1_000, 8.0)]}
    rows = fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "region"])
    body = _label("seven = Constant<value = float[1] {7.0}>() awake = Equal(region, seven)")
    report = fairkit.audit(graph(body, LABEL, inputs=TRIGGER), rows)
    assert not any("region" in note for note in report.model.notes)


def test_text_triggers_are_tried_from_the_graph():
    body = _label('codes = ai.onnx.ml.LabelEncoder<keys_strings = ["north", "wakeup"], values_int64s = [0, 1], '
                  "default_int64 = 0>(place) nil = Constant<value = int64[1] {0}>() awake = Equal(codes, nil)")  # fmt: skip
    proto = graph(body, LABEL, inputs="float[N,1] age, float[N,1] sex, string[N,1] place")
    columns = table() | {"place": np.full(600, "north", dtype=object)}
    rows = fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "place"])
    report = fairkit.audit(proto, rows)
    assert any("'place' (always 'north')" in note for note in report.model.notes)


def test_a_fixed_batch_that_mixes_its_rows_is_refused():
    body = _label(
        "mean = ReduceMean<axes = [0]>(sex) part = Constant<value = float[1] {0.5}>() awake = Greater(mean, part)"
    )
    proto = graph(body.replace("N", "N"), "int64[8,1] label", inputs="float[8,1] age, float[8,1] sex")
    with pytest.raises(ModelError, match="in another order of the rows"):
        fairkit.audit(proto, data())


def test_statics_name_nodes():
    proto = graph(_label(SIZE["other people's mean"]), LABEL)
    assert meeting(proto, ["label"]) == ["ReduceMean 'mean'"]
    assert draws(proto, ["label"]) == []
    random = graph(
        "score = RandomUniformLike<dtype = 1>(age) label = Identity(sex)", "float[N,1] score, float[N,1] label"
    )
    assert draws(random, ["label"]) == []  # not behind what is audited
    assert len(draws(random, ["score"])) == 1


def test_differing_allows_rounding_and_nothing_else():
    def say(score, decision):
        return Predictions(score=np.array(score), decision=np.array(decision, dtype=float))

    assert not len(differing(say([0.5, 0.2], [1, 0]), say([0.500001, 0.2], [1, 0]), 2e-5))
    assert not len(differing(say([0.5, 0.2], [1, 0]), say([0.499999, 0.2], [0, 0]), 2e-5))
    assert differing(say([0.5, 0.2], [1, 0]), say([0.5, 0.2], [0, 0]), 2e-5).tolist() == [0]
    assert differing(say([0.5, 0.2], [1, 0]), say([0.5, 0.3], [1, 0]), 2e-5).tolist() == [1]
    both = differing(say([0.5, 0.5], [1, 1]), say([0.499999, 0.499999], [0, 0]), 2e-5)
    assert both.tolist() == [0, 1]  # two of two rows are no rounding


def _neighbours(turn, *, readers="far = Transpose(stacked)", states="age, points"):
    """A Scan over constants, as skl2onnx writes distances to the rows of a nearest-neighbour model."""
    from onnx import parser

    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    neighbours (float[N,1] age, float[N,1] sex) => (float[N,M] score)
      <float[3,1] points = {{20.0, 40.0, 60.0}}, float[1,1] none = {{0.0}}> {{
      left, stacked = Scan<num_scan_inputs = 1, body = turn (float[a,1] state, float[b] point) => (float[a,1] kept, float[a] gap)
        {{ {turn} }}>({states})
      {readers}
      score = Identity(far) }}""")


WALK = "kept = Identity(state) apart = Sub(state, point) gap = ReduceSumSquare<axes = [1], keepdims = 0>(apart)"


def test_a_scan_over_constants_is_as_harmless_as_its_body():
    assert meeting(_neighbours(WALK), ["score"]) == []
    rest = {
        "the body looks at all rows": _neighbours(WALK.replace("[1], keepdims", "[0], keepdims")),
        "it goes through the rows and keeps something": _neighbours(
            "kept = Add(state, point) gap = ReduceSumSquare<axes = [1], keepdims = 0>(kept)", states="none, age"
        ),
        "rows lie along the second axis": _neighbours(
            WALK, readers="mean = ReduceMean<axes = [1]>(stacked) far = Sub(age, mean)"
        ),
        "nobody turns it": _neighbours(WALK, readers="far = Identity(stacked)"),
        "in the other direction": _neighbours(WALK, readers="far = Transpose<perm = [0, 1]>(stacked)"),
    }
    assert [why for why, proto in rest.items() if not meeting(proto, ["score"])] == []


def test_a_scan_that_gives_each_row_its_turn_is_harmless_unless_it_looks_elsewhere():
    own = "kept = Identity(state) sum = Add(state, point) gap = Squeeze(sum)"
    assert meeting(_neighbours(own, states="none, age", readers="far = Identity(stacked)"), ["score"]) == []
    others = "kept = Identity(state) mean = ReduceMean<keepdims = 0>(sex) gap = Mul(mean, point)"
    assert meeting(_neighbours(others, states="none, age", readers="far = Identity(stacked)"), ["score"])
    first = "kept = Identity(point) sum = Add(state, point) gap = Squeeze(sum)"
    assert meeting(_neighbours(first, states="none, age", readers="far = Identity(stacked)"), ["score"])


def test_scikit_learn_s_neighbours_are_scored_alone_on_few_rows():
    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsClassifier

    columns = table()
    X = np.column_stack([columns["age"], columns["sex"]]).astype(np.float32)
    fitted = KNeighborsClassifier(3).fit(X, columns["age"] > 40)
    proto = to_onnx(fitted, X[:1], options={"zipmap": False})
    assert meeting(proto, [output.name for output in proto.graph.output]) == []
