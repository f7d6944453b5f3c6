"""What is audited: anything that can take the form of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import ModelError
from fairkit.models.columns import PredictedColumns
from fairkit.models.python import PythonModel
from fairkit.support.faces import imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.data.profile import Total
    from fairkit.models.scorer import Model

ONNX = "fairkit_onnx.model:OnnxModel"
"""What reads a model's file."""


def prepared(models: Sequence[Any], data: Dataset, total: Total) -> list[Model]:
    """Make the first pass over the rows, with what the models must know of them; return the models."""
    found = [as_model(model, data) for model in models]
    for model in found:
        data.note(getattr(model, "noted", ()))
    data.learn(total)
    return found


def as_model(model: Any, data: Dataset | None = None) -> Model:
    """Return anything that can be audited as a model."""
    if model is None:
        named = None if data is None else data.roles.predictions
        if named is None:
            raise ModelError(
                "there is no model, and the data names no predictions: name the columns that hold them with "
                "`predictions`"
            )
        return PredictedColumns.of(named)
    if hasattr(model, "bind"):
        bindable: Model = model
        return bindable
    if isinstance(model, str | Path | bytes) or hasattr(model, "SerializeToString"):
        loaded: Model = imported(ONNX).load(model)
        return loaded
    return PythonModel(model, like=getattr(data, "like", None))
