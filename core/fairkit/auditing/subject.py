"""What is audited: anything that can take the form of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.models.scorer import PythonModel
from fairkit.onnx.model import OnnxModel

if TYPE_CHECKING:
    from fairkit.models.scorer import Model


def as_model(model: Any) -> Model:
    """Return anything that can be audited as a model.

    Parameters
    ----------
    model
        A path, bytes or a proto of an ONNX model; an `OnnxModel`; an object with ``bind``; or an estimator
        with ``predict`` and perhaps ``predict_proba``.

    Raises
    ------
    ModelError
        It is none of these.
    """
    if hasattr(model, "bind"):
        bindable: Model = model
        return bindable
    if isinstance(model, str | Path | bytes) or hasattr(model, "SerializeToString"):
        return OnnxModel.load(model)
    return PythonModel(model)
