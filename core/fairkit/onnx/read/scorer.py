"""An ONNX model bound to a dataset: columns in, predictions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.models.scorer import Columns, ModelOptions, Predictions, Scorer, check_scores
from fairkit.onnx.read import outputs as reading
from fairkit.onnx.read.feeds import RANDOM_INPUT, Feed, absent, match_inputs
from fairkit.onnx.read.members import MEMBER_SCORES, member_weights
from fairkit.onnx.read.settle import settle
from fairkit.results.findings import ModelInfo

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.onnx.model import OnnxModel

_FIRST_ROWS = 4_096
_MIXTURE = "A randomized model: all its members are audited with their weights, exactly, not draws from them."


def bind(model: OnnxModel, dataset: Dataset, options: ModelOptions) -> Scorer:
    """Do what `OnnxModel.bind` says."""
    plain = [graph_input for graph_input in model.inputs if graph_input.name != RANDOM_INPUT]
    features, given = _features(model, dataset)
    feeds, notes = match_inputs(plain, dataset.columns, features, given=given, table=dataset.name)
    columns = tuple(dict.fromkeys(column for feed in feeds for column in feed.columns))
    runner = _Runner(model, feeds)
    batch = next(dataset.batches(columns, rows=_FIRST_ROWS))
    first = runner.raw(batch.columns(columns))
    notes += _missing_text(feeds, batch.columns(columns))
    found = [
        described
        for output in model.session.get_outputs()
        if (described := reading.describe(output.name, output.type, first[output.name])) is not None
    ]
    settled, task, classes, told = settle(model, found, first, dataset, options, batch.favorable)
    if settled is not None and member_weights(model.proto) is not None:
        told = [*told, _MIXTURE]
    info = ModelInfo(name=model.name, sha256=model.sha256, task=task, notes=tuple(notes + told))
    return OnnxScorer(runner, settled, info, columns, classes)


class OnnxScorer:
    """An ONNX model bound to a dataset (see `fairkit.models.Scorer`)."""

    def __init__(
        self,
        runner: _Runner,
        settled: reading.Reading | None,
        info: ModelInfo,
        columns: tuple[str, ...],
        classes: tuple[Any, ...],
    ) -> None:
        self.info = info
        self.task: Task = info.task  # type: ignore[assignment]
        self.columns = columns
        self.classes = classes
        self.model = runner.model
        self.shares = member_weights(runner.model.proto)
        self._runner = runner
        self._reading = settled

    @property
    def reading(self) -> reading.Reading | None:
        """How the outputs are read; None for a randomized model."""
        return self._reading

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The graph's inputs, without ``u``, and the columns that fill them."""
        return tuple(self._runner.feeds)

    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns."""
        randomized = ["score", reading.DECISION_PROBABILITY]
        wanted = randomized if self._reading is None else self._reading.wanted
        more = [] if self.shares is None else [MEMBER_SCORES]
        values = self._runner.raw(columns, [*wanted, *more])
        found = self._randomized(values) if self._reading is None else self._reading.read(values)
        return found if self.shares is None else self._with_members(found, values[MEMBER_SCORES])

    def _with_members(self, found: Predictions, scores: Any) -> Predictions:
        """Put all that could have been drawn in the place of one draw."""
        assert self.shares is not None  # noqa: S101 -- asked for only then
        members = np.asarray(scores, dtype=np.float64)
        check_scores(members, "members' scores")
        if members.ndim != 2 or members.shape[1] != len(self.shares):
            raise ModelError(
                f"{self.info.name} has {len(self.shares)} weights in its metadata, but {MEMBER_SCORES} "
                f"has the shape {members.shape}"
            )
        return replace(found, score=members @ self.shares, members=members, shares=self.shares)

    def _randomized(self, values: Mapping[str, Any]) -> Predictions:
        score, chance = (
            np.asarray(values[n], float).reshape(-1) for n in ("score", reading.DECISION_PROBABILITY)
        )
        for name, array in (("scores", score), ("decision probabilities", chance)):
            check_scores(array, name)
        if chance.min() < -1e-6 or chance.max() > 1 + 1e-6:
            raise ModelError(f"{self.info.name}: decision_probability leaves [0, 1]")
        usable = score.min() >= -1e-6 and score.max() <= 1 + 1e-6
        return Predictions(score=np.clip(score, 0, 1) if usable else None, decision=np.clip(chance, 0, 1))


class _Runner:
    """The graph with its feeds."""

    def __init__(self, model: OnnxModel, feeds: Sequence[Feed]) -> None:
        self.model = model
        self.feeds = feeds
        self._random = next((i for i in model.inputs if i.name == RANDOM_INPUT), None)

    def raw(self, columns: Columns, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        rows = len(next(iter(columns.values())))
        arrays = {feed.input.name: feed.build(columns) for feed in self.feeds}
        if self._random is not None:
            shape = (rows, 1) if len(self._random.shape) > 1 else (rows,)
            arrays[RANDOM_INPUT] = np.zeros(shape, dtype=self._random.dtype)
        return self.model.run(arrays, outputs)


def _features(model: OnnxModel, dataset: Dataset) -> tuple[tuple[str, ...], bool]:
    """The features in order: the user's, else the model's own, else all columns without another role."""
    embedded = model.settings.get("features")
    if dataset.roles.features is None and embedded and set(embedded) <= set(dataset.columns):
        return tuple(embedded), True
    return dataset.features, dataset.roles.features is not None


def _missing_text(feeds: Sequence[Feed], columns: Columns) -> list[str]:
    texts = [feed.columns[0] for feed in feeds if feed.input.kind == "tensor(string)"]
    gaps = [name for name in texts if columns[name].dtype.kind == "O" and absent(columns[name]).any()]
    return [f"Missing text in {', '.join(gaps)} is given to the model as empty text."] if gaps else []
