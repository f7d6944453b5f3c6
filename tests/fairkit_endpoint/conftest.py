"""A model without ZipMap, the loans to ask about, and a server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("httpx")

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def served_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline on the loans with one input per column, a text label and a matrix of probabilities."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from fairkit_datasets.loans import loans_table

    train = loans_table(3_000, 1).to_pandas()
    texts, numbers = ["sex", "region"], ["age", "income", "debt_ratio"]
    columns = make_column_transformer((OneHotEncoder(), texts), (StandardScaler(), numbers))
    pipeline = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(train[texts + numbers], train["decision"])
    types = [(c, StringTensorType([None, 1])) for c in texts] + [(c, FloatTensorType([None, 1])) for c in numbers]
    proto = convert_sklearn(pipeline, initial_types=types, options={id(pipeline): {"zipmap": False}})
    path = tmp_path_factory.mktemp("served") / "credit.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers; each is killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(model: Path, *told: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "server.py"), str(model), *told],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the server did not start"
        return f"http://127.0.0.1:{port}"

    yield start
    for process in running:
        process.kill()
        process.communicate()
