"""Trees and what follows a sum, as they are read from a graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from tests.oracles import predict_trees

from fairkit.errors import ModelError
from fairkit_onnx.file import open_session
from fairkit_onnx.structure.monotone import check_monotone
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.trees import add_ensemble, lightgbm_trees, round_down, sklearn_trees, xgboost_trees


def sample(n=600, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    X[:, 2] = rng.integers(0, 6, n)
    y = ((X[:, 0] + (X[:, 2] == 3) - (X[:, 2] == 1) + rng.normal(size=n)) > 0).astype(float)
    if missing:
        X[rng.random(n) < 0.1, 0] = np.nan
    return X, y


def in_graph(trees, X, outputs=None, base=(0.0,)):
    graph = GraphBuilder()
    parts = [graph.input(f"x{i}", "float") for i in range(X.shape[1])]
    matrix = graph.node("Concat", parts, axis=1)
    graph.output("sums", add_ensemble(graph, matrix, trees, outputs=outputs, base=base), width=len(base))
    feeds = {f"x{i}": X[:, [i]] for i in range(X.shape[1])}
    return open_session(graph.build(), threads=1).run(["sums"], feeds)[0]


@given(st.floats(allow_nan=False, width=64, min_value=-3e38, max_value=3e38))
def test_round_down_keeps_every_float32_on_its_side(threshold):
    down = np.float32(round_down(threshold))
    assert float(down) <= threshold
    assert float(np.nextafter(down, np.float32(np.inf))) > threshold


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("categorical", [[], [2]])
def test_lightgbm_trees_give_its_scores_also_at_the_thresholds(missing, categorical):
    import lightgbm

    X, y = sample(missing=missing)
    params = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data_per_group": 5, "cat_smooth": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(X, y, categorical_feature=categorical), 30)
    trees = lightgbm_trees(booster)
    cuts = [n.value for tree in trees for n in tree if n.mode == "BRANCH_LEQ" and n.feature == 0]
    edge = np.float32(cuts)
    around = np.concatenate([edge, np.nextafter(edge, np.float32(9)), np.nextafter(edge, np.float32(-9))])
    probe = np.column_stack([around, np.zeros_like(around), np.tile([0, 3, 9], len(edge))]).astype(np.float32)
    probe = np.concatenate([probe, X, [[np.nan, 0, np.nan], [0, 0, -1]]]).astype(np.float32)
    expected = booster.predict(probe, raw_score=True)
    np.testing.assert_allclose(in_graph(trees, probe)[:, 0], expected, atol=2e-6)
    np.testing.assert_allclose(
        predict_trees(trees[:5], X[:50], [0] * 5, [0.0])[:, 0],
        booster.predict(X[:50], raw_score=True, num_iteration=5),
        atol=1e-12,
    )


def test_thresholds_rounded_to_nearest_would_be_wrong():
    # between two neighbouring float32 numbers the threshold may lie nearer to the upper one
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2))
    threshold = float(low) + 0.75 * (float(high) - float(low))
    assert np.float32(threshold) == high
    assert round_down(threshold) == low


def test_prefixes_go_to_outputs_of_their_own():
    import lightgbm

    X, y = sample()
    booster = lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X, y), 9)
    sums = in_graph(lightgbm_trees(booster), X, outputs=[0] * 4 + [1] * 5, base=(0.5, 0.0))
    np.testing.assert_allclose(sums[:, 0], 0.5 + booster.predict(X, raw_score=True, num_iteration=4), atol=1e-6)
    np.testing.assert_allclose(sums.sum(1), 0.5 + booster.predict(X, raw_score=True), atol=1e-6)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror", "multi:softprob"])
def test_xgboost_trees_give_its_margins(objective):
    import xgboost

    X, y = sample()
    params = {"objective": objective, "max_depth": 4, "nthread": 1}
    if objective == "multi:softprob":
        y = y + (X[:, 1] > 1)
        params["num_class"] = 3
    booster = xgboost.train(params, xgboost.DMatrix(X, y), 20)
    trees, outputs, base = xgboost_trees(booster)
    margins = booster.predict(xgboost.DMatrix(X), output_margin=True).reshape(len(X), -1)
    base = base if len(base) == margins.shape[1] else base * margins.shape[1]
    np.testing.assert_allclose(in_graph(trees, X, outputs, base), margins, atol=3e-6)


@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
def test_forests_give_their_means(kind):
    X, y = sample()
    model = kind(n_estimators=7, max_depth=5, random_state=0).fit(X, y)
    classifier = kind is RandomForestClassifier
    trees = sklearn_trees(model.estimators_, classifier=classifier)
    expected = model.predict_proba(X) if classifier else model.predict(X)[:, None]
    np.testing.assert_allclose(in_graph(trees, X, base=(0.0,) * expected.shape[1]) / 7, expected, atol=1e-6)


def test_one_tree_of_one_leaf():
    from sklearn.tree import DecisionTreeClassifier

    X, _ = sample(50)
    trees = sklearn_trees(
        [DecisionTreeClassifier(max_depth=1, min_samples_leaf=40).fit(X, np.arange(50) % 2)], classifier=True
    )
    assert len(trees[0]) == 1
    assert in_graph(trees, X, base=(0.0, 0.0)).tolist() == [[0.5, 0.5]] * 50


@pytest.mark.parametrize("params", [{"linear_tree": True}, {"zero_as_missing": True}])
def test_forms_without_a_place_in_onnx_are_refused(params):
    import lightgbm

    X, y = sample(missing=False)
    X[::3, 0] = 0
    booster = lightgbm.train(
        {"objective": "binary", "verbosity": -1, "num_threads": 1} | params, lightgbm.Dataset(X, y, params=params), 3
    )
    with pytest.raises(ModelError, match=f"{next(iter(params))} has no form in ONNX"):
        lightgbm_trees(booster)


# What follows a sum: links that keep its order are read, and what might turn it is refused by the node's name.
node, numpy_helper = onnx.helper.make_node, onnx.numpy_helper
BOTH = {"p": (-1, 1)}
ONE = {"s": (1,)}


def checked(nodes, start, **constants):
    graph = onnx.helper.make_graph(
        nodes, "g", [], [], [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    )
    check_monotone(graph, nodes, start)


FIRST = np.array([0])
SECOND = np.array([1])
ENDS = {"z": np.float32([0]), "o": np.float32([1])}
READ = {
    "the favorable column": ([node("Gather", ["p", "at"], ["q"], axis=1), node("Greater", ["q", "c"], ["d"])], BOTH,
                             {"at": SECOND, "c": np.float32([0.2])}),
    "the label of the larger": ([node("ArgMax", ["p"], ["d"], axis=1), node("Equal", ["d", "one"], ["e"])], BOTH,
                                {"one": np.array([1])}),
    "clipped": ([node("Max", ["s", "z"], ["t"]), node("Min", ["t", "o"], ["u"])], ONE,
                ENDS),
    "two steps that rise": ([node("Greater", ["s", "z"], ["a"]), node("Greater", ["s", "o"], ["b"]),
                             node("And", ["a", "b"], ["d"])], ONE, ENDS),
    "a row of a table": ([node("Gather", ["table", "group"], ["t"]), node("Sub", ["s", "t"], ["u"]),
                          node("Mul", ["u", "t"], ["v"])], ONE, {"table": np.float32([[0.1], [0.4]])}),
    "one of two columns, cut out": ([node("Slice", ["p", "at", "to", "on", "by"], ["q"])], BOTH,
                                    {"at": SECOND, "to": np.array([2]), "on": SECOND, "by": SECOND}),
    "shares of two": ([node("Sigmoid", ["p"], ["q"]), node("Abs", ["q"], ["a"]), node("ReduceSum", ["a"], ["n"]),
                       node("Div", ["q", "n"], ["r"])], BOTH, {}),
}  # fmt: skip
REFUSED = {
    "a band between two steps": ([node("Greater", ["s", "z"], ["a"]), node("Less", ["s", "o"], ["b"]),
                                  node("And", ["a", "b"], ["d"])], ONE, ENDS, "And"),
    "two columns that go against each other": (
        [node("Gather", ["p", "at"], ["q"], axis=1), node("Gather", ["p", "to"], ["r"], axis=1),
         node("Add", ["q", "r"], ["d"])], BOTH, {"at": FIRST, "to": SECOND}, "Add"),
    "steps of several columns": ([node("Sub", ["s", "some"], ["u"]), node("Greater", ["u", "z"], ["a"]),
                                  node("Equal", ["a", "yes"], ["d"])], ONE,
                                 {"some": np.float32([[0.1, 0.4]]), "yes": np.array([True]), **ENDS}, "Equal"),
    "an unknown column": ([node("Gather", ["p", "which"], ["q"], axis=1)], BOTH, {}, "Gather"),
    "rows cut out, with steps and no axes": ([node("Slice", ["p", "at", "to", "", "by"], ["q"])], BOTH,
                                             {"at": SECOND, "to": np.array([2]), "by": SECOND}, "Slice"),
    "a table of two signs": ([node("Gather", ["table", "group"], ["t"]), node("Mul", ["s", "t"], ["v"])], ONE,
                             {"table": np.float32([[0.1], [-0.4]])}, "Mul"),
    "a distance": ([node("Abs", ["s"], ["d"])], ONE, {}, "Abs"),
    "shares of the sum of another": (
        [node("Sigmoid", ["p"], ["q"]), node("Exp", ["p"], ["o"]), node("ReduceSum", ["o"], ["n"]),
         node("Div", ["q", "n"], ["r"])], BOTH, {}, "Div"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_links_that_keep_the_order_are_read(name):
    nodes, start, constants = READ[name]
    checked(nodes, start, **constants)


@pytest.mark.parametrize("name", REFUSED)
def test_links_that_may_turn_the_order_are_refused(name):
    nodes, start, constants, kind = REFUSED[name]
    with pytest.raises(ModelError, match=f"the node {kind} "):
        checked(nodes, start, **constants)
