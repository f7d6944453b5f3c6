"""Reading a bound ONNX model as trees over cells of its raw columns, with what follows the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.inputs.cells import make_blocks
from fairkit.inputs.domain import Listed, Numbers
from fairkit.inputs.ensemble import TREES, attributes_of, classes_of, read_ensemble
from fairkit.inputs.problem import Problem
from fairkit.inputs.sources import Sources
from fairkit.inputs.tail import WIDE, Tail, check_monotone, constant_of, tail_nodes
from fairkit.onnx.file import OnnxFile
from fairkit.onnx.read.nodes import ancestors

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.inputs.ensemble import Ensemble
    from fairkit.onnx.read.scorer import OnnxScorer

    Columns = Mapping[str, NDArray[Any]]

_UNIT = 2.0**-24
"""Half a unit in the last place of float32, relative."""
_ADDS = frozenset({"Add", "Sum"})
_KEEPS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


@dataclass(frozen=True, slots=True)
class Features:
    """What the features are made of.

    Attributes
    ----------
    source
        The raw column behind each feature; None: a constant.
    listed
        By column whose values are a list to the graph, those that an encoder names.
    """

    source: list[str | None]
    listed: Mapping[str, list[Any]]


@dataclass(frozen=True, eq=False)
class TreeModel:
    """A model whose score follows from a sum of trees.

    Attributes
    ----------
    scorer
        It, bound to a table.
    ensemble
        All its trees.
    matrix
        The tensor of the features.
    tail
        What follows the sum.
    """

    scorer: OnnxScorer
    ensemble: Ensemble
    matrix: str
    tail: Tail

    @property
    def rounding(self) -> float:
        """By how much a float32 sum of the leaves, in any order, may differ from their sum."""
        terms = len(self.ensemble.roots) + 4
        return float(1.01 * terms * _UNIT * self.ensemble.terms + self.ensemble.uneven)

    def encoder(self) -> OnnxFile:
        """Return the graph up to the features."""
        proto = up_to(self.scorer.model.proto, [self.matrix])
        model = self.scorer.model
        return OnnxFile(proto.SerializeToString(), model.name, None, 1, getattr(model, "sandbox", None))

    def sources(self, rows: Columns) -> Features:
        """Follow the features back to the raw columns.

        Parameters
        ----------
        rows
            A few rows of the table.

        Raises
        ------
        ModelError
            A node before the trees is not understood.
        """
        feeds = self.scorer.feeds
        names = list(dict.fromkeys(column for feed in feeds for column in feed.columns))
        inputs = {feed.input.name: [names.index(column) for column in feed.columns] for feed in feeds}

        def run(tensors: Sequence[str]) -> dict[str, Any]:
            model = self.scorer.model
            proto = up_to(model.proto, list(dict.fromkeys(tensors)))
            if not tensors:
                return {}
            opened = OnnxFile(proto.SerializeToString(), model.name, None, 1, getattr(model, "sandbox", None))
            return opened.run({feed.input.name: feed.build(rows) for feed in feeds}, list(tensors))

        found = Sources(self.scorer.model.proto.graph, inputs, self.matrix, run)
        places = found.of[self.matrix].tolist()
        width = int(self.ensemble.feature[self.ensemble.mode > 0].max(initial=-1)) + 1
        if width > len(places):
            raise ModelError(
                f"the trees read feature {width - 1}, and the matrix {self.matrix!r} has {len(places)}"
            )
        return Features(
            [names[place] if place >= 0 else None for place in places],
            {names[place]: list(found.keys.get(place, ())) for place in found.listed},
        )

    def kinds(self) -> dict[str, type]:
        """By column, the number type that the graph takes."""
        doubles = {
            c for feed in self.scorer.feeds if feed.input.kind == "tensor(double)" for c in feed.columns
        }
        return {column: np.float64 if column in doubles else np.float32 for column in self.scorer.columns}

    def problem(self, domains: Sequence[Numbers | Listed], changing: int, rows: Columns) -> Problem:
        """Return the model over the cells of a domain.

        Parameters
        ----------
        domains, changing
            One for each block of columns, and which of them changes.
        rows
            A few rows of the table.

        Raises
        ------
        ModelError
            What precedes or follows the trees is not understood.
        DataError
            A domain is empty or infinite.
        """
        encoder = self.encoder()
        source = self.sources(rows).source
        feeds = self.scorer.feeds

        def encode(columns: Columns) -> NDArray[np.float32]:
            found = encoder.run({feed.input.name: feed.build(columns) for feed in feeds}, [self.matrix])[
                self.matrix
            ]
            return np.asarray(found, dtype=np.float32).reshape(len(found), -1)

        if self.matrix in {feed.input.name for feed in feeds}:
            (feed,) = (feed for feed in feeds if feed.input.name == self.matrix)

            def encode(columns: Columns) -> NDArray[np.float32]:
                return np.asarray(feed.build(columns), dtype=np.float32).reshape(
                    len(columns[feed.columns[0]]), -1
                )

        defaults: dict[str, Any] = {}
        for one in domains:
            if isinstance(one, Numbers):
                defaults[one.name] = float(one.low)
            else:
                defaults |= dict(zip(one.columns, one.values[0], strict=True)) if one.values else {}
        blocks, tests = make_blocks(self.ensemble, source, domains, encode, defaults, self.kinds())
        direction, threshold, logistic = self._link()
        ensemble = self.ensemble
        return Problem(
            blocks=blocks,
            changing=changing,
            tests=tests,
            yes=ensemble.yes.tolist(),
            no=ensemble.no.tolist(),
            value=(direction * ensemble.value).tolist(),
            roots=ensemble.roots.tolist(),
            base=direction * ensemble.base,
            rounding=self.rounding,
            threshold=threshold,
            logistic=logistic,
        )

    def _link(self) -> tuple[int, float | None, bool]:
        """Return the direction in which sums are favorable, the threshold, and whether the link is logistic."""
        keys = _keys(np.array(self._range(), dtype=np.float32))
        some = _between(int(keys[0]), int(keys[1]))
        sums = _floats(some)
        said = self.tail(sums)
        direction = 1
        for values in (said.decision, said.score):
            if values is not None and values[-1] != values[0]:
                direction = -1 if values[-1] < values[0] else 1
        for values in (said.score, said.decision):
            if values is not None and (np.diff(direction * values) < -1e-6).any():
                raise ModelError(
                    f"{self.scorer.info.name}: the score does not keep the order of the sum of the trees"
                )
        logistic = said.score is not None and self.scorer.task == "binary"
        if said.score is not None and logistic:
            chance = 0.5 * (1.0 + np.tanh(0.5 * direction * sums))
            logistic = bool(np.abs(said.score - chance).max() < 2e-6)
        threshold = (
            None if said.decision is None else self._threshold(direction, some, np.asarray(said.decision))
        )
        return direction, threshold, logistic

    def _range(self) -> tuple[float, float]:
        ensemble = self.ensemble
        sides = np.array([_ends(ensemble, root) for root in ensemble.roots.tolist()]).reshape(-1, 2)
        reach = self.rounding + 1e-6
        ends = ensemble.base + sides[:, 0].sum(), ensemble.base + sides[:, 1].sum()
        lowest = (
            ends[0] - reach if ensemble.value.min() < 0 or ensemble.base < 0 else max(ends[0] - reach, 0.0)
        )
        return float(lowest), float(ends[1] + reach)

    def _threshold(self, direction: int, some: NDArray[np.int64], decided: NDArray[np.float64]) -> float:
        """Search the sum from which decisions change, over float32 numbers, many at once; infinite: they do not."""
        if decided[0] == decided[-1]:
            return -math.inf if decided[0] else math.inf
        while True:
            place = int(np.flatnonzero(decided != decided[0])[0])
            first, last = int(some[place - 1]), int(some[place])
            if last - first == 1:
                break
            some = _between(first, last)
            decided = np.asarray(self.tail(_floats(some)).decision)
        at = _floats(np.array([first, last]))
        # upward: favorable from `last` on; downward: favorable up to `first`, and sums are negated
        return float(at[1]) if direction > 0 else -float(at[0])


def _between(first: int, last: int) -> NDArray[np.int64]:
    """Return numbers from the first to the last, all of them or as many as are looked up at once."""
    return np.unique(np.linspace(first, last, min(WIDE, last - first + 1)).astype(np.int64))


def _ends(ensemble: Ensemble, root: int) -> tuple[float, float]:
    """Return the smallest and the largest value of a tree."""
    waiting, seen, values = [root], {root}, []
    while waiting:
        node = waiting.pop()
        if ensemble.mode[node] == 0:
            values.append(float(ensemble.value[node]))
            continue
        children = {int(ensemble.yes[node]), int(ensemble.no[node])} - seen
        seen |= children
        waiting += children
    return min(values), max(values)


def _keys(values: NDArray[np.float32]) -> NDArray[np.int64]:
    raw = values.view(np.int32).astype(np.int64)
    return np.where(raw < 0, np.int64(-(2**31)) - raw, raw)


def _floats(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    raw = np.where(keys < 0, np.int64(-(2**31)) - keys, keys).astype(np.int32)
    return raw.view(np.float32).astype(np.float64)


def up_to(proto: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return the graph with some tensors as its outputs."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    kept = ancestors(proto.graph, tensors)
    del whole.graph.node[:], whole.graph.output[:], whole.graph.value_info[:]
    whole.graph.node.extend(kept)
    whole.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in tensors)
    return whole


def read_trees(scorer: OnnxScorer) -> TreeModel | None:
    """Read a bound model whose score is a sum of trees; None where it has no trees.

    Raises
    ------
    ModelError
        There are trees, and something between them and the score that is not understood; the node is named.
    ParameterError
        The model's decisions are drawn.
    """
    reading, proto = scorer.reading, scorer.model.proto
    if reading.chance is not None or scorer.shares is not None:
        raise ParameterError("all-inputs: the model draws its decisions; a deterministic model is asked")
    wanted = reading.wanted
    nodes = ancestors(proto.graph, wanted)
    trees = [node for node in nodes if node.op_type in TREES]
    newer = next((node for node in nodes if node.op_type == "TreeEnsemble"), None)
    if newer is not None:
        raise ModelError(
            f"the node TreeEnsemble {newer.name or newer.output[0]!r} is of opset 5 of ai.onnx.ml; export the model "
            "with opset 3, whose TreeEnsembleClassifier and TreeEnsembleRegressor are read"
        )
    if not trees:
        return None
    if len(trees) == 1 and (
        trees[0].op_type == TREES[0] or attributes_of(trees[0]).get("post_transform", b"NONE") != b"NONE"
    ):
        return _single(scorer, trees[0])
    return _summed(scorer, trees)


def _single(scorer: OnnxScorer, node: onnx.NodeProto) -> TreeModel:
    ensemble = read_ensemble(node)
    told = attributes_of(node)
    start: dict[str, tuple[int, ...]] = {}
    if node.op_type == TREES[0]:
        start = {node.output[0]: (0,), node.output[1]: (-1, 1)}
        if classes_of(told) < 2:
            start[node.output[1]] = (1,)
    else:
        start = {node.output[0]: (1,)}
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    check_monotone(graph, tail_nodes(graph, wanted, list(node.output)), start, wanted)
    weights = told.get("class_weights") or told.get("target_weights") or []
    tail = Tail(scorer=scorer, cut=node, negative=any(weight < 0 for weight in weights))
    return TreeModel(scorer, ensemble, node.input[0], tail)


def _summed(scorer: OnnxScorer, trees: Sequence[onnx.NodeProto]) -> TreeModel:
    """Read regressors that are added up, and constants beside them."""
    graph, wanted = scorer.model.proto.graph, scorer.reading.wanted
    odd = next((node for node in trees if node.op_type == TREES[0]), None)
    if odd is not None:
        raise ModelError(
            f"the node {odd.op_type} {odd.name or odd.output[0]!r} is one of {len(trees)} ensembles; of several, "
            "TreeEnsembleRegressor nodes that are added up are read"
        )
    parts = {node.output[0]: read_ensemble(node) for node in trees}
    owners = {node.output[0]: [node] for node in trees}
    offset = dict.fromkeys(parts, 0.0)
    for node in ancestors(graph, wanted):
        inputs = [name for name in node.input if name]
        summed = [name for name in inputs if name in owners]
        if not summed or (node.op_type not in _ADDS | _KEEPS):
            continue
        constants = [constant_of(graph, name) for name in inputs if name not in owners]
        if node.op_type in _KEEPS:
            owners[node.output[0]], offset[node.output[0]] = owners[summed[0]], offset[summed[0]]
        elif all(one is not None and one.size == 1 for one in constants):
            owners[node.output[0]] = [owner for name in summed for owner in owners[name]]
            offset[node.output[0]] = sum(offset[name] for name in summed) + sum(
                float(one.reshape(-1)[0]) for one in constants if one is not None
            )
    cut = next(
        (
            name
            for name, owned in reversed(owners.items())
            if len({id(o) for o in owned}) == len(owned) == len(trees)
        ),
        None,
    )
    matrices = {node.input[0] for node in trees}
    if cut is None or len(matrices) > 1:
        shown = ", ".join(sorted(matrices))
        raise ModelError(
            f"{len(trees)} ensembles do not add up to one number of one matrix of features ({shown}); nodes "
            "Add or Sum over TreeEnsembleRegressor are read"
        )
    check_monotone(graph, tail_nodes(graph, wanted, [cut]), {cut: (1,)}, wanted)
    joined = _joined([parts[node.output[0]] for node in owners[cut]], offset[cut])
    return TreeModel(scorer, joined, trees[0].input[0], Tail(scorer=scorer, cut=cut))


def _joined(parts: Sequence[Ensemble], offset: float) -> Ensemble:
    """Put ensembles into one."""
    starts = np.cumsum([0, *(len(part.mode) for part in parts)])
    moved = [
        replace(
            part,
            yes=np.where(part.yes >= 0, part.yes + start, -1),
            no=np.where(part.no >= 0, part.no + start, -1),
            roots=part.roots + start,
        )
        for part, start in zip(parts, starts, strict=False)
    ]
    names = ("mode", "feature", "threshold", "missing", "yes", "no", "value", "roots")
    arrays = {name: np.concatenate([getattr(part, name) for part in moved]) for name in names}
    return replace(
        parts[0],
        **arrays,
        base=sum(part.base for part in parts) + offset,
        uneven=0.0,
        terms=sum(part.terms for part in parts) + abs(offset),
    )
