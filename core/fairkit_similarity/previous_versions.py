"""Subspace metrics as fairkit learned them before: so that certificates that were made with them can be recomputed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import MissingExtraError
from fairkit.support.timings import phase
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_similarity.encode import Columns

STRENGTH = 0.1
"""The l2 penalty, weighed against the summed loss."""


@phase("learn metric")
def former_subspace(columns: Columns, sensitive: Sequence[str]) -> FairMetric:
    """Learn what `fairkit_similarity.learn.subspace` learned before: by scikit-learn's L-BFGS, to its tolerance."""
    try:
        from sklearn.linear_model import LogisticRegression, RidgeCV
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn") from error
    encoder = Encoder.learn(columns)
    features = encoder.encode(columns)
    directions = [np.eye(features.shape[1])[encoder.places(sensitive)]]
    names = list(dict.fromkeys(sensitive))
    for name in names:
        encoding = next(column for column in encoder.columns if column.name == name)
        positions = encoder.places([name])
        others = features.copy()
        others[:, positions] = 0.0
        raw = np.asarray(columns[name])
        keys = raw.astype(str) if encoding.kind == "category" else raw.astype(np.float64)
        values, code = np.unique(keys, return_inverse=True)
        if encoding.kind == "number" and len(values) > 2:
            model = RidgeCV(alphas=np.logspace(-3, 3, 7)).fit(others, features[:, positions[0]])
            coefficients = np.array(np.atleast_2d(model.coef_), dtype=np.float64)
        else:
            targets = [code == k for k in range(len(values))] if len(values) > 2 else [code == 1]
            model = LogisticRegression(C=1.0 / STRENGTH, max_iter=1_000, tol=1e-6)
            coefficients = np.array([model.fit(others, target).coef_[0] for target in targets])
        coefficients[:, positions] = 0.0
        directions.append(coefficients)
    description = {"kind": "subspace", "sensitive": names, "strength": STRENGTH}
    return FairMetric.projecting(encoder, np.concatenate(directions), description)
