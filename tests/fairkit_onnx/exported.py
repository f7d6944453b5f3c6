"""What common exporters write: every scikit-learn estimator that skl2onnx converts, boosters, networks."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx

OPSETS = {"": 17, "ai.onnx.ml": 3}
_SLOW = {"GaussianProcessRegressor", "GaussianProcessClassifier"}
_NEEDED = {
    "OneVsRestClassifier": "estimator",
    "OneVsOneClassifier": "estimator",
    "OutputCodeClassifier": "estimator",
    "ClassifierChain": "estimator",
    "MultiOutputClassifier": "estimator",
    "MultiOutputRegressor": "estimator",
    "RegressorChain": "estimator",
}


@cache
def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of five positive numbers, two classes, and a positive number to predict."""
    rng = np.random.default_rng(4)
    x = np.abs(rng.normal(1, 0.6, (240, 5))).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + rng.normal(0, 0.3, 240) > 2).astype(np.int64)
    return x, y, (x[:, 0] * 2 + x[:, 2] + rng.exponential(0.3, 240) + 0.1).astype(np.float32)


def _estimators() -> Iterator[tuple[str, Any, str]]:
    from sklearn.ensemble import StackingClassifier, StackingRegressor, VotingClassifier, VotingRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    from sklearn.utils import all_estimators

    classifiers = [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))]
    regressors = [("a", LinearRegression()), ("b", DecisionTreeRegressor(max_depth=3))]
    for kind, base in (("classifier", LogisticRegression()), ("regressor", LinearRegression())):
        for name, made in all_estimators(type_filter=kind):
            try:
                if name in ("VotingClassifier", "StackingClassifier", "VotingRegressor", "StackingRegressor"):
                    parts = classifiers if kind == "classifier" else regressors
                    yield name, made(parts), kind
                elif name in _NEEDED:
                    yield name, made(base), kind
                else:
                    yield name, made(), kind
            except TypeError:
                continue
    _ = StackingClassifier, StackingRegressor, VotingClassifier, VotingRegressor


def sklearn() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield an export of each classifier and regressor, on one matrix."""
    from skl2onnx import to_onnx

    x, y, target = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, kind in _estimators():
            try:
                for key, value in {"n_estimators": 6, "max_iter": 60, "random_state": 0}.items():
                    if key in model.get_params():
                        model.set_params(**{key: value})
                model.fit(x, y if kind == "classifier" else target)
                yield name, to_onnx(model, x[:1], target_opset=OPSETS)
            except Exception:
                continue


def pipelines() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield pipelines on raw columns: preprocessors of numbers, encoders of text, with and without ZipMap."""
    import pandas as pd
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn import decomposition, feature_extraction, feature_selection, impute, preprocessing
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    x, y, _ = table()
    words = np.random.default_rng(1).choice(["clerk", "teacher", "nurse"], 240)
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(5)} | {"word": words, "other": words[::-1]})
    types = [(name, (StringTensorType if name in ("word", "other") else FloatTensorType)([None, 1])) for name in frame]
    numeric: list[Any] = [
        preprocessing.StandardScaler(),
        preprocessing.MinMaxScaler(),
        preprocessing.MaxAbsScaler(),
        preprocessing.RobustScaler(),
        preprocessing.Normalizer(),
        preprocessing.Binarizer(),
        preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
        preprocessing.PowerTransformer(),
        preprocessing.PolynomialFeatures(),
        preprocessing.QuantileTransformer(n_quantiles=9),
        impute.SimpleImputer(),
        impute.KNNImputer(),
        decomposition.PCA(3),
        feature_selection.SelectKBest(k=3),
    ]
    texts: list[Any] = [
        preprocessing.OneHotEncoder(handle_unknown="ignore"),
        preprocessing.OrdinalEncoder(),
        preprocessing.TargetEncoder(),
        feature_extraction.text.CountVectorizer(),
    ]
    made = [(step, preprocessing.OneHotEncoder(handle_unknown="ignore")) for step in numeric]
    made += [(preprocessing.StandardScaler(), step) for step in texts[1:]]
    for number, text in made:
        vectorizer = type(text).__name__ == "CountVectorizer"
        columns = ColumnTransformer(
            [("n", number, [f"x{i}" for i in range(5)]), ("t", text, "word" if vectorizer else ["word", "other"])]
        )
        pipeline = make_pipeline(columns, LogisticRegression())
        named = type(text if type(number).__name__ == "StandardScaler" and text is not made[0][1] else number).__name__
        for zipmap in (False, True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    pipeline.fit(frame, y)
                    proto = to_onnx(
                        pipeline,
                        initial_types=types,
                        target_opset=OPSETS,
                        **({} if zipmap else {"options": {"zipmap": False}}),
                    )
                except Exception:
                    continue
            yield f"{named}{', ZipMap' if zipmap else ''}", proto


def boosters() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield what onnxmltools makes of LightGBM and XGBoost, and CatBoost's own files."""
    import catboost
    import lightgbm
    import xgboost
    from onnxmltools import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y, target = table()
    types = [("x", FloatTensorType([None, 5]))]
    few: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, goal in (
            ("LGBMClassifier", lightgbm.LGBMClassifier(**few, verbose=-1), y),
            ("LGBMRegressor", lightgbm.LGBMRegressor(**few, verbose=-1), target),
            ("LGBMRanker", lightgbm.LGBMRegressor(**few, objective="poisson", verbose=-1), target),
        ):
            for zipmap in (True, False) if name == "LGBMClassifier" else (True,):
                yield (
                    f"{name}{'' if zipmap else ', array'}",
                    convert_lightgbm(model.fit(x, goal), initial_types=types, target_opset=15, zipmap=zipmap),
                )
        for name, model, goal in (
            ("XGBClassifier", xgboost.XGBClassifier(**few), y),
            ("XGBRegressor", xgboost.XGBRegressor(**few), target),
            ("XGBRFClassifier", xgboost.XGBRFClassifier(**few), y),
        ):
            yield name, convert_xgboost(model.fit(x, goal), initial_types=types, target_opset=15)
        for name, model, goal in (
            ("CatBoostClassifier", catboost.CatBoostClassifier(iterations=5, depth=3, verbose=0), y),
            ("CatBoostRegressor", catboost.CatBoostRegressor(iterations=5, depth=3, verbose=0), target),
        ):
            model.set_params(allow_writing_files=False)
            model.fit(x, goal)
            from catboost.utils import convert_to_onnx_object

            yield name, convert_to_onnx_object(model)


def networks() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield networks of torch, written by both of its exporters."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    x = torch.from_numpy(table()[0][:4])
    for name, module in {
        "torch MLP": nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()),
        "torch MLP with norms": nn.Sequential(
            nn.Linear(5, 8),
            nn.BatchNorm1d(8),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.LayerNorm(8),
            nn.Linear(8, 2),
            nn.Softmax(1),
        ),
    }.items():
        for dynamo in (False, True):
            written = io.BytesIO()
            shapes: dict[str, Any] = (
                {"dynamic_shapes": ({0: torch.export.Dim("n", min=1, max=65_536)},)}
                if dynamo
                else {"dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    torch.onnx.export(
                        module.eval(), (x,), written, dynamo=dynamo, input_names=["x"], output_names=["y"], **shapes
                    )
                except ImportError:  # the new exporter needs onnxscript
                    continue
            yield f"{name}{', dynamo' if dynamo else ''}", onnx.load_model_from_string(written.getvalue())
