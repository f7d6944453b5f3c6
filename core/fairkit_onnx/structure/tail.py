"""From the sum to what is served: the link after it, run by the runtime itself on sums that are looked up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.file import OnnxFile
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.ensemble import attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.scorer import OnnxScorer

PROBE = "fairkit_place"
"""The input of the lookup."""
WIDE = 50_000
"""So many sums are looked up at once."""

SAME = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Sigmoid", "Tanh", "Clip", "Relu",
                  "Exp", "ZipMap"})  # fmt: skip
"""Operators that keep the order of each column."""
_FLIP = {"Neg": -1, "Not": -1}
_PICK = frozenset({"Gather", "ArrayFeatureExtractor", "Slice", "Split"})
_ORDER = {"Add": (1, 1), "Sum": (1, 1), "Sub": (1, -1), "Greater": (1, -1), "GreaterOrEqual": (1, -1),
          "Less": (-1, 1), "LessOrEqual": (-1, 1)}  # fmt: skip
_STEP = frozenset({"ArgMax", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What follows the sum.

    Attributes
    ----------
    scorer
        Knows how the outputs are read.
    cut
        The node whose sum is replaced, or the tensor that holds it.
    negative
        Whether a weight of the replaced node is negative: onnxruntime reads a binary classifier by that.
    columns
        Of a tensor: 1, or 2 whose difference is the sum.
    shares
        Whether the tensor's two columns are shares of 1 in place of that, the second being the sum.
    double
        Whether the tensor has double precision.
    """

    scorer: OnnxScorer
    cut: onnx.NodeProto | str
    negative: bool = False
    columns: int = 1
    shares: bool = False
    double: bool = False
    _opened: dict[str, Any] = field(default_factory=dict)

    def __call__(self, sums: NDArray[np.float64]) -> Predictions:
        """Return what the model says where the sum has these values (as float32), shape [n]."""
        from fairkit.models.scorer import Predictions

        parts = [self._some(sums[i : i + WIDE]) for i in range(0, len(sums), WIDE)]
        joined = {
            name: None
            if getattr(parts[0], name) is None
            else np.concatenate([getattr(p, name) for p in parts])
            for name in ("score", "decision", "logits")
        }
        return Predictions(**joined)

    def _some(self, sums: NDArray[np.float64]) -> Predictions:
        reading = self.scorer.reading
        rows = sums.astype(np.float32)
        if isinstance(self.cut, str):
            if "file" not in self._opened:
                self._opened["file"] = self.opened(self.after(self.cut))
            one: NDArray[Any] = rows.reshape(-1, 1)
            one = one.astype(np.float64) if self.double else one
            if self.columns == 2:
                one = np.hstack([1 - one, one] if self.shares else [-one / 2, one / 2])
            feeds = {self.cut: one}
            return reading.read(self._opened["file"].run(feeds, reading.wanted))
        proto = self.after(*self.cut.output)
        if self.cut.op_type == "LinearClassifier":
            proto.graph.node.insert(0, _passed(self.cut))
            return reading.read(self.opened(proto).run({PROBE: rows.reshape(-1, 1)}, reading.wanted))
        proto.graph.node.insert(0, _lookup(self.cut, rows, self.negative))
        feeds = {PROBE: np.arange(len(rows), dtype=np.float32).reshape(-1, 1)}
        return reading.read(self.opened(proto).run(feeds, reading.wanted))

    def opened(self, proto: onnx.ModelProto) -> OnnxFile:
        """Return a graph that is run where the model is."""
        model = self.scorer.model
        sandbox = getattr(model, "sandbox", None)
        return OnnxFile(proto.SerializeToString(), model.name, None, 1, sandbox)

    def after(self, *cut: str) -> onnx.ModelProto:
        """Return the graph from some tensors on."""
        import onnx

        proto = onnx.ModelProto()
        proto.CopyFrom(self.scorer.model.proto)
        wanted = self.scorer.reading.wanted
        kept = tail_nodes(proto.graph, wanted, cut)
        del proto.graph.node[:], proto.graph.input[:], proto.graph.value_info[:]
        proto.graph.node.extend(kept)
        outputs = [output for output in proto.graph.output if output.name in wanted]
        del proto.graph.output[:]
        proto.graph.output.extend(outputs)
        name = cut[0] if isinstance(self.cut, str) else PROBE
        kind = onnx.TensorProto.DOUBLE if self.double else onnx.TensorProto.FLOAT
        one = onnx.helper.make_tensor_value_info(name, kind, [None, self.columns])
        proto.graph.input.append(one)
        return proto


def tail_nodes(graph: onnx.GraphProto, wanted: Sequence[str], cut: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes between some tensors and outputs, constants included, in order."""
    behind = {made for node in ancestors(graph, cut) for made in node.output}
    return [node for node in ancestors(graph, wanted) if not set(node.output) & (behind | set(cut))]


def _passed(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a linear classifier of two classes with one feature, which is the sum of the second."""
    from onnx import helper

    kept = {k: v for k, v in attributes_of(node).items() if k not in ("coefficients", "intercepts")}
    own = {"coefficients": [-1.0, 1.0], "intercepts": [0.0, 0.0]}
    return helper.make_node(node.op_type, [PROBE], list(node.output), domain="ai.onnx.ml", **(kept | own))


def _lookup(node: onnx.NodeProto, values: NDArray[np.float32], negative: bool) -> onnx.NodeProto:
    """Return the node with one tree in the place of its own: the leaf at the place that the input names."""
    told = attributes_of(node)
    kind = kind_of(node)
    nodes, leaves = one_tree(len(values))
    found = [(leaf, float(values[row])) for leaf, row in leaves]
    if negative:  # a leaf that no place leads to
        found.append((len(nodes), -1.0))
        nodes.append(("LEAF", 0.0, 0, 0))
    columns = sorted(set(told[f"{kind}_ids"]))
    pairs = [(leaf, value, columns[-1]) for leaf, value in found]
    if len(columns) == 2:
        whole = np.float32(
            0.0 if told.get("post_transform") == b"LOGISTIC" else 1.0
        )  # or each other's negative
        pairs += [(leaf, float(whole - np.float32(value)), columns[0]) for leaf, value in found]
        pairs.sort()
    own = {f"{kind}_{key}" for key in ("treeids", "nodeids", "ids", "weights")}
    gone = ("nodes_", "base_values", "aggregate_function")
    kept: dict[str, Any] = {
        key: value
        for key, value in told.items()
        if key not in own and not key.startswith(gone) and not key.endswith("_as_tensor")
    }
    return with_tree(node, kept, nodes, [(leaf, column, value) for leaf, value, column in pairs])


def kind_of(node: onnx.NodeProto) -> str:
    """Return what the attributes of a node's leaves begin with."""
    return "class" if node.op_type == "TreeEnsembleClassifier" else "target"


def one_tree(size: int) -> tuple[list[tuple[str, float, int, int]], list[tuple[int, int]]]:
    """Return a tree's nodes (mode, threshold, yes, no) that tell places apart, and each leaf with its place."""
    nodes: list[tuple[str, float, int, int]] = []
    leaves: list[tuple[int, int]] = []
    ranges = [(0, size)]
    while len(nodes) < len(ranges):
        first, end = ranges[len(nodes)]
        if end - first == 1:
            leaves.append((len(nodes), first))
            nodes.append(("LEAF", 0.0, 0, 0))
        else:
            middle = (first + end) // 2
            nodes.append(("BRANCH_LT", middle - 0.5, len(ranges), len(ranges) + 1))
            ranges += [(first, middle), (middle, end)]
    return nodes, leaves


def with_tree(
    node: onnx.NodeProto,
    kept: Mapping[str, Any],
    nodes: Sequence[tuple[str, float, int, int]],
    weights: Sequence[tuple[int, int, float]],
) -> onnx.NodeProto:
    """Return a node with one tree in the place of its own.

    Parameters
    ----------
    node, kept
        The node, and its attributes that stay.
    nodes, weights
        Of the tree (see `one_tree`): leaves, their columns and weights.
    """
    from onnx import helper

    kind = kind_of(node)
    made = {
        "nodes_treeids": [0] * len(nodes),
        "nodes_nodeids": list(range(len(nodes))),
        "nodes_featureids": [0] * len(nodes),
        "nodes_modes": [mode for mode, *_ in nodes],
        "nodes_values": [value for _, value, _, _ in nodes],
        "nodes_truenodeids": [yes for _, _, yes, _ in nodes],
        "nodes_falsenodeids": [no for _, _, _, no in nodes],
        f"{kind}_treeids": [0] * len(weights),
        f"{kind}_nodeids": [leaf for leaf, _, _ in weights],
        f"{kind}_ids": [column for _, column, _ in weights],
        f"{kind}_weights": [value for _, _, value in weights],
    }
    return helper.make_node(node.op_type, [PROBE], list(node.output), domain="ai.onnx.ml", **{**kept, **made})


def check_monotone(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    start: Mapping[str, tuple[int, ...]],
    wanted: Sequence[str],
) -> None:
    """Refuse a link that might not keep the order of the sum.

    Parameters
    ----------
    graph, nodes, wanted
        The tail and its outputs.
    start
        By tensor that the sum makes, the direction of each of its columns: 1, -1; (0,) for a label of two values.

    Raises
    ------
    ModelError
        It names the first node that is not understood, and what is.
    """
    known: dict[str, tuple[int, ...]] = dict(start)
    for node in nodes:
        inputs = [known.get(name) for name in node.input if name]
        if all(one is None for one in inputs):
            continue  # made of constants
        found = _directions(node, inputs, graph)
        if found is None:
            raise ModelError(
                f"the node {node.op_type} {node.name or node.output[0]!r} after the sum is not understood: what "
                f"follows a sum must keep its order, as {', '.join(sorted(SAME))}, sums with constants, comparisons, "
                "Concat, Softmax and ArgMax of two columns do"
            )
        for output in node.output:
            known[output] = found


def _directions(  # noqa: PLR0911 -- one line for each kind of operator
    node: onnx.NodeProto, inputs: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    told = [one for one in inputs if one is not None]
    if all(one == (0,) for one in told):
        return (0,)  # a function of a label of two values changes once, like the label
    kind = node.op_type
    if any(one == (0,) for one in told):
        return None
    if kind in SAME:
        return told[0] if len(told) == 1 else None
    if kind in _FLIP:
        return tuple(-one for one in told[0])
    if kind in _PICK:
        return _picked(told[0])
    if kind == "Concat":
        return None if any(one is None for one in inputs) else tuple(d for one in told for d in one)
    if kind in ("Softmax", "Normalizer") and told[0] in ((-1, 1), (1, -1)):
        return told[0]
    if kind == "ArgMax":
        return (0,) if told[0] in ((-1, 1), (1, -1)) else None
    if kind in ("Mul", "Div"):
        return _scaled(node, inputs, graph)
    if kind in _ORDER and len(inputs) == 2:
        signs = _ORDER[kind]
        columns = max(len(one) for one in told)
        moved = [{sign * d for d in one} for sign, one in zip(signs, inputs, strict=True) if one is not None]
        if len(set().union(*moved)) == 1:
            return (0,) if kind in _STEP else (moved[0].pop(),) * columns
        if len(told) == 1 and kind not in _STEP:
            sign = signs[0] if inputs[0] is not None else signs[1]
            return tuple(sign * d for d in told[0])
    return None


def _picked(columns: tuple[int, ...]) -> tuple[int, ...] | None:
    """One of two columns has the one direction or the other: either changes once."""
    return columns if len(set(columns)) == 1 else (1,) if len(columns) == 2 else None


def _scaled(
    node: onnx.NodeProto, inputs: Sequence[tuple[int, ...] | None], graph: onnx.GraphProto
) -> tuple[int, ...] | None:
    if (
        len(inputs) != 2
        or sum(one is None for one in inputs) != 1
        or (node.op_type == "Div" and inputs[0] is None)
    ):
        return None
    place = 0 if inputs[0] is None else 1
    value = constant_of(graph, node.input[place])
    if value is None or not np.isfinite(value).all() or not ((value > 0).all() or (value < 0).all()):
        return None
    sign = 1 if float(value.flat[0]) > 0 else -1
    columns = inputs[1 - place]
    return None if columns is None else tuple(sign * one for one in columns)


def constant_of(graph: onnx.GraphProto, name: str) -> NDArray[Any] | None:
    """Return a constant tensor; None for what is none."""
    from onnx import numpy_helper

    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and name in node.output:
            told = attributes_of(node)
            if "value" in told:
                return numpy_helper.to_array(told["value"])
            return np.asarray(next(iter(told.values())))
    return None
