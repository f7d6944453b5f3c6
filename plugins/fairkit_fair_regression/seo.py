"""The baseline SEO: least squares with the sensitive column, whose part is then dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def fit_seo(
    matrix: NDArray[np.float32], labels: Array, groups: NDArray[np.int64], n_groups: int, weights: Array | None
) -> Any:
    """Fit labels to features and groups together, and let everybody have the average group's part.

    The features' coefficients are then those of comparisons within groups (Johnson, Foster & Stine 2016:
    substantive equality of opportunity); what the features tell about the group remains.
    """
    from sklearn.linear_model import Ridge

    indicators = np.equal.outer(groups, np.arange(1, n_groups)).astype(np.float64)
    both = np.hstack([matrix.astype(np.float64), indicators])
    model = Ridge(alpha=1e-3).fit(both, labels, sample_weight=weights)
    width = matrix.shape[1]
    model.intercept_ += float(np.average(indicators, axis=0, weights=weights) @ model.coef_[width:])
    model.coef_ = model.coef_[:width]
    model.n_features_in_ = width
    return model
