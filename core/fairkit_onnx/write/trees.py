"""Tree ensembles as one ONNX node: LightGBM, XGBoost and scikit-learn, exact for every float32 input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairkit_onnx.write.graph import GraphWriter


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a leaf has `mode` LEAF and weights; else rows with ``x[feature] mode value`` go to `yes`."""

    mode: str
    feature: int = 0
    value: float = 0.0
    yes: int = 0
    no: int = 0
    missing_yes: bool = False
    weights: tuple[float, ...] = ()


Tree = list[Node]
"""Nodes by number; number 0 is the root."""


def round_down(threshold: float) -> float:
    """Return the largest float32 that is at most the threshold.

    For every float32 x, ``x <= round_down(t)`` is the same as ``x <= t``: rounding to the nearest would
    move some rows to the other side.
    """
    with np.errstate(over="ignore"):  # a threshold beyond float32 becomes the largest float32 below
        near = np.float32(threshold)
    if float(near) > threshold:
        near = np.nextafter(near, np.float32(-np.inf))
    return float(near)


def lightgbm_trees(booster: Any, *, rounds: int | None = None) -> list[Tree]:
    """Read a LightGBM booster's trees (of all classes, round by round).

    `booster`: A `lightgbm.Booster`; its objective does not matter; `rounds`: how many rounds; default all.
    """
    dump = booster.dump_model(num_iteration=-1 if rounds is None else rounds)
    trees: list[Tree] = []
    for info in dump["tree_info"]:
        tree: Tree = []
        _add_lightgbm(info["tree_structure"], tree)
        trees.append(tree)
    return trees


def _add_lightgbm(record: dict[str, Any], tree: Tree) -> int:
    """Add a subtree and return its root's number."""
    number = len(tree)
    if "split_index" not in record:
        if record.get("leaf_coeff"):
            raise ModelError("LightGBM's linear_tree has no form in ONNX: leave it out")
        tree.append(Node("LEAF", weights=(float(record["leaf_value"]),)))
        return number
    if record["decision_type"] == "==":
        return _add_category_chain(record, tree)
    if record["missing_type"] == "Zero":
        raise ModelError("LightGBM's zero_as_missing has no form in ONNX: leave it out")
    threshold = float(record["threshold"])
    # without NaN in training LightGBM reads NaN as 0
    missing_yes = record["default_left"] if record["missing_type"] == "NaN" else threshold >= 0
    tree.append(Node("LEAF"))
    yes = _add_lightgbm(record["left_child"], tree)
    no = _add_lightgbm(record["right_child"], tree)
    tree[number] = Node("BRANCH_LEQ", record["split_feature"], round_down(threshold), yes, no, bool(missing_yes))
    return number


def _add_category_chain(record: dict[str, Any], tree: Tree) -> int:
    """Add ``x in {a, b, ...}`` as a chain of equalities whose yes branches meet in one node."""
    codes = [float(code) for code in str(record["threshold"]).split("||")]
    first = len(tree)
    tree.extend(Node("LEAF") for _ in codes)
    yes = _add_lightgbm(record["left_child"], tree)
    no = _add_lightgbm(record["right_child"], tree)
    for index, code in enumerate(codes):
        number = first + index
        following = number + 1 if index + 1 < len(codes) else no
        tree[number] = Node("BRANCH_EQ", record["split_feature"], code, yes, following)
    return first


def xgboost_trees(booster: Any, *, rounds: int | None = None) -> tuple[list[Tree], list[int], list[float]]:
    """Read an XGBoost booster's trees.

    Returns in the order of training; returns the output (class) that each tree adds to; returns the base score in
    margin space, one for each output.
    """
    model = json.loads(bytes(booster.save_raw("json")))["learner"]
    if model["gradient_booster"]["name"] != "gbtree":
        raise ModelError(f"an XGBoost booster {model['gradient_booster']['name']!r} cannot be exported; use gbtree")
    content = model["gradient_booster"]["model"]
    outputs = [int(code) for code in content["tree_info"]]
    records = content["trees"]
    if rounds is not None:
        rounds_kept = int(content["iteration_indptr"][rounds])
        records, outputs = records[:rounds_kept], outputs[:rounds_kept]
    base = json.loads(str(model["learner_model_param"]["base_score"]))
    values = [float(number) for number in (base if isinstance(base, list) else [base])]
    margins = [_margin(value, model["objective"]["name"]) for value in values]
    return [_xgboost_tree(record) for record in records], outputs, margins


def _margin(base: float, objective: str) -> float:
    if objective in ("binary:logistic", "reg:logistic"):
        return float(np.log(base / (1 - base)))
    if objective.startswith("count:") or objective in ("reg:gamma", "reg:tweedie"):
        return float(np.log(base))
    return base


def _xgboost_tree(record: dict[str, Any]) -> Tree:
    if any(record.get("split_type", ())):
        raise ModelError("XGBoost's categorical splits cannot be exported; encode categories in one-hot columns")
    tree: Tree = []
    for left, right, feature, value, default_left in zip(
        record["left_children"],
        record["right_children"],
        record["split_indices"],
        record["split_conditions"],
        record["default_left"],
        strict=True,
    ):
        if left == -1:
            tree.append(Node("LEAF", weights=(float(np.float32(value)),)))
        else:
            threshold = float(np.float32(value))
            tree.append(Node("BRANCH_LT", feature, threshold, left, right, bool(default_left)))
    return tree


def sklearn_trees(estimators: Iterable[Any], *, classifier: bool) -> list[Tree]:
    """Read scikit-learn decision trees.

    `estimators`: fitted ``DecisionTreeClassifier`` or ``DecisionTreeRegressor``; `classifier`: leaves hold the share of
    every class; else the value.
    """
    return [_sklearn_tree(estimator.tree_, classifier) for estimator in estimators]


def _sklearn_tree(tree: Any, classifier: bool) -> Tree:
    nodes: Tree = []
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, dtype=bool))
    for number in range(tree.node_count):
        if tree.children_left[number] == -1:
            values = tree.value[number][0]
            shares = values / values.sum() if classifier else values
            nodes.append(Node("LEAF", weights=tuple(map(float, shares))))
        else:
            nodes.append(
                Node(
                    "BRANCH_LEQ",
                    int(tree.feature[number]),
                    round_down(float(tree.threshold[number])),
                    int(tree.children_left[number]),
                    int(tree.children_right[number]),
                    bool(missing[number]),
                )
            )
    return nodes


def add_ensemble(
    graph: GraphWriter,
    matrix: str,
    trees: Sequence[Tree],
    *,
    outputs: Sequence[int] | None = None,
    base: Sequence[float] = (0.0,),
    double: bool = False,
) -> str:
    """Add the sum of trees to a graph.

    `graph`, `matrix`: where, and the name of the float32 input of shape [rows, d]; `trees`: leaves hold one weight,
    which goes to the tree's output, or one for each output; `outputs`: each tree's output; default 0 for all; `base`:
    added to each output; its length is the number of outputs; `double`: whether the matrix holds doubles; thresholds
    are doubles then, too. The sums are float32 all the same; returns the sums, shape [rows, len(base)].
    """
    if not trees:
        constant = graph.constant([list(base)])
        zeros = graph.node("MatMul", [matrix, graph.constant(np.zeros((1, 1)))])
        return graph.node("Add", [zeros, constant])
    attributes = _attributes(trees, list(outputs or [0] * len(trees)))
    numbers = {"base_values": [float(value) for value in base]}
    return graph.node(
        "TreeEnsembleRegressor",
        [matrix],
        domain="ai.onnx.ml",
        n_targets=len(base),
        aggregate_function="SUM",
        post_transform="NONE",
        **(_as_doubles(attributes | numbers) if double else attributes | numbers),
    )


def _as_doubles(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a node whose numbers are doubles: they are tensors then."""
    from onnx import numpy_helper

    tensors = {
        f"{name}_as_tensor": numpy_helper.from_array(np.array(attributes[name], dtype=np.float64))
        for name in ("nodes_values", "target_weights", "base_values")
    }
    return {name: value for name, value in attributes.items() if f"{name}_as_tensor" not in tensors} | tensors


def _attributes(trees: Sequence[Tree], outputs: list[int]) -> dict[str, Any]:
    inner = [(t, n, node) for t, tree in enumerate(trees) for n, node in enumerate(tree)]
    leaves = [
        (t, n, outputs[t] + index, weight)
        for t, n, node in inner
        for index, weight in enumerate(node.weights)
        if node.mode == "LEAF"
    ]
    return {
        "nodes_treeids": [t for t, _, _ in inner],
        "nodes_nodeids": [n for _, n, _ in inner],
        "nodes_featureids": [node.feature for _, _, node in inner],
        "nodes_modes": [node.mode for _, _, node in inner],
        "nodes_values": [node.value for _, _, node in inner],
        "nodes_truenodeids": [node.yes for _, _, node in inner],
        "nodes_falsenodeids": [node.no for _, _, node in inner],
        "nodes_missing_value_tracks_true": [int(node.missing_yes) for _, _, node in inner],
        "target_treeids": [t for t, _, _, _ in leaves],
        "target_nodeids": [n for _, n, _, _ in leaves],
        "target_ids": [target for _, _, target, _ in leaves],
        "target_weights": [weight for _, _, _, weight in leaves],
    }
