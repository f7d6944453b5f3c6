"""Aliases of MLflow are taken back where no certificate holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairkit_mlflow.tracked import Guard
from fairkit_registry.evidence.signers import load_public

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
def test_every_alias_is_looked_at_once(models: Any, auditor: Path):
    for name in ("passing", "failing", "bare"):
        models.set_registered_model_alias(name, "champion", "1")
        models.set_registered_model_alias(name, "trial", "1")
    guard = Guard(client=models, keys=[load_public(f"{auditor}.pub")], aliases=frozenset(["champion"]))
    found = {str(one) for one in guard.check_all()}
    assert any(one.startswith("passing@champion (version 1): stays: a certificate holds") for one in found)
    assert any(
        "failing@champion (version 1): TAKEN BACK: certificate.json: its verdict is fail" in one for one in found
    )
    assert any("bare@champion (version 1): TAKEN BACK: there is no certificate" in one for one in found)
    assert aliases(models, "passing") == {"champion": "1", "trial": "1"}
    assert aliases(models, "failing") == aliases(models, "bare") == {"trial": "1"}
    assert [one.state for one in guard.check_all()] == ["stays"]


@pytest.mark.long
def test_a_stranger_s_certificate_and_a_folder_s(models: Any, auditor: Path, tmp_path: Path):
    import mlflow

    from fairkit_registry.evidence.signers import new_key_pair

    new_key_pair(tmp_path / "other")
    models.set_registered_model_alias("passing", "champion", "1")
    champion = frozenset(["champion"])
    Guard(client=models, keys=[load_public(tmp_path / "other.pub")], aliases=champion).check_all()
    assert "champion" not in aliases(models, "passing")
    source = models.get_model_version("passing", "1").source
    tags = models.get_logged_model(source.removeprefix("models:/")).tags
    run = tags["fairkit.run"]
    mlflow.artifacts.download_artifacts(run_id=run, artifact_path="fairkit", dst_path=str(tmp_path))
    models.set_registered_model_alias("bare", "champion", "1")  # the same file: its certificate is in the folder
    keys = [load_public(f"{auditor}.pub")]
    Guard(client=models, keys=keys, aliases=champion, folder=tmp_path / "fairkit").check_all()
    assert aliases(models, "bare")["champion"] == "1"
    models.delete_registered_model_alias("bare", "champion")
