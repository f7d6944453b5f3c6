"""Linear models: each block adds a function of its own, so that its values are all that is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_all_inputs.bounds.problem import Problem
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.cells import encode_rows, listed_block
from fairkit_onnx.structure.domain import Block, Listed, Numbers, numbers_block
from fairkit_onnx.structure.encoded import Encoded
from fairkit_onnx.structure.ensemble import attributes_of
from fairkit_onnx.structure.pieces import keys_of, numbers_of
from fairkit_onnx.structure.tail import Tail, check_monotone, constant_of, tail_nodes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.encoded import Features

    Columns = Mapping[str, NDArray[Any]]

KINDS = ("LinearClassifier", "LinearRegressor", "Gemm", "MatMul")
POINTS = 256
"""Numbers of a column at which a witness is looked for."""
_UNIT = 2.0**-24


@dataclass(frozen=True, eq=False)
class LinearModel(Encoded):
    """A model whose score follows from a weighted sum of features.

    Attributes
    ----------
    weights, base
        The sum, shape [d].
    """

    weights: NDArray[np.float64]
    base: float

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.weights)

    def problem(self, domains: Sequence[Numbers | Listed], changing: int, features: Features) -> Problem:
        """Return the model over points of a domain: listed values, and so many numbers of each column with its ends.

        Raises
        ------
        ModelError
            What precedes or follows the sum is not understood.
        DataError
            A domain is empty or infinite.
        """
        encode, defaults = self.encoding(), self.defaults(domains)
        pieces = self.pieces(domains, features)
        blocks = [_block(one, self.kinds(), pieces) for one in domains]
        of_column = {column: place for place, block in enumerate(blocks) for column in block.columns}
        owner = np.array([of_column.get(name or "", -1) for name in features.source])
        matrix, starts = encode_rows(blocks, encode, defaults)
        terms = matrix.astype(np.float64) * self.weights
        base = self.base + float(terms[0, owner < 0].sum())
        for place, block in enumerate(blocks):
            if block.ends is not None:
                _check_pulls(block, terms[starts[place] : starts[place + 1]][:, owner == place])
        parts = [
            terms[starts[place] : starts[place + 1]][:, owner == place].sum(axis=1)
            for place in range(len(blocks))
        ]
        reach = abs(base) + sum(
            float(
                np.abs(terms[starts[place] : starts[place + 1]][:, owner == place])
                .sum(axis=1)
                .max(initial=0.0)
            )
            for place in range(len(blocks))
        )
        rounding = 1.01 * (self.width + 4) * _UNIT * reach
        ends = sum(float(part.min()) for part in parts), sum(float(part.max()) for part in parts)
        direction, threshold, logistic = self.link(base + ends[0] - rounding, base + ends[1] + rounding)
        tests, yes, no, value, roots = _trees(blocks, [direction * part for part in parts])
        return Problem(
            blocks=blocks,
            changing=changing,
            tests=tests,
            yes=yes,
            no=no,
            value=value,
            roots=roots,
            base=direction * base,
            rounding=rounding,
            threshold=threshold,
            logistic=logistic,
            points=True,
        )


def _check_pulls(block: Block, terms: NDArray[np.float64]) -> None:
    """Refuse features of one column of which some rise and others fall: no end has their largest sum.

    Each term keeps the order of the column between neighbouring points, or they are the ends of two pieces with no
    number between them.
    """
    assert block.ends is not None  # noqa: S101 -- a block of numbers
    known = int((~np.isnan(block.ends)).sum())
    moves = np.diff(terms[:known], axis=0)
    apart = np.flatnonzero((moves > 0).any(axis=1) & (moves < 0).any(axis=1))
    ends = block.ends[:known]
    following = (
        ends[:-1] + 1
        if block.whole
        else np.nextafter(ends[:-1].astype(np.float32 if block.single else np.float64), np.inf).astype(
            np.float64
        )
    )
    apart = apart[ends[1:][apart] > following[apart]]
    if len(apart):
        raise ModelError(
            f"all-inputs: the features that the model makes of {block.name!r} pull against each other between "
            f"{ends[apart[0]]:g} and {ends[apart[0] + 1]:g}, so that the ends do not bound their sum; choose a domain "
            f"without that, with all-inputs.domain.{block.name}=LOW:HIGH"
        )


def _block(
    one: Numbers | Listed, kinds: Mapping[str, type], pieces: Mapping[str, NDArray[np.float64]]
) -> Block:
    """Return points of a column, the ends of its pieces among them."""
    if isinstance(one, Listed):
        return listed_block(one)
    some = np.linspace(one.low, one.high, POINTS)
    if one.whole:
        some = np.round(some) if one.high - one.low >= POINTS else np.arange(one.low, one.high + 1)
    tops, kind = pieces[one.name], kinds[one.name]
    firsts = numbers_of(keys_of(tops[:-1], kind, one.whole) + 1, kind, one.whole)
    return numbers_block(one, np.concatenate([some, [one.low], firsts, tops]), kind, points=True)


def _trees(
    blocks: Sequence[Block], parts: Sequence[NDArray[np.float64]]
) -> tuple[list[tuple[int, int]], list[int], list[int], list[float], list[int]]:
    """Return a tree for each block that has the block's part of the sum in its leaves."""
    tests: list[tuple[int, int]] = []
    yes: list[int] = []
    no: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    for place, part in enumerate(parts):
        roots.append(len(tests))
        waiting = [(0, len(part), -1)]
        while waiting:
            first, end, parent = waiting.pop()
            node = len(tests)
            if parent >= 0 and yes[parent] < 0:
                yes[parent] = node
            elif parent >= 0:
                no[parent] = node
            yes.append(-1)
            no.append(-1)
            if np.ptp(part[first:end]) == 0:
                tests.append((-1, 0))
                value.append(float(part[first]))
                continue
            middle = (first + end) // 2
            tests.append(
                (place, (1 << middle) - (1 << first) if blocks[place].ordered is False else (1 << middle) - 1)
            )
            value.append(0.0)
            waiting += [(middle, end, node), (first, middle, node)]
    return tests, yes, no, value, roots


def read_linear(scorer: OnnxScorer) -> LinearModel | None:
    """Read a bound model whose score is a weighted sum; None where it has no or several such nodes, or others between.

    Raises
    ------
    ModelError
        There is one, and what follows it is not understood; the node is named.
    """
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    found = [node for node in ancestors(graph, wanted) if node.op_type in KINDS]
    if len(found) != 1:
        return None
    node = found[0]
    read = _of_classifier(node) if node.op_type == KINDS[0] else _of_sum(node, graph)
    if read is None:
        return None
    weights, base = read
    start: dict[str, tuple[int, ...]] = {node.output[0]: (1,)}
    if node.op_type == KINDS[0]:
        start = {node.output[0]: (0,), node.output[1]: (-1, 1)}
    check_monotone(graph, tail_nodes(graph, wanted, list(node.output)), start, wanted)
    cut: Any = node if node.op_type == KINDS[0] else node.output[0]
    return LinearModel(scorer, node.input[0], Tail(scorer=scorer, cut=cut), weights, base)


def _of_classifier(node: onnx.NodeProto) -> tuple[NDArray[np.float64], float] | None:
    told = attributes_of(node)
    weights = np.array(told["coefficients"], dtype=np.float32).astype(np.float64)
    bias = np.array(told.get("intercepts", [0.0]), dtype=np.float32).astype(np.float64)
    if len(bias) != 2 or len(weights) % 2:
        return None
    both = weights.reshape(2, -1)
    if not np.array_equal(both[0], -both[1]) or bias[0] != -bias[1]:
        raise ModelError(
            f"the node LinearClassifier {node.name or node.output[0]!r} has no two opposite rows"
        )
    return both[1], float(bias[1])


def _of_sum(node: onnx.NodeProto, graph: onnx.GraphProto) -> tuple[NDArray[np.float64], float] | None:
    told = attributes_of(node)
    if node.op_type == "LinearRegressor":
        if told.get("targets", 1) != 1 or told.get("post_transform", b"NONE") != b"NONE":
            return None
        bias = told.get("intercepts") or [0.0]
        return np.array(told["coefficients"], dtype=np.float32).astype(np.float64), float(np.float32(bias[0]))
    weights = constant_of(graph, node.input[1])
    if weights is None or weights.size != max(weights.shape) or told.get("transA"):
        return None
    scale, base = 1.0, 0.0
    if node.op_type == "Gemm":
        scale = float(told.get("alpha", 1.0))
        bias_of = constant_of(graph, node.input[2]) if len(node.input) > 2 else np.zeros(1)
        if bias_of is None or bias_of.size != 1:
            return None
        base = float(bias_of.reshape(-1)[0]) * float(told.get("beta", 1.0))
    return scale * weights.astype(np.float64).reshape(-1), base
