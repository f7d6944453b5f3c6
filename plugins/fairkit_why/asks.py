"""The model on hybrid rows: through its own encoders, or, where these are understood, on features made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.models.scorer import Predictions
from fairkit_onnx.read.scorer import OnnxScorer
from fairkit_onnx.structure.class_scores import read_class_score
from fairkit_onnx.structure.linear import read_linear
from fairkit_onnx.structure.trees import read_trees

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit_onnx.structure.encoded import Encoded
    from fairkit_onnx.structure.linear import LinearModel
    from fairkit_onnx.structure.trees import TreeModel

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Columns = Mapping[str, NDArray[Any]]


def sources_of(model: Encoded, columns: Columns) -> list[str | None]:
    """Return the raw column behind each feature of a model; None: a constant of these rows."""
    finite = all(np.isfinite(values).all() for values in columns.values() if values.dtype.kind == "f")
    return model.sources({name: values[:3] for name, values in columns.items()}, finite=finite).source


class OneClass:
    """A model of several classes as one of two: a class, and all others."""

    task: Task = "binary"
    classes: tuple[Any, ...] = ()

    def __init__(self, scorer: Scorer, index: int) -> None:
        self.scorer, self.index = scorer, index
        self.info, self.columns = scorer.info, scorer.columns
        self.recorded = bool(getattr(scorer, "recorded", False))

    def predict(self, columns: Columns) -> Predictions:
        """Return the class's probabilities, and whether it is the one that is predicted."""
        return self.of(self.scorer.predict(columns))

    def of(self, predictions: Predictions) -> Predictions:
        """Return what predictions of all classes say about this one."""
        chances, code = predictions.probabilities, predictions.predicted
        return Predictions(
            score=None if chances is None else chances[:, self.index],
            decision=None if code is None else (code == self.index).astype(np.float64),
        )


def structure_of(scorer: Scorer, rows: Columns) -> TreeModel | LinearModel | None:
    """Return the trees or the linear sum behind a score; None where the model is no file, or has neither."""
    if isinstance(scorer, OneClass):
        inner = scorer.scorer
        return read_class_score(inner, scorer.index, rows) if isinstance(inner, OnnxScorer) else None
    return (read_trees(scorer) or read_linear(scorer)) if isinstance(scorer, OnnxScorer) else None


def values_of(predictions: Predictions, of: str) -> Array:
    """Return decisions, or scores."""
    return np.asarray(predictions.decision if of == "decision" else predictions.score, dtype=np.float64)


class RowAsks:
    """Two groups' raw rows."""

    def __init__(self, scorer: Scorer, of: str, columns: Columns, players: Sequence[Sequence[str]]) -> None:
        self._scorer, self._of = scorer, of
        self._columns, self._players = columns, players
        self._owner = {name: place for place, names in enumerate(players) for name in names}
        self._codes = {name: _codes(values) for name, values in columns.items()}

    def differ(self, x: Ints, z: Ints) -> NDArray[np.bool_]:
        """See `fairkit_why.walks.Asks.differ`."""
        out = np.zeros((len(x), len(self._players)), dtype=np.bool_)
        for name, codes in self._codes.items():
            out[:, self._owner[name]] |= codes[x] != codes[z]
        return out

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """See `fairkit_why.walks.Asks.mixed`."""
        rows = {name: values[np.where(from_x[:, self._owner[name]], x, z)] for name, values in self._columns.items()}
        return values_of(self._scorer.predict(rows), self._of)


class FeatureAsks(RowAsks):
    """Rows whose features were made once: what follows them is run on hybrids of the features."""

    def __init__(self, model: Encoded, *rest: Any) -> None:
        super().__init__(*rest)
        self._of_class = self._scorer.of if isinstance(self._scorer, OneClass) else None
        encode = model.encoding(doubles=True)
        first = next(iter(self._columns.values()))
        parts = [
            encode({name: values[start : start + 65_536] for name, values in self._columns.items()})
            for start in range(0, len(first), 65_536)
        ]
        self._features = np.concatenate(parts)
        owner = [-1 if name is None else self._owner[name] for name in sources_of(model, self._columns)]
        self._feature_owner = np.array(owner)[: self._features.shape[1]]
        self._reading = model.scorer.reading
        self._matrix = model.matrix
        self._file = model.rest(self._features)

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """See `fairkit_why.walks.Asks.mixed`."""
        rows = np.where(from_x[:, self._feature_owner], self._features[x], self._features[z])
        said = self._reading.read(self._file.run({self._matrix: rows}, self._reading.wanted))
        return values_of(said if self._of_class is None else self._of_class(said), self._of)


def asks_of(scorer: Scorer, of: str, columns: Columns, players: Sequence[Sequence[str]], predictions: Array) -> RowAsks:
    """Return the fastest way to ask a model about hybrid rows."""
    arguments = (scorer, of, columns, players)
    try:
        model = structure_of(scorer, columns)
        if model is not None and not any(feed.input.name == model.matrix for feed in model.scorer.feeds):
            asks = FeatureAsks(model, *arguments)
            few = np.arange(min(len(predictions), 1_000))
            if np.array_equal(asks.mixed(few, few, np.ones((len(few), len(players)), dtype=bool)), predictions[few]):
                return asks
    except (ModelError, ParameterError):
        pass  # encoders that are not understood, or decisions that are drawn: the model itself is asked
    rows = RowAsks(*arguments)
    few = np.arange(0, len(predictions), max(len(predictions) // 500, 1))
    again = rows.mixed(few, few, np.ones((len(few), len(players)), dtype=bool))
    if np.mean(np.abs(again - predictions[few]) > 1e-4) > 0.01:  # rounding may turn a decision
        raise ModelError(
            f"{scorer.info.name} gives rows other predictions when they are asked again among other rows: what it says "
            "about a person depends on the batch, and nothing can be divided among that person's columns"
        )
    return rows


def _codes(values: NDArray[Any]) -> Ints:
    """Return a number for each value, equal where values are; all missing ones are equal."""
    if values.dtype.kind == "O":
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(value, len(numbers)) for value in values.tolist()], dtype=np.int64)
    return np.unique(values, return_inverse=True)[1].reshape(-1)
