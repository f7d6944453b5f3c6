"""A model as a ranker: its score orders the items of a query."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.task import choose_task
from fairkit.errors import FairkitError, ModelError
from fairkit.models.scorer import Predictions

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Columns, Model, Scorer
    from fairkit.results.subjects import ModelInfo
    from fairkit.settings import ModelOptions


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
