"""Decisions that rounding decides: counted, and no verdict that another order of a sum would turn."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit.results.rules import Rule
from fairkit_onnx.read.rounding import UNIT, bound
from fairkit_onnx.session import open_session

from .hostile import data, table


def stumps(feature, cuts, low, high, *, base=0.5):
    """Return trees of one split each: leaf `low` where the feature is at most the cut, else `high`."""
    many = len(cuts)
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["score"], domain="ai.onnx.ml", n_targets=1,
        base_values=[base],
        nodes_treeids=np.repeat(range(many), 3).tolist(), nodes_nodeids=[0, 1, 2] * many,
        nodes_featureids=np.ravel([[f, 0, 0] for f in feature]).tolist(),
        nodes_values=np.ravel([[c, 0, 0] for c in cuts]).astype(float).tolist(),
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * many,
        nodes_truenodeids=[1, 0, 0] * many, nodes_falsenodeids=[2, 0, 0] * many,
        nodes_missing_value_tracks_true=[0] * 3 * many, nodes_hitrates=[1.0] * 3 * many,
        target_treeids=np.repeat(range(many), 2).tolist(), target_nodeids=[1, 2] * many, target_ids=[0] * 2 * many,
        target_weights=np.ravel([low, high], order="F").astype(float).tolist(),
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
    )  # fmt: skip
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    )


def absorbed():
    """Return trees that decide by age, and lose it, by sex, where another order of the sum puts 2²⁵ in between."""
    low, high, feature, cuts = np.zeros(200), np.zeros(200), np.zeros(200, int), np.full(200, 40.0)
    feature[:2], cuts[:2] = 1, 0.5
    high[:2] = 2.0**25, -(2.0**25)
    high[2:42] = 0.6 / 40
    return stumps(feature, cuts, low, high, base=0.2)


def test_a_sum_that_rounding_decides_gets_no_pass():
    rule = Rule("demographic_parity_difference", "sex", max=0.2)
    report = fairkit.audit(absorbed(), data(table(3_000)), policy=[rule])
    assert report.model.serving["rounding"]["proved"]
    told = report.find("demographic_parity_difference", "sex").evidence["rounding_bounds"]
    assert (told["low"], told["high"]) == (pytest.approx(0, abs=0.9), 1.0)
    assert report.verdict != "pass"


def test_honest_trees_have_few_undetermined_rows_and_keep_their_verdict():
    rng = np.random.default_rng(0)
    cuts, high = rng.uniform(20, 60, 200), rng.normal(0, 0.02, 200)
    proto = stumps(np.zeros(200, int), cuts, np.zeros(200), high, base=0.01)
    limit = bound(proto, "score")
    assert 0 < limit < 1e-4
    rows = table(3_000)
    rows["age"] = rng.uniform(20, 60, 3_000)
    rule = Rule("demographic_parity_difference", "sex", max=0.2)
    options = fairkit.ModelOptions(score_kind="logit")
    report = fairkit.audit(proto, data(rows), policy=[rule], options=options)
    assert report.verdict == "pass"
    x = np.column_stack([rows["age"], rows["sex"]]).astype(np.float32)
    score = open_session(proto).run(None, {"x": x})[0].ravel()
    near = int((np.abs(1 / (1 + np.exp(-score.astype(float))) - 0.5) <= limit / 4).sum())
    found = report.find("demographic_parity_difference", "sex").evidence.get("rounding_bounds")
    assert (found is None) == (near == 0)


def test_the_bound_holds_for_every_order_of_the_sum():
    """Against sums in 200 random orders in float32, and the exact one."""
    rng = np.random.default_rng(1)
    leaves = (rng.normal(size=300) * 10.0 ** rng.integers(-3, 3, 300)).astype(np.float32)
    proto = stumps(np.zeros(300, int), np.full(300, 40.0), leaves, leaves, base=0.0)
    exact = leaves.astype(np.float64).sum()
    limit = bound(proto, "score")
    assert limit == pytest.approx(300 * UNIT * np.abs(leaves.astype(float)).sum())
    for _ in range(200):
        total = np.float32(0)
        for leaf in rng.permutation(leaves):
            total += leaf
        assert abs(float(total) - exact) <= limit


def test_what_follows_the_trees_is_followed_or_not_understood():
    proto = stumps([0], [40.0], [0.0], [1.0])
    plain = bound(proto, "score")

    def then(*nodes, output, **constants):
        more = helper.make_model(proto.graph, ir_version=8)
        for node in nodes:
            more.graph.node.append(node)
        for name, value in constants.items():
            more.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [1], [value]))
        return bound(more, output)

    times = helper.make_node("Mul", ["score", "c"], ["y"])
    assert then(times, output="y", c=1e6) == pytest.approx(1e6 * plain)
    assert then(helper.make_node("Sigmoid", ["score"], ["y"]), output="y") == pytest.approx(plain / 4)
    assert then(helper.make_node("Exp", ["score"], ["y"]), output="y") is None
