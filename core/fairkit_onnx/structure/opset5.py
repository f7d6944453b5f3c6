"""`TreeEnsemble` of ai.onnx.ml 5, written as the attributes of `TreeEnsembleRegressor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = 6
_EXACT = 30
AGGREGATES = (b"AVERAGE", b"SUM", b"MIN", b"MAX")
LINKS = (b"NONE", b"SOFTMAX", b"LOGISTIC", b"SOFTMAX_ZERO", b"PROBIT")
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
        for place, (name, value) in enumerate(tests):
            self._row(number, name, feature, value, missing)
            row = len(self.rows) - 1
            if place + 1 < len(tests):
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
        "post_transform": LINKS[attributes.get("post_transform", 0)],
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
    found: dict[int, list[float]] = {}
    if not members:
        return found
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
