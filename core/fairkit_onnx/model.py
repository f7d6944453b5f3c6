"""An ONNX file as a model that can be audited: its inputs are matched with columns, its outputs are resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.settings import ModelOptions
from fairkit_onnx.file import OnnxFile
from fairkit_onnx.read.scorer import bind

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Scorer


class OnnxModel(OnnxFile):
    """An ONNX model: digest, inputs, outputs, embedded audit settings. Made by `OnnxModel.load`.

    Nothing in the file is executed besides the graph's standard operators, and no path outside the
    model's own folder is read.
    """

    said: ModelOptions = ModelOptions()
    """What the user said about the model, wherever it is bound; options of a single call win."""

    def bind(self, dataset: Dataset, options: ModelOptions | None = None) -> Scorer:
        """Match inputs with columns, find the favorable score column, and say what was guessed.

        Raises
        ------
        DataError
            The model's inputs are not in the data.
        ModelError
            The outputs cannot be interpreted; the message names the option that helps.
        """
        return bind(self, dataset, (options or ModelOptions()).over(self.said))
