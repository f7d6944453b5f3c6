"""Deciding what a graph's outputs mean on a dataset, from its first batch, and saying what was guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.roles import example_of, same_value, value_text
from fairkit.data.task import Task, choose_task
from fairkit.errors import ModelError
from fairkit.models.python import check_signs, favorable_column, line_up, ranks_higher
from fairkit.models.scorer import Scale, check_scores, told_scale
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.read import graph
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.graph import ancestors, classes_by_labels
from fairkit_onnx.read.outputs import Served, choose_served, is_ours, own_rule

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.settings import ModelOptions
    from fairkit_onnx.read.graph import Graph


_RANDOMIZED = "A randomized model: its decision probabilities are audited, exactly, not draws from them."


def settle(
    model: Graph,
    outputs: Sequence[reading.GraphOutput],
    first: Mapping[str, Any],
    dataset: Dataset,
    options: ModelOptions,
    batch: Batch,
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Decide what the outputs mean from the first batch."""
    options, told_rule = own_rule(model, options)
    served = choose_served(model, outputs, first, options)
    score, label = served.score, served.label
    if score is None and label is None and served.chance is None:
        raise ModelError(f"{model.name} has no output that a prediction could be read from: {sorted(first)}")
    for output in (score, label, served.chance):
        if output is not None:
            reading.check_rows(output, first[output.name], len(batch), model.name)
    classes_scored = 2 if served.chance is not None else None if score is None else score.width
    task = choose_task(dataset, options.task, classes_scored)
    _refuse_unused(options, task, served)
    values = None if score is None else reading.as_matrix(score, first[score.name])
    if values is not None:
        check_scores(values, "scores")
    kind, told_kind = ("label", None) if values is None else reading.guess_kind(values, task, options)
    settled = reading.Reading(
        task=task, score=score, label=label, kind=kind, threshold=options.threshold, chance=served.chance
    )
    if task == "binary" and (served.chance is not None or _is_ours(model, score, label, options)):
        settled, order, more = _ours(settled, model, dataset, options, first)
        return settled, order, told_rule + more
    notes = told_rule + ([] if told_kind is None else [told_kind])
    classes = _model_classes(model, score, label, first, dataset.profile.label_values)
    _refuse_text(dataset, task, score, classes)
    if task == "regression":
        return _regression(settled, model), (), notes
    if task == "multiclass":
        evidence = values if values is not None else _one_hot(label, first, classes)
        settled, order, more = _multiclass(settled, classes, dataset, options, evidence, batch)
        return settled, order, notes + more
    favorable = batch.favorable
    if options.favorable_class is None:
        check_signs(classes, dataset.profile.label_values)
    settled, more = _binary(settled, classes, dataset, options, values, favorable, _Labels.of(model, label, first))
    if values is None or values.ndim > 1:
        return settled, (), notes + more + _told_cut(settled)
    assert score is not None  # noqa: S101 -- values are a score's
    if told_kind is not None and kind == "logit":
        settled, notes = _as_logits(model, settled, score, values, favorable, notes)
    settled, how = _scaled(settled, options, score.name, values)
    return settled, (), notes + more + how


def _as_logits(
    model: Graph,
    settled: reading.Reading,
    score: reading.GraphOutput,
    values: NDArray[np.float64],
    favorable: NDArray[np.bool_] | None,
    notes: list[str],
) -> tuple[reading.Reading, list[str]]:
    """Take numbers for logits if they behave like them; beside an output that decides others rank at most."""
    try:
        check_logits(values, settled.turned, favorable, model.proto.graph, score.name)
    except ModelError:
        if settled.cut is not None:
            raise
        return replace(settled, kind="value"), []
    return settled, notes


def _scaled(
    settled: reading.Reading, options: ModelOptions, score: str, values: NDArray[np.float64]
) -> tuple[reading.Reading, list[str]]:
    """Settle scores on a scale of their own, and what a threshold is about."""
    if settled.kind != "value":
        return settled, _told_cut(settled)
    low, high = float(values.min()), float(values.max())
    if settled.label is None and options.threshold is None:
        raise ModelError(
            f"the scores {score!r} are on a scale of their own, from {low:.4g} to {high:.4g}: from which score on is "
            "the decision favorable? Say so with `threshold`, in the score's own unit"
        )
    settled = replace(settled, scale=Scale.of(values))
    return settled, [told_scale(score, low, high, turned=settled.turned), *_told_cut(settled)]


def _refuse_text(dataset: Dataset, task: Task, score: reading.GraphOutput | None, classes: Sequence[Any]) -> None:
    """Ask for the favorable class of a model that gives text, where neither a label nor the user names one."""
    text = bool(classes) and isinstance(classes[0], str)
    if task == "regression" and score is None and text and dataset.roles.label is None:
        shown = " or ".join(map(repr, classes[:5]))
        raise ModelError(
            f"the model gives text, and there is no label: which of its classes is good for the person, {shown}? Say "
            f"so with `favorable`, as in `favorable={example_of('', classes)}`"
        )


def _told_cut(settled: reading.Reading) -> list[str]:
    """Return a note on the user's threshold: the comparison that decides."""
    if settled.by_score is None or settled.threshold is None:
        return []
    settled.by_score.check()
    return [f"Decisions are made from scores: favorable where {settled.by_score.rule}."]


def _one_hot(
    label: reading.GraphOutput | None, first: Mapping[str, Any], classes: Sequence[Any]
) -> NDArray[np.float64]:
    """Return 1 where the label output gives the class, shape [n, K]."""
    assert label is not None  # noqa: S101 -- a reading has scores or labels
    labels = np.array([value_text(value) for value in reading.as_matrix(label, first[label.name]).tolist()])
    return np.column_stack([labels == value_text(value) for value in classes]).astype(np.float64)


def _refuse_unused(options: ModelOptions, task: Task, served: Served) -> None:
    """Refuse options that would be ignored."""
    if task != "binary":
        options.refuse(["threshold", "favorable_class"], f"this is a {task} task")
    if task != "multiclass":
        options.refuse(["classes"], f"this is a {task} task; favorable_class says which class is favorable")
    if task == "regression":
        options.refuse(["decision_output"], "a regression has no decisions; name the output with `score_output`")
    if served.score is None:
        options.refuse(["threshold", "score_kind"], "the model gives no scores")


def _is_ours(
    model: Graph, score: reading.GraphOutput | None, label: reading.GraphOutput | None, options: ModelOptions
) -> bool:
    """Whether the score of a model of ours is read with a threshold of the user's."""
    ours = is_ours(model.proto) and options.threshold is not None and label is None
    return ours and score is not None and score.name == reading.SCORE and score.width == 1


def _ours(
    settled: reading.Reading, model: Graph, dataset: Dataset, options: ModelOptions, first: Mapping[str, Any]
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Read a file of ours: the score and the decision are about the label that its metadata calls favorable."""
    notes = []
    if settled.chance is not None:
        chance = np.asarray(first[settled.chance.name])
        notes = [_RANDOMIZED] if bool(((chance > 0) & (chance < 1)).any()) else []
    column, turned = _own_place(model, dataset, options)
    settled = replace(settled, place=column, positive=column, turned=column == 0)
    return settled, (), notes + turned + _told_cut(settled)


def _own_place(model: Graph, dataset: Dataset, options: ModelOptions) -> tuple[int, list[str]]:
    """1, or 0 where the user or the metadata says that a decision of 1 is not the favorable one."""
    if options.favorable_class is not None:
        if options.favorable_class not in (0, 1):
            raise ModelError(f"favorable_class={options.favorable_class}, but the model decides 0 or 1")
        return options.favorable_class, []
    theirs, ours = model.settings.get("favorable"), dataset.roles.favorable
    values = dataset.profile.label_values
    if theirs is None or same_value(theirs, ours) or not any(same_value(theirs, value) for value in values):
        return 1, []
    note = f"The model decides for {value_text(theirs)!r} and is turned to the favorable label {value_text(ours)!r}"
    return 0, [f"{note} (`favorable_class=1` leaves it as it is)."]


def _model_classes(
    model: Graph,
    score: reading.GraphOutput | None,
    label: reading.GraphOutput | None,
    first: Mapping[str, Any],
    label_values: Sequence[Any],
) -> list[Any]:
    """The model's class labels: from a ZipMap, from the graph's classifier, from its labels, else 0..K-1."""
    if score is not None and score.shape == "map":
        return list(first[score.name][0])
    named = graph.class_labels(model.proto)
    width = None if score is None else score.width
    if named and width in (None, 1, len(named)):
        return named
    if width is not None and width > 1:
        classes = None
        if label is not None and score is not None:
            labels = reading.as_matrix(label, first[label.name])
            classes = classes_by_labels(reading.as_matrix(score, first[score.name]), labels, label_values)
        return list(range(width)) if classes is None else classes
    if label is not None:
        values = np.unique(reading.as_matrix(label, first[label.name]))
        if values.dtype.kind in "iu" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all())):
            return [int(value) for value in values]
        return [bool(v) for v in values] if values.dtype.kind == "b" else values.astype(str).tolist()
    return [0, 1]


def _regression(settled: reading.Reading, model: Graph) -> reading.Reading:
    if settled.score is None and settled.label is None:
        raise ModelError(f"{model.name} gives no number to audit")
    if settled.score is not None and settled.score.width != 1:
        raise ModelError(
            f"{model.name} gives {settled.score.width} numbers for each row, and an audit is about one target: name "
            "one output with `score_output`; a model of several targets in one output is exported for one of them. "
            "If the numbers are scores of classes, say so with `task`"
        )
    return settled


@dataclass(frozen=True, slots=True)
class _Labels:
    """What the label output gave for the first rows, and whether the file itself names its classes."""

    name: str
    values: NDArray[Any]
    named: bool

    @classmethod
    def of(cls, model: Graph, label: reading.GraphOutput | None, first: Mapping[str, Any]) -> Self | None:
        if label is None:
            return None
        named = bool(graph.class_labels(model.proto))
        return cls(label.name, reading.as_matrix(label, first[label.name]), named)

    def marked(self, value: Any) -> NDArray[np.float64] | None:
        """Return 1 where the model gives the value, shape [n]; None where the kinds differ."""
        if self.values.dtype.kind != "O" and isinstance(value, str):
            return None
        return reading.equals(self.values, value)


def _binary(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    values: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
    labels: _Labels | None,
) -> tuple[reading.Reading, list[str]]:
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    if values is None or values.ndim == 1:
        return _single(settled, classes, dataset, options, values, is_favorable, labels)
    if options.favorable_class is not None:
        index, notes = options.favorable_class, []
        if not 0 <= index < values.shape[1]:
            raise ModelError(f"favorable_class={index}, but the model scores {values.shape[1]} classes, from 0")
    else:
        column, sentence = favorable_column(classes, label_values, favorable, values, is_favorable)
        index, notes = column, [sentence]
    return replace(settled, place=index, positive=None if settled.label is None else classes[index]), notes


def _single(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    values: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
    labels: _Labels | None,
) -> tuple[reading.Reading, list[str]]:
    """A bare score, logit or label: the model's labels decide, else convention and ranking.

    Which decision is favorable and which way the score points are found separately: an output `approve` may stand
    beside an output `p_default`.
    """
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    notes: list[str] = []
    named = [i for i, value in enumerate(classes) if same_value(value, favorable)]
    theirs = {value_text(value) for value in classes} & {value_text(value) for value in label_values}
    positive = None
    if options.favorable_class is not None:
        index = options.favorable_class
        if index not in (0, 1):
            raise ModelError(f"favorable_class={index}, but the model has two classes, 0 and 1")
    elif labels is not None and theirs:
        index = named[0] if named else 1
        positive = None if named else favorable  # the first rows were all given the other label
        if positive is None and not labels.named:
            _refuse_opposite(labels, classes[index], favorable, is_favorable)
    else:
        evidence = values if labels is None else labels.marked(classes[-1])
        index, notes = _bare(settled, label_values, favorable, evidence, is_favorable)
    if positive is None and len(classes) > index:
        positive = classes[index]
    if settled.score is None and positive is None:
        raise ModelError(
            f"the model's labels {classes} do not tell which is the favorable label {favorable!r}; "
            "relabel the data as the model was trained, or say `favorable_class`"
        )
    label = settled.label if positive is not None else None
    turned = index == 0
    if values is not None and labels is not None and label is not None:
        turned = is_turned(values, labels.marked(positive), is_favorable, by_name=turned)
        if turned != (index == 0) or not theirs:
            notes.append(_direction(settled.score, favorable, turned=turned))
    return replace(settled, place=index, positive=positive, label=label, turned=turned), notes


def _refuse_opposite(labels: _Labels, value: Any, favorable: Any, is_favorable: NDArray[np.bool_] | None) -> None:
    """Raise where numbers 0 and 1 that no classifier names mark the rows of the other label."""
    marked = labels.marked(value)
    if marked is None or is_favorable is None or ranks_higher(marked, is_favorable) is not False:
        return
    raise ModelError(
        f"the model's output {labels.name!r} is {value_text(value)} less often for rows with the favorable label "
        f"{value_text(favorable)!r} than for the others: is it a decision of its own, in which another value is "
        f"favorable? Say which one with `favorable_class`: {1 - int(value)} if it is {1 - int(value)}, "
        f"{int(value)} if it is {int(value)}"
    )


def _direction(score: reading.GraphOutput | None, favorable: Any, *, turned: bool) -> str:
    assert score is not None  # noqa: S101 -- asked for where there are values
    how = "one minus it is the score of" if turned else "it is read as the score of"
    why = "is lower where the decision is favorable" if turned else "is higher where the decision is favorable"
    return f"The output {score.name!r} {why}: {how} the favorable label {value_text(favorable)!r}."


def _bare(
    settled: reading.Reading,
    label_values: Sequence[Any],
    favorable: Any,
    evidence: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[int, list[str]]:
    """Tell whether a number without a name is about the favorable label.

    Training code makes the second of two labels the class 1. Where that is the favorable one there is no
    question; else which of the two ranks higher tells, and failing that class 1 of labels 0 and 1.
    """
    what = "score" if settled.label is None else "label"
    if len(label_values) != 2 or same_value(label_values[1], favorable):
        if evidence is not None and is_favorable is not None and ranks_higher(evidence, is_favorable) is False:
            raise ModelError(
                f"the model's {what} is lower for the rows with the favorable label {value_text(favorable)!r}: is it "
                "about the other label? Say so with `favorable_class`: 0 if it is, 1 if it is about the favorable one"
            )
        sentence = f"The model's {what} is read as that of the favorable label (`favorable_class=0` reverses it)."
        return 1, [sentence]
    higher = None
    if evidence is not None and is_favorable is not None:
        higher = ranks_higher(evidence, is_favorable)
    opposite = value_text(label_values[1])
    if higher is None and not same_value(label_values[1], 1):
        higher = True
    if higher:
        sentence = f"The model's {what} is read as that of the favorable label {favorable!r}, not of {opposite!r}"
        return 1, [f"{sentence} (`favorable_class=0` reverses it)."]
    sentence = f"The model's {what} is read as that of {opposite!r} and turned to the favorable label {favorable!r}"
    return 0, [f"{sentence} (`favorable_class=1` leaves it as it is)."]


def _multiclass(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    evidence: NDArray[np.float64],
    batch: Batch,
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Line the model's classes up with the label's values."""
    data_values = dataset.profile.label_values
    label_values = list(data_values or options.classes or classes)
    texts = [value_text(value) for value in label_values]
    labels = None
    if batch.label is not None:
        labels = np.select([batch.label == value for value in data_values], list(range(len(data_values))), -1)
    said = options.classes
    if not data_values and said is None:
        places, notes = tuple(range(len(texts))), list[str]()
    else:
        places, notes = line_up(classes, label_values, said, evidence, labels)
    if settled.score is not None and len(places) != len(texts):
        absent = ", ".join(text for i, text in enumerate(texts) if i not in places)
        raise ModelError(f"the label has values that the model does not score: {absent}; leave those rows out")
    index = {value_text(value): index for value, index in zip(classes, places, strict=True)}
    return replace(settled, class_places=places, label_index=index), tuple(label_values), notes


# Numbers outside [0, 1] that decide: logits, or ranks and other values that only look like them?


FARTHEST = 0.15
"""Logits of a model that was fitted to such data give a mean probability within this of the share of favorable rows."""
MOSTLY = 0.8
"""With this share of the numbers in [0, 1], they are no logits but a regression of 0 and 1 that leaves the range."""


def check_logits(
    values: NDArray[np.float64], turned: bool, favorable: NDArray[np.bool_] | None, graph: onnx.GraphProto, output: str
) -> None:
    """Refuse to make decisions from numbers that were taken for logits and do not behave like them."""
    if values.ndim > 1 or favorable is None or not len(values):
        return
    if any(node.op_type == "TreeEnsembleRegressor" for node in ancestors(graph, [output])):
        raise ModelError(
            f"the model's scores, from {values.min():.3g} to {values.max():.3g}, leave [0, 1] and are sums of trees "
            "that do not classify: a ranking, or a regression? Of a ranking give the column of queries with `query`; "
            "of a regression the task with `task`. Neither has a threshold of its own. If they are logits say so with "
            "`score_kind` logit; if they are points, give the `threshold` in their own unit with `score_kind` value"
        )
    within = float(((values >= 0) & (values <= 1)).mean())
    shown = f"the model's scores, from {values.min():.3g} to {values.max():.3g},"
    if within >= MOSTLY:
        raise ModelError(
            f"{shown} leave [0, 1] in {1 - within:.1%} of the first rows only: a regression of 0 and 1? Decisions "
            "cannot be made from them as they are. Clip them in the graph, say that they are logits with "
            "`score_kind` logit, or audit a column of decisions with `predictions`"
        )
    chance = 0.5 * (1 + np.tanh(0.5 * values))
    mean = float(chance.mean()) if not turned else 1 - float(chance.mean())
    share = float(favorable.mean())
    if abs(mean - share) > FARTHEST:
        raise ModelError(
            f"{shown} leave [0, 1]. As logits they would mean a favorable share of {mean:.2f}, and {share:.2f} of the "
            "rows are favorable: are they ranks, or values on another scale? If they are logits say so with "
            "`score_kind` logit; if they are points, give the `threshold` in their own unit with `score_kind` value"
        )


# Which way a column of scores points: towards the favorable label, or away from it.


ROUNDING = 1e-5
"""Scores that are nearer to a threshold may fall on either side of it by rounding."""


def is_turned(
    values: NDArray[np.float64],
    decision: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
    *,
    by_name: bool,
) -> bool:
    """Return whether a score beside a decision is about the unfavorable label.

    The direction in which one threshold explains the decisions is the score's; where neither or both do, the labels
    tell, then the ranking of the decisions, then the names.
    """
    if decision is not None and 0 < decision.sum() < len(decision):
        up, down = crossed(values, decision), crossed(-values, decision)
        if not up or not down:
            return bool(up) if up != down else by_name
    for truth in (is_favorable, None if decision is None else decision >= 0.5):
        higher = None if truth is None else ranks_higher(values, truth)
        if higher is not None:
            return not higher
    return by_name


def crossed(score: NDArray[np.float64], decision: NDArray[np.float64]) -> int:
    """Count the decisions that no threshold of the score gives; rows within `ROUNDING` may be on either side."""
    taken = decision >= 0.5
    if taken.all() or not taken.any() or float(score[~taken].max()) <= float(score[taken].min()) + ROUNDING:
        return 0
    order = np.argsort(score, kind="stable")
    ranked, favorable = score[order], taken[order]
    wrong = np.concatenate([[0], np.cumsum(favorable)]) + np.concatenate([np.cumsum(~favorable[::-1])[::-1], [0]])
    first = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores are decided alike
    return int(np.where(first, wrong, len(ranked) + 1).min())
