"""What an auditor needs of a model: predictions for raw columns, whatever the model is made of."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from fairkit.data.task import choose_task
from fairkit.errors import FairkitError, ModelError, ParameterError
from fairkit.results.report import ModelInfo
from fairkit.support.lazy_dataclass import dataclass, fields, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.settings import ModelOptions


Columns = Mapping[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What a model says about n rows."""

    score: NDArray[np.float64] | None = None
    decision: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None
    predicted: NDArray[np.int64] | None = None
    logits: NDArray[np.float64] | None = None
    members: NDArray[np.float64] | None = None
    shares: NDArray[np.float64] | None = None

    def replaced(self, places: NDArray[np.int64], others: Predictions) -> Predictions:
        """Return these predictions with those of some rows, by their places, taken from others of the same model."""
        changed: dict[str, Any] = {}
        for name in ("score", "decision", "probabilities", "predicted", "logits", "members"):
            mine, theirs = getattr(self, name), getattr(others, name)
            if mine is not None and theirs is not None:
                changed[name] = np.array(mine)
                changed[name][places] = theirs
        return replace(self, **changed)

    def take(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> Predictions:
        """Return the predictions of the rows where `keep`, shape [n], is true, or of those with these numbers."""
        per_row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "shares"}
        return Predictions(
            **{name: None if values is None else values[keep] for name, values in per_row.items()}, shares=self.shares
        )


class Scorer(Protocol):
    """A model bound to a dataset: it knows which columns it reads and what its outputs mean."""

    info: ModelInfo  # name, digest, task, and what was guessed about the model, in sentences
    task: Task  # `binary`, `multiclass`, `regression` or `ranking`
    columns: tuple[str, ...]  # the raw columns that `predict` needs
    classes: tuple[Any, ...]  # multi-class: the label's values, in the order of probability columns; else empty

    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns, each of shape [n]."""
        ...


@dataclass
class Recorded:
    """A scorer whose predictions are all there is: nobody can be asked about other rows.

    Auditors get it in the place of a scorer that is `recorded`. Its columns are those that describe the people.
    """

    info: ModelInfo
    task: Task
    columns: tuple[str, ...]
    classes: tuple[Any, ...]

    recorded: bool = True

    @classmethod
    def of(cls, scorer: Scorer, dataset: Dataset) -> Scorer:
        """Return the scorer, or what stands for one that can only be read."""
        if not getattr(scorer, "recorded", False):
            return scorer
        columns = tuple(column for column in dataset.features if column not in scorer.columns)
        return cls(scorer.info, scorer.task, columns, scorer.classes)

    def predict(self, columns: Columns) -> Predictions:
        """Refuse."""
        raise ModelError(
            "this audit asks the model about rows that are not in the table, and no model was given: the predictions "
            "are columns of the table"
        )


class Model(Protocol):
    """Anything that can be bound to a dataset: an ONNX file, an object in memory, columns of scores."""

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Match inputs with columns and outputs with the label."""
        ...


class NotFiniteError(ModelError):
    """Scores that are NaN or infinite."""


def check_scores(values: NDArray[np.float64], what: str) -> None:
    """Refuse NaN and infinite scores."""
    bad = ~np.isfinite(values)
    if bad.any():
        rows = int(bad.reshape(len(bad), -1).any(axis=1).sum())
        raise NotFiniteError(
            f"the model gives NaN or infinite {what} for {rows} of {len(values)} rows in a batch; "
            "check for missing values in the features, or leave these rows out"
        )


# Scores on a scale of their own, such as 300 to 850 points: they rank rows, and are no probabilities.


OWN = {"scale": "own"}
"""What `ModelInfo.outputs` says of such scores."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A strictly increasing map from a scale to (0, 1), with the scale's centre at one half."""

    centre: float  # the median of some scores
    spread: float  # half the distance between their quartiles, above 0

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Return the map for scores such as these, shape [n]."""
        low, centre, high = np.quantile(values, [0.25, 0.5, 0.75])
        return cls(float(centre), float(max((high - low) / 2, 1e-3 * (1 + abs(centre)))))

    def squash(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (1 + d / (spread + |d|)) / 2 with d the distance from the centre, shape [n], in (0, 1)."""
        apart = values - self.centre
        return np.asarray(0.5 + 0.5 * apart / (self.spread + np.abs(apart)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The comparison that makes decisions from scores: the threshold is in the score's own unit.

    From the threshold on a score of the favorable outcome decides for the person, and up to it one of the other outcome
    does. Where nobody gave it, a score of the other outcome of exactly one half decides against the person, as the
    model itself does.
    """

    score: str  # the output or column
    kind: str = "probability"  # what it holds; logits are compared as probabilities
    threshold: float | None = None  # None: one half
    turned: bool = False  # whether low scores are favorable

    @property
    def value(self) -> float:
        """The threshold, in the score's unit."""
        usual = 50.0 if self.kind == "percent" else 0.5
        return usual if self.threshold is None else self.threshold

    @property
    def chance(self) -> float:
        """The same as a probability of the favorable outcome; of a scale of its own the threshold."""
        if self.kind == "value":
            return self.value
        chance = self.value / 100 if self.kind == "percent" else self.value
        return 1 - chance if self.turned else chance

    @property
    def rule(self) -> str:
        """The comparison as it runs: ``pd <= 0.2``."""
        score = f"1 / (1 + exp(-{self.score}))" if self.kind == "logit" else self.score
        sign = (">=" if not self.turned else "<" if self.threshold is None else "<=") + f" {self.value:g}"
        return f"{score} {sign}"

    def holds(self, scores: NDArray[np.floating[Any]], *, single: bool = False) -> NDArray[np.bool_]:
        """Return which rows are decided favorably, by scores in their unit, of logits by probabilities, shape [n].

        Scores in single precision meet the threshold in it.
        """
        value = float(np.float32(self.value)) if single else self.value
        if not self.turned:
            return np.asarray(scores >= value)
        return np.asarray(scores < value if self.threshold is None else scores <= value)

    def check(self) -> None:
        """Refuse a threshold that probabilities, logits or percentages cannot reach."""
        top = 100 if self.kind == "percent" else 1
        kind = {"percent": "percentages", "logit": "logits"}.get(self.kind, "probabilities")
        if self.threshold is not None and self.kind != "value" and not 0 <= self.threshold <= top:
            raise ParameterError(
                f"threshold={self.threshold:g} is not a probability, and the scores are read as {kind}; give a "
                f"threshold in [0, {top}], or say that the scores are on a scale of their own with `score_kind` value"
            )

    @property
    def record(self) -> dict[str, Any]:
        """What a report keeps of it."""
        return {"threshold": self.value, "rule": self.rule}


def is_own(outputs: Mapping[str, Any]) -> bool:
    """Return whether a model's scores (see `ModelInfo.outputs`) are on a scale of their own."""
    return outputs.get("scale") == "own"


def told_scale(name: str, low: float, high: float, *, turned: bool) -> str:
    """Say how scores on a scale of their own are read."""
    which = "lower is better for the person" if turned else "higher is better for the person"
    return (
        f"The scores {name!r}, from {low:.4g} to {high:.4g}, are on a scale of their own ({which}): they rank rows and "
        "meet a threshold in their own unit, and nothing that takes scores for probabilities is measured."
    )


# A model as a ranker: its score orders the items of a query.


def bound(model: Model, dataset: Dataset, options: ModelOptions) -> Scorer:
    """Bind a model to a dataset; where the rows are items of queries, as a ranker.

    A ranker is a regression of the relevance, or, where a favorable label is named, a classifier whose probability of
    it ranks the items.
    """
    try:
        return _bound(model, dataset, options)
    except FairkitError as error:
        unread = [why for why in dict.fromkeys(dataset.source.unread.values()) if why not in str(error)]
        if not unread:
            raise
        raise type(error)(f"{error}. Not read: {'; '.join(unread)}") from error


def _bound(model: Model, dataset: Dataset, options: ModelOptions) -> Scorer:
    if dataset.roles.query is None and options.task != "ranking":
        return model.bind(dataset, options)
    choose_task(dataset, options.task)
    options.refuse(["threshold", "decision_output"], "a ranking has no decisions")
    roles = dataclasses.replace(dataset.roles, query=None)
    ours = getattr(model, "settings", None) or {}
    numbers = roles.favorable is None or (ours.get("task") == "ranking" and ours.get("favorable") is not None)
    task: Task = "regression" if numbers else "binary"
    roles = dataclasses.replace(roles, features=dataset.features)  # the items' query is no feature
    if numbers:
        roles = dataclasses.replace(roles, label=None, favorable=None)
    return Ranker.of(model.bind(dataset.with_roles(roles), dataclasses.replace(options, task=task)))


@dataclass
class Ranker:
    """A scorer whose scores order items; see `fairkit.models.scorer.Scorer`."""

    inner: Scorer
    info: ModelInfo
    columns: tuple[str, ...]
    recorded: bool
    model: Any
    task: Task = "ranking"
    classes: tuple[Any, ...] = ()

    @classmethod
    def of(cls, inner: Scorer) -> Ranker:
        """Wrap a scorer."""
        info = dataclasses.replace(
            inner.info,
            task="ranking",
            outputs={key: inner.info.outputs.get(key) for key in ("score",)} if inner.info.outputs else {},
        )
        return cls(inner, info, inner.columns, bool(getattr(inner, "recorded", False)), getattr(inner, "model", None))

    def predict(self, columns: Columns) -> Predictions:
        """Score items; larger is nearer to the top."""
        said = self.inner.predict(columns)
        if said.score is None:
            raise ModelError(
                f"{self.info.name} gives no score, and a ranking is an order of scores; export the model with its "
                "scores, or name the output with `score_output`"
            )
        return Predictions(score=said.score, members=said.members, shares=said.shares)


# A table without any predictions: what auditors of data alone look at.


class NoPredictions:
    """No model and no predictions, bound to a dataset as if it were a model: it is its own scorer."""

    recorded = True
    task: Task = "table"
    columns: tuple[str, ...] = ()
    classes: tuple[Any, ...] = ()

    def __init__(self) -> None:
        reason = "Only the table was looked at: there is no model, and there are no predictions."
        self.info: ModelInfo = ModelInfo(name="no model", sha256=None, task="table", notes=(reason,))

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Refuse options about a model."""
        dataset.learn()
        options.refuse(
            ["score_output", "decision_output", "favorable_class", "classes", "rename", "threshold", "score_kind"],
            "only the table is looked at",
        )
        return self

    def predict(self, columns: Columns) -> Predictions:
        """Predict nothing."""
        return Predictions()


# Where models come from that are no ONNX file: servers, and whatever a plugin knows how to ask.


class ModelSource(ABC):
    """A kind of models that can be opened by what a certificate records about them.

    A plugin's ``fairkit_model_sources`` returns such classes. The models that a source opens have, besides ``bind``:
    ``name``, ``settings`` (what the model itself says about its audit; may be empty), ``external`` (files that its
    digest does not cover; empty), and ``record``, from which `open` makes the model again.

    Attributes
    ----------
    name
        Small letters, digits and hyphens; the key of the record in a certificate's settings.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, record: Mapping[str, Any]) -> Any:
        """Open a model.

        Parameters
        ----------
        record
            What a user or a certificate says: for a server ``url``, ``model``, ``version``, and limits of asking.

        Raises
        ------
        ModelError
            It cannot be reached, or a value cannot be used.
        """
