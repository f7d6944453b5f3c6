"""Mixtures of models: one file, members that are drawn for each row, and weights."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit.errors import ModelError
from fairkit_onnx.file import open_session
from fairkit_onnx.read.outputs import MIXTURE_KEY, add_member_outputs, embed_weights, member_weights
from fairkit_onnx.write.export import embed_settings, run_columns
from fairkit_onnx.write.graph import GraphBuilder, add_mixture_outputs, add_prefix_sums, mixture_chance, stack_members

SCORES = {"a": np.array([0.1, 0.6, 0.9, 0.5]), "b": np.array([0.2, 0.4, 0.7, 0.5]), "c": np.array([0.8, 0.5, 0.6, 0])}
WEIGHTS = (0.5, 0.2, 0.3)


def session():
    graph = GraphBuilder()
    members = stack_members(graph, [graph.input(name, "float") for name in SCORES])
    add_mixture_outputs(graph, members, WEIGHTS)
    return open_session(graph.build(), threads=1)


def test_probability_is_the_weight_of_the_members_in_favor():
    found = run_columns(session(), SCORES)
    np.testing.assert_allclose(found["decision_probability"].ravel(), [0.3, 0.8, 1.0, 0.7], atol=1e-7)
    stacked = np.stack(list(SCORES.values()), axis=1)
    np.testing.assert_allclose(found["score"].ravel(), stacked @ np.array(WEIGHTS), atol=1e-7)
    np.testing.assert_allclose(mixture_chance(stacked, WEIGHTS), [0.3, 0.8, 1.0, 0.7])


def test_decisions_follow_u_and_their_share_is_the_probability():
    run = session()
    draws = (np.arange(1000) + 0.5) / 1000
    one = {name: np.full(1000, values[0]) for name, values in SCORES.items()}
    found = run_columns(run, one, u=draws)
    np.testing.assert_array_equal(found["decision"].ravel(), draws < 0.3)
    assert run_columns(run, SCORES, u=np.full(4, np.nextafter(np.float32(1), np.float32(0))))["decision"][2] == 1


def test_prefix_sums_are_those_of_numpy():
    graph = GraphBuilder()
    parts = stack_members(graph, [graph.input(name, "float") for name in SCORES])
    graph.output("sums", add_prefix_sums(graph, parts, 3), width=3)
    got = run_columns(open_session(graph.build(), threads=1), SCORES)["sums"]
    np.testing.assert_allclose(got, np.cumsum(np.stack(list(SCORES.values()), axis=1), axis=1), atol=1e-6)


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (), (np.nan, 1.0)])
def test_weights_must_be_a_distribution(weights):
    with pytest.raises(ModelError, match="nonnegative and add up to 1"):
        mixture_chance(np.zeros((1, len(weights))), weights)


# Mixtures that draw a member for each row: graphs, metadata, and audits from the weights.
DRAWN = (0.2, 0.5, 0.3)
SLOPES, SHIFTS = np.array([1.0, -0.5, 0.25]), np.array([0.1, 0.6, 0.3])


def _mixture(task, weights=DRAWN):
    graph = GraphBuilder()
    x = graph.input("x", "float")
    scaled = graph.node("MatMul", [x, graph.constant([SLOPES[: len(weights)]])])
    scores = graph.node("Add", [scaled, graph.constant([SHIFTS[: len(weights)]])])
    add_member_outputs(graph, scores, weights, task)
    proto = graph.build()
    embed_weights(proto, weights)
    return proto


def _members(x):
    return x[:, None].astype(np.float32) * SLOPES.astype(np.float32) + SHIFTS.astype(np.float32)


def test_u_picks_the_member_as_often_as_its_weight_says():
    rng = np.random.default_rng(0)
    x = rng.random(5_000)
    u = (np.arange(5_000) + 0.5) / 5_000
    found = run_columns(open_session(_mixture("regression")), {"x": x}, u=u)
    members = _members(x)
    picked = np.searchsorted(np.cumsum(DRAWN)[:-1], u, side="right")
    np.testing.assert_allclose(found["score"][:, 0], members[np.arange(5_000), picked], atol=1e-6)
    np.testing.assert_allclose(found["member_scores"], members, atol=1e-6)
    assert np.bincount(picked).tolist() == [1_000, 2_500, 1_500]


def test_a_binary_decision_is_u_below_the_chance_and_the_drawn_score_agrees():
    rng = np.random.default_rng(1)
    x, u = rng.random(20_000), rng.random(20_000)
    u[:3] = [0.0, 0.99999994, 0.5]
    found = run_columns(open_session(_mixture("binary")), {"x": x}, u=u)
    chance, decision, score = (found[n][:, 0] for n in ("decision_probability", "decision", "score"))
    np.testing.assert_array_equal(decision, u.astype(np.float32) < chance)
    np.testing.assert_array_equal(decision, score >= 0.5)
    np.testing.assert_allclose(chance, (_members(x) >= 0.5) @ np.array(DRAWN), atol=1e-6)
    assert score.mean() == pytest.approx((_members(x) @ np.array(DRAWN)).mean(), abs=0.005)


def _audited(tmp_path, task, rows=3_000):
    rng = np.random.default_rng(2)
    x = np.round(rng.random(rows), 2)
    group = np.where(rng.random(rows) < 0.3 + 0.4 * x, "a", "b").astype(object)
    y = x + 0.1 * rng.normal(size=rows)
    columns = {"x": x, "g": group, "y": y if task == "regression" else (y > 0.5).astype(int)}
    favorable = {} if task == "regression" else {"favorable": 1}
    proto = _mixture(task)
    embed_settings(proto, {"features": ["x"], "label": "y", "sensitive": ["g"], "task": task})
    data = fairkit.load_data(columns, label="y", sensitive="g", features=["x"], **favorable)
    return fairkit.audit(proto.SerializeToString(), data), columns


def test_an_audit_of_a_regression_is_exact_from_the_weights(tmp_path):
    report, columns = _audited(tmp_path, "regression")
    members = _members(columns["x"]).astype(float)
    squares = ((members - columns["y"][:, None]) ** 2) @ np.array(DRAWN)
    found = report.find("mean_squared_error")
    assert found.value == pytest.approx(squares.mean(), rel=1e-5)
    half = 1.96 * squares.std() / np.sqrt(len(squares))
    # skewness moves both ends upward; the width stays that of the rows' weighted squares
    assert (found.interval[1] - found.interval[0]) / 2 == pytest.approx(half, rel=0.01)
    levels = np.unique(np.round(members.ravel(), 6))
    reached = (np.round(members, 6)[:, :, None] >= levels).transpose(0, 2, 1) @ np.array(DRAWN)
    own = {name: reached[columns["g"] == name].mean(axis=0) for name in "ab"}
    ks = max(np.abs(value - reached.mean(axis=0)).max() for value in own.values())
    assert report.find("statistical_parity_ks", "g").value == pytest.approx(ks, abs=1e-6)
    assert any("A randomized model" in note for note in report.model.notes)


def test_the_interval_of_parity_counts_rows_and_not_members(tmp_path):
    report, columns = _audited(tmp_path, "regression")
    once = fairkit.load_data(
        {"g": columns["g"], "y": columns["y"], "s": _members(columns["x"])[:, 0].astype(float)},
        label="y",
        sensitive="g",
    )
    alone = fairkit.audit(fairkit.PredictedColumns(score="s"), once).find("statistical_parity_ks", "g")
    mixed = report.find("statistical_parity_ks", "g")
    widths = [found.interval[1] - found.value for found in (mixed, alone)]
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)


def test_scores_of_a_binary_mixture_are_compared_as_they_are_drawn(tmp_path):
    report, columns = _audited(tmp_path, "binary")
    members = _members(columns["x"]).astype(float)
    mean = members @ np.array(DRAWN)
    found = report.find("statistical_parity_ks", "g").value
    levels = np.unique(np.round(members.ravel(), 6))

    def ks(scores, weights):
        reached = (np.round(scores, 6)[:, :, None] >= levels).transpose(0, 2, 1) @ weights
        return max(np.abs(reached[columns["g"] == name].mean(axis=0) - reached.mean(axis=0)).max() for name in "ab")

    assert found == pytest.approx(ks(members, np.array(DRAWN)), abs=1e-6)
    assert abs(found - ks(mean[:, None], np.ones(1))) > 0.01


def test_damaged_weights_are_told():
    proto = _mixture("regression")
    np.testing.assert_allclose(member_weights(proto), DRAWN)
    entry = next(entry for entry in proto.metadata_props if entry.key == MIXTURE_KEY)
    for text in ("{", '{"weights": [0.5, 0.6]}', '{"weights": "x"}', "{}"):
        entry.value = text
        with pytest.raises(ModelError, match=r"cannot be read|must be nonnegative"):
            member_weights(proto)
    entry.value = json.dumps({"weights": [0.5, 0.5]})
    data = fairkit.load_data({"x": np.arange(60.0), "y": np.arange(60.0)}, label="y", features=["x"])
    with pytest.raises(ModelError, match="2 weights in its metadata"):
        fairkit.audit(proto.SerializeToString(), data)
