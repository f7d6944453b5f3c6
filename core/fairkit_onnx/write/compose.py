"""A rule appended to a base graph: score, chance and decision come out, what the base gave stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.read.graph import subgraphs, walk
from fairkit_onnx.read.outputs import DECISION, DECISION_PROBABILITY, SCORE
from fairkit_onnx.write.graph import ML_OPSET, GraphWriter, checked, value_info
from fairkit_onnx.write.trees import Node, Tree, add_ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.models.scorer import Scale
    from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule


COMPOSED = (SCORE, DECISION_PROBABILITY, DECISION)
"""The outputs that a rule adds."""

_NUMBERS = (1, 6, 7, 9, 10, 11)
"""float, int32, int64, bool, float16, double: the element types that can be cast to a number."""
_STRING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHead:
    """Where a graph's score is and how it is read."""

    output: str  # the graph's output: a matrix [n, K], a column [n, 1] or [n], or a ZipMap's list of dicts
    width: int = 1  # K, 1 for a column
    place: int = 1
    kind: Literal["probability", "logit", "value", "label", "scale", "percent"] = "probability"
    positive: Any = None  # what a label output gives for the favorable label
    scale: Scale | None = None


def compose(
    model: onnx.ModelProto, head: ScoreHead, rule: GroupRule, *, inputs: Mapping[str, str] | None = None
) -> onnx.ModelProto:
    """Append a rule to a model.

    The result has the base's inputs and outputs, the raw sensitive columns as inputs of shape [rows, 1]
    where they are not inputs yet, where the rule decides anybody by chance an input ``u`` [rows, 1] of draws in
    [0, 1), and three outputs [rows, 1]:
    ``score`` (float, the probability of the favorable label), ``decision_probability`` (float, h in [0, 1])
    and ``decision`` (int64, 1 where u < h). The rule is computed in double from the float score.
    """
    refuse_randomized(model)
    graph = Appender(model)
    group = group_codes(graph, rule.keys, inputs or {}) if rule.keys.columns else ""  # one rule for everybody
    score = graph.cast(_adjusted(graph, favorable_score(graph, head), rule, group), np.float32)
    chance = graph.cast(_chance(graph, graph.cast(score, np.float64), rule, group), np.float32)
    draw = graph.constant([[0.5]], np.float32) if rule.is_deterministic else graph.input(RANDOM_INPUT, np.float32)
    decided = graph.node("Less", [draw, chance])
    graph.output(SCORE, score, np.float32)
    graph.output(DECISION_PROBABILITY, chance, np.float32)
    graph.output(DECISION, graph.cast(decided, np.int64), np.int64)
    return graph.finish()


def refuse_randomized(model: onnx.ModelProto) -> None:
    """Raise ModelError where a model decides by chance, or has the name of the draws in the way."""
    outputs = {output.name for output in model.graph.output}
    inputs = {entry.name for entry in model.graph.input}
    if RANDOM_INPUT in inputs and DECISION_PROBABILITY in outputs:
        raise ModelError("the model decides by a randomized rule already; repair the model that this rule was put on")
    if RANDOM_INPUT in inputs:
        raise ModelError(
            f"the model has an input {RANDOM_INPUT!r}, which a rule needs for its draws; "
            "rename that column and export the model again"
        )


def favorable_score(graph: Appender, head: ScoreHead) -> str:
    """Add the probability of the favorable label (of a ranking: the score), [n, 1], double, and return its name."""
    tensor, column = _score_tensor(graph.graph, head)
    if head.kind == "label":
        return _is_label(graph, tensor, head)
    matrix = graph.reshape(graph.cast(tensor, np.float64), [-1, head.width])
    if head.kind == "value":
        return matrix
    if head.kind == "percent":
        matrix = graph.node("Div", [matrix, 100.0])
    if head.scale is not None:
        matrix = _squashed(graph, matrix, head.scale)
    if head.width == 1:
        value = sigmoid(graph, matrix) if head.kind == "logit" else clipped(graph, matrix)
        return value if column else graph.node("Sub", [1.0, value])
    if head.kind == "logit":
        matrix = graph.node("Softmax", [matrix], axis=1)
    return clipped(graph, graph.node("Gather", [matrix, graph.constant([column], np.int64)], axis=1))


def _squashed(graph: Appender, score: str, scale: Scale) -> str:
    """`Scale.squash` in the graph."""
    apart = graph.node("Sub", [score, scale.centre])
    size = graph.node("Add", [graph.node("Abs", [apart]), scale.spread])
    half = graph.node("Mul", [graph.node("Div", [apart, size]), 0.5])
    return graph.node("Add", [half, 0.5])


def _is_label(graph: Appender, tensor: str, head: ScoreHead) -> str:
    """Add 1 where a label output gives the favorable label, else 0: [n, 1], double."""
    output = next(entry for entry in graph.graph.output if entry.name == head.output)
    if output.type.tensor_type.elem_type != _STRING:
        apart = graph.node("Sub", [graph.cast(tensor, np.float64), graph.constant([float(head.positive)])])
        same = graph.node("Less", [graph.node("Abs", [apart]), graph.constant([0.5])])
        return graph.reshape(graph.cast(same, np.float64), [-1, 1])
    code = _text_places(graph, graph.reshape(tensor, [-1]), [value_text(head.positive)])
    return graph.reshape(graph.cast(code, np.float64), [-1, 1])


def _score_tensor(graph: onnx.GraphProto, head: ScoreHead) -> tuple[str, int]:
    """Find the tensor behind the score output, a ZipMap seen through, and its favorable column."""
    if head.output not in {output.name for output in graph.output}:
        raise ModelError(f"the model has no output {head.output!r}")
    maker = next((node for node in graph.node if head.output in node.output), None)
    if maker is None or maker.op_type != "ZipMap":
        return head.output, head.place
    labels: list[Any] = []
    for attribute in maker.attribute:
        if attribute.name in ("classlabels_strings", "classlabels_int64s"):
            labels = list(attribute.strings) or list(attribute.ints)
    return maker.input[0], labels.index(sorted(labels)[head.place])


def sigmoid(graph: Appender, logit: str) -> str:
    """Add 1 / (1 + exp(-logit)) in double, and return its name."""
    half = graph.node("Tanh", [graph.node("Mul", [logit, 0.5])])
    return graph.node("Mul", [graph.node("Add", [half, 1.0]), 0.5])


def clipped(graph: Appender, value: str) -> str:
    """Bring into [0, 1]; NaN stays NaN."""
    return graph.node("Min", [graph.node("Max", [value, 0.0]), 1.0])


def _adjusted(graph: Appender, score: str, rule: GroupRule, group: str) -> str:
    if rule.odds is None:
        return score
    odds = graph.node("Gather", [graph.constant(np.reshape(rule.odds, (-1, 1))), group], axis=0)
    scaled = graph.node("Mul", [odds, score])
    rest = graph.node("Sub", [1.0, score])
    return graph.node("Div", [scaled, graph.node("Add", [scaled, rest])])


def _chance(graph: Appender, score: str, rule: GroupRule, group: str) -> str:
    """`GroupRule.probability` in the graph: score [n, 1] double, group [n]; gives [n, 1] double."""
    thresholds, widths, weights = rule.tables()
    above = graph.node("Sub", [score, _row(graph, thresholds, group)])
    parts = _pieces(graph, above, widths, group)
    weighted = graph.node("Mul", [parts, _row(graph, weights, group)])
    total = graph.node("MatMul", [weighted, graph.constant(np.ones((thresholds.shape[1], 1)))])
    # a NaN score must not pass for a decision, whatever its comparisons give
    no_score = graph.node("Mul", [score, 0.0])
    return graph.node("Add", [clipped(graph, total), no_score])


def _pieces(graph: Appender, above: str, widths: np.ndarray[Any, Any], group: str) -> str:
    sloped = clipped(graph, graph.node("Div", [above, _row(graph, np.where(widths > 0, widths, 1.0), group)]))
    if (widths > 0).all():
        return sloped
    reached = graph.node("Not", [graph.node("Less", [above, 0.0])])
    step = graph.cast(reached, np.float64)
    if not (widths > 0).any():
        return step
    return graph.node("Where", [graph.cast(_row(graph, widths, group), np.bool_), sloped, step])


def _row(graph: Appender, table: np.ndarray[Any, Any], group: str) -> str:
    """Each row's line of a table [K + 1, J]: [n, J]; without groups the one line, [1, J]."""
    if not group:
        return graph.constant(table)
    return graph.node("Gather", [graph.constant(table), group], axis=0)


def group_codes(graph: Appender, keys: GroupKeys, inputs: Mapping[str, str]) -> str:
    """Add each row's group, [n]: the number of the combination of cells, looked up."""
    strides = np.cumprod([1, *reversed(keys.shape[1:])])[::-1]
    parts = [column_codes(graph, column, inputs.get(column.name)) for column in keys.columns]
    total = ""
    for part, stride in zip(parts, strides.tolist(), strict=True):
        scaled = graph.node("Mul", [part, graph.constant([stride], np.int64)])
        total = graph.node("Add", [total, scaled]) if total else scaled
    return graph.node("Gather", [graph.constant(keys.lookup(), np.int64), total], axis=0)


def column_codes(graph: Appender, column: GroupColumn, given: str | None) -> str:
    """Add the cells' numbers, [n], int64."""
    own = {entry.name: entry for entry in graph.graph.input}.get(given or column.name)
    if own is None:
        name = graph.input(column.name, np.object_ if column.is_text else np.float32)
        kind = _STRING if column.is_text else 1
    else:
        name, kind = own.name, own.type.tensor_type.elem_type
    cells = graph.reshape(name, [-1])
    if kind == _STRING:
        return _text_codes(graph, cells, column)
    if column.is_text or kind not in _NUMBERS:
        raise ModelError(
            f"the sensitive column {column.name!r} holds text, but the model's input {name!r} takes numbers; "
            "give the model's column another name, so that the raw column can be an input of its own"
        )
    return _number_codes(graph, graph.cast(cells, np.float32), column)


def _text_codes(graph: Appender, cells: str, column: GroupColumn) -> str:
    if column.edges is not None:
        raise ModelError(
            f"the model takes {column.name!r} as text, so that it cannot be compared with the edges of its "
            "bins; leave the bins out, or export the model with a numeric input"
        )
    return _text_places(graph, cells, [value_text(key) for key in column.keys] + [""] * column.missing)


def _text_places(graph: Appender, cells: str, keys: Sequence[str]) -> str:
    """Add the number of each text among the keys, from 1; 0 for others."""
    places = list(range(1, len(keys) + 1))
    if graph.encodes_labels:
        return graph.node(
            "LabelEncoder", [cells], domain="ai.onnx.ml", keys_strings=keys, values_int64s=places, default_int64=0
        )
    return graph.node(
        "CategoryMapper", [cells], domain="ai.onnx.ml", cats_strings=keys, cats_int64s=places, default_int64=0
    )


def _number_codes(graph: Appender, cells: str, column: GroupColumn) -> str:
    """Equal to a key, or past so many edges: [n] float32 to [n] int64."""
    wide = graph.reshape(cells, [-1, 1])
    if column.edges is None:
        keys = np.asarray(column.keys, dtype=np.float32).reshape(1, -1)
        constants = graph.constant(keys, np.float32)
        hits = graph.node("And", [_at_least(graph, wide, constants), _at_least(graph, constants, wide)])
        weights = np.arange(1, len(column.keys) + 1, dtype=np.float32).reshape(-1, 1)
        start = 0.0
    else:
        edges = graph.constant(np.asarray(column.edges, dtype=np.float32).reshape(1, -1), np.float32)
        hits = _at_least(graph, wide, edges)
        weights = np.ones((len(column.edges), 1), dtype=np.float32)
        start = 1.0
    counted = graph.node("MatMul", [graph.cast(hits, np.float32), graph.constant(weights, np.float32)])
    places = graph.node("Add", [graph.reshape(counted, [-1]), graph.constant([start], np.float32)])
    missing = graph.constant([float(column.size) if column.missing else 0.0], np.float32)
    return graph.cast(graph.node("Where", [graph.node("IsNaN", [cells]), missing, places]), np.int64)


def _at_least(graph: Appender, value: str, bound: str) -> str:
    """Compare; before opset 12 there is no >= and before 11 no == of floats. True for NaN."""
    return graph.node("Not", [graph.node("Less", [value, bound])])


# Appending nodes to somebody else's graph: its own names, operator versions and outputs stay as they are.


MIN_OPSET = 9
"""The first version of the default domain that has every operator that is appended (Where, IsNaN, MatMul)."""
FREE_INITIALIZERS = 4
"""From this version of the format on, initializers need not be inputs; nothing else changed from 3 to 4."""
_ML = "ai.onnx.ml"
_PREFIX = "fairkit/rule"


class Appender(GraphWriter):
    """Adds nodes to a copy of a model.

    Only operators are used whose meaning is the same in every opset from `MIN_OPSET` on, so that the model's
    own nodes need no conversion.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = type(model)()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self._taken = set(_all_names(self.graph))
        prefix = _PREFIX
        while any(name.startswith(f"{prefix}/") for name in self._taken):  # the model has a rule of ours already
            prefix += "_"
        super().__init__(self.graph.node, self.graph.initializer, prefix=prefix, numbers=np.float64)
        _raise_opset(self.model)

    @property
    def encodes_labels(self) -> bool:
        """Whether the model's ai.onnx.ml has the LabelEncoder that takes lists of keys (version 2)."""
        return _version(self.model, _ML) >= 2

    def input(self, name: str, dtype: Any) -> str:
        """Add an input of shape [rows, 1]; `dtype` is a numpy type, object for text."""
        if name in self._taken:
            raise ModelError(
                f"the model uses the name {name!r} for a value of its own, so that it cannot be an input; "
                "rename the column, or export the model with other names"
            )
        self._taken.add(name)
        self.graph.input.append(value_info(name, dtype))
        return name

    def output(self, name: str, value: str, dtype: Any) -> None:
        """Make a value an output [rows, 1]; the model's own of that name becomes ``base_...``."""
        if name in self._taken:
            self._rename(name, self._free_name(f"base_{name}"))
        self._taken.add(name)
        self._identity(name, value)
        self.graph.output.append(value_info(name, dtype))

    def finish(self) -> onnx.ModelProto:
        """Return the checked model."""
        return checked(self.model, "the model with the rule appended")

    def _fresh(self, hint: str) -> str:
        return self._free_name(super()._fresh(hint))

    def _free_name(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _rename(self, old: str, new: str) -> None:
        """Rename a value wherever it stands, also in the bodies of loops and branches."""
        if old in {entry.name for entry in self.graph.input}:
            raise ModelError(
                f"the model has an input {old!r}, the name of an output of the repaired model; "
                "rename that column and export the model again"
            )
        for graph in _graphs(self.graph):
            for node in graph.node:
                node.input[:] = [new if name == old else name for name in node.input]
                node.output[:] = [new if name == old else name for name in node.output]
            named: list[Any] = [*graph.output, *graph.value_info, *graph.initializer]
            for entry in named:
                if entry.name == old:
                    entry.name = new


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Walk the graph and the bodies of its loops and branches, at every depth."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _all_names(graph: onnx.GraphProto) -> Iterator[str]:
    for part in _graphs(graph):
        named: list[Any] = [*part.input, *part.output, *part.initializer]
        yield from (entry.name for entry in named)
        for node in part.node:
            yield node.name
            yield from node.output


def _version(model: onnx.ModelProto, domain: str) -> int:
    return max((entry.version for entry in model.opset_import if (entry.domain or "") == domain), default=0)


def _raise_opset(model: onnx.ModelProto) -> None:
    """Declare the operator sets that the appended nodes need.

    A set may be raised without touching the nodes where none of them changed in between; ai.onnx.ml changed
    one operator from version 1 to 2, so that a model of version 1 is left alone where it uses that one.
    """
    from onnx import helper

    # what is appended brings initializers that are no inputs
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)
    if not _version(model, _ML):
        model.opset_import.append(helper.make_opsetid(_ML, ML_OPSET))
    elif _version(model, _ML) == 1 and all(node.op_type != "LabelEncoder" for node in walk(model.graph.node)):
        _declare(model, _ML, 2)
    if not _version(model, ""):
        model.opset_import.append(helper.make_opsetid("", 13))
    if _version(model, "") < MIN_OPSET:
        _refuse_changed(model)
        _declare(model, "", MIN_OPSET)


def _declare(model: onnx.ModelProto, domain: str, version: int) -> None:
    for entry in model.opset_import:
        if (entry.domain or "") == domain:
            entry.version = version


def _refuse_changed(model: onnx.ModelProto) -> None:
    import onnx

    old = _version(model, "")
    for part in _graphs(model.graph):
        for node in part.node:
            if node.domain in ("", "ai.onnx") and (
                onnx.defs.get_schema(node.op_type, old, "").since_version
                != onnx.defs.get_schema(node.op_type, MIN_OPSET, "").since_version
            ):
                raise ModelError(
                    f"the model is of opset {old}, whose operator {node.op_type} has changed since; "
                    f"export it again with opset {MIN_OPSET} or later (13 is a good choice)"
                )


# Corrections appended to a base graph: groups of people get a number added to the logit of their score.


CERTAIN = 1e-6
"""Scores nearer to 0 or 1 than this are moved there before their logit is taken."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A number that is added to the logits of the rows of a group."""

    conditions: tuple[tuple[int, int, int], ...]
    amount: float  # what is added

    def member(self, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Return which rows get it, shape [n]."""
        keep = np.ones(len(codes[0]), dtype=bool)
        for column, first, last in self.conditions:
            keep &= (codes[column] >= first) & (codes[column] <= last)
        return keep

    def tree(self) -> Tree:
        """Return it as a tree on numbers of cells: one test after the other, a row that fails one gets nothing."""
        tests = [
            test
            for column, first, last in self.conditions
            for test in ((column, first - 0.5, False), (column, last + 0.5, True))
        ]
        nodes: Tree = []
        for column, value, below in tests:  # the leaf of those that fail stands beside each test
            leaf, onward = len(nodes) + 1, len(nodes) + 2
            yes, no = (onward, leaf) if below else (leaf, onward)
            nodes += [Node("BRANCH_LEQ", column, value, yes, no), Node("LEAF", weights=(0.0,))]
        return [*nodes, Node("LEAF", weights=(float(np.float32(self.amount)),))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """All corrections of a model."""

    columns: tuple[GroupColumn, ...]  # the raw columns that conditions are about, and how their cells are numbered
    edges: tuple[float, ...]
    corrections: tuple[Correction, ...]  # they add up
    threshold: float = 0.5  # the decision is favorable from this corrected score on

    def codes(self, columns: Mapping[str, NDArray[Any]], base: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Return the numbers of each row's cells, by column; the base score's last."""
        scored = np.searchsorted(np.asarray(self.edges), base, side="right") + 1
        return [*(column.codes(columns[column.name]) for column in self.columns), scored.astype(np.int64)]

    def apply(self, base: NDArray[np.float64], codes: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Return corrected scores, shape [n], rounded as in the graph."""
        moved = logit(base)
        for correction in self.corrections:
            moved = moved + np.where(correction.member(codes), np.float32(correction.amount), 0.0)
        return np.asarray((0.5 * (np.tanh(0.5 * moved) + 1)).astype(np.float32), dtype=np.float64)


def logit(score: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(p / (1 - p)) of scores in [0, 1]."""
    p = np.clip(score, CERTAIN, 1 - CERTAIN)
    return np.asarray(np.log(p / (1 - p)))


def correct(
    model: onnx.ModelProto, head: ScoreHead, rule: Corrections, *, inputs: Mapping[str, str]
) -> onnx.ModelProto:
    """Append corrections to a model."""
    refuse_randomized(model)
    graph = Appender(model)
    base = graph.cast(graph.cast(favorable_score(graph, head), np.float32), np.float64)
    cells = [column_codes(graph, column, inputs.get(column.name)) for column in rule.columns]
    cells.append(_score_cells(graph, base, rule.edges))
    columns = [graph.reshape(graph.cast(cell, np.float32), [-1, 1]) for cell in cells]
    matrix = graph.node("Concat", columns, axis=1)
    trees = [correction.tree() for correction in rule.corrections] or [[Node("LEAF", weights=(0.0,))]]
    added = graph.cast(add_ensemble(graph, matrix, trees), np.float64)
    low, high = graph.constant([[CERTAIN]]), graph.constant([[1 - CERTAIN]])
    p = graph.node("Min", [graph.node("Max", [clipped(graph, base), low]), high])
    odds = graph.node("Div", [p, graph.node("Sub", [1.0, p])])
    moved = graph.node("Add", [graph.node("Log", [odds]), added])
    score = graph.cast(sigmoid(graph, moved), np.float32)
    below = graph.node("Less", [score, graph.constant([[rule.threshold]], np.float32)])
    decided = graph.node("Not", [below])
    graph.output(SCORE, score, np.float32)
    graph.output(DECISION_PROBABILITY, graph.cast(decided, np.float32), np.float32)
    graph.output(DECISION, graph.cast(decided, np.int64), np.int64)
    return graph.finish()


def _score_cells(graph: Appender, base: str, edges: Sequence[float]) -> str:
    """Number the cells of the base score: one more than the edges that it reaches."""
    bounds = graph.constant(np.asarray(edges, dtype=np.float64).reshape(1, -1))
    reached = graph.cast(graph.node("Not", [graph.node("Less", [base, bounds])]), np.float32)
    counted = graph.node("MatMul", [reached, graph.constant(np.ones((len(edges), 1), np.float32), np.float32)])
    return graph.node("Add", [counted, graph.constant([[1.0]], np.float32)])
