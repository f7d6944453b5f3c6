"""Torch modules as models that can be audited, and searched by their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TorchClassifier:
    """A torch module over numeric columns, for `fairkit.audit`.

    Examples
    --------
    >>> model = TorchClassifier(net, ["age", "hours"], classes=["no", "yes"])             # doctest: +SKIP
    >>> fairkit.audit(model, data, auditors=["dif"],
    ...               parameters={"dif": {"method": "gradient"}})                         # doctest: +SKIP
    """

    def __init__(self, module: Any, features: Sequence[str], classes: Sequence[Any]) -> None:
        from fairkit_similarity.networks import check_module

        count = len(classes)
        check_module(module, len(features), (1, 2) if count == 2 else (count,))
        self.torch_module = module.eval()
        self.feature_names_in_ = list(features)
        self.classes_ = np.asarray(classes)

    def torch_features(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the module's input for raw columns, shape (n, d)."""
        for name in self.feature_names_in_:
            if columns[name].dtype.kind not in "iufb":
                raise ModelError(f"the torch module reads numbers, and the column {name!r} holds text")
        stacked: NDArray[np.float32] = np.column_stack([columns[name] for name in self.feature_names_in_]).astype(
            np.float32
        )
        return stacked

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return the classes' probabilities, shape (n, K)."""
        import torch

        from fairkit_similarity.networks import as_matrix

        x = torch.from_numpy(np.asarray(frame, dtype=np.float32))
        with torch.no_grad():
            logits = as_matrix(self.torch_module(x)).double()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return np.asarray(logits.softmax(dim=1).numpy())

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the likeliest class, shape (n,)."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(frame).argmax(axis=1)]
        return labels
