"""Mixtures that draw one member for each row: what it predicts, and all that could have been drawn.

The file has the output ``member_scores`` [rows, k] besides its others, and the weights in its metadata, so
that an audit measures the mixture exactly, from the weights, and not by draws.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.write.mixture import check_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_onnx.write.graph import GraphBuilder

MEMBER_SCORES = "member_scores"
"""The output with every member's prediction."""
MIXTURE_KEY = "fairkit.mixture"
"""The metadata entry with the weights: ``{"weights": [...]}``."""


def add_member_outputs(
    graph: GraphBuilder, scores: str, weights: Sequence[float], task: Task, *, threshold: float = 0.5
) -> None:
    """Declare the outputs of a model that draws the member whose prediction a row gets.

    Regression: ``score`` is the prediction of member k, where u in [0, 1) falls into the k-th of intervals
    as long as the weights. Binary: the same with the members of each row in the order of their predictions,
    the largest first, so that ``decision``, which is whether the drawn prediction reaches the threshold, is
    ``u < decision_probability``.
    """
    shares = check_weights(weights)
    graph.output(MEMBER_SCORES, scores, width=len(shares))
    u = graph.input("u", "float")
    if task != "binary":
        ends = graph.constant(np.cumsum(shares)[:-1].reshape(1, -1))
        graph.output("score", _pick(graph, scores, ends, u, len(shares) - 1))
        return
    ranked, order = graph.nodes("TopK", [scores, graph.constant([len(shares)], np.int64)], 2, axis=1)
    reached = graph.node("GreaterOrEqual", [ranked, threshold])
    columns = graph.constant(shares)
    # one rounding for both: the sums that u is compared with and the chance are the same numbers
    sums = graph.node("CumSum", [graph.node("Gather", [columns, order]), graph.constant(1, np.int64)])
    inner = graph.node("Slice", [sums, *(graph.constant([v], np.int64) for v in (0, len(shares) - 1, 1))])
    graph.output("score", _pick(graph, ranked, inner, u, len(shares) - 1))
    counted = graph.node("Mul", [sums, graph.node("Cast", [reached], to=1)])
    chance = graph.node("ReduceMax", [counted], axes=[1], keepdims=1)
    everyone = graph.node("Slice", [reached, *(graph.constant([v], np.int64) for v in _LAST)])
    certain = graph.node("Where", [everyone, 1.0, chance])
    graph.output("decision_probability", graph.node("Min", [certain, 1.0]))
    decided = graph.node("Less", [u, certain])
    graph.output("decision", graph.node("Cast", [decided], to=7), "int64")


_LAST = (-1, np.iinfo(np.int64).max, 1)


def embed_weights(proto: onnx.ModelProto, weights: Sequence[float]) -> None:
    """Write the members' weights into the metadata."""
    entry = proto.metadata_props.add()
    entry.key = MIXTURE_KEY
    entry.value = json.dumps({"weights": [float(weight) for weight in check_weights(weights)]})


def member_weights(proto: onnx.ModelProto) -> NDArray[np.float64] | None:
    """Read the members' weights, shape [k]; None where the model is no mixture of this kind."""
    text = next((entry.value for entry in proto.metadata_props if entry.key == MIXTURE_KEY), None)
    if text is None:
        return None
    try:
        weights = check_weights([float(weight) for weight in json.loads(text)["weights"]])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ModelError(f"the model's metadata entry {MIXTURE_KEY!r} cannot be read: {error}") from error
    if MEMBER_SCORES not in {output.name for output in proto.graph.output}:
        raise ModelError(f"the model has weights of members but no output {MEMBER_SCORES!r}")
    return weights


def misdrawn(
    score: NDArray[np.float64],
    members: NDArray[np.float64],
    shares: NDArray[np.float64],
    u: NDArray[np.float32],
    *,
    ranked: bool,
) -> int:
    """Count the rows whose score is not that of the member which the draw picks."""
    weights = np.broadcast_to(shares, members.shape)
    if ranked:
        order = np.argsort(-members, axis=1, kind="stable")
        members, weights = (np.take_along_axis(array, order, axis=1) for array in (members, weights))
    ends = np.cumsum(weights, axis=1)[:, :-1]
    draw = u.astype(np.float64)[:, None]
    picked = np.take_along_axis(members, (draw >= ends).sum(axis=1)[:, None], axis=1)[:, 0]
    near = (np.abs(draw - ends) < _NEAR).any(axis=1) if ends.shape[1] else np.zeros(len(score), dtype=bool)
    scale = np.maximum(1.0, np.abs(picked))
    return int(((np.abs(picked - score) > _NEAR * scale) & ~near).sum())


_NEAR = 1e-5


def _pick(graph: GraphBuilder, scores: str, ends: str, u: str, count: int) -> str:
    """Take each row's member: as many places to the right as there are ends that u has reached."""
    reached = graph.node("Cast", [graph.node("GreaterOrEqual", [u, ends])], to=1)
    place = graph.node("MatMul", [reached, graph.constant(np.ones((count, 1)))])
    return graph.node("GatherElements", [scores, graph.node("Cast", [place], to=7)], axis=1)
