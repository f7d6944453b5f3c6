"""Reading a bound ONNX model of several classes: one node of trees that gives a sum for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ModelError
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.problem import Problem
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.structure.cells import make_blocks
from fairkit_onnx.structure.constants import constant_of
from fairkit_onnx.structure.encoded import Encoded, refuse_unread
from fairkit_onnx.structure.ensemble import attributes_of, read_class_ensembles
from fairkit_onnx.structure.operators import ARRANGES, TREES
from fairkit_onnx.structure.tail import PROBE, Tail, one_tree, tail_nodes, with_tree
from fairkit_onnx.structure.trees import UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.scorer import OnnxScorer
    from fairkit_onnx.structure.domain import Listed, Numbers
    from fairkit_onnx.structure.encoded import Features
    from fairkit_onnx.structure.ensemble import Ensemble

KEEPS = ARRANGES | {"Cast", "ZipMap", "Softmax", "ArgMax", "LabelEncoder", "Mul", "ArrayFeatureExtractor", "Gather"}
"""Operators after a classifier that leave the largest class the largest."""
_BAND = 2e-6
"""By how much sums differ whose probabilities a Softmax in float32 may round to one."""


@dataclass(frozen=True, eq=False)
class ClassModel(Encoded):
    """A model that predicts the class of the largest sum of trees, of equal ones the first."""

    ensembles: tuple[Ensemble, ...]
    order: tuple[int, ...]  # each class's place in the file, which decides between equal sums

    @property
    def width(self) -> int:
        """The number of features that are read."""
        one = self.ensembles[0]
        return int(one.feature[one.mode > 0].max(initial=-1)) + 1

    def problem(self, domains: Sequence[Numbers | Listed], changing: int, features: Features) -> ClassProblem:
        """Return the model over the cells of a domain."""
        ensemble = self.ensembles[0]
        encode, defaults = self.encoding(doubles=True), self.defaults(domains)
        pieces = self.pieces(domains, features)
        blocks, tests = make_blocks(ensemble, features.source, domains, encode, defaults, self.kinds(), pieces)
        plain = Problem(
            blocks=blocks,
            changing=changing,
            tests=tests,
            yes=ensemble.yes.tolist(),
            no=ensemble.no.tolist(),
            value=[],
            roots=[],
            base=0.0,
            rounding=0.0,
            threshold=None,
        )
        band = 0.0 if self.scorer.reading.label is not None else _BAND
        roundings = [1.01 * (len(part.roots) + 4) * UNIT * part.terms for part in self.ensembles]
        return ClassProblem(
            plain=plain,
            values=np.stack([part.value for part in self.ensembles]),
            roots=tuple(ensemble.roots.tolist()),
            bases=tuple(part.base for part in self.ensembles),
            roundings=tuple(roundings),
            band=band,
            names=tuple(str(name) for name in self.scorer.classes),
        )


def read_classes(scorer: OnnxScorer) -> ClassModel:
    """Read a bound model of several classes."""
    refuse_unread(scorer)
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    nodes = ancestors(graph, wanted)
    matches = [node for node in nodes if node.op_type in (*TREES, "LinearClassifier", "Gemm", "MatMul")]
    if len(matches) != 1 or matches[0].op_type not in TREES[:2]:
        shown = ", ".join(dict.fromkeys(node.op_type for node in matches or nodes))
        raise ModelError(
            f"all-inputs: {scorer.info.name} has {len(scorer.classes)} classes, and scores made by {shown}; of models "
            f"with three classes or more those with one {' or '.join(TREES[:2])} are read, as fairkit, XGBoost, "
            "LightGBM and scikit-learn's forests and boosted trees are written"
        )
    node = matches[0]
    for after in tail_nodes(graph, wanted, list(node.output)):
        if after.op_type == "Constant":
            continue
        factor = None
        if after.op_type == "Mul":
            factor = next((c for name in after.input if (c := constant_of(graph, name)) is not None), None)
        if after.op_type not in KEEPS or (after.op_type == "Mul" and (factor is None or not (factor > 0).all())):
            raise ModelError(
                f"the node {after.op_type} {after.name or after.output[0]!r} after the trees is not understood: "
                f"these are, which leave the largest class the largest: {', '.join(sorted(KEEPS))}"
            )
    ensembles = read_class_ensembles(node)
    places = _places(scorer, node, len(ensembles))
    # rows of the file, in the order of the scorer's classes
    inverse = tuple(int(place) for place in np.argsort(places))
    if any(np.diff(inverse) < 0):
        raise ModelError(
            f"all-inputs: the classes of {scorer.info.name} are in another order than the label's; name them in the "
            "model's order"
        )
    tail = Tail(scorer=scorer, cut=node)
    model = ClassModel(scorer, node.input[0], tail, tuple(ensembles[i] for i in inverse), inverse)
    _check(model, node)
    return model


def _places(scorer: OnnxScorer, node: onnx.NodeProto, size: int) -> list[int]:
    """Return by class of the file its place among the scorer's classes."""
    if size != len(scorer.classes):
        raise ModelError(
            f"the node {node.op_type} {node.name or node.output[0]!r} has {size} classes, and the label "
            f"{len(scorer.classes)}"
        )
    if scorer.reading.score is not None and len(scorer.reading.class_places) == size:
        return list(scorer.reading.class_places)
    return list(range(size))


def _check(model: ClassModel, node: onnx.NodeProto) -> None:
    """Run what follows the sums on some of them, equal ones among them: the class of the largest must be predicted."""
    rng = np.random.default_rng(0)
    size = len(model.ensembles)
    sums = np.vstack([rng.normal(size=(400, size)) * scale for scale in (0.1, 1.0, 5.0)])
    sums = np.vstack([sums, np.round(rng.normal(size=(200, size)))])
    graph, reading = model.scorer.model.proto.graph, model.scorer.reading
    softmax = any(one.op_type == "Softmax" for one in tail_nodes(graph, reading.wanted, list(node.output)))
    if attributes_of(node).get("post_transform", b"NONE") == b"NONE" and not softmax and reading.kind == "probability":
        sums = np.abs(sums) + np.eye(size)[0] * (np.abs(sums).sum(axis=1) == 0)[:, None]
        sums /= sums.sum(axis=1, keepdims=True)
    sums = sums.astype(np.float32).astype(np.float64)
    tail = model.tail
    proto = tail.after(*node.output)
    proto.graph.node.insert(0, _lookup(node, sums))
    feeds = {PROBE: np.arange(len(sums), dtype=np.float32).reshape(-1, 1)}
    said = reading.read(tail.opened(proto).run(feeds, reading.wanted)).predicted
    if said is None or not np.array_equal(said, sums[:, list(model.order)].argmax(axis=1)):
        raise ModelError(f"{model.scorer.info.name}: the predicted class is not that of the largest sum of trees")


def _lookup(node: onnx.NodeProto, sums: NDArray[np.float64]) -> onnx.NodeProto:
    """Return the node with one tree that has the sums at the place that the input names."""
    nodes, leaves = one_tree(len(sums))
    attributes = {
        key: value
        for key, value in attributes_of(node).items()
        if key.startswith("classlabels") or key in ("post_transform", "n_targets")
    }
    weights = [(leaf, k, float(sums[row, k])) for leaf, row in leaves for k in range(sums.shape[1])]
    return with_tree(node, attributes, nodes, weights)
