"""Randomized models as one graph: members with weights in, score, decision probability and decision out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_onnx.write.graph import GraphBuilder


def add_mixture_outputs(graph: GraphBuilder, scores: str, weights: Sequence[float], *, threshold: float = 0.5) -> None:
    """Declare the outputs of a binary model that draws one of its members for every decision.

    With members' scores s_k and weights w_k: ``score = sum w_k s_k``, ``decision_probability = sum of w_k
    over the members with s_k >= threshold``, ``decision = u < decision_probability`` for the input ``u``
    in [0, 1), which whoever deploys the model draws.
    """
    shares = check_weights(weights)
    column = graph.constant(shares.reshape(-1, 1))
    graph.output("score", graph.node("MatMul", [scores, column]))
    favorable = graph.node("GreaterOrEqual", [scores, threshold])
    chance = graph.node("MatMul", [graph.node("Cast", [favorable], to=1), column])
    add_decision(graph, graph.node("Min", [chance, 1.0]))


def add_decision(graph: GraphBuilder, chance: str) -> None:
    """Declare ``decision_probability`` and ``decision = u < decision_probability`` from chances [rows, 1]."""
    graph.output("decision_probability", chance)
    decided = graph.node("Less", [graph.input("u", "float"), chance])
    graph.output("decision", graph.node("Cast", [decided], to=7), "int64")


def stack_members(graph: GraphBuilder, members: Sequence[str]) -> str:
    """Put members' scores, each [rows, 1], side by side: [rows, k]."""
    return members[0] if len(members) == 1 else graph.node("Concat", list(members), axis=1)


def add_prefix_sums(graph: GraphBuilder, parts: str, count: int) -> str:
    """Turn parts [rows, k] into prefix sums [rows, k]: members that share their first trees."""
    if count == 1:
        return parts
    return graph.node("MatMul", [parts, graph.constant(np.triu(np.ones((count, count))))])


def mixture_chance(
    scores: NDArray[np.float64], weights: Sequence[float], *, threshold: float = 0.5
) -> NDArray[np.float64]:
    """Return the decision probability in memory, shape [n], from members' scores [n, k]."""
    chance: NDArray[np.float64] = (scores >= threshold) @ check_weights(weights)
    return np.minimum(chance, 1.0)


def check_weights(weights: Sequence[float]) -> NDArray[np.float64]:
    """Return the weights as an array; raises ModelError unless they are a distribution."""
    shares = np.asarray(weights, dtype=float)
    if len(shares) == 0 or not np.isfinite(shares).all() or shares.min() < 0 or abs(shares.sum() - 1) > 1e-9:
        raise ModelError(f"the mixture's weights must be nonnegative and add up to 1, not {list(weights)}")
    return shares
