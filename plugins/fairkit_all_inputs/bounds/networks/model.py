"""Reading a bound ONNX model as a network between features and one sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError
from fairkit_all_inputs.bounds.forest import Layout
from fairkit_all_inputs.bounds.networks.boxes import CellFeatures
from fairkit_all_inputs.bounds.networks.problem import NetworkProblem, starts_of
from fairkit_onnx.file import OnnxFile
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.cells import encode_rows, listed_block
from fairkit_onnx.structure.constants import constant_of
from fairkit_onnx.structure.domain import Block, Listed, Numbers, numbers_block
from fairkit_onnx.structure.encoded import Encoded, refuse_unread, up_to
from fairkit_onnx.structure.group_rules import group_part, group_thresholds, score_of
from fairkit_onnx.structure.links import check_monotone
from fairkit_onnx.structure.networks.reading import DENSE, STRAIGHT, Reader
from fairkit_onnx.structure.sources import Sources
from fairkit_onnx.structure.tail import Tail, tail_nodes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.networks.layers import Layer

    Columns = Mapping[str, NDArray[Any]]

CELLS = 1_024
"""Cells of a column of numbers; where a number is missing, or the order breaks, boxes are sets of fewer cells."""
CELLS_WITH_MISSING = 48
KINDS = (np.float32, np.float64)


@dataclass(frozen=True, eq=False)
class NetworkModel(Encoded):
    """A model whose score follows from the output of a network."""

    layers: Sequence[Layer]  # the network; the last layer has one sum

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.layers[0].weights.shape[1])

    @property
    def band(self) -> float:
        """How far from the threshold float32 may decide either way: a Softmax of two is not quite monotone."""
        return 1e-5 if self.tail.columns == 2 else 0.0

    def problem(self, domains: Sequence[Numbers | Listed], changing: int, features: Features) -> NetworkProblem:
        """Return the model over a domain whose numbers are cut into cells."""
        encode, defaults = self.encoding(doubles=True), self.defaults(domains)
        pieces = self.pieces(domains, features)
        turning = self.pieces(domains, replace(features, cuts=()))  # a rule's cuts turn no order
        blocks = [_block(one, self.kinds(), pieces, turning) for one in domains]
        of_column = {column: place for place, block in enumerate(blocks) for column in block.columns}
        owner = np.array([of_column.get(name or "", -1) for name in features.source])
        mine = [np.flatnonzero(owner == place) for place in range(len(blocks))]
        ends = []
        for some in (map(_at_start, blocks), map(_at_end, blocks)):
            matrix, starts = encode_rows(list(some), encode, defaults)
            wide = matrix.astype(np.float64)
            ends.append([wide[starts[b] : starts[b + 1]][:, mine[b]] for b in range(len(blocks))])
            for block, found in zip(blocks, ends[-1], strict=True):
                if not np.isfinite(found).all():
                    raise DataError(
                        f"the network's features of {block.name!r} are not all finite numbers; a missing value must be "
                        "filled by the graph, or left out of the domain"
                    )
        sizes = [1 if place == changing else block.size for place, block in enumerate(blocks)]
        ordered = [block.ordered or place == changing for place, block in enumerate(blocks)]
        cells = CellFeatures(
            Layout.of(sizes, ordered), changing, mine, ends[0], ends[1], np.where(owner < 0, wide[0], 0.0)
        )
        made = NetworkProblem(blocks=blocks, cells=cells, layers=self.layers, encode=encode, threshold=None)
        if self.tail.groups is None:
            direction, threshold, logistic = self.link(*_range(made))
            rule = None
        else:
            direction, rule, logistic = group_thresholds(self, blocks, *_range(made))
            threshold = None if rule is None else 0.0
        beside = threshold if rule is None else float(np.abs(rule.table).max())
        # sums of double precision are looked up as float32: the next of those is as far away
        band = self.band + (2.0**-22 * abs(beside or 0.0) if self.tail.double and np.isfinite(beside or 0.0) else 0.0)
        layers = self.layers if direction > 0 else [*self.layers[:-1], _negated(self.layers[-1])]
        return replace(made, layers=layers, threshold=threshold, logistic=logistic, band=band, rule=rule)


def _range(problem: NetworkProblem) -> tuple[float, float]:
    """Return ends of the runtime's sum, over the domain."""
    from fairkit_all_inputs.bounds.networks.bounds import bounds

    low, high = np.inf, -np.inf
    opened = problem.cells.opened(problem.root)
    for cell in range(problem.blocks[problem.changing].size):
        found = bounds(problem.layers, opened, problem.sides((cell, cell)), whole=True)
        reach = float(found.error[0]) + 1e-6
        low, high = min(low, float(found.least[0]) - reach), max(high, float(found.most[0]) + reach)
    return low, high


def _negated(layer: Layer) -> Layer:
    return replace(layer, weights=-layer.weights, bias=-layer.bias)


def _block(
    domain: Numbers | Listed,
    kinds: Mapping[str, type],
    pieces: Mapping[str, NDArray[np.float64]],
    turning: Mapping[str, NDArray[np.float64]],
) -> Block:
    """Cut a column; on each cell every feature keeps its order, so that it lies between those of the cell's ends."""
    if isinstance(domain, Listed):
        return listed_block(domain)
    tops, ordered = pieces[domain.name], len(turning[domain.name]) == 1
    count = CELLS if ordered and not domain.missing else CELLS_WITH_MISSING
    some = np.linspace(domain.low, domain.high, count + 1)[1:]
    if domain.whole:
        some = np.floor(some) if domain.high - domain.low >= count else np.arange(domain.low, domain.high + 1)
    block = numbers_block(domain, np.concatenate([some, tops]), kinds[domain.name])
    # the features of a range of cells lie between those of its ends only where the whole column keeps its order
    return block if ordered else replace(block, ordered=False)


def _at_start(block: Block) -> Block:
    return block if block.ends is None else replace(block, values={block.columns[0]: starts_of(block)})


def _at_end(block: Block) -> Block:
    return block if block.ends is None else replace(block, values={block.columns[0]: block.ends})


def read_network(scorer: OnnxScorer, rows: Columns) -> NetworkModel | None:
    """Read a bound model whose score is a network of features; None where it has no dense layer."""
    graph = scorer.model.proto.graph
    nodes = ancestors(graph, score_of(scorer))
    if not any(node.op_type in DENSE for node in nodes):
        return None
    refuse_unread(scorer)
    values = _run(scorer, rows, [name for node in nodes for name in node.output if name])
    matrix, width = _front(scorer, nodes, values)
    return _network(scorer, nodes, values, matrix, width)


def _run(scorer: OnnxScorer, rows: Columns, tensors: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return tensors of a few rows: for their shapes."""
    model = scorer.model
    fed = {feed.input.name: feed.build(rows) for feed in scorer.feeds}
    found: dict[str, NDArray[Any]] = {name: np.asarray(value) for name, value in fed.items()}
    wanted = [name for name in dict.fromkeys(tensors) if name not in found]
    file = OnnxFile(
        up_to(model.proto, wanted).SerializeToString(), model.name, None, 1, getattr(model, "sandbox", None)
    )
    return found | {name: np.asarray(value, dtype=None) for name, value in file.run(fed, wanted).items()
                    if not isinstance(value, list)}  # fmt: skip


def _alone(graph: onnx.GraphProto, wanted: Sequence[str], tensor: str, fed: set[str]) -> bool:
    """Tell whether everything that is fed reaches the score through one tensor."""
    after = tail_nodes(graph, wanted, [tensor])
    made = {name for node in after for name in node.output}
    read = {name for node in after for name in node.input} - made - {tensor}
    behind = ancestors(graph, list(read))
    return not (read | {name for node in behind for name in node.input}) & fed


def _front(scorer: OnnxScorer, nodes: Sequence[onnx.NodeProto], values: Mapping[str, NDArray[Any]]) -> tuple[str, int]:
    """Return the last tensor, and its width, that everything passes through and whose features have one column each."""
    graph, wanted = scorer.model.proto.graph, score_of(scorer)
    names = list(dict.fromkeys(column for feed in scorer.feeds for column in feed.columns))
    inputs = {feed.input.name: [names.index(column) for column in feed.columns] for feed in scorer.feeds}
    encoded: tuple[str, int] | None = None
    refused: ModelError | None = None
    candidates = [*inputs, *(name for node in nodes for name in node.output if name)]
    for tensor in candidates:
        value = values.get(tensor)
        if value is None or value.ndim != 2 or value.dtype not in KINDS:
            continue
        if not _alone(graph, wanted, tensor, set(inputs)):
            continue
        try:
            of = Sources(graph, inputs, tensor, lambda wanted: {name: values[name] for name in wanted}).of
        except ModelError as error:
            refused = refused or error
            break
        if tensor in of:
            encoded = tensor, value.shape[1]
    if encoded is None:
        raise refused or ModelError(
            f"{scorer.info.name}: no matrix of features in float32 or float64 is between the columns and the network"
        )
    return encoded


def _network(
    scorer: OnnxScorer, nodes: Sequence[onnx.NodeProto], values: Mapping[str, NDArray[Any]], matrix: str, width: int
) -> NetworkModel:
    """Read from the features to the last layer's sum, from which on the order of the score is kept."""
    graph, wanted = scorer.model.proto.graph, score_of(scorer)
    fed = {feed.input.name for feed in scorer.feeds}
    before = {id(node) for node in ancestors(graph, [matrix])}
    inner = [node for node in nodes if id(node) not in before]
    dense = [place for place, node in enumerate(inner) if node.op_type in DENSE]
    refused: ModelError | None = None
    model: NetworkModel | None = None
    for node in inner[dense[-1] if dense else 0 :]:
        if model is not None and node.op_type not in STRAIGHT:
            break  # what follows is the link
        for tensor in node.output:
            value = values.get(tensor)
            if value is None or value.dtype not in KINDS or value.ndim != 2 or value.shape[1] not in (1, 2):
                continue
            if not _alone(graph, wanted, tensor, fed):
                continue
            two = value.shape[1] == 2
            try:
                start = {tensor: (-1, 1) if two else (1,)}
                groups = group_part(scorer, [tensor], grouped=True)
                check_monotone(graph, tail_nodes(graph, scorer.reading.wanted, [tensor]), start)
                reader = Reader(_constants(graph, values), values, matrix, width)
                kept = {id(node) for node in ancestors(graph, [tensor])}
                reader.follow([node for node in inner if id(node) in kept])
            except ModelError as error:
                refused = refused or error
                continue
            double = value.dtype == np.float64
            tail = Tail(scorer=scorer, cut=tensor, columns=2 if two else 1, double=double, groups=groups)
            model = NetworkModel(scorer, matrix, tail, reader.layers(tensor))
    if model is not None:
        return model
    raise refused or ModelError(
        f"{scorer.info.name}: the network's last layer gives no single number, or two of two classes, from "
        "which the score follows"
    )


def _constants(graph: onnx.GraphProto, values: Mapping[str, NDArray[Any]]) -> Callable[[str], NDArray[Any] | None]:
    """Return a look-up of constants: initialisers, Constant nodes, and what the graph computes from them."""
    made = {name: node for node in graph.node for name in node.output}

    def constant(name: str) -> NDArray[Any] | None:
        found = constant_of(graph, name)
        if found is not None:
            return found
        behind = ancestors(graph, [name]) if name in made else []
        read = {one for node in behind for one in node.input} - {one for node in behind for one in node.output}
        alone = all(constant_of(graph, one) is not None for one in read if one)
        return values.get(name) if behind and alone else None

    return constant
