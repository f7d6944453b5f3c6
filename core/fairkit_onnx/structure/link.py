"""From the sum to what is served: the link after it, run by the runtime itself on sums that are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.file import OnnxFile
from fairkit_onnx.read.feeds import built
from fairkit_onnx.read.graph import read_by
from fairkit_onnx.structure.ensemble import attributes_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.feeds import Feed
    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.monotone import Condition


PROBE = "fairkit_place"
"""The input of the lookup."""
WIDE = 50_000
"""So many sums are looked up at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """What follows a sum reads besides."""

    feeds: tuple[Feed, ...]  # the inputs that are read, of one column each
    listed: frozenset[str]
    conditions: tuple[Condition, ...]  # where the other columns are compared: they are cut there
    tensors: tuple[str, ...]  # what is computed from the columns alone, where it meets the sum

    @property
    def columns(self) -> list[str]:
        """The columns."""
        return [feed.columns[0] for feed in self.feeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """What follows the sum."""

    scorer: OnnxScorer  # knows how the outputs are read
    cut: onnx.NodeProto | str  # the node whose sum is replaced, or the tensor that holds it
    negative: bool = False
    columns: int = 1  # of a tensor: 1, or 2 whose difference is the sum
    shares: bool = False  # whether the tensor's two columns are shares of 1 in place of that, the second being the sum
    double: bool = False  # whether the tensor has double precision
    groups: GroupPart | None = None  # what follows the sum reads of the row's columns besides; None: nothing
    _opened: dict[str, Any] = field(default_factory=dict)

    def __call__(self, sums: NDArray[np.float64], columns: Mapping[str, NDArray[Any]] | None = None) -> Predictions:
        """Return the model's predictions for these values of the sum (as float32), shape [n].

        `columns` has raw values of the columns that are read besides, by row.
        """
        from fairkit.models.scorer import Predictions

        parts = []
        for start in range(0, len(sums), WIDE):
            here = slice(start, start + WIDE)
            some = {name: values[here] for name, values in (columns or {}).items()}
            parts.append(self._some(sums[here].astype(np.float32), some))
        joined: dict[str, Any] = {
            name: None if getattr(parts[0], name) is None else np.concatenate([getattr(p, name) for p in parts])
            for name in ("score", "decision", "logits")
        }
        return Predictions(**joined)

    def _some(self, rows: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> Predictions:
        reading = self.scorer.reading
        if isinstance(self.cut, str):
            if "file" not in self._opened:
                self._opened["file"] = self.opened(self.after(self.cut))
            weights: NDArray[Any] = rows.reshape(-1, 1)
            weights = weights.astype(np.float64) if self.double else weights
            if self.columns == 2:
                weights = np.hstack([1 - weights, weights] if self.shares else [-weights / 2, weights / 2])
            feeds = {self.cut: weights}
        elif self.cut.op_type == "LinearClassifier":
            if "file" not in self._opened:
                proto = self.after(*self.cut.output)
                proto.graph.node.insert(0, _passed(self.cut))
                self._opened["file"] = self.opened(proto)
            feeds = {PROBE: rows.reshape(-1, 1)}
        else:
            if self._opened.get("rows") != rows.tobytes():  # of several groups the same are looked up
                proto = self.after(*self.cut.output)
                proto.graph.node.insert(0, _lookup(self.cut, rows, self.negative))
                self._opened.update(rows=rows.tobytes(), file=self.opened(proto))
            feeds = {PROBE: np.arange(len(rows), dtype=np.float32).reshape(-1, 1)}
        feeds |= built(() if self.groups is None else self.groups.feeds, columns)
        return reading.read(self._opened["file"].run(feeds, reading.wanted))

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
        nodes = tail_nodes(proto.graph, wanted, cut)
        besides = {feed.input.name for feed in self.groups.feeds} if self.groups is not None else set()
        inputs = [entry for entry in proto.graph.input if entry.name in besides]
        del proto.graph.node[:], proto.graph.input[:], proto.graph.value_info[:]
        proto.graph.input.extend(inputs)
        proto.graph.node.extend(nodes)
        outputs = [output for output in proto.graph.output if output.name in wanted]
        del proto.graph.output[:]
        proto.graph.output.extend(outputs)
        name = cut[0] if isinstance(self.cut, str) else PROBE
        kind = onnx.TensorProto.DOUBLE if self.double else onnx.TensorProto.FLOAT
        one = onnx.helper.make_tensor_value_info(name, kind, [None, self.columns])
        proto.graph.input.append(one)
        return proto


def tail_nodes(graph: onnx.GraphProto, wanted: Sequence[str], cut: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes that outputs are made from without those behind some tensors, constants included, in order."""
    wanted_names, kept = set(wanted) - set(cut), []
    for node in reversed(graph.node):
        if wanted_names & set(node.output) and not set(node.output) & set(cut):
            kept.append(node)
            wanted_names |= read_by(node) - set(cut)
    return kept[::-1]


def _passed(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a linear classifier of two classes with one feature, which is the sum of the second."""
    from onnx import helper

    attributes = {k: v for k, v in attributes_of(node).items() if k not in ("coefficients", "intercepts")}
    flip = {"coefficients": [-1.0, 1.0], "intercepts": [0.0, 0.0]}
    return helper.make_node(node.op_type, [PROBE], list(node.output), domain="ai.onnx.ml", **(attributes | flip))


def _lookup(node: onnx.NodeProto, values: NDArray[np.float32], negative: bool) -> onnx.NodeProto:
    """Return the node with one tree in the place of its own: the leaf at the place that the input names."""
    attributes = attributes_of(node)
    kind = kind_of(node)
    nodes, leaves = one_tree(len(values))
    leaf_values = [(leaf, float(values[row])) for leaf, row in leaves]
    if negative:  # a leaf that no place leads to
        leaf_values.append((len(nodes), -1.0))
        nodes.append(("LEAF", 0.0, 0, 0))
    columns = sorted(set(attributes[f"{kind}_ids"]))
    pairs = [(leaf, value, columns[-1]) for leaf, value in leaf_values]
    if len(columns) == 2:
        whole = np.float32(0.0 if attributes.get("post_transform") == b"LOGISTIC" else 1.0)  # or each other's negative
        pairs += [(leaf, float(whole - np.float32(value)), columns[0]) for leaf, value in leaf_values]
        pairs.sort()
    tree_names = {f"{kind}_{key}" for key in ("treeids", "nodeids", "ids", "weights")}
    gone = ("nodes_", "base_values", "aggregate_function")
    attributes_kept: dict[str, Any] = {
        key: value
        for key, value in attributes.items()
        if key not in tree_names and not key.startswith(gone) and not key.endswith("_as_tensor")
    }
    return with_tree(node, attributes_kept, nodes, [(leaf, column, value) for leaf, value, column in pairs])


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
    attributes: Mapping[str, Any],
    nodes: Sequence[tuple[str, float, int, int]],
    weights: Sequence[tuple[int, int, float]],
) -> onnx.NodeProto:
    """Return a node with one tree in the place of its own."""
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
    return helper.make_node(node.op_type, [PROBE], list(node.output), domain="ai.onnx.ml", **{**attributes, **made})
