"""Decisions that rounding decides: how far another order of a sum could move a score, and the rows that it could turn.

The sum of n float32 numbers in any order lies within (n - 1) 2⁻²⁴ Σ|x| of the exact one, to first order (Higham 2002,
eq. 4.4). For trees Σ|x| is at most the sum over trees of the largest leaf, whatever the row. Linear models and networks
are followed through their layers, from the largest numbers of each batch (`fairkit_onnx.read.sums`). Graphs in which
what follows is not known are run with other numbers of threads and without optimisation; what moves a score there is
taken four times. Of several classes the two most likely ones must be further apart than twice the bound. Labels without
scores are in `fairkit_onnx.read.deciding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.deciding import LabelRounding, LabelTrials, bound_record, label_rounding
from fairkit_onnx.read.rivals import lead
from fairkit_onnx.read.sums import SIGMOID, UNIT, SumWalk

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.alone import Understand
    from fairkit_onnx.read.outputs import Reading
    from fairkit_onnx.read.runner import Runner

ROWS = 1_024
"""How many rows are run with other threads."""
VARIANTS = ((1, True), (3, True), (8, True), (4, False))
"""Numbers of threads, and whether onnxruntime rewrites the graph."""
SPARE = 4.0
"""How much further than seen a score may move where no bound is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How far rounding could move a score."""

    bound: float
    proved: bool  # whether it follows from the graph, else from runs with other threads
    cut: float | None  # the score from which a decision is favorable; None: the most likely class is predicted
    slope: float = 1.0  # of the link that is applied to the graph's output
    walk: SumWalk | None = None  # returns the bound for other rows; None: it is that of all rows

    def undetermined(
        self, found: Predictions, arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> NDArray[np.bool_] | None:
        """Return the rows whose decision rounding could turn, shape [n]; None where there are none."""
        far = self.bound
        if self.walk is not None and arrays is not None:
            moved = self.walk(arrays)
            far = np.inf if moved is None else moved * self.slope
        if found.members is not None or not far:
            return None
        margin = _margin(found, self.cut)
        near = None if margin is None else margin <= far
        return near if near is not None and near.any() else None

    def over(self, largest: Mapping[str, NDArray[np.float64]]) -> Rounding:
        """Return it for all rows, by the largest numbers among them; one that follows from the graph alone stays."""
        if self.walk is None:
            return self
        moved = self.walk(largest)
        return replace(self, bound=np.inf if moved is None else float(moved * self.slope))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return bound_record(self.bound, proved=self.proved)


def _margin(found: Predictions, cut: float | None) -> NDArray[np.float64] | None:
    """Return how far each row's score may move before its decision turns, shape [n]; None without scores."""
    if cut is not None:
        return None if found.score is None else np.abs(found.score - cut)
    if found.probabilities is None or found.probabilities.shape[1] < 2:
        return None
    return lead(found.probabilities) / 2


def rounding_of(
    runner: Runner,
    settled: Reading,
    arrays: Mapping[str, NDArray[Any]],
    predictions: Predictions,
    understand: Understand,
    outputs: Sequence[str],
) -> Rounding | LabelRounding | LabelTrials | None:
    """Return the effect of rounding on the scores that a decision or a class follows from; None where none does."""
    if settled.task not in ("binary", "multiclass") or settled.chance is not None:
        return None
    if settled.score is None:
        return _of_labels(runner, settled, arrays, predictions, understand, outputs)
    cut = None if settled.task == "multiclass" else 0.5 if settled.cut is None else settled.cut
    if _margin(predictions, cut) is None:
        return None
    walk = SumWalk(runner.model.proto, settled.score.name, trees)
    moved = walk(arrays) if walk.summed else None
    if moved is not None:
        slope = (SIGMOID if cut is not None else 0.5) if settled.kind == "logit" else 1.0
        each = walk if walk.dense else None
        return Rounding(bound=float(moved * slope), proved=True, cut=cut, slope=slope, walk=each)
    vary = getattr(runner.model, "run_variant", None)
    if vary is None or settled.label is not None or getattr(runner.model, "batch", None) is not None:
        return None  # rows of a fixed number go through the graph one batch after the other
    few = {name: array[:ROWS] for name, array in arrays.items()}
    rows = len(next(iter(few.values())))
    far = 0.0
    for threads, optimised in VARIANTS:
        again = understand(vary(few, outputs, threads, optimised))
        for left, right in ((again.score, predictions.score), (again.probabilities, predictions.probabilities)):
            if left is not None and right is not None:
                far = max(far, float(np.abs(left - right[:rows]).max(initial=0.0)))
    return Rounding(bound=SPARE * far, proved=False, cut=cut)


def _of_labels(
    runner: Runner,
    settled: Reading,
    arrays: Mapping[str, NDArray[Any]],
    predictions: Predictions,
    understand: Understand,
    outputs: Sequence[str],
) -> LabelRounding | LabelTrials | None:
    """Return the effect of rounding on labels without scores: by the sums inside the graph, or by trial."""
    if settled.label is None:
        return None
    found = label_rounding(runner.model, settled.label.name, arrays, trees)
    vary = getattr(runner.model, "run_variant", None)
    if found is not None or vary is None or getattr(runner.model, "batch", None) is not None:
        return found
    if not SumWalk(runner.model.proto, settled.label.name, trees).adds:
        return None

    def again(feeds: Mapping[str, NDArray[Any]], before: Predictions) -> NDArray[np.bool_]:
        turned = np.zeros(len(next(iter(feeds.values()))), dtype=bool)
        for threads, optimised in VARIANTS:
            other = understand(vary(feeds, outputs, threads, optimised))
            for name in ("decision", "predicted"):
                left, right = getattr(other, name), getattr(before, name)
                if left is not None and right is not None:
                    turned |= left != right[: len(turned)]
        return turned

    few = {name: array[:ROWS] for name, array in arrays.items()}
    return LabelTrials(again=again, share=float(again(few, predictions).mean()))


def bound(proto: onnx.ModelProto, output: str, arrays: Mapping[str, NDArray[Any]] | None = None) -> float | None:
    """Return how far rounding can move an output that sums are made for; None where the graph is not understood."""
    walk = SumWalk(proto, output, trees)
    return walk(arrays or {}) if walk.summed else None


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
