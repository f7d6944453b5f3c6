"""Decisions that rounding decides: how far another order of a sum could move a score, and the rows that it could turn.

The sum of n float32 numbers in any order lies within (n - 1) 2⁻²⁴ Σ|x| of the exact one, to first order (Higham 2002,
eq. 4.4). For trees Σ|x| is at most the sum over trees of the largest leaf, whatever the row. Graphs in which what
follows is not known are run with other numbers of threads and without optimisation; what moves a score there is
taken four times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.operators import ARRANGES, CHOOSES

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.alone import Understand
    from fairkit_onnx.read.outputs import Reading
    from fairkit_onnx.read.runner import Runner

UNIT = 2.0**-24
"""The unit roundoff of float32."""
SIGMOID = 0.25
"""The steepest slope of a sigmoid."""
ROWS = 1_024
"""How many rows are run with other threads."""
VARIANTS = ((1, True), (3, True), (8, True), (4, False))
"""Numbers of threads, and whether onnxruntime rewrites the graph."""
SPARE = 4.0
"""How much further than seen a score may move where no bound is known."""
_AS_IT_IS = ARRANGES | CHOOSES | {"Cast", "Clip", "Neg", "Softmax", "Transpose", "ZipMap"}
"""Operators that move a number at most as far as its inputs move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How far rounding could move a score.

    Attributes
    ----------
    bound
        In the units of the score; 0 where nothing moved.
    proved
        Whether it follows from the graph, else from runs with other threads.
    cut
        The score from which a decision is favorable.
    """

    bound: float
    proved: bool
    cut: float

    def undetermined(self, found: Predictions) -> NDArray[np.bool_] | None:
        """Return the rows whose decision rounding could turn, shape [n]; None where there are none."""
        if found.score is None or found.members is not None or not self.bound:
            return None
        near = np.abs(found.score - self.cut) <= self.bound
        return near if near.any() else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"bound": self.bound, "proved": self.proved}


def rounding_of(
    runner: Runner,
    settled: Reading,
    arrays: Mapping[str, NDArray[Any]],
    predictions: Predictions,
    understand: Understand,
    outputs: Sequence[str],
) -> Rounding | None:
    """Return the effect of rounding on a binary model's scores; None where scores do not decide.

    Parameters
    ----------
    runner, settled
        The graph with its feeds, and how its outputs are read.
    arrays, predictions
        The graph's inputs for the first batch, and what was read off its outputs.
    understand, outputs
        Reads predictions off outputs.
    """
    if (
        settled.task != "binary"
        or settled.score is None
        or settled.chance is not None
        or predictions.score is None
    ):
        return None
    cut = 0.5 if settled.cut is None else settled.cut
    moved = bound(runner.model.proto, settled.score.name)
    if moved is not None:
        slope = SIGMOID if settled.kind == "logit" else 1.0
        return Rounding(bound=float(moved * slope), proved=True, cut=cut)
    vary = getattr(runner.model, "run_variant", None)
    if vary is None or settled.label is not None or getattr(runner.model, "batch", None) is not None:
        return None  # rows of a fixed number go through the graph one batch after the other
    few = {name: array[:ROWS] for name, array in arrays.items()}
    rows = len(next(iter(few.values())))
    far = 0.0
    for threads, optimised in VARIANTS:
        again = understand(vary(few, outputs, threads, optimised)).score
        if again is not None:
            far = max(far, float(np.abs(again - predictions.score[:rows]).max(initial=0.0)))
    return Rounding(bound=SPARE * far, proved=False, cut=cut)


def bound(proto: onnx.ModelProto, output: str) -> float | None:
    """Return how far rounding can move an output that trees are summed for; None where the graph is not understood."""
    nodes = ancestors(proto.graph, [output])
    makers = {name: node for node in nodes for name in node.output}
    if not any(node.op_type.startswith("TreeEnsemble") for node in nodes):
        return None
    constants = _constants(proto)
    bounds: dict[str, float | None] = {}

    def moved(name: str) -> float | None:
        if name not in bounds:
            bounds[name] = None  # a cycle is no graph
            bounds[name] = (
                0.0 if name in constants or not name else _moved_by(makers.get(name), constants, moved)
            )
        return bounds[name]

    return moved(output)


def _moved_by(node: onnx.NodeProto | None, constants: Mapping[str, Any], moved: Any) -> float | None:
    if node is None:
        return None
    if node.op_type == "Constant":
        return 0.0
    if node.op_type.startswith("TreeEnsemble"):
        return trees(node)
    inputs = [moved(name) for name in node.input]
    known = [one for one in inputs if one is not None]
    return _after(node, constants, known) if len(known) == len(inputs) else None


def _after(
    node: onnx.NodeProto, constants: Mapping[str, NDArray[np.float64] | None], inputs: Sequence[float]
) -> float | None:
    """Return how far an operator moves what comes out of it, where its inputs move so far."""
    factors = [value for name in node.input if (value := constants.get(name)) is not None]
    slope = {"Add": 1.0, "Sub": 1.0, "Sum": 1.0, "Sigmoid": SIGMOID}.get(node.op_type)
    if node.op_type in _AS_IT_IS:
        return max(inputs, default=0.0)
    if node.op_type == "Normalizer":  # probabilities that sum to 1 but for rounding
        slope = 2.0
    elif node.op_type == "Mul" and len(factors) == 1:
        slope = float(np.abs(factors[0]).max())
    elif node.op_type == "Div" and constants.get(node.input[1]) is not None:
        least = float(np.abs(factors[-1]).min())
        slope = 1 / least if least else None
    return None if slope is None else slope * sum(inputs)


def _constants(proto: onnx.ModelProto) -> dict[str, NDArray[np.float64] | None]:
    """Return the graph's constants: small numbers with their values, others with None."""
    from onnx import numpy_helper

    tensors = [(tensor.name, tensor) for tensor in proto.graph.initializer]
    for node in proto.graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    found: dict[str, NDArray[np.float64] | None] = {}
    for name, tensor in tensors:
        small = tensor.data_type in (1, 6, 7, 11) and int(np.prod(tensor.dims)) in range(1, 65)
        usable = small and tensor.data_location != 1
        found[name] = numpy_helper.to_array(tensor).astype(np.float64) if usable else None
    return found


def trees(node: onnx.NodeProto) -> float | None:
    """Return how far rounding can move the sums of a node of trees, after its own link."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if any(name.endswith("_as_tensor") for name in attributes) or "leaf_weights" in attributes:
        return None
    kind = "class" if "class_weights" in attributes else "target"
    if f"{kind}_weights" not in attributes:
        return None
    weights = np.abs(np.array(attributes[f"{kind}_weights"].floats, dtype=np.float64))
    places = np.array(attributes[f"{kind}_treeids"].ints)
    columns = np.array(attributes[f"{kind}_ids"].ints)
    if not len(weights) or not len(weights) == len(places) == len(columns):
        return None
    ids, column = np.unique(columns, return_inverse=True)
    trees_of, tree = np.unique(places, return_inverse=True)
    largest = np.zeros((len(ids), len(trees_of)))
    np.maximum.at(largest.reshape(-1), column * len(trees_of) + tree, weights)
    there = np.zeros(largest.shape, dtype=bool)
    there.reshape(-1)[column * len(trees_of) + tree] = True
    sums, counts = largest.sum(axis=1), there.sum(axis=1)
    base = (
        np.abs(np.array(attributes["base_values"].floats, dtype=np.float64)).max()
        if "base_values" in attributes
        else 0.0
    )
    far = float((counts * UNIT * (sums + base)).max())
    if "aggregate_function" in attributes and attributes["aggregate_function"].s == b"AVERAGE":
        far /= max(float(counts.max()), 1.0)
    link = attributes["post_transform"].s if "post_transform" in attributes else b"NONE"
    slopes = {b"NONE": 1.0, b"LOGISTIC": SIGMOID, b"SOFTMAX": 1.0, b"SOFTMAX_ZERO": 1.0}
    if kind == "target":  # onnxruntime applies no link to regressors of one target
        return far if link in slopes else None
    return far * slopes[link] if link in slopes else None
