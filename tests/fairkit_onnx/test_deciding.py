"""Labels without scores: rounding inside the graph is bounded where the label is decided."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import fairkit
from fairkit.results.rules import Rule
from fairkit_onnx.read.deciding import DECIDING
from fairkit_onnx.read.rounding import trees
from fairkit_onnx.read.sums import SumWalk

from .hostile import data, graph, table
from .test_rounding import absorbed

RULE = Rule("demographic_parity_difference", "sex", max=0.2)


def label_only(proto, body, output="int64[N,1] label"):
    """Let nodes follow that turn the graph's first output into a label, which alone is served."""
    more = graph(body, output, inputs="float[N,1] score")
    proto.graph.node.extend(more.graph.node)
    del proto.graph.output[:]
    proto.graph.output.extend(more.graph.output)
    onnx.checker.check_model(proto)
    return proto


COMPARED = "half = Constant<value = float[1] {0.5}>() yes = Greater(score, half) label = Cast<to = 7>(yes)"
ROUNDED = "whole = Round(score) label = Cast<to = 7>(whole)"
PICKED = """one = Constant<value = float[1] {1.0}>() other = Sub(one, score) both = Concat<axis = 1>(other, score)
  label = ArgMax<axis = 1>(both)"""


@pytest.mark.parametrize("body", [COMPARED, PICKED, ROUNDED])
def test_a_label_that_rounding_decides_gets_no_pass(body):
    report = fairkit.audit(label_only(absorbed(), body), data(table(3_000)), policy=[RULE])
    assert report.model.serving["rounding"]["proved"]
    told = report.find("demographic_parity_difference", "sex").evidence["rounding_bounds"]
    assert told["high"] > 0.9
    assert report.verdict != "pass"


def test_a_network_whose_label_rounding_decides_gets_no_pass():
    """Weights of 2²⁵ that cancel: each order of the sum keeps or loses the harmless part."""
    proto = graph(
        """x = Concat<axis = 1>(age, sex, sex)
        w = Constant<value = float[3,1] {0.02, 33554432.0, -33554432.0}>()
        score = MatMul(x, w) cut = Constant<value = float[1] {0.8}>() yes = Greater(score, cut)
        label = Cast<to = 7>(yes)""",
        "int64[N,1] label",
    )
    report = fairkit.audit(proto, data(table(3_000)), policy=[RULE])
    assert report.model.serving["rounding"]["bound"] > 0.5
    assert report.verdict != "pass"


def exported(kind, columns):
    from skl2onnx import to_onnx
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.column_stack([columns["age"], columns["sex"]]).astype(np.float32)
    y = (columns["age"] + np.random.default_rng(3).normal(0, 8, len(x)) > 40).astype(int)
    fitted = make_pipeline(StandardScaler(), kind).fit(x, y)
    proto = to_onnx(fitted, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    scores = proto.graph.output.pop()
    assert len(proto.graph.output) == 1
    return proto, scores, y


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        LogisticRegression(),
        GradientBoostingClassifier(n_estimators=40),
        RandomForestClassifier(30, max_depth=6, random_state=0),
        MLPClassifier((8,), max_iter=2_000, tol=1e-2, random_state=0),
    ],
)
def test_honest_labels_have_a_bound_and_keep_their_verdict(kind):
    """The same rows are undetermined as where the scores are served beside the label."""
    columns = table(2_000)
    columns["age"] = np.random.default_rng(1).uniform(20, 60, 2_000)
    proto, scores, y = exported(kind, columns)
    columns["y"] = y
    report = fairkit.audit(proto, data(columns), policy=[RULE])
    assert report.model.serving["rounding"]["proved"], kind
    assert report.verdict == "pass", report.policy[0].reason
    proto.graph.output.append(scores)
    told = report.find("demographic_parity_difference", "sex").evidence.get("rounding_bounds")
    with_scores = fairkit.audit(proto, data(columns), policy=[RULE])
    beside = with_scores.find("demographic_parity_difference", "sex").evidence.get("rounding_bounds")
    assert (told is None) == (beside is None)


def test_rows_on_the_cut_are_undetermined_and_no_others():
    proto = graph(
        """x = Concat<axis = 1>(age, sex) w = Constant<value = float[2,1] {0.1, 0.1}>() score = MatMul(x, w)
        cut = Constant<value = float[1] {4.0}>() yes = Greater(score, cut) label = Cast<to = 7>(yes)""",
        "int64[N,1] label",
    )
    from fairkit_onnx.file import OnnxFile
    from fairkit_onnx.read.deciding import label_rounding

    columns = table(500)
    arrays = {name: columns[name].astype(np.float32).reshape(-1, 1) for name in ("age", "sex")}
    found = label_rounding(OnnxFile.load(proto), "label", arrays, trees)
    near = found.near(arrays)
    assert (near == (columns["age"] + columns["sex"] == 40)).all()
    assert near.any()


def test_what_decides_by_places_that_a_sum_gives_has_no_bound():
    """A table that is looked up by a sum: nothing says how near its keys are."""
    proto = graph(
        """x = Concat<axis = 1>(age, sex) w = Constant<value = float[2,1] {0.1, 0.1}>() score = MatMul(x, w)
        label = ai.onnx.ml.LabelEncoder<keys_floats = [4.0, 4.1], values_int64s = [0, 1], default_int64 = 1>(score)""",
        "int64[N,1] label",
    )
    arrays = {name: np.ones((4, 1), np.float32) for name in ("age", "sex")}
    walk = SumWalk(proto, "label", trees, DECIDING)
    assert walk.summed
    assert walk(arrays) is None
    columns = table()
    report = fairkit.audit(proto, data(columns | {"y": columns["y"]}))
    assert report.model.serving["rounding"] == {"bound": 0.0, "proved": False}


def test_a_label_that_a_step_makes_is_bounded_where_it_steps():
    node = helper.make_node("Round", ["s"], ["r"])
    from fairkit_onnx.read.deciding import _near

    values = {"s": np.array([[0.5], [1.4], [2.0]])}
    assert _near(node, values, 3) == pytest.approx([0.0, 0.1, 0.5])
    node = helper.make_node("Floor", ["s"], ["r"])
    assert _near(node, values, 3) == pytest.approx([0.5, 0.4, 0.0])
    node = helper.make_node("Sign", ["s"], ["r"])
    assert _near(node, values, 3) == pytest.approx([0.5, 1.4, 2.0])


def test_several_classes_without_scores():
    from skl2onnx import to_onnx

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_500, 2)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(int) + (x[:, 1] > 0.3)
    fitted = RandomForestClassifier(25, random_state=0).fit(x, y)
    proto = to_onnx(fitted, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    proto.graph.output.pop()
    sex = rng.integers(0, 2, 1_500)
    columns = {"age": x[:, 0], "sex_": x[:, 1], "y": y, "sex": sex}
    dataset = fairkit.load_data(columns, label="y", sensitive=["sex"], features=["age", "sex_"])
    report = fairkit.audit(proto, dataset)
    assert report.model.serving["rounding"]["proved"]


GROWING = """x = Concat<axis = 1>(age, sex) small = Constant<value = float {0.001}>() y = Mul(x, small) z = Exp(y)
    w = Constant<value = float[2,1] {0.1, 0.1}>() score = MatMul(z, w)
    cut = Constant<value = float[1] {0.206}>() yes = Greater(score, cut) label = Cast<to = 7>(yes)"""


def test_a_label_of_a_sum_of_numbers_of_any_size_is_tried_with_other_threads():
    """An infinite bound was called proved, and no JSON has it."""
    report = fairkit.audit(graph(GROWING, "int64[N,1] label"), data(table(500)), policy=[RULE])
    assert report.model.serving["rounding"] == {"bound": 0.0, "proved": False}


LINEAR = """x = Concat<axis = 1>(age, sex) w = Constant<value = float[2,1] {0.1, 0.1}>() score = MatMul(x, w)
    cut = Constant<value = float[1] {4.0}>() yes = Greater(score, cut) label = Cast<to = 7>(yes)"""


@pytest.mark.parametrize("output", ["int64[N,1] label", "float[N,1] score"])
def test_the_bound_that_is_recorded_is_that_of_all_rows(output):
    """Large numbers come after the rows that the model is bound to."""
    bounds = []
    for age in (60.0, 6e6):
        columns = table(6_000)
        columns["age"][5_000] = age
        options = fairkit.ModelOptions(score_kind="logit") if "score" in output else None
        report = fairkit.audit(graph(LINEAR, output), data(columns), options=options)
        bounds.append(report.model.serving["rounding"]["bound"])
    assert bounds[1] > 1_000 * bounds[0] > 0


SWALLOW = "w = Constant<value = float[3,1] {0.02, 33554432.0, -33554432.0}>() y = MatMul(x, w)"
CUT = "cut = Constant<value = float[1] {0.8}>() yes = Greater(s, cut) label = Cast<to = 7>(yes)"


@pytest.mark.parametrize("name", ["Floor", "Relu", "Mixer"])
def test_a_function_is_not_taken_for_the_operator_of_its_name(name):
    """A network whose sums swallow the score, in a function called as an operator that rounds nothing."""
    more = f'< domain: "own", opset_import: ["" : 17] > {name} (x) => (y) {{ {SWALLOW} }}'
    body = f"x = Concat<axis = 1>(age, sex, sex) s = own.{name}(x)"
    plain = f"{body} one = Constant<value = float[1,1] {{1.0}}>() score = MatMul(s, one)"
    options = fairkit.ModelOptions(score_kind="logit")
    report = fairkit.audit(graph(plain, "float[N,1] score", more=more), data(table(500)), options=options)
    assert not report.model.serving["rounding"]["proved"]
    report = fairkit.audit(graph(f"{body} {CUT}", "int64[N,1] label", more=more), data(table(500)))
    assert not report.model.serving["rounding"]["proved"]  # it is tried with other threads


def test_a_sum_that_is_no_product_is_tried_behind_a_label():
    body = f"x = Concat<axis = 1>(age, sex) s = ReduceMean<axes = [1], keepdims = 1>(x) {CUT}"
    report = fairkit.audit(graph(body, "int64[N,1] label"), data(table(500)))
    assert report.model.serving["rounding"] == {"bound": 0.0, "proved": False}
