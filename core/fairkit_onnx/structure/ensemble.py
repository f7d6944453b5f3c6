"""Tree ensembles as an ONNX file has them: the nodes of one `TreeEnsemble*`, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.nodes import name_of
from fairkit_onnx.structure.operators import TREES
from fairkit_onnx.structure.opset5 import written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx
    from numpy.typing import NDArray

NEWER = TREES[2]
LINKS = ("NONE", "LOGISTIC")

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
    "EQ_WHOLE": lambda values, threshold: np.trunc(values) == threshold,
}
MODES = ("LEAF", *_COMPARE)
TWICE = tuple(MODES.index(name) for name in ("BRANCH_EQ", "BRANCH_NEQ", "EQ_WHOLE"))
"""Modes whose tests change twice along the numbers: below the threshold, and above it. The last one compares whole
parts, as onnxruntime does in sets with other values than 0 to 30."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """The sum of trees."""

    mode: NDArray[np.int8]  # a place in `MODES`, shape [N]; 0 is a leaf
    feature: NDArray[np.int64]
    threshold: NDArray[Any]
    missing: NDArray[np.bool_]
    yes: NDArray[np.int64]  # nodes by number; -1 at leaves
    no: NDArray[np.int64]  # nodes by number; -1 at leaves
    value: NDArray[np.float64]  # a leaf's addend of the sum, shape [N]
    roots: NDArray[np.int64]  # shape [T]
    base: float  # added to the sum
    uneven: float  # by how much two class columns that should be each other's complement are not, at most
    terms: float  # the sum over the trees of the largest absolute addend: what float32 rounding is proportional to

    def goes_yes(self, node: int, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell where values of its feature go, as onnxruntime compares them: in the features' precision."""
        found = self.compare(int(self.mode[node]), values, self.threshold[node])
        # NaN differs from every threshold
        return np.asarray(found | (np.isnan(values) & self.missing[node]), dtype=np.bool_)

    @staticmethod
    def compare(mode: int, values: NDArray[Any], threshold: Any) -> NDArray[np.bool_]:
        """Compare in the precision of the values, by a mode other than the leaf's."""
        found: NDArray[np.bool_] = _COMPARE[MODES[mode]](values, threshold)
        return found


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as Python values."""
    from onnx import helper

    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def told_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a tree node's attributes as opset 3 writes them."""
    told = attributes_of(node)
    return written(told, f"the node {name_of(node)}") if node.op_type == NEWER else told


def kind_of(node: onnx.NodeProto) -> str:
    """Return the prefix of the attributes of a node's leaves."""
    return "class" if node.op_type == TREES[0] else "target"


def classes_of(told: Mapping[str, Any]) -> int:
    """Return how many classes a classifier's attributes name."""
    return max(len(told.get("classlabels_strings", ())), len(told.get("classlabels_int64s", ())))


def read_class_ensembles(node: onnx.NodeProto) -> list[Ensemble]:
    """Read a classifier, or a regressor with a target for each class: the trees once for each class."""
    kind, named, attributes = kind_of(node), f"the node {name_of(node)}", attributes_of(node)
    links = (*LINKS, "SOFTMAX") if kind == "class" else ("NONE",)
    for key, known in (("post_transform", links), ("aggregate_function", ("SUM",))):
        if attributes.get(key, known[0].encode()).decode() not in known:
            raise ModelError(
                f"{named} has the {key} {attributes[key].decode()}; of three classes or more these are read: "
                f"{', '.join(known)}"
            )
    plain, places = _structure(attributes, named)
    size = len(plain.mode)
    ids = np.array(attributes[f"{kind}_ids"])
    count = classes_of(attributes) if kind == "class" else attributes["n_targets"]
    at = _leaves(attributes, kind, places)
    if (at < 0).any() or not np.isin(ids, np.arange(count)).all():
        raise ModelError(f"{named} is damaged: a weight belongs to no node, or to no class")
    weights = floats_of(attributes, f"{kind}_weights").astype(np.float64)
    tree_ids = np.array(attributes["nodes_treeids"])
    bases = floats_of(attributes, "base_values").astype(np.float64).tolist()
    if len(bases) not in (0, count):
        raise ModelError(f"{named} has {len(bases)} base values for {count} classes")
    ensembles = []
    for k in range(count):
        value = np.zeros(size)
        mine = ids == k
        np.add.at(value, at[mine], weights[mine])
        there = np.zeros(size, dtype=np.bool_)
        there[at[mine]] = True
        lacking = set(tree_ids[(plain.mode == 0) & ~there].tolist())
        if kind == "class" and not bases and not set(tree_ids.tolist()) - lacking:
            raise ModelError(
                f"{named} has leaves without a weight of class {k} in every tree: where no leaf has one, onnxruntime "
                "leaves the class out; give each leaf a weight, which may be 0"
            )
        base = bases[k] if bases else 0.0
        ensembles.append(replace(plain, value=value, base=base, terms=_terms(tree_ids, value) + abs(base)))
    return ensembles


def read_ensemble(node: onnx.NodeProto) -> Ensemble:
    """Read a node whose output is one number, or two that are each other's complement."""
    kind, named = kind_of(node), f"the node {name_of(node)}"
    told = _plain(told_of(node), kind, named)
    plain, places = _structure(told, named)
    tree_ids, size, inner = np.array(told["nodes_treeids"]), len(plain.mode), plain.mode > 0
    value, base, uneven = _values(told, kind, named, places, size)
    trees = len(set(tree_ids.tolist()))
    if told.get("aggregate_function", b"SUM") == b"AVERAGE":
        value, uneven = value / trees, uneven / trees
    value = np.where(inner, 0.0, value)
    return replace(plain, value=value, base=base, uneven=uneven, terms=_terms(tree_ids, value) + abs(base))


def _structure(attributes: Mapping[str, Any], named: str) -> tuple[Ensemble, dict[tuple[int, int], int]]:
    """Return the trees without values, and the place of each node by its tree and number."""
    tree_ids, node_ids = np.array(attributes["nodes_treeids"]), np.array(attributes["nodes_nodeids"])
    size = len(tree_ids)
    places = {pair: i for i, pair in enumerate(zip(tree_ids.tolist(), node_ids.tolist(), strict=True))}
    modes = [text.decode() if isinstance(text, bytes) else str(text) for text in attributes["nodes_modes"]]
    unknown = sorted(set(modes) - set(MODES))
    if unknown or len(places) != size:
        raise ModelError(f"{named} has nodes of the mode {unknown}, or two of one number; these are read: {MODES}")
    mode = np.array([MODES.index(text) for text in modes], dtype=np.int8)
    inner = mode > 0
    yes, no = (
        np.array([places.get((tree, child), -2) if here else -1 for tree, child, here in
                  zip(tree_ids.tolist(), attributes[key], inner.tolist(), strict=True)], dtype=np.int64)
        for key in ("nodes_truenodeids", "nodes_falsenodeids")
    )  # fmt: skip
    if (yes == -2).any() or (no == -2).any():
        raise ModelError(f"{named} is damaged: a branch leads to a node that is not there")
    first = np.array([places[pair] for pair in dict.fromkeys(
        (tree, attributes["nodes_nodeids"][i]) for i, tree in _firsts(tree_ids.tolist(), yes, no)
    )], dtype=np.int64)  # fmt: skip
    missing = attributes.get("nodes_missing_value_tracks_true") or [0] * size
    plain = Ensemble(
        mode=mode,
        feature=np.array(attributes["nodes_featureids"], dtype=np.int64),
        threshold=floats_of(attributes, "nodes_values"),
        missing=np.array(missing, dtype=np.bool_),
        yes=yes,
        no=no,
        value=np.zeros(size),
        roots=first,
        base=0.0,
        uneven=0.0,
        terms=0.0,
    )
    return plain, places


def floats_of(attributes: Mapping[str, Any], name: str) -> NDArray[Any]:
    """Return numbers in the precision in which a file has them."""
    from onnx import numpy_helper

    tensor = attributes.get(f"{name}_as_tensor")
    if tensor is not None and tensor.dims != [0]:
        return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
    return np.array(attributes.get(name, ()), dtype=np.float32)


def _firsts(tree_ids: list[int], yes: NDArray[np.int64], no: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the place and the tree of every node that no other leads to."""
    led = set(yes.tolist()) | set(no.tolist())
    return [(i, tree) for i, tree in enumerate(tree_ids) if i not in led]


def _terms(tree_ids: NDArray[Any], value: NDArray[np.float64]) -> float:
    _, code = np.unique(tree_ids, return_inverse=True)
    largest = np.zeros(code.max() + 1)
    np.maximum.at(largest, code, np.abs(value))
    return float(largest.sum())


def _leaves(attributes: Mapping[str, Any], kind: str, places: Mapping[tuple[int, int], int]) -> NDArray[np.int64]:
    """Return the place of each weight's leaf; -1 where there is no such node."""
    pairs = zip(attributes[f"{kind}_treeids"], attributes[f"{kind}_nodeids"], strict=True)
    return np.array([places.get(pair, -1) for pair in pairs])


def _plain(attributes: dict[str, Any], kind: str, named: str) -> dict[str, Any]:
    """Refuse what is no sum of trees with a link that is understood."""
    if attributes.get("aggregate_function", b"SUM") not in (b"SUM", b"AVERAGE"):
        raise ModelError(f"{named} aggregates by {attributes['aggregate_function'].decode()}; SUM and AVERAGE are read")
    if kind == "class" and classes_of(attributes) > 2:
        raise ModelError(
            f"{named} has {classes_of(attributes)} classes; one score of two classes, or a regression, is read"
        )
    link = attributes.get("post_transform", b"NONE").decode()
    if link not in LINKS:
        raise ModelError(f"{named} has the post_transform {link}; these are read: {', '.join(LINKS)}")
    if kind == "target" and attributes.get("n_targets", 1) > 2:
        raise ModelError(f"{named} has {attributes['n_targets']} targets; one is read, or the shares of two classes")
    return attributes


def _values(
    attributes: Mapping[str, Any], kind: str, named: str, places: Mapping[tuple[int, int], int], size: int
) -> tuple[NDArray[np.float64], float, float]:
    """Return each node's addend of the sum, the base, and how far two columns are from being complements."""
    ids = attributes[f"{kind}_ids"]
    columns = sorted(set(ids))
    at = _leaves(attributes, kind, places)
    if (at < 0).any() or len(columns) > 2:
        raise ModelError(f"{named} is damaged: a weight belongs to no node, or there are {len(columns)} columns")
    weights = floats_of(attributes, f"{kind}_weights").astype(np.float64)
    both = np.zeros((len(columns), size))
    for row, column in enumerate(columns):
        chosen = np.array(ids) == column
        np.add.at(both[row], at[chosen], weights[chosen])
    bases = floats_of(attributes, "base_values").astype(np.float64).tolist()
    if len(columns) == 1:
        base = 0.0 if not bases else float(bases[0] if len(bases) == 1 else bases[columns[0]])
        return both[0], base, 0.0
    if any(bases):
        raise ModelError(
            f"{named} has two columns of weights and base values, which onnxruntime adds in a way of its own (not as "
            "CatBoost does): train CatBoost with boost_from_average=False, or give one column of weights"
        )
    if (
        attributes.get("post_transform") == b"LOGISTIC" and not both.sum(axis=0).any()
    ):  # as CatBoost: each other's negative
        return both[1], 0.0, 0.0
    tree_ids = np.array(attributes[f"{kind}_treeids"])[np.argsort(at, kind="stable")]
    leaves = np.sort(at)
    total = both.sum(axis=0)[leaves]
    uneven = level = 0.0
    for tree in np.unique(tree_ids):
        mine = total[tree_ids == tree]
        uneven += float(mine.max() - mine.min())
        level += float(mine.mean())
    whole = len(np.unique(tree_ids)) if attributes.get("aggregate_function", b"SUM") == b"AVERAGE" else 1
    if abs(level / whole - 1) > 1e-3:
        raise ModelError(
            f"{named} has two columns of weights that add up to {level / whole:.4g}; shares, of the sum 1, are "
            "read, and with the post_transform LOGISTIC weights that are each other's negative"
        )
    uneven += abs(level - whole)
    return both[1], 0.0, uneven
