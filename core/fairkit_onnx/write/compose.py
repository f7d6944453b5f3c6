"""A rule appended to a base graph: score, chance and decision come out, what the base gave stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import ModelError
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.read.outputs import DECISION, DECISION_PROBABILITY, SCORE
from fairkit_onnx.write.appending import Appender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from fairkit.models.scale import Scale
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
        known = graph.constant(keys, np.float32)
        hits = graph.node("And", [_at_least(graph, wide, known), _at_least(graph, known, wide)])
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
