"""What an auditor needs of a model: predictions for raw columns, whatever the model is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.results.subjects import ModelInfo
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
