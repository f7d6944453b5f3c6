"""Reading the score of one class of several as a sum of trees, or a weighted sum of features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.constants import constant_of
from fairkit_onnx.structure.encoded import refuse_unread
from fairkit_onnx.structure.ensemble import attributes_of, read_class_ensembles
from fairkit_onnx.structure.linear import KINDS, LinearModel
from fairkit_onnx.structure.operators import TREES
from fairkit_onnx.structure.tail import Tail
from fairkit_onnx.structure.trees import TreeModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.ensemble import Ensemble

    Array = NDArray[np.float64]

_ROWS = 500
_CLOSE = 1e-5


def read_class_score(scorer: OnnxScorer, index: int, rows: Mapping[str, NDArray[Any]]) -> TreeModel | LinearModel:
    """Return one class's score before the link, of a model with one node of trees or linear sums for all classes.

    Where the sums are probabilities it is the class's; where a softmax follows it is the class's sum less the mean of
    all classes' sums, ``log p_c - mean_k log p_k``: what is added to every class's sum changes no probability.
    """
    refuse_unread(scorer)
    nodes = ancestors(scorer.model.proto.graph, scorer.reading.wanted)
    sums = [node for node in nodes if node.op_type in (*TREES, *KINDS)]
    order = np.argsort(scorer.reading.class_places)
    if len(sums) != 1 or sums[0].op_type not in (*TREES[:2], *KINDS) or not len(order):
        raise ModelError(f"{scorer.info.name} has no single node of trees or linear sums for its classes")
    node, few = sums[0], {name: values[:_ROWS] for name, values in rows.items()}
    tail = Tail(scorer=scorer, cut=node)
    if node.op_type in KINDS:
        weights, bias = _linear(scorer, node)
        linear = LinearModel(scorer, node.input[0], tail, weights[0], 0.0)
        features = linear.encoding()(few)[:, : weights.shape[1]].astype(np.float64)
        share = _shares_of(scorer, index, order, few, features @ weights.T + bias)
        return LinearModel(scorer, node.input[0], tail, share @ weights, float(share @ bias))
    parts = read_class_ensembles(node)
    trees = TreeModel(scorer, node.input[0], tail, parts[0], (node.output[0],))
    share = _shares_of(scorer, index, order, few, _sums(parts, trees.encoding(doubles=True)(few)))
    whole = replace(
        parts[0],
        value=np.einsum("k,kn->n", share, [part.value for part in parts]),
        base=float(sum(w * part.base for w, part in zip(share, parts, strict=True))),
        terms=float(sum(abs(w) * part.terms for w, part in zip(share, parts, strict=True))),
    )
    return TreeModel(scorer, node.input[0], tail, whole, (node.output[0],))


def _linear(scorer: OnnxScorer, node: onnx.NodeProto) -> tuple[Array, Array]:
    """Return each class's weights, shape [classes, d], and what is added to its sum; whether they are is checked."""
    attributes, graph = attributes_of(node), scorer.model.proto.graph
    if node.op_type in KINDS[:2]:
        bias = np.array(attributes.get("intercepts") or [0.0] * len(scorer.classes), dtype=np.float64)
        return np.array(attributes["coefficients"], dtype=np.float64).reshape(len(bias), -1), bias
    after = next((one for one in graph.node if node.output[0] in one.input and one.op_type == "Add"), None)
    added = [name for one in (after,) if one is not None for name in one.input if name != node.output[0]]
    weights, *constants = (constant_of(graph, name) for name in (*node.input[1:], *added))
    if weights is None or weights.ndim != 2 or any(one is None for one in constants):
        raise ModelError(f"{scorer.info.name}: the weights of its classes are no constants")
    turned = np.asarray(weights if attributes.get("transB") else weights.T, dtype=np.float64)
    bias = np.zeros(len(turned))
    for one in constants:
        bias += 0.0 if one is None else one.reshape(-1)
    return turned, bias


def _shares_of(
    scorer: OnnxScorer, index: int, order: NDArray[np.int64], rows: Mapping[str, NDArray[Any]], sums: Array
) -> Array:
    """Return by class of the file how much of its sum is in the score; checked against the model's probabilities."""
    chances = scorer.predict(rows).probabilities
    if chances is None or sums.shape[1] != len(order):
        raise ModelError(f"{scorer.info.name} gives no probability of each class")
    own: Array = np.zeros(len(order))
    own[order[index]] = 1.0
    if np.abs(sums[:, order] - chances).max() < _CLOSE:
        return own
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    if np.abs((powers / powers.sum(axis=1, keepdims=True))[:, order] - chances).max() < _CLOSE:
        return np.asarray(own - 1.0 / len(order))
    raise ModelError(f"{scorer.info.name}: its probabilities are neither its classes' sums nor their softmax")


def _sums(parts: Sequence[Ensemble], features: NDArray[Any]) -> Array:
    """Return the sum of every class, shape [n, classes], by walking down the trees, which all of them share."""
    trees, values = parts[0], np.stack([part.value for part in parts])
    found = np.tile([part.base for part in parts], (len(features), 1)).astype(np.float64)
    waiting = [(root, np.arange(len(features))) for root in trees.roots.tolist()]
    while waiting:
        node, rows = waiting.pop()
        if trees.mode[node] == 0:
            found[rows] += values[:, node]
        elif len(rows):
            yes = trees.goes_yes(node, features[rows, trees.feature[node]])
            waiting += [(int(trees.yes[node]), rows[yes]), (int(trees.no[node]), rows[~yes])]
    return found
