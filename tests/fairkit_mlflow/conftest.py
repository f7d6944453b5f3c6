"""A real MLflow server over SQLite, on loopback, and a model in it."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NEEDED = ("mlflow", "aiohttp", "alembic", "graphene", "huey", "sqlalchemy", "flask")
if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    pytest.skip(f"{missing[0]} is not installed: pip install 'fairkit[dev]'", allow_module_level=True)

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
    "OMP_NUM_THREADS": "1",
}


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server; the client of this process talks to it."""
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts"), "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | SETTINGS, stdout=log, stderr=log, start_new_session=True
        )
    patch = pytest.MonkeyPatch()
    try:
        for _ in range(1200):
            if server.poll() is not None:
                pytest.fail((folder / "log").read_text("utf-8")[-3000:])
            try:
                urllib.request.urlopen(f"{address}/health", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        for key, value in (SETTINGS | {"MLFLOW_TRACKING_URI": address}).items():
            patch.setenv(key, value)
        import mlflow

        mlflow.set_tracking_uri(address)
        yield address
    finally:
        patch.undo()
        os.killpg(server.pid, 9)
        server.wait()


@dataclass(frozen=True)
class Logged:
    """A model in MLflow: its name, and where its run's certificate lies."""

    uri: str
    model_id: str
    frame: Any


@pytest.fixture(scope="session")
def logged(tracking: str, loans_model: Any) -> Logged:
    """The loans model, logged as ONNX in one file, and rows for it."""
    import mlflow
    import onnx
    import pyarrow.parquet as pq

    with mlflow.start_run():
        info = mlflow.onnx.log_model(onnx.load(loans_model.path), name="credit", save_as_external_data=False)
    return Logged(info.model_uri, info.model_id, pq.read_table(loans_model.data).to_pandas())


@pytest.fixture(scope="session")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A secret key's file; the public one is beside it."""
    from fairkit_registry.evidence.signers import new_key_pair

    path = tmp_path_factory.mktemp("keys") / "auditor"
    new_key_pair(path)
    return path
