"""Labels without scores: where inside the graph sums are turned into them, and the rows that rounding could turn.

The operators that make a decision of a sum (comparisons, ArgMax, a classifier's label) get what they compare as further
outputs of a derived graph; a row is undetermined where one of them lies within the bound of what it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.file import OnnxFile
from fairkit_onnx.read.rivals import lead
from fairkit_onnx.read.sums import CLASSIFIERS, SumWalk

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.graph import Graph

    Array = NDArray[np.float64]

_COMPARED = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_STEPS = frozenset({"Ceil", "Floor", "Round", "Sign"})
_PICKED = frozenset({"ArgMax", "ArgMin"})
DECIDING = CLASSIFIERS | _COMPARED | _STEPS | _PICKED
"""Operators after which a number says on which side of something another one lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRounding:
    """The rows whose label rounding could turn.

    A row's error is within the bound of every batch that it is in, so each batch's rows are held against their own: the
    bound of all rows is known after the last one only, and would count more rows than need be.
    """

    walk: SumWalk  # follows sums to the operators that decide
    nodes: Mapping[str, onnx.NodeProto]  # those operators by their first output
    derived: OnnxFile  # the graph with what they compare as outputs
    bound: float  # the largest error of what is compared, on the rows it was made for; infinite where there is no bound
    names: tuple[str, ...]  # the tensors of `derived` that are compared; others are constants

    def near(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
        """Return the rows within their batch's bound, shape [n]; None where it cannot be told."""
        if self.walk(arrays) != 0:  # what is served must be a decision, not a sum
            return None
        rows = len(next(iter(arrays.values())))
        decided = dict(self.walk.decided)
        wanted = list(dict.fromkeys(name for label in decided for name in _compared(self.nodes[label])))
        try:
            values = self.derived.run(arrays, [name for name in wanted if name in self.names]) if decided else {}
            near = np.zeros(rows, dtype=bool)
            for label, error in decided.items():
                near |= _near(self.nodes[label], values, rows) <= error
        except (ModelError, ValueError, KeyError):
            return None
        return near

    def undetermined(
        self, found: Predictions, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> NDArray[np.bool_] | None:
        """Return the rows whose label rounding could turn, shape [n]; None where there are none.

        Where a later batch has no bound, every row of it is.
        """
        if arrays is None or found.members is not None:
            return None
        near = self.near(arrays)
        if near is None:
            return np.ones(len(next(iter(arrays.values()))), dtype=bool)
        return near if near.any() else None

    def over(self, largest: Mapping[str, NDArray[np.float64]]) -> LabelRounding:
        """Return it for all rows, by the largest numbers among them."""
        followed = self.walk(largest) is not None
        return replace(self, bound=max(self.walk.decided.values(), default=0.0) if followed else np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return bound_record(self.bound, proved=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTrials:
    """Labels of a graph in which what follows a sum is not known: run with other threads and without optimisation."""

    again: Callable[[Mapping[str, NDArray[Any]], Predictions], NDArray[np.bool_]]
    share: float  # of the first rows. Where it is 0, no further row is tried

    def undetermined(
        self, found: Predictions, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> NDArray[np.bool_] | None:
        """Return the rows whose label other runs turn, shape [n]; None where there are none."""
        if not self.share or arrays is None:
            return None
        turned = self.again(arrays, found)
        return turned if turned.any() else None

    def over(self, largest: Mapping[str, NDArray[np.float64]]) -> LabelTrials:
        """Return it as it is: trials give no bound for other rows."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return bound_record(self.share, proved=False)


def bound_record(bound: float, *, proved: bool) -> dict[str, Any]:
    """Return the JSON form of a bound; null where a later batch has none."""
    return {"bound": bound, "proved": proved} if np.isfinite(bound) else {"bound": None, "proved": False}


def label_rounding(
    model: Graph, label: str, arrays: Mapping[str, NDArray[Any]], trees: Callable[[onnx.NodeProto], float | None]
) -> LabelRounding | None:
    """Return how rounding could turn a label that sums are made into; None where no bound is known, or none is made."""
    if getattr(model, "external", None) or not isinstance(model, OnnxFile):
        return None  # its weights lie in other files, beside the graph
    walk = SumWalk(model.proto, label, trees, DECIDING)
    if not walk.summed or walk(arrays) != 0:
        return None
    proto = _with_names(model.proto)
    nodes = {node.output[0]: node for node in proto.graph.node if node.op_type in DECIDING}
    if not set(walk.decided) <= set(nodes):
        return None
    served = {one.name for one in proto.graph.output}
    made = {name for node in proto.graph.node for name in node.output}
    names = dict.fromkeys(name for key in walk.decided for name in _compared(nodes[key]))
    constants = {tensor.name for tensor in proto.graph.initializer}
    for name in names:
        if name in made and name not in served:
            proto.graph.output.add().name = name
        elif name not in constants | made:
            return None  # an input as it is: no sum
    derived = OnnxFile(proto.SerializeToString(), model.name, None, None, model.sandbox)
    usable = tuple(name for name in names if name in made)
    far = max(walk.decided.values(), default=0.0)
    if not np.isfinite(far):
        return None
    found = LabelRounding(walk=walk, nodes=nodes, derived=derived, bound=far, names=usable)
    return None if found.near(arrays) is None else found


def _with_names(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every classifier's scores have a name."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for place, node in enumerate(copy.graph.node):
        if node.op_type in CLASSIFIERS and len(node.output) > 1 and not node.output[1]:
            node.output[1] = f"fairkit_scores_{place}"
        elif node.op_type in CLASSIFIERS and len(node.output) == 1:
            node.output.append(f"fairkit_scores_{place}")
    return copy


def _compared(node: onnx.NodeProto) -> Sequence[str]:
    """Return the names of the tensors that a node decides by."""
    if node.op_type in CLASSIFIERS:
        return [node.output[1]]
    return list(node.input[:2] if node.op_type in _COMPARED else node.input[:1])


def _near(node: onnx.NodeProto, values: Mapping[str, Any], rows: int) -> Array:
    """Return how far each row's numbers are from where the node would decide otherwise, shape [n]."""
    some = [np.asarray(values[name], dtype=np.float64) for name in _compared(node)]
    if node.op_type in _COMPARED:
        return _least(np.abs(some[0] - some[1]), rows)
    if node.op_type in _STEPS:
        shift = 0.5 if node.op_type == "Round" else 0.0
        number = some[0] - shift
        return _least(np.abs(some[0] if node.op_type == "Sign" else number - np.round(number)), rows)
    scores = some[0]
    axis = next((one.i for one in node.attribute if one.name == "axis"), 0) if node.op_type in _PICKED else 1
    if scores.ndim != 2 or len(scores) != rows or axis not in (1, -1) or scores.shape[1] < 2:
        raise ValueError("the classes of a row do not lie along its second axis")
    return lead(scores if node.op_type != "ArgMin" else -scores) / 2


def _least(distances: Array, rows: int) -> Array:
    if distances.ndim == 0 or len(distances) != rows:
        raise ValueError("no number for each row")
    return np.asarray(distances.reshape(rows, -1).min(axis=1))
