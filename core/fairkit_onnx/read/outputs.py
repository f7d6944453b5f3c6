"""What a graph's outputs mean: probabilities, logits, labels, values, randomized decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import ModelError, did_you_mean
from fairkit.models.scorer import OWN, Cut, Predictions, Scale, check_scores
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.sandbox.wire import Maps
from fairkit_onnx.write.graph import check_weights

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.settings import ModelOptions, ScoreKind
    from fairkit_onnx.read.graph import Graph
    from fairkit_onnx.write.graph import GraphBuilder


SCORE, DECISION = "score", "decision"
"""The outputs of a model of ours that hold the score and the decision."""
DECISION_PROBABILITY = "decision_probability"
"""The output of a randomized model that holds the chance of a favorable decision."""

_SCORE_NAMES = ("probabilities", "probability", "output_probability", "score", "scores", "logits", "logit", "variable")

Shape = Literal["map", "matrix", "column", "label"]


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """One output of the graph: its name, onnxruntime's type, and its form in a first batch."""

    name: str
    shape: Shape
    width: int


def describe(name: str, kind: str, value: Any) -> GraphOutput | None:
    """Tell an output's form from its type and its value on a first batch; None for what holds no prediction."""
    if value is None:  # of a kind that does not leave the model's process
        return None
    if kind.startswith("seq(map"):
        return GraphOutput(name, "map", len(value[0]))
    array = np.asarray(value)
    width = 1 if array.ndim < 2 else int(np.prod(array.shape[1:]))
    if array.ndim > 2 and width > 1:
        return None
    if kind in ("tensor(float)", "tensor(double)", "tensor(float16)"):
        return GraphOutput(name, "matrix" if width > 1 else "column", width)
    if width == 1:
        return GraphOutput(name, "label", 1)
    return None


def as_matrix(output: GraphOutput, value: Any) -> NDArray[Any]:
    """Return an output's value as an array: [n, K] for maps and matrices, [n] for columns and labels."""
    if output.shape == "map" and isinstance(value, Maps):
        return value.matrix.astype(np.float64)
    if output.shape == "map":
        keys = list(value[0])
        return np.array([[row[key] for key in keys] for row in value], dtype=np.float64)
    array = np.asarray(value)
    if output.shape == "matrix":
        return array.reshape(len(array), -1).astype(np.float64)
    flat = array.reshape(-1)
    return flat.astype(np.float64) if output.shape == "column" else flat


def check_rows(output: GraphOutput, value: Any, rows: int, name: str) -> None:
    """Refuse an output of a model, named `name`, that does not have a number, or several, for each row."""
    if output.shape == "map":  # made row by row, by whoever reads it
        value = value.matrix if isinstance(value, Maps) else np.empty((len(value), 1))
    shape = np.shape(value)
    answered = shape[:1] if output.shape in ("map", "matrix") else (int(np.prod(shape)),)
    if answered != (rows,) or 0 in shape:
        raise ModelError(
            f"the output {output.name!r} of {name} has the shape {shape} for {rows:,} rows; a prediction has one for "
            "each"
        )


def choose_score_output(outputs: Sequence[GraphOutput], options: ModelOptions) -> GraphOutput | None:
    """Find the output that holds scores; None where the model gives labels only."""
    by_name = {output.name: output for output in outputs}
    if options.score_output is not None:
        if options.score_output not in by_name:
            hint = did_you_mean(options.score_output, by_name, what="outputs")
            raise ModelError(f"the model has no output {options.score_output!r}. {hint}")
        chosen = by_name[options.score_output]
        if chosen.shape == "label" and options.task != "regression":
            raise ModelError(
                f"the output {chosen.name!r} holds labels, not scores; name it with `decision_output={chosen.name}`"
            )
        return None if chosen.shape == "label" else chosen
    numeric = [output for output in outputs if output.shape != "label"]
    for preferred in (
        [output for output in numeric if output.shape == "map"],
        [output for name in _SCORE_NAMES for output in numeric if output.name == name],
        numeric,
    ):
        if len(preferred) == 1 or (preferred and preferred[0].name in _SCORE_NAMES):
            return preferred[0]
    if numeric:
        names = ", ".join(output.name for output in numeric)
        raise ModelError(
            f"several outputs could hold the scores ({names}); say which with `score_output={numeric[0].name}`"
        )
    return None


def are_chances(values: NDArray[np.float64]) -> bool:
    """Tell whether numbers lie in [0, 1], rounding aside."""
    return bool(values.min() >= -1e-6 and values.max() <= 1 + 1e-6)


def guess_kind(values: NDArray[np.float64], task: Task, options: ModelOptions) -> tuple[ScoreKind, str | None]:
    """Tell probabilities from logits by the values of a first batch, and say so where it is a guess."""
    if options.score_kind is not None or task == "regression":
        return options.score_kind or "value", None
    within = are_chances(values)
    if values.ndim == 1:
        if within:
            return "probability", "The model's scores lie in [0, 1] and are read as probabilities."
        if options.threshold is not None and not 0 <= options.threshold <= 1:
            return "value", None
        return "logit", "The model's scores leave [0, 1] and are read as logits (`score_kind` overrides)."
    if within and np.abs(values.sum(axis=1) - 1).max() < 1e-3:
        return "probability", None
    return "logit", "The model's scores do not sum to 1 and are read as logits (`score_kind` overrides)."


def probabilities(values: NDArray[np.float64], kind: ScoreKind) -> NDArray[np.float64]:
    """Apply the link: sigmoid for one logit [n], softmax for several [n, K]."""
    if kind == "percent":
        values, kind = values / 100, "probability"
    if kind == "logit" and values.ndim == 1:
        return 0.5 * (1 + np.tanh(0.5 * values))
    if kind == "logit":
        shifted = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
    if values.min() < -1e-5 or values.max() > 1 + 1e-5:
        raise ModelError(
            f"the model's scores leave [0, 1] (they reach {values.min():.4g} and {values.max():.4g}) and are no "
            "probabilities; say what they are with `score_kind`: logit, percent, or value for a scale of their own"
        )
    return np.clip(values, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read the outputs of one model on one dataset, settled on a first batch."""

    task: Task
    score: GraphOutput | None  # the output that holds scores; None where there is none
    label: GraphOutput | None  # the output that holds labels; None where there is none
    kind: ScoreKind  # what the scores are
    threshold: float | None = None
    scale: Scale | None = None
    place: int | None = None
    turned: bool = False
    positive: Any = None  # binary: what the label output gives for the favorable label
    class_places: tuple[int, ...] = ()  # multi-class: for each score column, its index in the dataset's classes
    label_index: Mapping[str, int] | None = None
    chance: GraphOutput | None = None

    def check_rows(self, values: Mapping[str, Any], rows: int, name: str) -> None:
        """Refuse outputs of a model, named `name`, that do not have a number, or several, for each row."""
        for output in (self.score, self.label, self.chance):
            if output is not None:
                check_rows(output, values[output.name], rows, name)

    @property
    def wanted(self) -> list[str]:
        """The outputs that the graph must compute."""
        return [output.name for output in (self.score, self.label, self.chance) if output is not None]

    @property
    def audited(self) -> set[str]:
        """The outputs that predictions follow from, or that every row is checked by."""
        label = (
            None if self.by_score is not None or (self.task == "regression" and self.score is not None) else self.label
        )
        return {output.name for output in (self.score, label, self.chance) if output is not None}

    @property
    def served(self) -> dict[str, Any]:
        """The outputs that are audited, for reports: names, and the threshold where scores decide."""
        record: dict[str, Any] = {
            "score": None if self.score is None else self.score.name,
            "decision": None if self.label is None or self.cut is not None else self.label.name,
        }
        if self.chance is not None and self.label is None:
            record["decision"] = self.chance.name
        record |= {"turned": True} if self.turned and self.score is not None else {}
        record |= OWN if self.scale is not None else {}
        return record | ({} if self.by_score is None else self.by_score.record)

    @property
    def by_score(self) -> Cut | None:
        """The comparison by which scores decide; None where another output does."""
        if self.task != "binary" or self.score is None:
            return None
        if self.threshold is None and (self.label is not None or self.chance is not None or self.scale is not None):
            return None
        if self.score.width > 1:
            return Cut(score="P(favorable)", threshold=self.threshold)
        kind = self.kind if self.scale is None else "value"
        return Cut(score=self.score.name, kind=kind, threshold=self.threshold, turned=self.turned)

    @property
    def cut(self) -> float | None:
        """The threshold as a probability of the favorable label; None where another output decides."""
        return None if self.by_score is None else self.by_score.chance

    def read(self, values: Mapping[str, Any]) -> Predictions:
        """Turn raw outputs into predictions."""
        raw = None
        if self.score is not None:
            raw = as_matrix(self.score, values[self.score.name])
            check_scores(raw, "scores")
            self._check_width(raw)
        label = None if self.label is None else as_matrix(self.label, values[self.label.name])
        if self.task == "regression":
            return Predictions(score=raw if raw is not None else _as_float(label))
        if self.task == "multiclass":
            return self._multiclass(raw, label)
        return self._binary(raw, label, values)

    def _check_width(self, raw: NDArray[np.float64]) -> None:
        """Refuse scores of fewer classes than those of the first batch."""
        places = [*self.class_places, *([] if self.place is None else [self.place])]
        if raw.ndim > 1 and self.score is not None and max(places, default=0) >= raw.shape[1]:
            raise ModelError(
                f"the output {self.score.name!r} has {raw.shape[1]:,} columns for a batch of {len(raw):,} rows, and "
                "more for another: a decision about a person must not depend on who else is in the batch"
            )

    def _chances(self, values: Any) -> NDArray[np.float64]:
        chance = np.asarray(values, dtype=np.float64).reshape(-1)
        check_scores(chance, "decision probabilities")
        if not are_chances(chance):
            raise ModelError(f"{DECISION_PROBABILITY} leaves [0, 1]")
        chance = np.clip(chance, 0, 1)
        return 1 - chance if self.place == 0 else chance

    def _binary(
        self, raw: NDArray[np.float64] | None, label: NDArray[Any] | None, values: Mapping[str, Any]
    ) -> Predictions:
        score = chance = logits = None
        if raw is not None:
            proba = probabilities(raw, self.kind) if self.scale is None else self.scale.squash(raw)
            score = chance = proba if proba.ndim == 1 else proba[:, self.place]
            if self.kind == "logit":
                logits = raw
            if self.turned:
                score = 1 - score
        if self.by_score is not None:
            assert self.score is not None and raw is not None and chance is not None  # noqa: PT018, S101 -- it scores
            scores = raw if self.by_score.kind in ("value", "percent") else chance
            single = getattr(values[self.score.name], "dtype", None) == np.float32 and self.by_score.kind != "logit"
            decision = self.by_score.holds(scores, single=single).astype(float)
        elif self.chance is not None:
            decision = self._chances(values[self.chance.name])
        else:
            assert label is not None  # noqa: S101 -- the reading has a score or a label
            decision = equals(label, self.positive)
        return Predictions(score=score, decision=decision, logits=logits)

    def _multiclass(self, raw: NDArray[np.float64] | None, label: NDArray[Any] | None) -> Predictions:
        proba = logits = predicted = None
        if raw is not None:
            order = np.argsort(self.class_places)
            proba = probabilities(raw, self.kind)[:, order]
            logits = raw[:, order] if self.kind == "logit" else None
            predicted = proba.argmax(axis=1).astype(np.int64)
        if label is not None and self.label_index is not None:
            predicted = _index(label, self.label_index)
        return Predictions(probabilities=proba, predicted=predicted, logits=logits)


def _as_float(label: NDArray[Any] | None) -> NDArray[np.float64]:
    values = np.asarray(label).astype(np.float64)
    check_scores(values, "predictions")
    return values


def equals(label: NDArray[Any], positive: Any) -> NDArray[np.float64]:
    """Return 1 where the label output is the value, else 0."""
    if label.dtype.kind == "O":
        return np.asarray(label == value_text(positive), dtype=np.float64)
    return np.asarray(label.astype(float) == float(positive), dtype=np.float64)


def _index(label: NDArray[Any], places: Mapping[str, int]) -> NDArray[np.int64]:
    values, inverse = np.unique(label.astype(str) if label.dtype.kind == "O" else label, return_inverse=True)
    codes = []
    for value in values.tolist():
        text = value_text(value)
        if text not in places:
            raise ModelError(
                f"the model predicts the class {text!r}, which the data's label never has; "
                f"the label's values are: {', '.join(places)}"
            )
        codes.append(places[text])
    return np.asarray(codes, dtype=np.int64)[inverse]


# Which of a graph's outputs are audited: those that the user names, else those that the file itself declares.


RULE_KEY = "fairkit.rule"
"""The metadata entry that says in words and numbers what rule a repair appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The outputs that an audit reads."""

    score: GraphOutput | None  # scores; None where there are none
    label: GraphOutput | None  # decisions, or classes; None where decisions are made from scores
    chance: GraphOutput | None = None


def is_ours(proto: onnx.ModelProto) -> bool:
    """Tell whether the file has fairkit's own metadata, without which no model counts as randomized."""
    from fairkit_onnx.read.graph import embedded_settings

    return bool(embedded_settings(proto)) or any(entry.key == MIXTURE_KEY for entry in proto.metadata_props)


def has_rule(proto: onnx.ModelProto) -> bool:
    """Tell whether a repaired file decides by a rule of its own on the scores of the model before."""
    return any(entry.key == RULE_KEY for entry in proto.metadata_props)


def own_rule(model: Graph, options: ModelOptions) -> tuple[ModelOptions, list[str]]:
    """Let a repaired file keep its rule: at a threshold its scores would decide as the model before does."""
    if options.threshold is None or options.score_output is not None or not has_rule(model.proto):
        return options, []
    note = f"The repaired file decides by its own rule; the threshold {options.threshold:g} is not applied to it"
    return replace(options, threshold=None), [f"{note} (`score_output=score` decides by it)."]


def choose_served(
    model: Graph, outputs: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions
) -> Served:
    """Find the outputs to audit."""
    by_name = {output.name: output for output in outputs}
    chance = by_name.get(DECISION_PROBABILITY) if is_ours(model.proto) and SCORE in by_name else None
    if options.decision_output not in (None, DECISION, DECISION_PROBABILITY):
        chance = None
    if chance is None:
        outputs = _with_flag(outputs, first, options)
        label = _label(outputs, first, options)
        rest = [output for output in outputs if label is None or output.name != label.name]
        score = choose_score_output(outputs if options.score_output else rest, options)
        return Served(score=score, label=label)
    score = by_name[SCORE] if options.score_output is None else choose_score_output(outputs, options)
    ours = score is by_name[SCORE] and options.score_kind is None
    if ours and not are_chances(np.asarray(first[SCORE], dtype=np.float64)):
        score = None  # no probabilities: metrics of scores have nothing to say about them
    if options.threshold is not None:
        return Served(score=score, label=None)
    label = by_name.get(DECISION)
    drawn = np.asarray(first[DECISION_PROBABILITY], dtype=np.float64)
    if label is None and bool(((drawn > 0) & (drawn < 1)).any()):
        raise ModelError(
            f"{model.name} has chances of a favorable decision strictly between 0 and 1, but no output "
            f"{DECISION!r} that draws by them; export it again"
        )
    return Served(score=score, label=label, chance=chance)


def _with_flag(outputs: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions) -> list[GraphOutput]:
    """Take a column of numbers 0 and 1 beside one column of scores for the decision that it is.

    Only where nothing else could be the decision, and the user names no output.
    """
    columns = [output for output in outputs if output.shape == "column"]
    flags = [output for output in columns if is_flag(first[output.name])]
    named = options.decision_output or options.score_output
    if named or len(columns) != len(outputs) or len(flags) != 1 or len(columns) != 2:
        return list(outputs)
    return [replace(output, shape="label") if output is flags[0] else output for output in outputs]


def _label(found: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions) -> GraphOutput | None:
    if options.decision_output is None:
        return next((output for output in found if output.shape == "label"), None)
    by_name = {output.name: output for output in found}
    name = options.decision_output
    if name not in by_name:
        hint = did_you_mean(name, by_name, what="outputs")
        raise ModelError(f"the model has no output {name!r} that could hold decisions. {hint}")
    chosen = by_name[name]
    if chosen.shape == "label":
        return chosen
    if chosen.shape != "column" or not is_flag(first[name]):
        raise ModelError(
            f"the output {name!r} holds scores, not decisions; audit decisions made from it with "
            f"`score_output={name}` with `threshold=0.5`"
        )
    return replace(chosen, shape="label")


def is_flag(values: Any) -> bool:
    """Tell whether numbers are zeros and ones only, so that they can be decisions."""
    numbers = np.asarray(values)
    return bool(np.isin(numbers, (0, 1)).all())


# Mixtures that draw one member for each row: what it predicts, and all that could have been drawn.


MEMBER_SCORES = "member_scores"
"""The output with every member's prediction."""
MIXTURE_KEY = "fairkit.mixture"
"""The metadata entry with the weights: ``{"weights": [...]}``."""


def add_member_outputs(graph: GraphBuilder, scores: str, weights: Sequence[float], task: Task) -> None:
    """Declare the outputs of a model that draws the member whose prediction a row gets.

    Regression: ``score`` is the prediction of member k, where u in [0, 1) falls into the k-th of intervals
    as long as the weights. Binary: the same with the members of each row in the order of their predictions,
    the largest first, so that ``decision``, which is whether the drawn prediction reaches 1/2, is
    ``u < decision_probability``.
    """
    shares = check_weights(weights)
    graph.output(MEMBER_SCORES, scores, width=len(shares))
    u = graph.input("u", "float")
    if task != "binary":
        ends = graph.constant(np.cumsum(shares)[:-1].reshape(1, -1))
        graph.output("score", _pick(graph, scores, ends, u, len(shares) - 1))
        return
    ranked, order = graph.nodes("TopK", [scores, graph.constant([len(shares)], np.int64)], 2, axis=1)
    reached = graph.node("GreaterOrEqual", [ranked, 0.5])
    columns = graph.constant(shares)
    # one rounding for both: the sums that u is compared with and the chance are the same numbers
    sums = graph.node("CumSum", [graph.node("Gather", [columns, order]), graph.constant(1, np.int64)])
    inner = graph.node("Slice", [sums, *(graph.constant([v], np.int64) for v in (0, len(shares) - 1, 1))])
    graph.output("score", _pick(graph, ranked, inner, u, len(shares) - 1))
    counted = graph.node("Mul", [sums, graph.node("Cast", [reached], to=1)])
    chance = graph.node("ReduceMax", [counted], axes=[1], keepdims=1)
    everyone = graph.node("Slice", [reached, *(graph.constant([v], np.int64) for v in _LAST)])
    certain = graph.node("Where", [everyone, 1.0, chance])
    graph.output("decision_probability", graph.node("Min", [certain, 1.0]))
    decided = graph.node("Less", [u, certain])
    graph.output("decision", graph.node("Cast", [decided], to=7), "int64")


_LAST = (-1, np.iinfo(np.int64).max, 1)


def embed_weights(proto: onnx.ModelProto, weights: Sequence[float]) -> None:
    """Write the members' weights into the metadata."""
    entry = proto.metadata_props.add()
    entry.key = MIXTURE_KEY
    entry.value = json.dumps({"weights": [float(weight) for weight in check_weights(weights)]})


def member_weights(proto: onnx.ModelProto) -> NDArray[np.float64] | None:
    """Read the members' weights, shape [k]; None where the model is no mixture of this kind."""
    text = next((entry.value for entry in proto.metadata_props if entry.key == MIXTURE_KEY), None)
    if text is None:
        return None
    try:
        weights = check_weights([float(weight) for weight in json.loads(text)["weights"]])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ModelError(f"the model's metadata entry {MIXTURE_KEY!r} cannot be read: {error}") from error
    if MEMBER_SCORES not in {output.name for output in proto.graph.output}:
        raise ModelError(f"the model has weights of members but no output {MEMBER_SCORES!r}")
    return weights


def misdrawn(
    score: NDArray[np.float64],
    members: NDArray[np.float64],
    shares: NDArray[np.float64],
    u: NDArray[np.float32],
    *,
    ranked: bool,
) -> int:
    """Count the rows whose score is not that of the member which the draw picks."""
    weights = np.broadcast_to(shares, members.shape)
    if ranked:
        order = np.argsort(-members, axis=1, kind="stable")
        members, weights = (np.take_along_axis(array, order, axis=1) for array in (members, weights))
    ends = np.cumsum(weights, axis=1)[:, :-1]
    draw = u.astype(np.float64)[:, None]
    picked = np.take_along_axis(members, (draw >= ends).sum(axis=1)[:, None], axis=1)[:, 0]
    near = (np.abs(draw - ends) < _NEAR).any(axis=1) if ends.shape[1] else np.zeros(len(score), dtype=bool)
    scale = np.maximum(1.0, np.abs(picked))
    return int(((np.abs(picked - score) > _NEAR * scale) & ~near).sum())


_NEAR = 1e-5


def _pick(graph: GraphBuilder, scores: str, ends: str, u: str, count: int) -> str:
    """Take each row's member: as many places to the right as there are ends that u has reached."""
    reached = graph.node("Cast", [graph.node("GreaterOrEqual", [u, ends])], to=1)
    count_node = graph.node("MatMul", [reached, graph.constant(np.ones((count, 1)))])
    return graph.node("GatherElements", [scores, graph.node("Cast", [count_node], to=7)], axis=1)
