from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from tests.oracles import predict_trees

from fairkit.errors import ModelError
from fairkit_onnx.file import open_session
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
