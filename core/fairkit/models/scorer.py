"""What an auditor needs of a model: predictions for raw columns, whatever the model is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from fairkit.data.roles import same_value, value_text
from fairkit.data.task import Task, choose_task
from fairkit.errors import MissingExtraError, ModelError, ParameterError
from fairkit.timings import phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.results.findings import ModelInfo

ScoreKind = Literal["probability", "logit", "label", "value"]
Columns = Mapping[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the user says about a model where guessing is not enough; None stands for a guess.

    Attributes
    ----------
    task
        ``binary``, ``multiclass`` or ``regression``.
    score_output
        The name of the model's output that holds scores.
    decision_output
        The name of the model's output that holds decisions: the one that is served.
    score_kind
        What that output holds: ``probability``, ``logit``, ``label`` or ``value``.
    favorable_class
        Which column of the scores, from 0, belongs to the favorable label.
    threshold
        The probability from which the decision is favorable; by default the model's own label output,
        or 0.5 where it has none.
    """

    task: Task | None = None
    score_output: str | None = None
    decision_output: str | None = None
    score_kind: ScoreKind | None = None
    favorable_class: int | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ParameterError(f"threshold={self.threshold} is not a probability; it lies in [0, 1]")
        if self.threshold is not None and self.decision_output is not None:
            raise ParameterError(
                f"decisions come from the output {self.decision_output!r} or from scores of at least "
                f"{self.threshold}, not from both; leave out decision_output or threshold"
            )
        for name, allowed in (("task", Task), ("score_kind", ScoreKind)):
            value = getattr(self, name)
            choices = allowed.__args__  # type: ignore[attr-defined]
            if value is not None and value not in choices:
                raise ParameterError(f"{name}={value!r} is not understood; it is one of {', '.join(choices)}")

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Refuse options that mean nothing for a model: none is silently ignored.

        Raises
        ------
        ParameterError
            One of them was given.
        """
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise ParameterError(
                f"{given[0]}={getattr(self, given[0])!r} means nothing here: {why}; leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What a model says about n rows.

    Attributes
    ----------
    score
        Binary: the probability of the favorable label, in [0, 1]. Regression: the predicted value.
        Shape [n]; None where the model gives labels only.
    decision
        Binary: the probability that the decision is favorable, in [0, 1]; 0 or 1 for a deterministic model.
        Shape [n]; None in multi-class and regression.
    probabilities
        Multi-class: shape [n, K], one column for each of the scorer's classes; None without scores.
    predicted
        Multi-class: the predicted class as an index into the scorer's classes, shape [n].
    logits
        The raw outputs before the link where the model gives them, shape [n] or [n, K].
    members, shares
        Where each row's score is drawn from the predictions of K members: those, shape [n, K], and the
        chances, shape [K]; `score` is then their mean.
    """

    score: NDArray[np.float64] | None = None
    decision: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None
    predicted: NDArray[np.int64] | None = None
    logits: NDArray[np.float64] | None = None
    members: NDArray[np.float64] | None = None
    shares: NDArray[np.float64] | None = None

    def replaced(self, places: NDArray[np.int64], others: Predictions) -> Predictions:
        """Return these predictions with those of some rows, by their places, taken from others of the same model."""
        changed: dict[str, NDArray[Any]] = {}
        for name in ("score", "decision", "probabilities", "predicted", "logits", "members"):
            mine, theirs = getattr(self, name), getattr(others, name)
            if mine is not None and theirs is not None:
                changed[name] = np.array(mine)
                changed[name][places] = theirs
        return replace(self, **changed)

    def take(self, keep: NDArray[np.bool_]) -> Predictions:
        """Return what is said about the rows where `keep`, shape [n], is true."""
        per_row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "shares"}
        return Predictions(
            **{name: None if values is None else values[keep] for name, values in per_row.items()},
            shares=self.shares,
        )


class Scorer(Protocol):
    """A model bound to a dataset: it knows which columns it reads and what its outputs mean.

    Attributes
    ----------
    info
        Name, digest, task, and what was guessed about the model, in sentences.
    task
        ``binary``, ``multiclass`` or ``regression``.
    columns
        The raw columns that `predict` needs.
    classes
        Multi-class: the label's values, in the order of probability columns; else empty.
    """

    info: ModelInfo
    task: Task
    columns: tuple[str, ...]
    classes: tuple[Any, ...]

    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns, each of shape [n]."""
        ...


class Model(Protocol):
    """Anything that can be bound to a dataset: an ONNX file, an object in memory, columns of scores."""

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Match inputs with columns and outputs with the label."""
        ...


def check_scores(values: NDArray[np.float64], what: str) -> None:
    """Refuse NaN and infinite scores.

    Raises
    ------
    ModelError
        The message counts them.
    """
    bad = ~np.isfinite(values)
    if bad.any():
        rows = int(bad.reshape(len(bad), -1).any(axis=1).sum())
        raise ModelError(
            f"the model gives NaN or infinite {what} for {rows} of {len(values)} rows in a batch; "
            "check for missing values in the features, or leave these rows out"
        )


class PredictedColumns:
    """A model whose decisions or scores already stand in the table: COMPAS's deciles, a vendor's scores.

    Parameters
    ----------
    decision
        Column with the decision: the favorable value or another one of the label's values, or 1 or 0. Where
        the favorable value is 0, so is the favorable decision.
    score
        Column with the probability of the favorable label (binary) or the predicted value (regression).
    decision_probability
        Column with the chance of the favorable decision, for randomized decisions.
    threshold
        Makes decisions from scores where there is no decision column.
    favorable
        The favorable value of the decision column; by default the label's.
    """

    def __init__(
        self,
        decision: str | None = None,
        score: str | None = None,
        *,
        decision_probability: str | None = None,
        threshold: float | None = None,
        favorable: Any = None,
    ) -> None:
        if decision is None and score is None and decision_probability is None:
            raise ParameterError("name a column of decisions or of scores")
        if decision is not None and decision_probability is not None:
            raise ParameterError("name a column of decisions or of decision probabilities, not both")
        self.decision, self.score, self.threshold = decision, score, threshold
        self.decision_probability = decision_probability
        self.favorable = favorable

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Check the columns and tell the task."""
        from fairkit.data.roles import require_columns
        from fairkit.results.findings import ModelInfo

        told = ["score_output", "decision_output", "score_kind", "favorable_class", "threshold"]
        options.refuse(told, "predictions are read from columns, which PredictedColumns names")
        named = [self.decision, self.score, self.decision_probability]
        require_columns(named, dataset.columns, role="prediction", table=dataset.name)
        task = choose_task(dataset, options.task, 1)
        if task == "multiclass":
            raise ModelError(
                "columns of predictions serve binary and regression tasks; give a favorable value"
            )
        name = " and ".join(column for column in named if column)
        return _ColumnScorer(self, dataset, task, ModelInfo(name=f"columns {name}", sha256=None, task=task))


class _ColumnScorer:
    """`PredictedColumns` bound to a dataset."""

    def __init__(self, model: PredictedColumns, dataset: Dataset, task: Task, info: ModelInfo) -> None:
        self.model, self.task, self.info = model, task, info
        self.favorable = dataset.roles.favorable if model.favorable is None else model.favorable
        self._known = [self.favorable, *dataset.profile.label_values]
        named = (model.decision, model.score, model.decision_probability)
        self.columns = tuple(column for column in named if column is not None)
        self.classes: tuple[Any, ...] = ()

    def predict(self, columns: Columns) -> Predictions:
        """Read the predictions off the columns."""
        score = None if self.model.score is None else _numbers(columns[self.model.score], self.model.score)
        if self.task == "regression":
            return Predictions(score=score)
        if score is not None and (score.min() < 0 or score.max() > 1):
            raise ModelError(f"the score column {self.model.score!r} leaves [0, 1]; give probabilities")
        if self.model.decision_probability is not None:
            name = self.model.decision_probability
            chance = _numbers(columns[name], name)
            if chance.min() < 0 or chance.max() > 1:
                raise ModelError(f"the column {name!r} leaves [0, 1]; decision probabilities do not")
            return Predictions(score=score, decision=chance)
        if self.model.decision is not None:
            return Predictions(score=score, decision=self._decisions(columns[self.model.decision]))
        assert score is not None  # noqa: S101 -- one of the three is given
        threshold = 0.5 if self.model.threshold is None else self.model.threshold
        return Predictions(score=score, decision=(score >= threshold).astype(float))

    def _decisions(self, values: NDArray[Any]) -> NDArray[np.float64]:
        column = str(self.model.decision)
        if values.dtype.kind != "O":
            values = _numbers(values, column)
            flags = bool(((values == 0) | (values == 1)).all())
            if flags and not same_value(self.favorable, 0):
                return values
            if bool((values != np.round(values)).any()):
                raise ModelError(
                    f"the decision column {column!r} holds fractions; are they scores? Then name it as the "
                    "score (a threshold makes decisions), or as decision_probability if decisions are drawn"
                )
        favorable = {value: self._is_favorable(value, column) for value in set(values.tolist())}
        return np.array([favorable[value] for value in values.tolist()], dtype=float)

    def _is_favorable(self, value: Any, column: str) -> bool:
        if self.model.favorable is None and not any(same_value(value, known) for known in self._known):
            shown = ", ".join(dict.fromkeys(repr(value_text(known)) for known in self._known))
            raise ModelError(
                f"the decision column {column!r} holds {value_text(value)!r}, which is not one of the label's "
                f"values ({shown}); say which of its own values is the favorable one: "
                "PredictedColumns(..., favorable=...)"
            )
        return same_value(value, self.favorable)


def _numbers(values: NDArray[Any], column: str) -> NDArray[np.float64]:
    if values.dtype.kind == "O":
        raise ModelError(f"the score column {column!r} holds text; scores are numbers")
    numbers = values.astype(np.float64)
    check_scores(numbers, "scores")
    return numbers


class PythonModel:
    """An object in memory with ``predict`` and perhaps ``predict_proba``, such as a scikit-learn pipeline.

    It is given a pandas data frame of the dataset's features, or a float matrix if it was fitted on one.
    """

    def __init__(self, estimator: Any, name: str | None = None) -> None:
        if not hasattr(estimator, "predict"):
            raise ModelError(
                f"a {type(estimator).__name__} has no predict method; give an ONNX file or an estimator"
            )
        self.estimator = estimator
        self.name = name or type(estimator).__name__

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Match the estimator's classes with the label."""
        from fairkit.results.findings import ModelInfo

        classes = [value.item() if isinstance(value, np.generic) else value for value in self._classes()]
        task = choose_task(dataset, options.task, len(classes) or None)
        options.refuse(
            ["score_output", "decision_output", "score_kind"], "an object in memory has no outputs"
        )
        if task != "binary":
            options.refuse(["threshold", "favorable_class"], f"this is a {task} task")
        info = ModelInfo(
            name=self.name, sha256=None, task=task, notes=("An object in memory: it has no digest.",)
        )
        return _PythonScorer(self.estimator, dataset, task, info, classes, options)

    def _classes(self) -> Sequence[Any]:
        classes: Sequence[Any] = getattr(self.estimator, "classes_", ())
        return classes


class _PythonScorer:
    """`PythonModel` bound to a dataset."""

    def __init__(
        self,
        estimator: Any,
        dataset: Dataset,
        task: Task,
        info: ModelInfo,
        classes: Sequence[Any],
        options: ModelOptions,
    ) -> None:
        self.estimator, self.task, self.info, self.options = estimator, task, info, options
        wanted = getattr(estimator, "feature_names_in_", None)
        self.columns = tuple(dataset.features if wanted is None else (str(name) for name in wanted))
        self.classes = tuple(classes) if task == "multiclass" else ()
        self._known = list(classes)
        self._favorable = dataset.roles.favorable

    @phase("score")
    def predict(self, columns: Columns) -> Predictions:
        """Call predict and predict_proba."""
        frame = self._frame(columns)
        predicted = np.asarray(self.estimator.predict(frame)).reshape(len(next(iter(columns.values()))))
        if self.task == "regression":
            values = predicted.astype(np.float64)
            check_scores(values, "predictions")
            return Predictions(score=values)
        proba = None
        if hasattr(self.estimator, "predict_proba"):
            proba = np.asarray(self.estimator.predict_proba(frame), dtype=np.float64)
            check_scores(proba, "probabilities")
        if self.task == "multiclass":
            places = {value_text(value): i for i, value in enumerate(self.classes)}
            index = np.array([places[value_text(value)] for value in predicted.tolist()], dtype=np.int64)
            return Predictions(probabilities=proba, predicted=index)
        return self._binary(predicted, proba)

    def _binary(self, predicted: NDArray[Any], proba: NDArray[np.float64] | None) -> Predictions:
        place = self._favorable_place()
        score = None if proba is None else proba[:, place]
        if self.options.threshold is not None and score is not None:
            return Predictions(score=score, decision=(score >= self.options.threshold).astype(float))
        favorable = self._known[place] if self._known else self._favorable
        decision = np.array([same_value(value, favorable) for value in predicted.tolist()], dtype=float)
        return Predictions(score=score, decision=decision)

    def _favorable_place(self) -> int:
        if self.options.favorable_class is not None:
            return self.options.favorable_class
        for place, value in enumerate(self._known):
            if same_value(value, self._favorable):
                return place
        if len(self._known) in (0, 2):
            return 1
        raise ModelError(
            f"none of the model's classes {self._known} is the favorable value {self._favorable!r}; "
            "say which column it is with favorable_class"
        )

    def _frame(self, columns: Columns) -> Any:
        table = {name: columns[name] for name in self.columns}
        named = hasattr(self.estimator, "feature_names_in_")
        if named or any(values.dtype.kind == "O" for values in table.values()):
            try:
                import pandas as pd
            except ImportError as error:
                raise MissingExtraError("pandas", "pandas") from error
            return pd.DataFrame(table)
        return np.column_stack(list(table.values()))
