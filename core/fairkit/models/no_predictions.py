"""A table without any predictions: what auditors of data alone look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.models.scorer import Columns, Predictions
from fairkit.results.subjects import ModelInfo

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit.settings import ModelOptions


class NoPredictions:
    """No model and no predictions, bound to a dataset as if it were a model."""

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Refuse options about a model; return what predicts nothing."""
        dataset.learn()
        options.refuse(
            ["score_output", "decision_output", "favorable_class", "classes", "rename", "threshold", "score_kind"],
            "only the table is looked at",
        )
        return _Nothing()


class _Nothing:
    recorded = True
    task: Task = "table"
    columns: tuple[str, ...] = ()
    classes: tuple[Any, ...] = ()

    def __init__(self) -> None:
        told = "Only the table was looked at: there is no model, and there are no predictions."
        self.info: ModelInfo = ModelInfo(name="no model", sha256=None, task="table", notes=(told,))

    def predict(self, columns: Columns) -> Predictions:
        """Predict nothing."""
        return Predictions()
