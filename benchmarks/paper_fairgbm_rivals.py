"""fairlearn's grid search over multipliers, and its single models at random multipliers, with LightGBM."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairkit.mitigators import Prediction, Table
from fairkit_repair.learners import encoder_for

MODELS = 10


@dataclass(frozen=True)
class Decider:
    """An encoder and a classifier."""

    encoder: Any
    classifier: Any

    def predict(self, columns) -> Prediction:
        """Decide."""
        found = np.asarray(self.classifier.predict(self.encoder.transform(columns)), dtype=float)
        return Prediction(score=found, decision_probability=found)


def grid_search(table: Table, settings: dict, seed: int, _: float) -> Decider:
    """Train ten models on a grid of multipliers, and keep the best by error plus violation on the training rows."""
    return _search(table, settings, seed, grid_size=MODELS)


def one_multiplier(table: Table, settings: dict, seed: int, place: float) -> Decider:
    """Train one model at a multiplier of -2 to 2 (place 0 to 1), the range of the grid search."""
    import pandas as pd
    from fairlearn.reductions import TruePositiveRateParity

    groups = table.only_groups()
    moment = TruePositiveRateParity()
    moment.load_data(np.zeros((len(table), 1)), table.target.astype(int), sensitive_features=pd.Series(groups.codes))
    value = 4.0 * place - 2.0
    point = pd.Series(0.0, index=moment.index)
    event = moment.index.get_level_values("event")[0]
    point["+" if value > 0 else "-", event, 0] = abs(value)
    return _search(table, settings, seed, grid=pd.DataFrame({0: point}))


def _search(table: Table, settings: dict, seed: int, **how: Any) -> Decider:
    from fairlearn.reductions import GridSearch, TruePositiveRateParity
    from lightgbm import LGBMClassifier

    encoder = encoder_for("lightgbm", table)
    model = LGBMClassifier(**settings, random_state=seed, n_jobs=1, verbose=-1)
    found = GridSearch(model, TruePositiveRateParity(), **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.fit(
            encoder.transform(table.columns), table.target.astype(int), sensitive_features=table.only_groups().codes
        )
        return Decider(encoder, found.predictors_[found.best_idx_])
