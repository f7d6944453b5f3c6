"""The synthetic loans with a small model of trees, and the slow twins."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROLES = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


@pytest.fixture(scope="session")
def oracle():
    spec = importlib.util.spec_from_file_location("why_oracle", Path(__file__).parent / "oracle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def frame():
    from fairkit_datasets.loans import loans_table

    return loans_table(1_500, 3).to_pandas()


@pytest.fixture(scope="session")
def train():
    return trained


@pytest.fixture(scope="session")
def model(frame):
    return trained(frame)


def trained(frame, features=None, learner="lightgbm", **roles):
    """Train fairkit's own learner and return the ONNX file's bytes."""
    from fairkit.data.loading import load_data
    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_repair.learners import fit_learner

    data = load_data(frame, **(ROLES | roles), features=features)
    settings = {"n_estimators": 20} if learner == "lightgbm" else {}
    fitted = fit_learner(learner, Table.from_dataset(data), Run(seed=0, threads=1), settings=settings)
    return fitted.to_onnx().SerializeToString()
