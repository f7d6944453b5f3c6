"""``mlflow.models.evaluate(..., evaluators="fairkit")`` against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fairkit
from fairkit.errors import FairkitError
from fairkit_mlflow.tracked import Guard
from fairkit_registry.evidence.signers import load_public

pytestmark = pytest.mark.filterwarnings("ignore")  # those of MLflow and what it imports

CONFIG = {
    "sensitive": "sex",
    "favorable": "approved",
    "drop": ["would_repay"],
    "max": {"demographic_parity_difference:sex": 0.9},
    "min": "accuracy=0.99",
}


def evaluate(model: Any, frame: Any, config: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    import mlflow

    with mlflow.start_run() as run:
        result = mlflow.models.evaluate(
            model,
            frame,
            targets="decision",
            model_type="classifier",
            evaluators="fairkit",
            evaluator_config=config,
            **more,
        )
    return result, mlflow.MlflowClient().get_run(run.info.run_id)


@pytest.mark.long
def test_findings_are_metrics_with_limits_and_the_report_is_an_artifact(
    logged: Any, loans_model: Any, auditor: Path, tmp_path: Path
):
    import mlflow

    from fairkit_registry.evidence.certificate import verify
    from fairkit_registry.evidence.signers import load_public

    result, run = evaluate(logged.uri, logged.frame, CONFIG | {"key": str(auditor)})
    data = fairkit.load_data(
        logged.frame, label="decision", favorable="approved", sensitive=["sex"], drop=["would_repay"]
    )
    expected = fairkit.audit(loans_model.path, data)
    gap = expected.find("demographic_parity_difference", "sex")
    name = "fairkit/demographic_parity_difference/sex"
    told = run.data.metrics
    assert told[name] == pytest.approx(gap.value)
    assert (told[f"{name}/low"], told[f"{name}/high"]) == pytest.approx(gap.interval)
    assert (told[f"{name}/max"], told[f"{name}/verdict"]) == (0.9, 1.0)
    assert (told["fairkit/accuracy/min"], told["fairkit/accuracy/verdict"]) == (0.99, -1.0)
    assert told["fairkit/verdict"] == -1.0
    assert run.data.tags["fairkit.verdict"] == "fail"
    assert result.metrics == pytest.approx(told)
    assert len(told) < 100
    linked = mlflow.MlflowClient().get_logged_model(logged.model_id).metrics
    assert name in {one.key for one in linked}
    folder = Path(
        mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="fairkit", dst_path=str(tmp_path))
    )
    assert json.loads((folder / "report.json").read_text("utf-8"))["verdict"] == "fail"
    assert "demographic_parity_difference" in (folder / "report.html").read_text("utf-8")
    held = verify((folder / "certificate.json").read_bytes(), [load_public(Path(f"{auditor}.pub"))])
    assert held.model_sha256 == expected.model.sha256
    assert held.report.verdict == "fail"


@pytest.mark.long
def test_a_table_of_predictions_and_another_model(tracking: str, logged: Any):
    frame = logged.frame.assign(said=logged.frame["decision"].where(logged.frame["sex"] == "male", "denied"))
    config = {key: value for key, value in CONFIG.items() if key != "min"}
    _, run = evaluate(None, frame.drop(columns="would_repay"), config | {"drop": ()}, predictions="said")
    assert run.data.metrics["fairkit/selection_rate"] < 1
    assert run.data.tags["fairkit.verdict"] == "pass"

    def unlucky(rows: Any) -> Any:
        return ["approved" if sex == "male" else "denied" for sex in rows["sex"]]

    _, run = evaluate(unlucky, logged.frame, CONFIG)
    assert run.data.metrics["fairkit/demographic_parity_difference/sex"] == 1.0
    assert run.data.tags["fairkit.verdict"] == "fail"


@pytest.mark.long
def test_it_keeps_out_of_evaluations_that_do_not_name_it():
    from fairkit_mlflow.evaluator import FairkitEvaluator

    for config in (None, {}, {"favorable": "approved"}):
        assert not FairkitEvaluator.can_evaluate(model_type="classifier", evaluator_config=config)
    assert FairkitEvaluator.can_evaluate(model_type="classifier", evaluator_config={"sensitive": "sex"})


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sensitve": "sex"}, "Did you mean 'sensitive'"),
        ({"sensitive": "gender"}, "gender"),
        ({"max": {"demographic_parity": 0.1}}, "demographic_parity"),
        ({"key": "nowhere"}, "nowhere"),
    ],
)
def test_what_is_wrong_is_one_message(logged: Any, config: dict[str, Any], said: str):
    with pytest.raises(FairkitError, match=said):
        evaluate(logged.uri, logged.frame, CONFIG | config)


def test_names_of_metrics_are_those_that_trackers_take():
    from fairkit.results.findings import Finding
    from fairkit_mlflow.evaluator import name_of

    odd = Finding(auditor="group", metric="x", value=1.0, sensitive="sex+a/b<c>", parameters={"class": "é"})
    assert name_of(odd) == "fairkit/x/sex and a_b_c_/class _"


# Aliases of MLflow are taken back where no certificate holds.
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
