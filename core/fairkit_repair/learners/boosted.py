"""Boosted trees: LightGBM and XGBoost, with sensible defaults."""

from __future__ import annotations

from typing import Any

from fairkit.errors import MissingExtraError
from fairkit.learners import EncodedRows, Learner


class LightGBM(Learner):
    """Gradient boosting with categorical splits."""

    name = "lightgbm"
    text = "ordinal"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        try:
            import lightgbm
        except ImportError as error:
            raise MissingExtraError("lightgbm", "lightgbm") from error
        params: dict[str, Any] = {"objective": rows.task, "verbosity": -1, "seed": rows.run.seed, "deterministic": True}
        if rows.task == "multiclass":
            params["num_class"] = int(rows.target.max()) + 1
        if rows.run.threads is not None:
            params["num_threads"] = rows.run.threads
        rounds = settings.pop("n_estimators", 100)
        data = lightgbm.Dataset(
            rows.matrix,
            rows.target,
            weight=rows.weights,
            categorical_feature=rows.categorical,
            params=params | settings,
        )
        return lightgbm.train(params | settings, data, num_boost_round=rounds)


class XGBoost(Learner):
    """Gradient boosting by histograms."""

    name = "xgboost"

    def fit(self, rows: EncodedRows, settings: dict[str, Any]) -> Any:
        """Train; see `Learner.fit`."""
        try:
            import xgboost
        except ImportError as error:
            raise MissingExtraError("xgboost", "xgboost") from error
        objective = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}[
            rows.task
        ]
        params: dict[str, Any] = {
            "objective": objective,
            "eta": 0.1,
            "max_depth": 6,
            "tree_method": "hist",
            "seed": rows.run.seed,
            "verbosity": 0,
        }
        if rows.task == "multiclass":
            params["num_class"] = int(rows.target.max()) + 1
        if rows.run.threads is not None:
            params["nthread"] = rows.run.threads
        rounds = settings.pop("n_estimators", 150)
        data = xgboost.DMatrix(rows.matrix, rows.target, weight=rows.weights)
        return xgboost.train(params | settings, data, num_boost_round=rounds)
