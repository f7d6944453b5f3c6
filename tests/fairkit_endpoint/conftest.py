"""A model without ZipMap, the loans to ask about, and servers in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

pytest.importorskip("httpx")


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
    """Start servers; each is shut down at the end."""
    from .server import bound

    running: list[ThreadingHTTPServer] = []

    def start(model: Path, *told: str) -> str:
        running.append(bound(model, *told))
        threading.Thread(target=running[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()
