"""fairkit inside MLflow: models that it keeps, an evaluator, a guard that takes an alias back without a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import fairkit
from fairkit.errors import ParameterError
from fairkit.models.scorer import ModelSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_mlflow.tracked import Tracked


class TrackedModels(ModelSource):
    """Models that MLflow keeps: ``uri`` (models:/NAME@ALIAS), ``folder`` for the download, ``server``."""

    name = "mlflow"

    @classmethod
    def open(cls, record: Mapping[str, Any]) -> Tracked:
        """Download a model, to be added to a registry; see `fairkit_mlflow.tracked.fetched`."""
        from fairkit_mlflow.tracked import fetched

        if not {"uri", "folder"} <= set(record):
            raise ParameterError("a model of MLflow is named by `uri`, and fetched into `folder`")
        return fetched(record["uri"], Path(record["folder"]), server=record.get("server"))


@fairkit.hookimpl
def fairkit_model_sources() -> list[type[ModelSource]]:
    """Return the source of models that MLflow keeps."""
    return [TrackedModels]
