"""Reading a bound ONNX model as a sum of trees over the features that it makes of raw columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.read.graph import ancestors, name_of
from fairkit_onnx.structure.encoded import Encoded, refuse_unread
from fairkit_onnx.structure.ensemble import (
    ARRANGES,
    NEWER,
    TREES,
    attributes_of,
    classes_of,
    floats_of,
    kind_of,
    read_class_ensembles,
    read_ensemble,
    told_of,
)
from fairkit_onnx.structure.linear import KINDS, LinearModel, group_part
from fairkit_onnx.structure.link import Tail, tail_nodes
from fairkit_onnx.structure.monotone import check_monotone, constant_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.ensemble import Ensemble

    Columns = Mapping[str, NDArray[Any]]
    Array = NDArray[np.float64]


UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""
_ADDS = frozenset({"Add", "Sum"})


@dataclass(frozen=True, eq=False)
class TreeModel(Encoded):
    """A model whose score follows from a sum of trees."""

    ensemble: Ensemble  # all its trees
    outputs: tuple[str, ...]  # the first output of each node that they are in, in their order

    @property
    def width(self) -> int:
        """The number of features that are read."""
        return int(self.ensemble.feature[self.ensemble.mode > 0].max(initial=-1)) + 1

    @property
    def rounding(self) -> float:
        """By how much a float32 sum of the leaves, in any order, may differ from their sum."""
        terms = len(self.ensemble.roots) + 4
        return float(1.01 * terms * UNIT * self.ensemble.terms + self.ensemble.uneven)

    def reach(self) -> tuple[float, float]:
        """Return numbers between which every sum lies."""
        ensemble = self.ensemble
        sides = np.array([_ends(ensemble, root) for root in ensemble.roots.tolist()]).reshape(-1, 2)
        reach = self.rounding + 1e-6
        ends = ensemble.base + sides[:, 0].sum(), ensemble.base + sides[:, 1].sum()
        lowest = ends[0] - reach if ensemble.value.min() < 0 or ensemble.base < 0 else max(ends[0] - reach, 0.0)
        # shares of classes: what rounding adds to 1 is no probability, and is decided as 1 is
        shares = lowest >= 0 and ends[1] <= 1.0 + 1e-5
        return float(lowest), min(1.0, float(ends[1] + reach)) if shares else float(ends[1] + reach)


def _ends(ensemble: Ensemble, root: int) -> tuple[float, float]:
    """Return the smallest and the largest value of a tree."""
    waiting, seen, values = [root], {root}, []
    while waiting:
        node = waiting.pop()
        if ensemble.mode[node] == 0:
            values.append(float(ensemble.value[node]))
            continue
        children = {int(ensemble.yes[node]), int(ensemble.no[node])} - seen
        seen |= children
        waiting += children
    return min(values), max(values)


def read_trees(scorer: OnnxScorer, *, grouped: bool = False) -> TreeModel | None:
    """Read a bound model whose score is a sum of trees; None where it has no trees."""
    reading, proto = scorer.reading, scorer.model.proto
    refuse_unread(scorer)
    wanted = reading.wanted
    nodes = ancestors(proto.graph, wanted)
    trees = [node for node in nodes if node.op_type in TREES]
    if not trees:
        return None
    if len(trees) == 1 and (
        trees[0].op_type == TREES[0] or told_of(trees[0]).get("post_transform", b"NONE") != b"NONE"
    ):
        return _single(scorer, trees[0], grouped)
    return _summed(scorer, trees, grouped)


def _single(scorer: OnnxScorer, node: onnx.NodeProto, grouped: bool) -> TreeModel:
    ensemble = read_ensemble(node)
    spec = told_of(node)
    start: dict[str, tuple[int, ...]] = {node.output[0]: (1,)}
    if node.op_type == TREES[0]:
        start = {node.output[0]: (0,), node.output[1]: (1,) if classes_of(spec) < 2 else (-1, 1)}
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    groups = group_part(scorer, list(node.output), grouped=grouped)
    check_monotone(graph, tail_nodes(graph, wanted, list(node.output)), start)
    if node.op_type == NEWER:
        raise ModelError(
            f"the node {name_of(node)} has the post_transform {spec['post_transform'].decode()}, which onnxruntime "
            "leaves out for one target; write the link as a node after it, such as Sigmoid"
        )
    weights = floats_of(spec, f"{kind_of(node)}_weights")
    tail = Tail(scorer=scorer, cut=node, negative=bool((weights < 0).any()), groups=groups)
    return TreeModel(scorer, node.input[0], tail, ensemble, (node.output[0],))


def _summed(scorer: OnnxScorer, trees: Sequence[onnx.NodeProto], grouped: bool) -> TreeModel:
    """Read regressors that are added up, and constants beside them."""
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    odd = next((node for node in trees if node.op_type == TREES[0]), None)
    if odd is not None:
        raise ModelError(
            f"the node {name_of(odd)} is one of {len(trees)} ensembles; of several, "
            "TreeEnsembleRegressor nodes that are added up are read"
        )
    parts = {node.output[0]: read_ensemble(node) for node in trees}
    owners = {node.output[0]: [node] for node in trees}
    offset = dict.fromkeys(parts, 0.0)
    for node in ancestors(graph, wanted):
        inputs = [name for name in node.input if name]
        summed = [name for name in inputs if name in owners]
        if not summed or (node.op_type not in _ADDS | ARRANGES):
            continue
        constants = [constant_of(graph, name) for name in inputs if name not in owners]
        if node.op_type in ARRANGES:
            owners[node.output[0]], offset[node.output[0]] = owners[summed[0]], offset[summed[0]]
        elif all(constant is not None and constant.size == 1 for constant in constants):
            owners[node.output[0]] = [owner for name in summed for owner in owners[name]]
            offset[node.output[0]] = sum(offset[name] for name in summed) + sum(
                float(constant.reshape(-1)[0]) for constant in constants if constant is not None
            )
    cut = next(
        (name for name, owned in reversed(owners.items()) if len({id(o) for o in owned}) == len(owned) == len(trees)),
        None,
    )
    matrices = {node.input[0] for node in trees}
    if cut is None or len(matrices) > 1:
        shown = ", ".join(sorted(matrices))
        raise ModelError(
            f"{len(trees)} ensembles do not add up to one number of one matrix of features ({shown}); nodes "
            "Add or Sum over TreeEnsembleRegressor are read"
        )
    attributes = [told_of(node) for node in trees]
    shares = any(attribute.get("n_targets", 1) == 2 for attribute in attributes)
    if shares and (len(trees) > 1 or offset[cut] != 0.0):
        raise ModelError(f"the shares of two classes in {cut!r} are not of one ensemble alone")
    groups = group_part(scorer, [cut], grouped=grouped)
    check_monotone(graph, tail_nodes(graph, wanted, [cut]), {cut: (-1, 1) if shares else (1,)})
    joined = _joined([parts[node.output[0]] for node in owners[cut]], offset[cut])
    double = any(
        node.op_type == NEWER and "nodes_values_as_tensor" in attribute
        for node, attribute in zip(trees, attributes, strict=True)
    )
    tail = Tail(scorer=scorer, cut=cut, columns=1 + shares, shares=shares, double=double, groups=groups)
    return TreeModel(scorer, trees[0].input[0], tail, joined, tuple(node.output[0] for node in owners[cut]))


def _joined(parts: Sequence[Ensemble], offset: float) -> Ensemble:
    """Put ensembles into one."""
    starts = np.cumsum([0, *(len(part.mode) for part in parts)])
    moved = [
        replace(
            part,
            yes=np.where(part.yes >= 0, part.yes + start, -1),
            no=np.where(part.no >= 0, part.no + start, -1),
            roots=part.roots + start,
        )
        for part, start in zip(parts, starts, strict=False)
    ]
    names = ("mode", "feature", "threshold", "missing", "yes", "no", "value", "roots")
    arrays = {name: np.concatenate([getattr(part, name) for part in moved]) for name in names}
    return replace(
        parts[0],
        **arrays,
        base=sum(part.base for part in parts) + offset,
        uneven=sum(part.uneven for part in parts),
        terms=sum(part.terms for part in parts) + abs(offset),
    )


# Reading the score of one class of several as a sum of trees, or a weighted sum of features.


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
    after = next((adder for adder in graph.node if node.output[0] in adder.input and adder.op_type == "Add"), None)
    added = [name for adder in (after,) if adder is not None for name in adder.input if name != node.output[0]]
    weights, *constants = (constant_of(graph, name) for name in (*node.input[1:], *added))
    if weights is None or weights.ndim != 2 or any(constant is None for constant in constants):
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
    shares: Array = np.zeros(len(order))
    shares[order[index]] = 1.0
    if np.abs(sums[:, order] - chances).max() < _CLOSE:
        return shares
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    if np.abs((powers / powers.sum(axis=1, keepdims=True))[:, order] - chances).max() < _CLOSE:
        return np.asarray(shares - 1.0 / len(order))
    raise ModelError(f"{scorer.info.name}: its probabilities are neither its classes' sums nor their softmax")


def _sums(parts: Sequence[Ensemble], features: NDArray[Any]) -> Array:
    """Return the sum of every class, shape [n, classes], by walking down the trees, which all of them share."""
    trees, values = parts[0], np.stack([part.value for part in parts])
    result = np.tile([part.base for part in parts], (len(features), 1)).astype(np.float64)
    waiting = [(root, np.arange(len(features))) for root in trees.roots.tolist()]
    while waiting:
        node, rows = waiting.pop()
        if trees.mode[node] == 0:
            result[rows] += values[:, node]
        elif len(rows):
            yes = trees.goes_yes(node, features[rows, trees.feature[node]])
            waiting += [(int(trees.yes[node]), rows[yes]), (int(trees.no[node]), rows[~yes])]
    return result
