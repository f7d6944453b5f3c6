"""Deciding what a graph's outputs mean on a dataset, from its first batch, and saying what was guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.data.task import Task, choose_task
from fairkit.errors import ModelError
from fairkit.models.classes import check_signs, favorable_column, line_up, ranks_higher
from fairkit.models.scorer import check_scores
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read import safety
from fairkit_onnx.read.logits import check_logits
from fairkit_onnx.read.pairing import classes_by_labels
from fairkit_onnx.read.served import Served, choose_served, is_ours

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.settings import ModelOptions
    from fairkit_onnx.read.graph import Graph

_RANDOMIZED = "A randomized model: its decision probabilities are audited, exactly, not draws from them."


def settle(
    model: Graph,
    found: Sequence[reading.GraphOutput],
    first: Mapping[str, Any],
    dataset: Dataset,
    options: ModelOptions,
    batch: Batch,
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Decide what the outputs mean from the first batch.

    Returns
    -------
    Reading, tuple, list of str
        How to read the outputs; multi-class: the label's values; sentences about what was guessed.
    """
    served = choose_served(model, found, first, options)
    score, label = served.score, served.label
    if score is None and label is None and served.chance is None:
        raise ModelError(f"{model.name} has no output that a prediction could be read from: {sorted(first)}")
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
        return _ours(settled, model, dataset, options, first)
    told = [] if told_kind is None else [told_kind]
    classes = _model_classes(model, score, label, first, dataset.profile.label_values)
    if task == "regression":
        return _regression(settled, model), (), told
    if task == "multiclass":
        evidence = values if values is not None else _one_hot(label, first, classes)
        settled, order, more = _multiclass(settled, classes, dataset, options, evidence, batch)
        return settled, order, told + more
    favorable = batch.favorable
    if options.favorable_class is None:
        check_signs(classes, dataset.profile.label_values)
    marked = None if label is None or score is not None else _marked(label, first, classes[-1])
    settled, more = _binary(settled, classes, dataset, options, values, marked, favorable)
    if told_kind is not None and kind == "logit" and values is not None and settled.cut is not None:
        assert score is not None  # noqa: S101 -- values are a score's
        check_logits(values, settled.place, favorable, model.proto.graph, score.name)
    return settled, (), told + more


def _one_hot(
    label: reading.GraphOutput | None, first: Mapping[str, Any], classes: Sequence[Any]
) -> NDArray[np.float64]:
    """Return 1 where the label output gives the class, shape [n, K]."""
    assert label is not None  # noqa: S101 -- a reading has scores or labels
    given = np.array([value_text(value) for value in reading.as_matrix(label, first[label.name]).tolist()])
    return np.column_stack([given == value_text(value) for value in classes]).astype(np.float64)


def _refuse_unused(options: ModelOptions, task: Task, served: Served) -> None:
    """Refuse options that would be ignored."""
    if task != "binary":
        options.refuse(["threshold", "favorable_class"], f"this is a {task} task")
    if task != "multiclass":
        options.refuse(["classes"], f"this is a {task} task; favorable_class says which class is favorable")
    if task == "regression":
        options.refuse(
            ["decision_output"], "a regression has no decisions; name the output with `score_output`"
        )
    if served.score is None:
        options.refuse(["threshold", "score_kind"], "the model gives no scores")


def _is_ours(
    model: Graph,
    score: reading.GraphOutput | None,
    label: reading.GraphOutput | None,
    options: ModelOptions,
) -> bool:
    """Whether the score of a model of ours is read with a threshold of the user's."""
    ours = is_ours(model.proto) and options.threshold is not None and label is None
    return ours and score is not None and score.name == reading.SCORE and score.width == 1


def _ours(
    settled: reading.Reading,
    model: Graph,
    dataset: Dataset,
    options: ModelOptions,
    first: Mapping[str, Any],
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Read a file of ours: the score and the decision are about the label that its metadata calls favorable."""
    told = []
    if settled.chance is not None:
        chance = np.asarray(first[settled.chance.name])
        told = [_RANDOMIZED] if bool(((chance > 0) & (chance < 1)).any()) else []
    place, turned = _own_place(model, dataset, options)
    return replace(settled, place=place, positive=place), (), told + turned


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
    told = f"The model decides for {value_text(theirs)!r} and is turned to the favorable label {value_text(ours)!r}"
    return 0, [f"{told} (`favorable_class=1` leaves it as it is)."]


def _model_classes(
    model: Graph,
    score: reading.GraphOutput | None,
    label: reading.GraphOutput | None,
    first: Mapping[str, Any],
    known: Sequence[Any],
) -> list[Any]:
    """The model's class labels: from a ZipMap, from the graph's classifier, from its labels, else 0..K-1."""
    if score is not None and score.shape == "map":
        return list(first[score.name][0])
    named = safety.class_labels(model.proto)
    width = None if score is None else score.width
    if named and width in (None, 1, len(named)):
        return named
    if width is not None and width > 1:
        told = None
        if label is not None and score is not None:
            labels = reading.as_matrix(label, first[label.name])
            told = classes_by_labels(reading.as_matrix(score, first[score.name]), labels, known)
        return list(range(width)) if told is None else told
    if label is not None:
        values = np.unique(reading.as_matrix(label, first[label.name]).astype(str)).tolist()
        kind = np.asarray(first[label.name]).dtype.kind
        return (
            [int(v) for v in values]
            if kind in "iu"
            else [v == "True" for v in values]
            if kind == "b"
            else values
        )
    return [0, 1]


def _regression(settled: reading.Reading, model: Graph) -> reading.Reading:
    if settled.score is None and settled.label is None:
        raise ModelError(f"{model.name} gives no number to audit")
    if settled.score is not None and settled.score.width != 1:
        raise ModelError(
            f"{model.name} gives {settled.score.width} numbers a row, but the label is a regression target; "
            "name the output with `score_output`, or the task with `task`"
        )
    return settled


def _binary(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    values: NDArray[np.float64] | None,
    labels: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[reading.Reading, list[str]]:
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    if values is None or values.ndim == 1:
        return _single(
            settled, classes, dataset, options, values if values is not None else labels, is_favorable
        )
    if options.favorable_class is not None:
        place, told = options.favorable_class, []
        if not 0 <= place < values.shape[1]:
            raise ModelError(
                f"favorable_class={place}, but the model scores {values.shape[1]} classes, from 0"
            )
    else:
        found, sentence = favorable_column(classes, label_values, favorable, values, is_favorable)
        place, told = found, [sentence]
    return replace(settled, place=place, positive=_label_for(settled, classes, place)), told


def _single(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    evidence: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[reading.Reading, list[str]]:
    """A bare score, logit or label: the model's labels decide, else convention and ranking."""
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    told: list[str] = []
    named = [i for i, value in enumerate(classes) if same_value(value, favorable)]
    theirs = {value_text(value) for value in classes} & {value_text(value) for value in label_values}
    positive = None
    if options.favorable_class is not None:
        place = options.favorable_class
        if place not in (0, 1):
            raise ModelError(f"favorable_class={place}, but the model has two classes, 0 and 1")
    elif settled.label is not None and theirs:
        place = named[0] if named else 1
        positive = None if named else favorable  # the first rows were all given the other label
    else:
        place, told = _bare(settled, label_values, favorable, evidence, is_favorable)
    if positive is None and len(classes) > place:
        positive = classes[place]
    if settled.score is None and positive is None:
        raise ModelError(
            f"the model's labels {classes} do not tell which is the favorable label {favorable!r}; "
            "relabel the data as the model was trained, or say `favorable_class`"
        )
    label = settled.label if positive is not None else None
    return replace(settled, place=place, positive=positive, label=label), told


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
    what = "label" if settled.score is None else "score"
    if len(label_values) != 2 or same_value(label_values[1], favorable):
        if (
            evidence is not None
            and is_favorable is not None
            and ranks_higher(evidence, is_favorable) is False
        ):
            raise ModelError(
                f"the model's {what} is lower for the rows with the favorable label {value_text(favorable)!r}: is it "
                "about the other label? Say so with `favorable_class`: 0 if it is, 1 if it is about the favorable one"
            )
        told = f"The model's {what} is read as that of the favorable label (`favorable_class=0` reverses it)."
        return 1, [told]
    higher = None
    if evidence is not None and is_favorable is not None:
        higher = ranks_higher(evidence, is_favorable)
    other = value_text(label_values[1])
    if higher is None and not same_value(label_values[1], 1):
        higher = True
    if higher:
        told = f"The model's {what} is read as that of the favorable label {favorable!r}, not of {other!r}"
        return 1, [f"{told} (`favorable_class=0` reverses it)."]
    told = f"The model's {what} is read as that of {other!r} and turned to the favorable label {favorable!r}"
    return 0, [f"{told} (`favorable_class=1` leaves it as it is)."]


def _marked(label: reading.GraphOutput, first: Mapping[str, Any], value: Any) -> NDArray[np.float64] | None:
    """Which rows of the first batch the model gives the label; None where the kinds differ."""
    labels = reading.as_matrix(label, first[label.name])
    if labels.dtype.kind != "O" and isinstance(value, str):
        return None
    return reading.equals(labels, value)


def _label_for(settled: reading.Reading, classes: list[Any], place: int) -> Any:
    return None if settled.label is None else classes[place]


def _multiclass(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    evidence: NDArray[np.float64],
    batch: Batch,
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Line the model's classes up with the label's values."""
    known = dataset.profile.label_values
    label_values = list(known or options.classes or classes)
    texts = [value_text(value) for value in label_values]
    labels = None
    if batch.label is not None:
        labels = np.select([batch.label == value for value in known], list(range(len(known))), -1)
    said = options.classes
    if not known and said is None:
        places, told = tuple(range(len(texts))), list[str]()
    else:
        places, told = line_up(classes, label_values, said, evidence, labels)
    if settled.score is not None and len(places) != len(texts):
        absent = ", ".join(text for i, text in enumerate(texts) if i not in places)
        raise ModelError(
            f"the label has values that the model does not score: {absent}; leave those rows out"
        )
    index = {value_text(value): place for value, place in zip(classes, places, strict=True)}
    return replace(settled, class_places=places, label_index=index), tuple(label_values), told
