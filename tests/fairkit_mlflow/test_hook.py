"""`fairkit serve-hook`: MLflow's own webhooks take an alias back; hostile requests do nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairkit_cli.main import app
from fairkit_mlflow.hook import MOST_BYTES, HookServer

from .conftest import SECRET

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.long]  # a server of MLflow


def registered(path: Path, logged: Any, name: str, *, policy: float | None, auditor: Path) -> str:
    """Register the model with a certificate in its run, whose policy is a limit; None: without a certificate."""
    import mlflow
    import onnx

    with mlflow.start_run():
        model = mlflow.onnx.log_model(onnx.load(path), name=name, save_as_external_data=False)
    with mlflow.start_run():  # an evaluation is a run of its own, as often as not
        if policy is not None:
            mlflow.models.evaluate(
                model.model_uri, logged.frame, targets="decision", model_type="classifier", evaluators="fairkit",
                evaluator_config={
                    "sensitive": "sex", "favorable": "approved", "drop": ["would_repay"], "key": str(auditor),
                    "max": {"demographic_parity_difference:sex": policy},
                },
            )  # fmt: skip
    return str(mlflow.register_model(model.model_uri, name).version)


@pytest.fixture(scope="module")
def models(tracking: str, loans_model: Any, logged: Any, auditor: Path) -> Any:
    """Three registered models: one passes, one fails, one has no certificate."""
    import mlflow

    client = mlflow.MlflowClient()
    for name, policy in (("passing", 0.9), ("failing", 0.001), ("bare", None)):
        registered(loans_model.path, logged, name, policy=policy, auditor=auditor)
    return client


def aliases(client: Any, name: str) -> dict[str, str]:
    return dict(client.get_registered_model(name).aliases)


@pytest.mark.long
def test_every_alias_is_looked_at_once(models: Any, tracking: str, auditor: Path):
    for name in ("passing", "failing", "bare"):
        models.set_registered_model_alias(name, "champion", "1")
        models.set_registered_model_alias(name, "trial", "1")
    told = ("serve-hook", "--key", f"{auditor}.pub", "--tracking-uri", tracking, "--alias", "champion", "--once")
    done = CliRunner().invoke(app, told)
    assert done.exit_code == 1, done.output
    assert "passing@champion (version 1): stays: a certificate holds" in done.stdout
    assert "failing@champion (version 1): TAKEN BACK: certificate.json: its verdict is fail" in done.stdout
    assert "bare@champion (version 1): TAKEN BACK: there is no certificate" in done.stdout
    assert aliases(models, "passing") == {"champion": "1", "trial": "1"}
    assert aliases(models, "failing") == aliases(models, "bare") == {"trial": "1"}
    again = CliRunner().invoke(app, told)
    assert again.exit_code == 0


@pytest.mark.long
def test_a_stranger_s_certificate_and_a_folder_s(models: Any, tracking: str, auditor: Path, tmp_path: Path):
    import mlflow

    from fairkit_registry.evidence.signers import new_key_pair

    new_key_pair(tmp_path / "other")
    models.set_registered_model_alias("passing", "champion", "1")
    told = ("serve-hook", "--tracking-uri", tracking, "--alias", "champion", "--once", "--key")
    assert CliRunner().invoke(app, (*told, str(tmp_path / "other.pub"))).exit_code == 1
    assert "champion" not in aliases(models, "passing")
    source = models.get_model_version("passing", "1").source
    tags = models.get_logged_model(source.removeprefix("models:/")).tags
    run = tags["fairkit.run"]
    mlflow.artifacts.download_artifacts(run_id=run, artifact_path="fairkit", dst_path=str(tmp_path))
    models.set_registered_model_alias("bare", "champion", "1")  # the same file: its certificate is in the folder
    done = CliRunner().invoke(app, (*told, f"{auditor}.pub", "--certificates", str(tmp_path / "fairkit")))
    assert done.exit_code == 0, done.output
    assert aliases(models, "bare")["champion"] == "1"
    models.delete_registered_model_alias("bare", "champion")


@pytest.mark.long
def test_mlflow_s_own_webhook_takes_an_alias_back(models: Any, tracking: str, auditor: Path, tmp_path: Path):
    (tmp_path / "secret").write_bytes(SECRET)
    command = [
        sys.executable, "-c", "from fairkit_cli.main import run; run()", "serve-hook", "--key", f"{auditor}.pub",
        "--secret-file", str(tmp_path / "secret"), "--tracking-uri", tracking, "--port", "0", "--every", "0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as hook:
        try:
            assert hook.stdout is not None
            line = hook.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert address is not None, line
            from mlflow.entities.webhook import WebhookEvent

            made = models.create_webhook(
                name="aliases", url=address[0], events=[WebhookEvent("model_version_alias", "created")],
                secret=SECRET.decode(),
            )  # fmt: skip
            time.sleep(1.5)  # the server keeps for a second which webhooks there are
            models.set_registered_model_alias("failing", "production", "1")
            models.set_registered_model_alias("passing", "production", "1")
            for _ in range(600):
                if "production" not in aliases(models, "failing"):
                    break
                time.sleep(0.1)
            assert "production" not in aliases(models, "failing")
            assert hook.stderr is not None
            said = {hook.stderr.readline(), hook.stderr.readline()}
            assert any("failing@production (version 1): TAKEN BACK" in one for one in said), said
            assert any("passing@production (version 1): stays" in one for one in said), said
            assert aliases(models, "passing")["production"] == "1"
            models.delete_webhook(made.webhook_id)
        finally:
            hook.kill()


@pytest.fixture
def receiver() -> Iterator[tuple[Callable[..., int], list[Any]]]:
    """A receiver that keeps what it is told, and a function that sends a request to it."""
    told: list[Any] = []

    def act(name: str, alias: str) -> None:
        told.append((name, alias))
        if name == "broken":
            raise RuntimeError("MLflow is away")

    server = HookServer(("127.0.0.1", 0), SECRET, act, told.append)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def send(
        body: bytes, *, secret: bytes = SECRET, at: float = 0, delivery: str = "d", method: str = "POST", **changed: str
    ) -> int:
        stamp = str(int(time.time() + at))
        signed = hmac.new(secret, f"{delivery}.{stamp}.".encode() + body, hashlib.sha256).digest()
        headers = {
            "X-MLflow-Delivery-Id": delivery, "X-MLflow-Timestamp": stamp,
            "X-MLflow-Signature": f"v1,{base64.b64encode(signed).decode()}",
        } | {key.replace("_", "-"): value for key, value in changed.items()}  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connection.request(method, "/", body, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    yield send, told
    server.shutdown()
    server.server_close()


def body_of(name: Any = "credit", alias: Any = "champion", **changed: Any) -> bytes:
    told = {"entity": "model_version_alias", "action": "created", "data": {"name": name, "alias": alias}}
    return json.dumps(told | changed).encode()


def test_a_good_delivery_is_acted_on_once(receiver: tuple[Callable[..., int], list[Any]]):
    send, told = receiver
    assert send(body_of()) == 200
    assert send(body_of()) == 200  # a replay
    assert told == [("credit", "champion")]
    assert send(body_of(), delivery="e") == 200
    assert len(told) == 2
    assert send(body_of("broken"), delivery="f") == 503
    assert send(body_of("broken"), delivery="f") == 503  # it may come again: it was not acted on
    assert told[2:] == [("broken", "champion"), "MLflow is away"] * 2


def test_hostile_requests_do_nothing(receiver: tuple[Callable[..., int], list[Any]]):
    send, told = receiver
    assert send(body_of(), secret=b"another secret, also long") == 401
    assert send(body_of(), X_MLflow_Signature="") == 401
    assert send(body_of(), X_MLflow_Signature="v2,AAAA") == 401
    assert send(body_of(), X_MLflow_Delivery_Id="other") == 401
    assert send(body_of(), at=-3600) == 401
    assert send(body_of(), at=3600) == 401
    assert send(b"x" * (MOST_BYTES + 1)) == 413
    assert send(body_of(), Content_Length="-5") in (400, 413)
    assert send(b"{not json") == 400
    assert send(b"[1]") == 400
    assert send(body_of(action="deleted"), delivery="1") == 200
    assert send(body_of(entity="model_version"), delivery="2") == 200
    assert send(body_of(name=["credit"]), delivery="3") == 200
    assert send(body_of(data="credit"), delivery="4") == 200
    assert send(b"", method="GET") == 501
    assert told == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--secret-file FILE to listen, or --once"),
        (("--once", "--secret-file", "s"), "--secret-file FILE to listen, or --once"),
        (("--secret-file", "missing"), "cannot read"),
        (("--secret-file", "short"), "fewer than 16 bytes"),
        (("--once", "--certificates", "nowhere"), "no folder"),
    ],
)
def test_what_is_typed_wrongly(
    options: tuple[str, ...], said: str, auditor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("abc")
    done = CliRunner().invoke(app, ("serve-hook", "--key", f"{auditor}.pub", *options))
    assert done.exit_code == 2
    assert said in done.stderr
