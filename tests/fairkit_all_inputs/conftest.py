"""Small models of several kinds on the synthetic loans, as files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

TEXTS = ["sex", "ethnicity", "region", "employment"]
NUMBERS = ["age", "income", "debt_ratio", "amount"]
ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


def frame(rows=600, seed=1):
    from fairkit_datasets.loans import loans_table

    return loans_table(rows, seed).to_pandas()


def convert(model, path, *, drop=(), zipmap=False):
    """Train a pipeline and write it with one input for each column."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = frame()
    texts, numbers = [c for c in TEXTS if c not in drop], [c for c in NUMBERS if c not in drop]
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts), (StandardScaler(), numbers)
    )
    pipeline = make_pipeline(columns, model)
    data = table[texts + numbers].copy()
    data[numbers] = data[numbers].astype(np.float32)
    pipeline.fit(data, table["decision"])
    types = [(c, StringTensorType([None, 1])) for c in texts] + [(c, FloatTensorType([None, 1])) for c in numbers]
    proto = convert_sklearn(
        pipeline, initial_types=types, target_opset={"": 15, "ai.onnx.ml": 3}, options={id(model): {"zipmap": zipmap}}
    )
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture(scope="session")
def proofs(tmp_path_factory):
    """A folder for models and proofs that are made once; `FAIRKIT_PROOFS` keeps it for many runs of these tests."""
    folder = os.environ.get("FAIRKIT_PROOFS")
    return Path(folder) if folder else tmp_path_factory.mktemp("proofs")


@pytest.fixture(scope="session")
def loans(proofs):
    """The table as a file, and models by name."""
    folder = proofs / "loans"
    if (folder / "linear.onnx").exists():
        return folder
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    folder.mkdir()
    frame().to_csv(folder / "loans.csv", index=False)
    boosted = GradientBoostingClassifier(n_estimators=12, max_depth=3, learning_rate=0.3, random_state=0)
    convert(boosted, folder / "boosted.onnx", zipmap=True)
    convert(RandomForestClassifier(7, max_depth=5, random_state=0), folder / "forest.onnx")
    convert(LogisticRegression(), folder / "linear.onnx")
    return folder
