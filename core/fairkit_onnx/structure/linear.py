"""Reading a bound ONNX model as a weighted sum of the features that it makes of raw columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import ancestors, name_of
from fairkit_onnx.structure.constants import constant_of
from fairkit_onnx.structure.encoded import Encoded
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.group_rules import group_part, score_of
from fairkit_onnx.structure.links import check_monotone
from fairkit_onnx.structure.tail import Tail, tail_nodes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer

    Columns = Mapping[str, NDArray[Any]]

KINDS = ("LinearClassifier", "LinearRegressor", "Gemm", "MatMul")


@dataclass(frozen=True, eq=False)
class LinearModel(Encoded):
    """A model whose score follows from a weighted sum of features."""

    weights: NDArray[np.float64]  # the sum, shape [d]
    base: float  # the sum, shape [d]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.weights)


def read_linear(scorer: OnnxScorer, *, grouped: bool = False) -> LinearModel | None:
    """Read a bound model whose score is a weighted sum; None where it has no or several such nodes, or others between.

    `grouped` is that of `fairkit_onnx.structure.trees.read_trees`.
    """
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    found = [node for node in ancestors(graph, score_of(scorer)) if node.op_type in KINDS]
    if len(found) != 1:
        return None
    node = found[0]
    read = _of_classifier(node) if node.op_type == KINDS[0] else _of_sum(node, graph)
    if read is None:
        return None
    weights, base = read
    start: dict[str, tuple[int, ...]] = {node.output[0]: (1,)}
    if node.op_type == KINDS[0]:
        start = {node.output[0]: (0,), node.output[1]: (-1, 1)}
    constant = constant_of(graph, node.input[1]) if node.op_type in ("Gemm", "MatMul") else None
    if node.op_type == "MatMul" and _opposite(constant):
        start = {node.output[0]: (-1, 1)}
    groups = group_part(scorer, list(node.output), grouped=grouped)
    check_monotone(graph, tail_nodes(graph, wanted, list(node.output)), start)
    cut: Any = node if node.op_type == KINDS[0] else node.output[0]
    double = constant is not None and constant.dtype == np.float64
    tail = Tail(
        scorer=scorer,
        cut=cut,
        double=double,
        groups=groups,
        columns=2 if node.op_type == "MatMul" and _opposite(constant) else 1,
    )
    return LinearModel(scorer, node.input[0], tail, weights, base)


def _opposite(weights: NDArray[Any] | None) -> TypeGuard[NDArray[Any]]:
    """Tell whether a matrix has two columns, each the other's negative, as skl2onnx writes in double precision."""
    if weights is None or weights.ndim != 2 or weights.shape[1] != 2:
        return False
    return bool((weights[:, 0] == -weights[:, 1]).all())


def _of_classifier(node: onnx.NodeProto) -> tuple[NDArray[np.float64], float] | None:
    told = attributes_of(node)
    weights = np.array(told["coefficients"], dtype=np.float32).astype(np.float64)
    bias = np.array(told.get("intercepts", [0.0]), dtype=np.float32).astype(np.float64)
    if len(bias) != 2 or len(weights) % 2:
        return None
    both = weights.reshape(2, -1)
    if not np.array_equal(both[0], -both[1]) or bias[0] != -bias[1]:
        raise ModelError(f"the node {name_of(node)} has no two opposite rows")
    return both[1], float(bias[1])


def _of_sum(node: onnx.NodeProto, graph: onnx.GraphProto) -> tuple[NDArray[np.float64], float] | None:
    attributes = attributes_of(node)
    if node.op_type == "LinearRegressor":
        if attributes.get("targets", 1) != 1 or attributes.get("post_transform", b"NONE") != b"NONE":
            return None
        bias = attributes.get("intercepts") or [0.0]
        return np.array(attributes["coefficients"], dtype=np.float32).astype(np.float64), float(np.float32(bias[0]))
    weights = constant_of(graph, node.input[1])
    if node.op_type == "MatMul" and _opposite(weights):  # the sum is the difference of both columns
        return 2.0 * weights[:, 1].astype(np.float64), 0.0
    if weights is None or weights.size != max(weights.shape) or attributes.get("transA"):
        return None
    scale, base = 1.0, 0.0
    if node.op_type == "Gemm":
        scale = float(attributes.get("alpha", 1.0))
        bias_of = constant_of(graph, node.input[2]) if len(node.input) > 2 else np.zeros(1)
        if bias_of is None or bias_of.size != 1:
            return None
        base = float(bias_of.reshape(-1)[0]) * float(attributes.get("beta", 1.0))
    return scale * weights.astype(np.float64).reshape(-1), base
