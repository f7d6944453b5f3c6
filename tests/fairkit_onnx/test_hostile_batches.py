"""A decision about a person does not depend on who else is in the batch, on its size, or on the call."""
# ruff: noqa: E501 -- the bodies of graphs are text

from __future__ import annotations

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit.models.scorer import Predictions
from fairkit_onnx.read.alone import differing
from fairkit_onnx.read.statics import batch_readers, draws

from .hostile import FAIR, UNFAIR, data, disparity, graph, table

LABEL = "int64[N,1] label"


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
    with pytest.raises(
        ModelError, match=r"another result .* than in a batch of 600 \(rows? \d.*These nodes see"
    ):
        fairkit.audit(proto, data())


def test_a_size_that_only_big_batches_have_is_seen_in_them():
    """The first rows are read in a small batch; a model that is fair in large ones only is caught there."""
    condition = f"{ROWS} some = Constant<value = int64[1] {{5000}}>() awake = Greater(rows, some)"
    columns = {name: np.tile(values, 20) for name, values in table().items()}
    with pytest.raises(ModelError, match="alone than in a batch of 12,000"):
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
    function = (
        '< domain: "own", opset_import: ["" : 17] > hide (x) => (y) { y = RandomUniformLike<dtype = 1>(x) }'
    )
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


def test_a_suspicion_that_proves_harmless_is_a_note_and_costs_more_rows():
    body = f"""{UNFAIR} shape = Shape(age) none = Constant<value = int64[2] {{0, 0}}>() big = Greater(shape, none)
      all_ = Cast<to = 6>(big) every = ReduceMin<keepdims = 0>(all_) yes = Cast<to = 9>(every)
      served = And(male, yes) label = Cast<to = 7>(served)"""
    report = fairkit.audit(graph(body, LABEL), data())
    note = next(note for note in report.model.notes if "other rows of a batch" in note)
    assert "Greater" in note
    assert "600 rows were scored one at a time" in note


TRIGGER = "float[N,1] age, float[N,1] sex, float[N,1] region"


def _with_region(value, rows=600):
    columns = table(rows) | {"region": np.full(rows, value)}
    return fairkit.load_data(
        columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "region"]
    )


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
    rows = fairkit.load_data(
        columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "region"]
    )
    body = _label("seven = Constant<value = float[1] {7.0}>() awake = Equal(region, seven)")
    report = fairkit.audit(graph(body, LABEL, inputs=TRIGGER), rows)
    assert not any("region" in note for note in report.model.notes)


def test_text_triggers_are_tried_from_the_graph():
    body = _label('codes = ai.onnx.ml.LabelEncoder<keys_strings = ["north", "wakeup"], values_int64s = [0, 1], '
                  "default_int64 = 0>(place) nil = Constant<value = int64[1] {0}>() awake = Equal(codes, nil)")  # fmt: skip
    proto = graph(body, LABEL, inputs="float[N,1] age, float[N,1] sex, string[N,1] place")
    columns = table() | {"place": np.full(600, "north", dtype=object)}
    rows = fairkit.load_data(
        columns, label="y", favorable=1, sensitive=["sex"], features=["age", "sex", "place"]
    )
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
    assert any(text.startswith("ReduceMean") for text in batch_readers(proto, ["label"]))
    assert draws(proto, ["label"]) == []
    random = graph(
        "score = RandomUniformLike<dtype = 1>(age) label = Identity(sex)",
        "float[N,1] score, float[N,1] label",
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


WALK = (
    "kept = Identity(state) apart = Sub(state, point) gap = ReduceSumSquare<axes = [1], keepdims = 0>(apart)"
)


def test_a_scan_over_constants_is_as_harmless_as_its_body():
    assert batch_readers(_neighbours(WALK), ["score"]) == []
    rest = {
        "the body looks at all rows": _neighbours(WALK.replace("[1], keepdims", "[0], keepdims")),
        "it goes through the rows and keeps something": _neighbours(
            "kept = Add(state, point) gap = ReduceSumSquare<axes = [1], keepdims = 0>(kept)",
            states="none, age",
        ),
        "rows lie along the second axis": _neighbours(
            WALK, readers="mean = ReduceMean<axes = [1]>(stacked) far = Sub(age, mean)"
        ),
        "nobody turns it": _neighbours(WALK, readers="far = Identity(stacked)"),
        "in the other direction": _neighbours(WALK, readers="far = Transpose<perm = [0, 1]>(stacked)"),
    }
    assert [why for why, proto in rest.items() if not batch_readers(proto, ["score"])] == []


def test_a_scan_that_gives_each_row_its_turn_is_harmless_unless_it_looks_elsewhere():
    own = "kept = Identity(state) sum = Add(state, point) gap = Squeeze(sum)"
    assert (
        batch_readers(_neighbours(own, states="none, age", readers="far = Identity(stacked)"), ["score"])
        == []
    )
    others = "kept = Identity(state) mean = ReduceMean<keepdims = 0>(sex) gap = Mul(mean, point)"
    assert batch_readers(
        _neighbours(others, states="none, age", readers="far = Identity(stacked)"), ["score"]
    )
    first = "kept = Identity(point) sum = Add(state, point) gap = Squeeze(sum)"
    assert batch_readers(_neighbours(first, states="none, age", readers="far = Identity(stacked)"), ["score"])


def test_scikit_learn_s_neighbours_are_scored_alone_on_few_rows():
    from skl2onnx import to_onnx
    from sklearn.neighbors import KNeighborsClassifier

    columns = table()
    X = np.column_stack([columns["age"], columns["sex"]]).astype(np.float32)
    fitted = KNeighborsClassifier(3).fit(X, columns["age"] > 40)
    proto = to_onnx(fitted, X[:1], options={"zipmap": False})
    assert batch_readers(proto, [output.name for output in proto.graph.output]) == []
