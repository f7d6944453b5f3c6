"""The trees of scikit-learn's HistGradientBoosting, with missing values and categories, as one ONNX node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.write.cells import absent
from fairkit_onnx.write.trees import Node, round_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_onnx.write.trees import Tree

NAMES = frozenset({"HistGradientBoostingClassifier", "HistGradientBoostingRegressor"})
_EXACT = 2**24
"""Whole numbers up to this are float32 numbers."""


class Categories(NamedTuple):
    """A categorical column."""

    column: int  # its place among the estimator's columns
    values: tuple[Any, ...]  # the value of each code; a missing one may be the last

    @property
    def is_text(self) -> bool:
        """Whether the values are texts: then the trees compare codes."""
        return any(isinstance(value, str) for value in self.values)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts, by code."""
        return tuple(str(value) for value in self.values if not absent(value))

    def number(self, code: int) -> float:
        """Return the number of a code that a tree compares with."""
        if self.is_text:
            return float(code)
        value = float(self.values[code])
        if float(np.float32(value)) != value:
            raise ModelError(
                f"the category {value!r} of column {self.column} is no number of single precision "
                f"(whole numbers up to {_EXACT:,} are); write its categories as texts or as codes"
            )
        return value


def categories_of(model: Any) -> list[Categories]:
    """Return the categorical columns of a fitted HistGradientBoosting, in the order of the columns."""
    flags = getattr(model, "is_categorical_", None)
    if flags is None or not np.any(flags):
        return []
    encoder = model._preprocessor.named_transformers_["encoder"]
    places = np.flatnonzero(flags).tolist()
    return [
        Categories(place, tuple(values.tolist())) for place, values in zip(places, encoder.categories_, strict=True)
    ]


def histogram_trees(model: Any, *, double: bool = False) -> tuple[list[Tree], list[int], list[float]]:
    """Read the trees of a HistGradientBoosting model.

    A row without a value, and one with a category that training did not see, goes where its split sends missing
    values.
    """
    found = categories_of(model)
    flags = np.zeros(model.n_features_in_, dtype=bool)
    flags[[one.column for one in found]] = True
    # scikit-learn puts the categorical columns first before it grows trees
    order = [*np.flatnonzero(flags).tolist(), *np.flatnonzero(~flags).tolist()]
    kinds = dict(enumerate(found))
    trees, outputs = [], []
    for rounds in model._predictors:
        for output, predictor in enumerate(rounds):
            trees.append(_tree(predictor, order, kinds, double=double))
            outputs.append(output)
    return trees, outputs, np.asarray(model._baseline_prediction, dtype=float).reshape(-1).tolist()


def _tree(predictor: Any, order: Sequence[int], kinds: dict[int, Categories], *, double: bool) -> Tree:
    nodes = predictor.nodes
    tree: Tree = []

    def add(number: int) -> int:
        """Add a subtree and return its root's number."""
        node, first = nodes[number], len(tree)
        if node["is_leaf"]:
            tree.append(Node("LEAF", weights=(float(node["value"]),)))
            return first
        feature, missing_left = int(node["feature_idx"]), bool(node["missing_go_to_left"])
        if not node["is_categorical"]:
            tree.append(Node("LEAF"))
            threshold = float(node["num_threshold"])
            threshold = threshold if double else round_down(threshold)
            yes, no = add(int(node["left"])), add(int(node["right"]))
            tree[first] = Node("BRANCH_LEQ", order[feature], threshold, yes, no, missing_left)
            return first
        kind = kinds[feature]
        known = range(sum(not absent(value) for value in kind.values))
        left = predictor.raw_left_cat_bitsets[int(node["bitset_idx"])]
        # whatever equals no code of the chain, NaN among it, goes to the side of missing values
        codes = [code for code in known if _has(left, code) != missing_left]
        tree.extend(Node("LEAF") for _ in codes)
        ends = {True: int(node["left"]), False: int(node["right"])}
        if not codes:
            return add(ends[missing_left])
        equal, rest = add(ends[not missing_left]), add(ends[missing_left])
        for place, code in enumerate(codes):
            following = first + place + 1 if place + 1 < len(codes) else rest
            tree[first + place] = Node("BRANCH_EQ", order[feature], kind.number(code), equal, following)
        return first

    add(0)
    return tree


def _has(bitset: Any, code: int) -> bool:
    return bool((int(bitset[code // 32]) >> (code % 32)) & 1)


def link_of(model: Any) -> str:
    """Return the link from the sum of a regressor's trees to its prediction: ``identity`` or ``log``."""
    name = type(getattr(getattr(model, "_loss", None), "link", None)).__name__
    return "log" if name == "LogLink" else "identity"
