from __future__ import annotations

import numpy as np
import pytest

from fairkit.errors import ModelError
from fairkit_onnx.file import open_session
from fairkit_onnx.write.export import run_columns
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


def test_prefix_sums():
    graph = GraphBuilder()
    parts = stack_members(graph, [graph.input(name, "float") for name in SCORES])
    graph.output("sums", add_prefix_sums(graph, parts, 3), width=3)
    got = run_columns(open_session(graph.build(), threads=1), SCORES)["sums"]
    np.testing.assert_allclose(got, np.cumsum(np.stack(list(SCORES.values()), axis=1), axis=1), atol=1e-6)


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (), (np.nan, 1.0)])
def test_weights_must_be_a_distribution(weights):
    with pytest.raises(ModelError, match="nonnegative and add up to 1"):
        mixture_chance(np.zeros((1, len(weights))), weights)
