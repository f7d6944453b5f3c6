"""`fairkit registry import models:/...`: models that a real MLflow server keeps become versions here."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import checked, invoke

from fairkit_mlflow import tracked
from fairkit_registry.errors import RegistryError
from fairkit_registry.store.registry import Registry

pytestmark = pytest.mark.long  # a server of MLflow


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of this test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def large_model() -> Any:
    """A model with a tensor that MLflow moves into another file."""
    from onnx import TensorProto, helper, numpy_helper

    weights = np.arange(4096, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def kept(tracking: str) -> dict[str, bytes]:
    """Version 1 in one file, version 2 with its tensor in another; `champion` is version 2."""
    import mlflow

    contents = {"1": large_model().SerializeToString(), "2": large_model().SerializeToString(deterministic=True)}
    client = mlflow.MlflowClient()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for external in (False, True):
            with mlflow.start_run():
                mlflow.onnx.log_model(
                    large_model(), name="m", registered_model_name="kept-credit", save_as_external_data=external
                )
        with mlflow.start_run():
            mlflow.pyfunc.log_model(
                name="m", loader_module="json", pip_requirements=[], registered_model_name="kept-other"
            )
    client.set_registered_model_alias("kept-credit", "champion", "2")
    return contents


def test_a_model_in_one_file_is_the_same_file_here(kept: dict[str, bytes], tracking: str):
    done = checked("registry", "import", "models:/kept-credit/1", "--registry", "r", "--format", "json")
    (record,) = json.loads(done.stdout)
    assert record["version"]["sha256"] == hashlib.sha256(kept["1"]).hexdigest()
    assert record["version"]["origin"].startswith("models:/kept-credit/1 sha256:")
    assert f"of {tracking}, run " in record["version"]["notes"]
    again = invoke("registry", "import", "models:/kept-credit/1", "--registry", "r", "--format", "json")
    assert json.loads(again.stdout)[0]["new"] is False


def test_tensors_of_other_files_are_merged_and_the_model_is_the_same(kept: dict[str, bytes], tmp_path: Path):
    import onnxruntime

    done = checked("registry", "import", "models:/kept-credit@champion", "--name", "credit", "--registry", "r")
    assert "tensors of other files merged" in done.stdout
    with Registry("r") as store:
        version = store.version("credit")
        path = store.model_path(version)
    assert "were merged into this one" in version.notes
    assert version.size > 16_000
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.full(4096, 2, dtype=np.float32)})
    assert np.array_equal(answer, 2 * np.arange(4096, dtype=np.float32))


@pytest.mark.parametrize(
    "wrong",
    [
        ("models:/nobody/1",),
        ("models:/kept-credit@nobody",),
        ("models:/kept-credit",),
        ("models:/kept-credit/latest/x",),
        ("models:/kept-other/1",),
        ("models:/kept-credit/1", "--key", "x.pub"),
        ("models:/kept-credit/1", "--name", "no name"),
        ("models:/kept-credit/1", "--tracking-uri", "http://127.0.0.1:1"),
        ("archive.tar", "--tracking-uri", "http://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_imported_is_one_message(
    kept: dict[str, bytes], wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    refused = checked("registry", "import", *wrong, "--registry", "r", code=2)
    assert refused.stderr.startswith("fairkit: ")
    assert not Path("r").exists()


def test_without_a_server_nothing_is_begun(kept: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(mlflow, "is_tracking_uri_set", lambda: False)
    refused = checked("registry", "import", "models:/kept-credit/1", "--registry", "r", code=2)
    assert "which MLflow server" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_password_in_the_servers_address_is_not_written_down():
    found = tracked.Tracked(
        name="credit", version=3, content=b"", merged=False, run="", server=tracked._shown("https://me:secret@host/x")
    )
    assert "secret" not in found.notes
    with pytest.raises(RegistryError, match="no version of a model"):
        tracked.parse("models:/m-0123")
