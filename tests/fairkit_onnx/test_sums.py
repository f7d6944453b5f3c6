"""Bounds on what the order of float32 sums can do to linear models, networks and classes, against random orders."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit
from fairkit.results.rules import Rule
from fairkit_onnx.read.rounding import bound
from fairkit_onnx.session import open_session

from .hostile import data, table

RULE = Rule("demographic_parity_difference", "sex", max=0.2)


def network(weights, biases, *, last="Sigmoid"):
    """Return a network with relus on the matrix x, whose last sum goes through a link."""
    nodes, tensors, before = [], [], "x"
    for depth, (w, b) in enumerate(zip(weights, biases, strict=True)):
        tensors += [
            numpy_helper.from_array(w.astype(np.float32), f"w{depth}"),
            numpy_helper.from_array(b.astype(np.float32), f"b{depth}"),
        ]
        nodes.append(helper.make_node("Gemm", [before, f"w{depth}", f"b{depth}"], [f"z{depth}"]))
        kind = "Relu" if depth < len(weights) - 1 else last
        before = f"y{depth}" if depth < len(weights) - 1 else "score"
        nodes.append(helper.make_node(kind, [f"z{depth}"], [before]))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, len(weights[0])])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, weights[-1].shape[1]])],
        tensors,
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def ordered(x, weights, biases, rng):
    """Compute the last sums in float32, each in an order of its own."""
    for depth, (w, b) in enumerate(zip(weights, biases, strict=True)):
        sums = np.empty((len(x), w.shape[1]), np.float32)
        for column in range(w.shape[1]):
            total = np.zeros(len(x), np.float32)
            terms = [x[:, i] * np.float32(w[i, column]) for i in range(len(w))] + [np.float32(b[column])]
            for place in rng.permutation(len(terms)):
                total = total + terms[place]
            sums[:, column] = total
        x = sums if depth == len(weights) - 1 else np.maximum(sums, 0)
    return x


@pytest.mark.parametrize("shape", [(12, 1), (12, 24, 1), (6, 16, 16, 3)])
def test_the_bound_holds_for_random_orders_of_every_sum(shape):
    rng = np.random.default_rng(len(shape))
    weights = [rng.normal(size=pair) for pair in itertools.pairwise(shape)]
    biases = [rng.normal(size=w.shape[1]) for w in weights]
    x = (rng.normal(size=(200, shape[0])) * 10.0 ** rng.integers(-2, 3, shape[0])).astype(np.float32)
    far = bound(network(weights, biases, last="Identity"), "score", {"x": x})
    exact = x.astype(np.float64)
    for depth, (w, b) in enumerate(zip(weights, biases, strict=True)):
        exact = exact @ w.astype(np.float32).astype(float) + b.astype(np.float32).astype(float)
        exact = exact if depth == len(weights) - 1 else np.maximum(exact, 0)
    seen = max(np.abs(ordered(x, weights, biases, rng) - exact).max() for _ in range(20))
    assert seen <= far
    assert far < 1e4 * seen  # it says something


def test_a_network_whose_sums_swallow_the_score_gets_no_pass():
    """Weights of 2²⁵ that cancel: what is left of the score depends on the order in which the sums are made."""
    swallow = 2.0**25
    weights = [np.array([[1.0, 0, 0, 0], [0, 1.0, 1.0, 0]]), np.array([[0.01], [swallow], [-swallow], [1.0]])]
    biases = [np.array([-40.0, 0, 0, 1.0]), np.array([-0.1])]
    report = fairkit.audit(network(weights, biases), data(table(3_000)), policy=[RULE])
    assert report.model.serving["rounding"]["proved"]
    assert report.verdict != "pass"
    assert "rounding_bounds" in report.find("demographic_parity_difference", "sex").evidence


def test_honest_models_are_proved_and_keep_their_verdict():
    rng = np.random.default_rng(3)
    for shape in ((2, 1), (2, 32, 1), (2, 64, 64, 1)):
        weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in itertools.pairwise(shape)]
        weights[0] = weights[0] / np.array([[60.0], [1e6]])  # sex says nothing
        biases = [rng.normal(size=w.shape[1]) for w in weights]
        proto = network(weights, biases)
        rows = table(3_000)
        x = np.column_stack([rows["age"], rows["sex"]]).astype(np.float32)
        score = open_session(proto).run(None, {"x": x})[0].ravel()
        far = bound(proto, "score", {"x": x})
        assert 0 < far < 2e-4
        report = fairkit.audit(proto, data(rows), policy=[Rule(RULE.metric, "sex", max=0.3)])
        told = report.model.serving["rounding"]
        assert told == {"bound": pytest.approx(far), "proved": True}
        assert int((np.abs(score - 0.5) <= far).sum()) <= 0.01 * len(x)


def test_a_later_batch_with_larger_numbers_has_a_bound_of_its_own():
    weights, biases = [np.array([[1.0], [0.0]])], [np.array([-40.0])]
    proto = network(weights, biases)
    small, large = (np.array([[scale, 0.0]], np.float32) for scale in (1.0, 1e6))
    assert bound(proto, "score", {"x": large}) > 100 * bound(proto, "score", {"x": small})


def test_classes_whose_lead_is_within_the_bound_are_undetermined():
    rng = np.random.default_rng(5)
    swallow = 2.0**24
    weights = [np.array([[0.02, 0.0, 0.01], [swallow, swallow, swallow]])]
    proto = network(weights, [np.array([0.0, 1.0, 0.2])], last="Softmax")
    rows = table(3_000) | {"sex": rng.integers(0, 2, 3_000).astype(float)}
    rows["y"] = np.array(["a", "b", "c"])[rng.integers(0, 3, 3_000)]
    dataset = fairkit.load_data(rows, label="y", sensitive=["sex"], features=["age", "sex"])
    options = fairkit.ModelOptions(classes=("a", "b", "c"))
    report = fairkit.audit(proto, dataset, options=options)
    assert report.model.serving["rounding"]["proved"]
    found = {one.metric: one for one in report.findings if "rounding_bounds" in one.evidence}
    for metric in ("accuracy_difference", "class_gap_max", "demographic_parity_difference"):
        told = found[metric].evidence["rounding_bounds"]
        assert (told["low"], told["high"]) == (0.0, 1.0)
        assert told["binding"]
    plain = network([weights[0] * [[1.0], [0.0]]], [np.array([0.0, 1.0, 0.2])], last="Softmax")
    quiet = fairkit.audit(plain, dataset, options=options)
    assert quiet.model.serving["rounding"]["bound"] < 1e-4


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul(x, w) s = Exp(m) score = Sigmoid(s)",
        "m = MatMul(x, w) c = Greater(m, w0) f = Cast<to = 1>(c) score = Sigmoid(f)",
        "m = MatMul(x, w) c = Cast<to = 7>(m) f = Cast<to = 1>(c) score = Sigmoid(f)",
        "t = Transpose(x) m = MatMul(x, t) r = ReduceMax<axes = [1], keepdims = 1>(m) score = Sigmoid(r)",
    ],
)
def test_what_a_sum_decides_inside_the_graph_has_no_bound(body):
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,2] x) => (float[N,1] score)
      <float[2,1] w = {{1.0, 2.0}}, float[1] w0 = {{0.5}}> {{ {body} }}"""
    proto = onnx.parser.parse_model(text)
    assert bound(proto, "score", {"x": np.ones((3, 2), np.float32)}) is None


def test_columns_that_are_joined_picked_and_scaled_are_followed():
    text = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g
      (float[N,2] x, float[N,1] z) => (float[N,1] score) <float[3,1] w = {1.0, 2.0, 3.0}, int64[2] at = {1, 0}>
      { p = Gather<axis = 1>(x, at) both = Concat<axis = 1>(p, z)
        s = ai.onnx.ml.Scaler<offset = [1.0, 0.0, 0.0], scale = [0.5, 1.0, 2.0]>(both) score = MatMul(s, w) }"""
    rng = np.random.default_rng(8)
    feeds = {"x": rng.normal(size=(50, 2)).astype(np.float32), "z": rng.normal(size=(50, 1)).astype(np.float32)}
    far = bound(onnx.parser.parse_model(text), "score", feeds)
    assert 0 < far < 1e-4


def test_a_pipeline_that_scales_columns_of_unlike_sizes_is_bounded_closely(loans_model):
    """Each column has its own scale: incomes do not count by the scale of ratios."""
    roles = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}
    report = fairkit.audit(str(loans_model.path), fairkit.load_data(str(loans_model.data), **roles))
    told = report.model.serving["rounding"]
    assert told["proved"]
    assert 0 < told["bound"] < 1e-4


def test_texts_whose_shares_have_length_one_are_bounded_by_it_and_counts_by_runs():
    """Of a thousand words nearly all are missing in a text: the bound does not add up all weights."""
    rng = np.random.default_rng(9)
    weights = ", ".join(f"{w:.4f}" for w in rng.normal(size=1_000))
    words = ", ".join(f'"w{i}"' for i in range(1_000))
    places = ", ".join(str(i) for i in range(1_000))

    def model(norm):
        text = f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]> g (string[N,5] x) => (float[N,1] score)
          <float[1000,1] w = {{{weights}}}> {{
          counts = TfIdfVectorizer<max_gram_length = 1, max_skip_count = 0, min_gram_length = 1, mode = "TF",
            ngram_counts = [0], ngram_indexes = [{places}], pool_strings = [{words}]>(x)
          shares = {norm}(counts) score = MatMul(shares, w) }}"""
        return onnx.parser.parse_model(text)

    feeds = {"x": np.array([["w1", "w2", "w3", "w4", "w5"]] * 3, dtype=object)}
    assert 0 < bound(model('ai.onnx.ml.Normalizer<norm = "L2">'), "score", feeds) < 5e-3
    assert bound(model("Identity"), "score", feeds) is None


@pytest.mark.long
@pytest.mark.parametrize("served", ["score", "label"])
def test_the_recorded_bound_is_that_of_all_rows_in_whatever_order(served):
    """Large numbers in the first rows or in the last ones, and two columns that are large in different batches."""
    from .test_deciding import COMPARED, label_only

    proto = network([np.array([[0.01], [0.003]])], [np.array([-0.4])])
    proto = proto if served == "score" else label_only(proto, COMPARED)
    rows = table(70_000)
    rows["age"][-50:], rows["sex"][:50] = 9e4, 5e4
    reports = [
        fairkit.audit(proto, data({name: values[order] for name, values in rows.items()}))
        for order in (np.arange(70_000), np.arange(70_000)[::-1])
    ]
    forth, back = (report.model.serving["rounding"] for report in reports)
    assert forth == back
    assert forth["proved"]
    one = fairkit.audit(proto, data({name: values[:5_000] for name, values in table(70_000).items()}))
    assert forth["bound"] > 10 * one.model.serving["rounding"]["bound"]
