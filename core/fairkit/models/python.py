"""Estimators in memory as models: objects with ``predict`` and perhaps ``predict_proba``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.parts import frame_like
from fairkit.data.roles import example_of, require_columns, same_value, value_text
from fairkit.data.task import choose_task
from fairkit.errors import MissingExtraError, ModelError, ParameterError, did_you_mean
from fairkit.models.column_names import check_renamed
from fairkit.models.scorer import Columns, Cut, Predictions, check_scores
from fairkit.support.timings import phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit.results.report import ModelInfo
    from fairkit.settings import ModelOptions


FIRST_ROWS = 4_096


class PythonModel:
    """An object in memory with ``predict`` and perhaps ``predict_proba``, such as a scikit-learn pipeline.

    It is given the dataset's features as a data frame of the kind and types of `like`, or a float matrix if it was
    fitted on one.

    Parameters
    ----------
    estimator
        The object.
    name
        What reports call it; by default its class.
    like
        A data frame without rows, of pandas, polars or pyarrow; None: a pandas frame.
    """

    def __init__(self, estimator: Any, name: str | None = None, like: Any = None) -> None:
        if not hasattr(estimator, "predict"):
            raise ModelError(f"a {type(estimator).__name__} has no predict method; give an ONNX file or an estimator")
        self.estimator = estimator
        self.name = name or type(estimator).__name__
        self.like = like

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Match the estimator's classes with the label: by name, else by what the first rows say.

        Raises
        ------
        ModelError
            It cannot be told which class is which value of the label.
        """
        from fairkit.results.report import ModelInfo

        options = of_two_classes(options, dataset)
        classes = [value.item() if isinstance(value, np.generic) else value for value in self._classes()]
        task = choose_task(dataset, options.task, len(classes) or None)
        options.refuse(["score_output", "decision_output", "score_kind"], "an object in memory has no outputs")
        if task != "binary":
            options.refuse(["threshold", "favorable_class"], f"this is a {task} task")
        if task != "multiclass":
            options.refuse(["classes"], f"this is a {task} task; favorable_class says which class is favorable")
        info = ModelInfo(name=self.name, sha256=None, task=task, notes=("An object in memory: it has no digest.",))
        scorer = _PythonScorer(self, dataset, task, info, classes, options)
        scorer.settle(dataset)
        return scorer

    def _classes(self) -> Sequence[Any]:
        return getattr(self.estimator, "classes_", ())


class _PythonScorer:
    """`PythonModel` bound to a dataset."""

    def __init__(
        self,
        model: PythonModel,
        dataset: Dataset,
        task: Task,
        info: ModelInfo,
        classes: Sequence[Any],
        options: ModelOptions,
    ) -> None:
        estimator, self._like = model.estimator, model.like
        self.estimator, self.task, self.info, self.options = estimator, task, info, options
        self._names: dict[str, str] = {new: old for old, new in (options.rename or {}).items()}
        wanted = getattr(estimator, "feature_names_in_", None)
        self._inputs = list(dataset.features if wanted is None else (str(name) for name in wanted))
        self.columns = tuple(self._names.get(name, name) for name in self._inputs)
        check_renamed(options.rename, self._inputs, dataset.columns)
        require_columns(self.columns, dataset.columns, role="feature", table=dataset.name)
        self.classes: tuple[Any, ...] = ()
        self.told = options.favorable_class is not None or options.classes is not None
        self._known = list(classes)
        self._places: tuple[int, ...] = ()
        self._favorable: Any = dataset.roles.favorable
        self._place: int | None = options.favorable_class
        self._cut = None
        if options.threshold is not None:
            self._cut = Cut(score="P(favorable)", threshold=options.threshold)
            self._cut.check()
            self.info = replace(info, outputs=self._cut.record)

    def settle(self, dataset: Dataset) -> None:
        """Decide which class is which value of the label from the first rows."""
        if self.task == "regression":
            return
        batch = dataset.read(self.columns, FIRST_ROWS)
        predicted, proba = self._ask(batch.columns(self.columns))
        if proba is None:
            self.options.refuse(["threshold"], "the object gives no probabilities")
        if not self._known:
            self._known = _labels(predicted, self.task, type(self.estimator).__name__)
        names = [value_text(value) for value in self._known]
        texts = np.array([value_text(value) for value in predicted.tolist()])
        scores = proba
        if scores is None or scores.ndim != 2 or scores.shape[1] != len(names):
            scores = np.column_stack([texts == name for name in names]).astype(np.float64)
        notes: list[str] = []
        if self.task == "multiclass":
            notes = self._line_up(dataset, scores, batch)
        elif self._place is None:
            check_signs(self._known, dataset.profile.label_values)
            values = dataset.profile.label_values
            if len(names) == 1:
                self._place = 0 if same_value(self._known[0], self._favorable) else -1
            else:
                column = favorable_column(self._known, values, self._favorable, scores, batch.favorable)
                self._place, notes = column[0], [column[1]]
        elif not 0 <= self._place < len(names):
            raise ModelError(f"favorable_class={self._place}, but the model has {len(names)} classes, from 0")
        self.info = replace(self.info, notes=(*self.info.notes, *notes))

    def _line_up(self, dataset: Dataset, scores: NDArray[np.float64], batch: Batch) -> list[str]:
        values = dataset.profile.label_values
        if not values:
            self.classes = tuple(self.options.classes or self._known)
            self._places = tuple(range(len(self.classes)))
            return []
        labels = np.select([batch.label == value for value in values], list(range(len(values))), -1)
        self._places, notes = line_up(self._known, values, self.options.classes, scores, labels)
        self.classes = tuple(values[index] for index in self._places)
        rest = [value for index, value in enumerate(values) if index not in self._places]
        if rest:
            raise ModelError(
                f"the label has values that the model does not know: {', '.join(map(value_text, rest))}; leave those "
                "rows out"
            )
        return notes

    @phase("score")
    def predict(self, columns: Columns) -> Predictions:
        """Call predict and predict_proba."""
        predicted, proba = self._ask(columns)
        if self.task == "regression":
            values = predicted.astype(np.float64)
            check_scores(values, "predictions")
            return Predictions(score=values)
        if self.task == "multiclass":
            places = {value_text(value): i for i, value in enumerate(self._known)}
            index = np.array([places[value_text(value)] for value in predicted.tolist()], dtype=np.int64)
            return Predictions(probabilities=proba, predicted=index)
        return self._binary(predicted, proba)

    def _ask(self, columns: Columns) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        frame = self._frame(columns)
        predicted, rows = np.asarray(self.estimator.predict(frame)), len(next(iter(columns.values())))
        if predicted.size != rows:
            raise ModelError(
                f"{type(self.estimator).__name__} predicts {predicted.size // max(rows, 1)} targets for each row, and "
                "an audit is about one: name one, by an object whose predict gives that column alone"
            )
        predicted = predicted.reshape(rows)
        if self.task == "regression" or not hasattr(self.estimator, "predict_proba"):
            return predicted, None
        proba = np.asarray(self.estimator.predict_proba(frame), dtype=np.float64)
        if proba.ndim != 2 or len(proba) != rows:
            raise ModelError(
                f"the predict_proba of {type(self.estimator).__name__} has shape {proba.shape} for {rows:,} rows: it "
                "is one row of class probabilities for each, [rows, classes]"
            )
        check_scores(proba, "probabilities")
        return predicted, proba

    def _binary(self, predicted: NDArray[Any], proba: NDArray[np.float64] | None) -> Predictions:
        index = self._place
        assert index is not None  # noqa: S101 -- settled
        score = None if proba is None or index < 0 else proba[:, index]
        if self._cut is not None and score is not None:
            return Predictions(score=score, decision=self._cut.holds(score).astype(float))
        favorable = self._known[index] if index >= 0 else self._favorable
        decision = np.array([same_value(value, favorable) for value in predicted.tolist()], dtype=float)
        return Predictions(score=score, decision=decision)

    def _frame(self, columns: Columns) -> Any:
        table = {name: columns[column] for name, column in zip(self._inputs, self.columns, strict=True)}
        if isinstance(self._like, np.ndarray):  # a series of texts
            return next(iter(table.values()))
        named = hasattr(self.estimator, "feature_names_in_")
        if self._like is not None and (named or not took_a_matrix(self.estimator)):
            return frame_like(self._like, table)
        if named or any(values.dtype.kind == "O" for values in table.values()):
            try:
                import pandas as pd
            except ImportError as error:
                raise MissingExtraError("pandas", "pandas") from error
            return pd.DataFrame(table)
        return np.column_stack(list(table.values()))


def took_a_matrix(estimator: Any) -> bool:
    """Whether an estimator was fitted on a matrix: scikit-learn's then count the features without naming them."""
    return hasattr(estimator, "n_features_in_") and not hasattr(estimator, "feature_names_in_")


def _labels(predicted: NDArray[Any], task: Task, name: str) -> list[Any]:
    """Return the labels that a model without ``classes_`` gives, in order."""
    labels: list[Any] = np.unique(predicted.astype(str) if predicted.dtype.kind == "O" else predicted).tolist()
    numbers = any(isinstance(value, float) and not value.is_integer() for value in labels)
    if numbers or (task == "binary" and len(labels) > 2):
        raise ModelError(
            f"the {name}'s predict gives {len(labels)} different values, such as {value_text(labels[0])}, not labels: "
            "give an object whose predict gives labels and whose predict_proba gives their probabilities"
        )
    return labels


# Which of a model's classes is which value of the label: by name, by what the data says, and never by silence.


def favorable_column(
    classes: Sequence[Any],
    label_values: Sequence[Any],
    favorable: Any,
    scores: NDArray[np.float64],
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[int, str]:
    """Find which score column belongs to the favorable label.

    The classes that the model names decide; where they are numbers 0..K-1 and the label's values are not,
    the order of the label's values; where that could be read two ways, which column ranks the favorable
    rows higher.
    """
    if favorable is None:
        shown = " or ".join(repr(value_text(value)) for value in classes[:5])
        raise ModelError(
            f"which of the model's classes is good for the person, {shown}? There is no label: say so with "
            f"`favorable`, as in `favorable={example_of('', classes)}`"
        )
    named = [index for index, value in enumerate(classes) if same_value(value, favorable)]
    by_name = named[0] if len(named) == 1 and _same_kind(classes, label_values) else None
    if by_name is not None:
        return by_name, f"The model's class {value_text(classes[by_name])!r} is the favorable label."
    ordered = [i for i, value in enumerate(label_values) if same_value(value, favorable)]
    by_order = ordered[0] if ordered and len(label_values) == len(classes) else None
    if by_order is not None and (by_order == 1 or len(classes) > 2):
        against = is_favorable is not None and ranks_higher(scores[:, by_order], is_favorable) is False
        if against:
            raise ModelError(
                f"which of the model's classes {[value_text(c) for c in classes]} is the favorable label "
                f"{value_text(favorable)!r}? By the order of the label's values it is column {by_order}, but that "
                "one is higher for the other rows. Say which column it is, from 0, with `favorable_class`"
            )
        note = f"class {value_text(classes[by_order])} of the model stands for the favorable label {favorable!r}"
        return by_order, f"By the order of the label's values, {note} (`favorable_class` overrides)."
    if len(classes) == 2 and is_favorable is not None:
        return _by_ranking(classes, scores, is_favorable, favorable)
    raise ModelError(
        f"which of the model's classes {[value_text(c) for c in classes]} is the favorable label {favorable!r}? "
        "Say which column it is, from 0, with `favorable_class`"
    )


def _same_kind(classes: Sequence[Any], label_values: Sequence[Any]) -> bool:
    """Whether the model's classes are the label's values, or there is no label to compare with."""
    texts = {value_text(value) for value in classes}
    return not label_values or {value_text(value) for value in label_values} <= texts or _flags(texts, label_values)


def _flags(texts: set[str], label_values: Sequence[Any]) -> bool:
    return texts <= {"0", "1", "True", "False"} and all(isinstance(value, bool) for value in label_values)


def _by_ranking(
    classes: Sequence[Any], scores: NDArray[np.float64], is_favorable: NDArray[np.bool_], favorable: Any
) -> tuple[int, str]:
    """Choose the column that ranks favorable rows higher, if that is clear."""
    higher = ranks_higher(scores[:, 1], is_favorable)
    if higher is not None:
        index = int(higher)
        note = f"class {value_text(classes[index])} ranks the rows with label {favorable!r} higher"
        return (index, f"The model's {note} and is read as the favorable one (`favorable_class` overrides).")
    raise ModelError(
        f"which of the model's two classes is the favorable label {favorable!r}? "
        "Its scores do not tell; say which column it is with `favorable_class`, 0 or 1"
    )


def ranks_higher(scores: NDArray[np.float64], is_favorable: NDArray[np.bool_]) -> bool | None:
    """Tell whether favorable rows score higher: the area under the ROC curve is 4 standard errors from one half.

    None where it is not.
    """
    n1, n0 = int(is_favorable.sum()), int((~is_favorable).sum())
    if not n1 or not n0:
        return None
    area = roc_area(scores, is_favorable)
    error = np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return None if abs(area - 0.5) <= 4 * error else bool(area > 0.5)


def roc_area(scores: NDArray[np.float64], is_favorable: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve, ties counted half; there are rows of both labels."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n1, n0 = int(is_favorable.sum()), int((~is_favorable).sum())
    return float((ranks[is_favorable].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def check_signs(classes: Sequence[Any], label_values: Sequence[Any]) -> None:
    """Refuse labels -1 and 1 where the data has others: a 1 that means "usual" is no label 1."""
    texts = {value_text(value) for value in classes}
    known = [value_text(value) for value in label_values]
    if texts and texts <= {"-1", "1"} and "-1" in texts and not {"-1", "1"} <= set(known):
        raise ModelError(
            f"the model's labels are -1 and 1, and those of the data are {', '.join(known[:6]) or 'not there'}: a "
            "model that finds unusual rows (an IsolationForest, say) gives 1 to what is usual. Say which one stands "
            "for the favorable label with `favorable_class`: 0 for -1, 1 for 1"
        )


def line_up(
    classes: Sequence[Any],
    label_values: Sequence[Any],
    said: Sequence[str] | None,
    scores: NDArray[np.float64],
    labels: NDArray[np.int64] | None,
) -> tuple[tuple[int, ...], list[str]]:
    """Find the label's value of each of the model's classes.

    Names decide. Codes 0..K-1 are held against the data: a class's score must be higher for the rows with its own
    value than for those with any other class's value, in every pair of classes.
    """
    texts, names = [value_text(v) for v in label_values], [value_text(v) for v in classes]
    if said is not None:
        return _as_said(list(said), texts, names), []
    if set(names) <= set(texts):
        return tuple(texts.index(name) for name in names), []
    if len(names) != len(texts) or not _are_codes(names):
        unknown = next(name for name in names if name not in texts)
        hint = did_you_mean(unknown, texts, what="values of the label")
        raise ModelError(
            f"the model's class {unknown!r} is not among the label's values. {hint} Name the label's values in the "
            f"model's order with `classes` ({len(names)} of them: {', '.join(names[:8])})"
        )
    alphabetical = tuple(range(len(texts)))
    orders = list(dict.fromkeys([alphabetical, *_by_data(scores, labels)]))
    for places in orders:
        if labels is not None and _holds(places, scores, labels):
            return places, [_told(places, texts, labels, scores)]
    raise ModelError(
        f"which of the label's values {', '.join(texts[:8])} is which of the model's classes {names[0]} to "
        f"{names[-1]}? The data does not tell. Name the values in the model's order, class 0 first, with `classes` "
        f"(as in {','.join(texts[:4])}{',...' if len(texts) > 4 else ''})"
    )


def _are_codes(names: Sequence[str]) -> bool:
    return any(list(names) == [str(start + i) for i in range(len(names))] for start in (0, 1))


def _as_said(said: list[str], texts: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    if len(said) != len(names):
        raise ModelError(
            f"`classes` names {len(said)} values, and the model has {len(names)} classes ({', '.join(names[:8])})"
        )
    for name in said:
        if name not in texts:
            hint = did_you_mean(name, texts, what="values of the label")
            raise ModelError(f"`classes` names {name!r}, which the label never has. {hint}")
    if len(set(said)) != len(said):
        raise ModelError(f"`classes` names {max(said, key=said.count)!r} twice")
    return tuple(texts.index(name) for name in said)


def _by_data(scores: NDArray[np.float64], labels: NDArray[np.int64] | None) -> list[tuple[int, ...]]:
    """Return the mapping in which each class goes to the value whose rows score highest in it, if it is one to one."""
    if labels is None:
        return []
    counts = np.bincount(labels, minlength=scores.shape[1]).astype(float)
    if (counts == 0).any():
        return []
    sums = np.zeros((scores.shape[1], scores.shape[1]))
    np.add.at(sums, labels, scores)
    places = (sums / counts[:, None]).argmax(axis=0)
    return [tuple(int(index) for index in places)] if len(set(places.tolist())) == len(places) else []


def _holds(places: Sequence[int], scores: NDArray[np.float64], labels: NDArray[np.int64]) -> bool:
    """Whether every pair of classes tells the rows of their two values apart, the right way round."""
    for index in range(len(places)):
        for second in range(index + 1, len(places)):
            rows = (labels == places[index]) | (labels == places[second])
            difference = scores[rows, index] - scores[rows, second]
            if ranks_higher(difference, labels[rows] == places[index]) is not True:
                return False
    return True


def _told(places: Sequence[int], texts: Sequence[str], labels: NDArray[np.int64], scores: NDArray[np.float64]) -> str:
    agree = float((np.asarray(places)[scores.argmax(axis=1)] == labels).mean())
    shown = ", ".join(texts[index] for index in places)
    order = "the label's own order" if list(places) == sorted(places) else "not the label's own order"
    return (
        f"The model's classes 0 to {len(texts) - 1} are read as {shown} ({order}): so they agree with {agree:.1%} "
        "of the first rows (`classes` names another order)."
    )


def of_two_classes(options: ModelOptions, dataset: Dataset) -> ModelOptions:
    """Return the options with `favorable_class` in place of the two classes of a binary task."""
    label = dataset.roles.favorable
    if options.classes is None or len(options.classes) != 2 or label is None:
        return options
    if options.task not in (None, "binary"):
        return options
    if options.favorable_class is not None:
        raise ParameterError("`classes` says which class is favorable; leave `favorable_class` out")
    places = [index for index, value in enumerate(options.classes) if value == value_text(label)]
    if not places:
        raise ParameterError(
            f"the favorable label {value_text(label)!r} is not among the classes {' and '.join(options.classes)}; name "
            "the label's values by `classes`, class 0 first"
        )
    return replace(options, classes=None, favorable_class=places[0])
