"""The MLflow evaluator: ``mlflow.models.evaluate(model, data, targets=..., evaluators="fairkit", ...)``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from fairkit.errors import ModelError
from fairkit_mlflow.configuration import EvaluatorConfig, has_sensitive, numbers_of

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.results.report import Report

FOLDER, RUN_TAG = "fairkit", "fairkit.run"
"""Where a run has what the evaluator writes; the tag of a logged model that names its newest evaluation's run."""


class FairkitEvaluator(ModelEvaluator):  # type: ignore[misc]  # MLflow has no types
    """Audits a model, logs findings with their limits, and the report (and a certificate) as artifacts.

    A model that was logged as ONNX is audited as that very file, so that its certificate is about the file; another one
    as it predicts; a table with predictions by its columns. What it takes in ``evaluator_config`` is in
    `fairkit_mlflow.configuration.EvaluatorConfig`.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Mapping[str, Any] | None, **_: Any) -> bool:
        """Return whether sensitive columns are named: MLflow asks every evaluator where none is chosen."""
        return has_sensitive(evaluator_config)

    def evaluate(
        self,
        *,
        model_type: str,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        model_id: str | None = None,
        **_: Any,
    ) -> Any:
        """Audit, log and return the metrics and artifacts."""
        config = EvaluatorConfig.read(evaluator_config, model_type=model_type)
        with tempfile.TemporaryDirectory(prefix="fairkit-mlflow-") as name:
            folder = Path(name)
            subject = subject_of(model, model_id, folder / "model")
            data = config.dataset(dataset, model if subject is None else None, columns=subject is None)
            report, certificate = config.run(subject or in_memory(model), data)
            metrics = numbers_of(report, everything=config.everything)
            written = write_artifacts(report, certificate, data, folder / FOLDER)
            client = mlflow.MlflowClient()
            client.log_artifacts(run_id, str(written), FOLDER)
            mlflow.log_metrics(metrics, run_id=run_id, model_id=model_id, synchronous=True)
            for key, value in (("fairkit.verdict", report.verdict or "none"), ("fairkit.data", data.sha256)):
                client.set_tag(run_id, key, value)
            if model_id is not None:  # so that who has the model finds its certificate
                client.set_logged_model_tags(model_id, {RUN_TAG: run_id})
            root = client.get_run(run_id).info.artifact_uri
        record = JsonEvaluationArtifact(uri=f"{root}/{FOLDER}/report.json", content=report.to_dict())
        return EvaluationResult(metrics=metrics, artifacts={"fairkit_report": record}, run_id=run_id)


def subject_of(model: Any, model_id: str | None, folder: Path) -> Any:
    """Return the ONNX file that a model was logged as; None where it was logged otherwise, or there is none."""
    from fairkit_onnx.file import OnnxModel

    about: Any = getattr(model, "metadata", None)
    flavor = None if about is None else (about.flavors or {}).get("onnx")
    if flavor is None:
        return None
    uri = f"models:/{model_id}" if model_id else about.get_model_info().model_uri
    folder.mkdir()
    root = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))
    path = root / str(flavor["data"])
    if path.is_dir():
        path /= "model.onnx"
    loaded = OnnxModel.load(path)
    if loaded.external:
        raise ModelError(
            "MLflow has saved the model's weights in other files, which its digest does not cover; log it with "
            "mlflow.onnx.log_model(..., save_as_external_data=False)"
        )
    return loaded


def in_memory(model: Any) -> Any:
    """Return the estimator to audit, the raw one if it gives probabilities; None for columns of the table."""
    if model is None:
        return None
    raw = model.get_raw_model() if hasattr(model, "get_raw_model") else None
    return raw if hasattr(raw, "predict_proba") else model


def write_artifacts(report: Report, certificate: bytes | None, data: Dataset, folder: Path) -> Path:
    """Write the report as JSON, as Markdown and, where it can be drawn, as a page; and the certificate."""
    folder.mkdir()
    text = json.dumps(report.to_dict(), indent=2, ensure_ascii=False, default=str)
    (folder / "report.json").write_text(text, encoding="utf-8")
    (folder / "report.md").write_text(report.to_markdown(), encoding="utf-8")
    try:
        (folder / "report.html").write_text(report.to_html(), encoding="utf-8")
    except ImportError as error:  # the extra `html` is not installed
        data.note([str(error)])
    if certificate is not None:
        (folder / "certificate.json").write_bytes(certificate)
    return folder
