"""Tree ensembles as an ONNX file has them: the nodes of one `TreeEnsemble*`, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.read.graph import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx
    from numpy.typing import NDArray


# `TreeEnsemble` of ai.onnx.ml 5, written as the attributes of `TreeEnsembleRegressor`.


_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = 6
_EXACT = 30
AGGREGATES = (b"AVERAGE", b"SUM", b"MIN", b"MAX")
CLASS_LINKS = (b"NONE", b"SOFTMAX", b"LOGISTIC", b"SOFTMAX_ZERO", b"PROBIT")
MOST = 1_000_000
"""More nodes, after sets are written as chains of equalities, are refused."""


class _Written:
    """Nodes as they are written, tree by tree."""

    def __init__(self, told: Mapping[str, Any], named: str) -> None:
        self.told, self.named = told, named
        self.modes = np.asarray(_array(told["nodes_modes"]), dtype=np.int64).tolist()
        self.splits, self.weights = _array(told["nodes_splits"]), _array(told["leaf_weights"])
        self.missing = told.get("nodes_missing_value_tracks_true") or [0] * len(self.modes)
        self.sets = _sets(told, self.modes, named)
        # tree, number, mode, feature, value, missing
        self.rows: list[tuple[int, int, str, int, float, int]] = []
        self.yes: list[int] = []
        self.no: list[int] = []
        self.leaves: list[tuple[int, int, int, float]] = []  # tree, number, target, weight
        self._count = 0

    def tree(self, number: int, root: int) -> None:
        """Write a tree."""
        self._count = 0
        seen: dict[tuple[int, int], int] = {}
        waiting = [(int(root), 0, -1, True)]  # node, whether it is a leaf, the row it hangs from, its side
        while waiting:
            node, leaf, parent, side = waiting.pop()
            key = (node, leaf)
            if key not in seen:
                seen[key] = self._count
                if leaf:
                    self._row(number, "LEAF", 0, 0.0, 0)
                    target = int(self.told["leaf_targetids"][node])
                    self.leaves.append((number, seen[key], target, float(self.weights[node])))
                else:
                    last = self._inner(number, node, waiting)
                    waiting.append(
                        (
                            int(self.told["nodes_falsenodeids"][node]),
                            int(self.told["nodes_falseleafs"][node]),
                            last,
                            False,
                        )
                    )
            if parent >= 0:
                (self.yes if side else self.no)[parent] = seen[key]
            if len(self.rows) > MOST:
                raise ModelError(f"{self.named} has more than {MOST:,} nodes with its sets written out, or a circle")

    def _inner(self, number: int, node: int, waiting: list[tuple[int, int, int, bool]]) -> int:
        """Write a test, a set as a chain of equalities; return the last row, from which `no` hangs."""
        attributes = self.told
        feature, missing = int(attributes["nodes_featureids"][node]), int(self.missing[node])
        mode = self.modes[node]
        tests = [(_equal(self.sets[node]), value) for value in self.sets[node]] if mode == _MEMBER else [
            (_MODES[mode], float(self.splits[node]))
        ]  # fmt: skip
        child = int(attributes["nodes_truenodeids"][node]), int(attributes["nodes_trueleafs"][node])
        for index, (name, value) in enumerate(tests):
            self._row(number, name, feature, value, missing)
            row = len(self.rows) - 1
            if index + 1 < len(tests):
                self.no[row] = self._count  # the next link
            waiting.append((*child, row, True))
        return len(self.rows) - 1

    def _row(self, number: int, mode: str, feature: int, value: float, missing: int) -> None:
        self.rows.append((number, self._count, mode, feature, value, missing))
        self.yes.append(0)
        self.no.append(0)
        self._count += 1


def written(attributes: Mapping[str, Any], named: str) -> dict[str, Any]:
    """Return the attributes of a `TreeEnsembleRegressor` that says the same, in the same precision."""
    from onnx import numpy_helper

    made = _Written(attributes, named)
    try:
        for number, root in enumerate(attributes["tree_roots"]):
            made.tree(number, root)
    except IndexError as error:
        raise ModelError(f"{named} is damaged: a branch leads to a node that is not there") from error
    kind = made.splits.dtype
    trees, numbers, modes, features, values, missing = (list(column) for column in zip(*made.rows, strict=True))
    converted: dict[str, Any] = {
        "n_targets": attributes.get("n_targets", 1),
        "aggregate_function": AGGREGATES[attributes.get("aggregate_function", 1)],
        "post_transform": CLASS_LINKS[attributes.get("post_transform", 0)],
        "nodes_treeids": trees,
        "nodes_nodeids": numbers,
        "nodes_modes": modes,
        "nodes_featureids": features,
        "nodes_missing_value_tracks_true": missing,
        "nodes_truenodeids": made.yes,
        "nodes_falsenodeids": made.no,
        "target_treeids": [tree for tree, *_ in made.leaves],
        "target_nodeids": [node for _, node, *_ in made.leaves],
        "target_ids": [target for *_, target, _ in made.leaves],
    }
    weights = np.array([weight for *_, weight in made.leaves])
    if kind == np.float64:
        converted["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(values))
        converted["target_weights_as_tensor"] = numpy_helper.from_array(weights)
    else:
        converted["nodes_values"], converted["target_weights"] = values, weights.tolist()
    return converted


def _equal(values: list[float]) -> str:
    """Return how onnxruntime compares with a set: whole parts alone where a value is not one of 0 to 30."""
    small = all(0 <= value <= _EXACT for value in values)
    return "BRANCH_EQ" if small else "EQ_WHOLE"


def _array(tensor: Any) -> NDArray[Any]:
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(tensor)).reshape(-1)


def _sets(attributes: Mapping[str, Any], modes: list[int], named: str) -> dict[int, list[float]]:
    """Return the values of each set by node: NaN ends each in the list of all."""
    members = [node for node, mode in enumerate(modes) if mode == _MEMBER]
    if any(mode > _MEMBER for mode in modes):
        raise ModelError(f"{named} has a node of the mode {max(modes)}; 0 to {_MEMBER} are read")
    result: dict[int, list[float]] = {}
    if not members:
        return result
    some: list[list[float]] = [[]]
    for value in _array(attributes["membership_values"]).tolist() if "membership_values" in attributes else []:
        if value != value:  # noqa: PLR0124 -- NaN
            some.append([])
        else:
            some[-1].append(value)
    some = some if some[-1] else some[:-1]
    if len(some) != len(members) or not all(some):
        raise ModelError(f"{named} has {len(members)} tests of membership, and {len(some)} sets")
    return dict(zip(members, some, strict=True))


# What is known about ONNX operators, which readers, structure and bounds share.


ARRANGES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""A row's numbers stay as they are, in their order."""
CHOOSES = frozenset({"Concat", "FeatureVectorizer", "Gather", "ArrayFeatureExtractor", "Slice", "Split"})
"""Columns are taken, or joined."""
RISES = frozenset({"Cast", "Clip", "Exp", "Relu", "Sigmoid", "Tanh"})
"""Each number follows from one, and never falls while that rises."""
POSITIVE = frozenset({"Exp", "Relu", "Sigmoid", "Softmax"})
"""No number is below zero."""
COMPARES = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""A truth value from two numbers, one of which makes it true by rising."""
EACH = frozenset({
    "Identity", "Scaler", "Imputer", "Binarizer", "IsNaN", "Not", "LabelEncoder", "Neg", "Abs", "Log", "Sqrt", "Floor",
    "Ceil", "Round", "CategoryMapper", "StringNormalizer", *RISES,
})  # fmt: skip
"""Each number follows from one."""
PAIRS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Equal", "Where", "Min", "Max", "And", "Or", *COMPARES})
"""Each number follows from those of the inputs at its place."""
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
"""Sums of trees: the first two of ai.onnx.ml 1 to 3, the last of version 5."""


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
    yes: NDArray[np.int64]  # the next node where the test holds; -1 at leaves
    no: NDArray[np.int64]  # the next node where it fails; -1 at leaves
    value: NDArray[np.float64]  # a leaf's addend of the sum, shape [N]
    roots: NDArray[np.int64]  # shape [T]
    base: float  # added to the sum
    uneven: float  # by how much two class columns that should be each other's complement are not, at most
    terms: float  # the sum over the trees of the largest absolute addend: what float32 rounding is proportional to

    def goes_yes(self, node: int, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell where values of its feature go, as onnxruntime compares them: in the features' precision."""
        answer = self.compare(int(self.mode[node]), values, self.threshold[node])
        # NaN differs from every threshold
        return np.asarray(answer | (np.isnan(values) & self.missing[node]), dtype=np.bool_)

    @staticmethod
    def compare(mode: int, values: NDArray[Any], threshold: Any) -> NDArray[np.bool_]:
        """Compare in the precision of the values, by a mode other than the leaf's."""
        result: NDArray[np.bool_] = _COMPARE[MODES[mode]](values, threshold)
        return result


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as Python values."""
    from onnx import helper

    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def told_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a tree node's attributes as opset 3 writes them."""
    attributes = attributes_of(node)
    return written(attributes, f"the node {name_of(node)}") if node.op_type == NEWER else attributes


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
    for key, allowed in (("post_transform", links), ("aggregate_function", ("SUM",))):
        if attributes.get(key, allowed[0].encode()).decode() not in allowed:
            raise ModelError(
                f"{named} has the {key} {attributes[key].decode()}; of three classes or more these are read: "
                f"{', '.join(allowed)}"
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
    attributes = _plain(told_of(node), kind, named)
    plain, places = _structure(attributes, named)
    tree_ids, size, inner = np.array(attributes["nodes_treeids"]), len(plain.mode), plain.mode > 0
    value, base, uneven = _values(attributes, kind, named, places, size)
    trees = len(set(tree_ids.tolist()))
    if attributes.get("aggregate_function", b"SUM") == b"AVERAGE":
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
