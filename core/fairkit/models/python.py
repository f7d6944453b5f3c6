"""Estimators in memory as models: objects with ``predict`` and perhaps ``predict_proba``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.frames import frame_like
from fairkit.data.roles import require_columns, same_value, value_text
from fairkit.data.task import choose_task
from fairkit.errors import MissingExtraError, ModelError
from fairkit.models.classes import check_signs, favorable_column, line_up, of_two_classes
from fairkit.models.renamed import check_renamed
from fairkit.models.scale import Cut
from fairkit.models.scorer import Columns, Predictions, check_scores
from fairkit.support.timings import phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit.results.subjects import ModelInfo
    from fairkit.settings import ModelOptions

_FIRST_ROWS = 4_096


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
        from fairkit.results.subjects import ModelInfo

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
        batch = dataset.read(self.columns, _FIRST_ROWS)
        predicted, proba = self._ask(batch.columns(self.columns))
        if proba is None:
            self.options.refuse(["threshold"], "the object gives no probabilities")
        if not self._known:
            self._known = _labels(predicted, self.task, type(self.estimator).__name__)
        names = [value_text(value) for value in self._known]
        given = np.array([value_text(value) for value in predicted.tolist()])
        scores = proba
        if scores is None or scores.ndim != 2 or scores.shape[1] != len(names):
            scores = np.column_stack([given == name for name in names]).astype(np.float64)
        notes: list[str] = []
        if self.task == "multiclass":
            notes = self._line_up(dataset, scores, batch)
        elif self._place is None:
            check_signs(self._known, dataset.profile.label_values)
            values = dataset.profile.label_values
            if len(names) == 1:
                self._place = 0 if same_value(self._known[0], self._favorable) else -1
            else:
                found = favorable_column(self._known, values, self._favorable, scores, batch.favorable)
                self._place, notes = found[0], [found[1]]
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
        self.classes = tuple(values[place] for place in self._places)
        rest = [value for place, value in enumerate(values) if place not in self._places]
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
        place = self._place
        assert place is not None  # noqa: S101 -- settled
        score = None if proba is None or place < 0 else proba[:, place]
        if self._cut is not None and score is not None:
            return Predictions(score=score, decision=self._cut.holds(score).astype(float))
        favorable = self._known[place] if place >= 0 else self._favorable
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
