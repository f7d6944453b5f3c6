"""What an evaluation in MLflow asks of fairkit: the keys of ``evaluator_config``."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import mlflow
from mlflow.models.evaluation.artifacts import JsonEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from fairkit.errors import DataError, ModelError, ParameterError, did_you_mean
from fairkit.settings import AuditSettings, ModelOptions
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.results.findings import Finding
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule


_TASKS = {"classifier": None, "regressor": "regression"}
_LISTS = ("sensitive", "features", "drop", "reference", "within", "cluster")
PREDICTED = "fairkit_prediction"
"""The column that holds a table's own predictions, beside those that the table has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorConfig:
    """The configuration of the evaluator."""

    sensitive: tuple[str, ...]
    label: str | None = None
    favorable: Any = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    weights: str | None = None
    reference: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    max: Any = ()  # the policy: `{"demographic_parity_difference:sex": 0.05}`, or texts `METRIC:SENSITIVE=X`
    min: Any = ()
    settings: AuditSettings = field(default_factory=AuditSettings)
    key: str | Path | None = None
    everything: bool = False  # whether all findings are logged
    task: Any = None

    @classmethod
    def read(cls, config: Mapping[str, Any] | None, *, model_type: str) -> Self:
        """Read ``evaluator_config``."""
        if model_type not in _TASKS:
            raise ParameterError(
                f"the evaluator of fairkit takes model_type 'classifier' or 'regressor', not {model_type!r}"
            )
        entries = dict(config or {})
        of_audit = {each.name for each in dataclasses.fields(AuditSettings)} - {"policy", "options"}
        of_model = {each.name for each in dataclasses.fields(ModelOptions)} - {"task"}
        names = {each.name for each in dataclasses.fields(cls)} - {"settings", "task"}
        known = sorted(names | of_audit | of_model)
        for key in entries:
            if key not in known:
                raise ParameterError(f"evaluator_config has the key {key!r}. {did_you_mean(key, known, what='keys')}")
        for key in (*_LISTS, "auditors"):
            if isinstance(entries.get(key), str):
                entries[key] = [entries[key]]
            if entries.get(key) is not None:
                entries[key] = tuple(entries[key])
        task: Any = _TASKS[model_type]
        options = ModelOptions(task=task, **{key: entries.pop(key) for key in of_model & set(entries)})
        audit = {key: entries.pop(key) for key in of_audit & set(entries)}
        return cls(**entries, task=task, settings=AuditSettings.of(audit | {"options": options}))

    @property
    def policy(self) -> tuple[Rule, ...]:
        """The rules."""
        from fairkit.results.rules import Rule

        parsed = []
        for kind, rules in (("max", self.max), ("min", self.min)):
            texts = [f"{name}={value}" for name, value in rules.items()] if isinstance(rules, Mapping) else rules
            texts = [texts] if isinstance(texts, str) else texts
            parsed += [Rule.parse(text, kind) for text in texts]  # type: ignore[arg-type]  # one of the two
        return tuple(parsed)

    def dataset(self, evaluation: Any, model: Any, *, columns: bool) -> Dataset:
        """Return the rows of an MLflow evaluation as a dataset."""
        import fairkit

        frame = evaluation.features_data
        if not hasattr(frame, "columns"):
            raise DataError("fairkit audits tables: give mlflow.models.evaluate a data frame, with named columns")
        frame = frame.copy()
        label = self.label or evaluation.targets_name or ("target" if evaluation.has_targets else None)
        if evaluation.has_targets and label not in frame:
            frame[label] = evaluation.labels_data
        roles: dict[str, Any] = {"label": label, "favorable": self.favorable, "sensitive": list(self.sensitive)}
        roles |= {key: list(value) for key in _LISTS[2:] if (value := getattr(self, key))}
        if self.weights is not None:
            roles["weights"] = self.weights
        if columns and (features := self.features or _inputs(model)):
            roles["features"] = [name for name in features if name in frame]
        elif self.features:
            roles["features"] = list(self.features)
        if model is None and columns:
            if not evaluation.has_predictions:
                raise DataError("there is neither a model nor a column of predictions: name one with predictions=")
            frame[PREDICTED] = evaluation.predictions_data
            roles["predictions"] = {_kind(frame[PREDICTED], self.task): PREDICTED}
            roles.pop("features", None)
        return fairkit.load_data(frame, **{key: value for key, value in roles.items() if value not in (None, [])})

    def run(self, subject: Any, data: Dataset) -> tuple[Report, bytes | None]:
        """Audit, and sign where a key is named."""
        settings = AuditSettings.of({"policy": self.policy}, self.settings)
        if self.key is None:
            from fairkit.auditing.run import audit

            return audit(subject, data, settings=settings), None
        if subject is not None and not hasattr(subject, "external"):
            raise ParameterError(
                "key= signs what is found about a file: log the model with mlflow.onnx, or leave key= out"
            )
        from fairkit_registry.evidence.recompute import certify
        from fairkit_registry.evidence.settings import SignedSettings
        from fairkit_registry.evidence.signers import load_secret, written_passphrase

        settings_signed = SignedSettings.of_audit(settings, data.roles.to_dict(), getattr(subject, "record", None))
        signers = [load_secret(self.key, passphrase=written_passphrase)]
        signed, report = certify(subject, data, settings_signed, signers)
        return report, signed


def has_sensitive(config: Mapping[str, Any] | None) -> bool:
    """Return whether a configuration names sensitive columns."""
    return bool(config) and bool((config or {}).get("sensitive"))


def _inputs(model: Any) -> Sequence[str]:
    signature = getattr(getattr(model, "metadata", None), "signature", None)
    return [] if signature is None or signature.inputs is None else list(signature.inputs.input_names())


def _kind(values: Any, task: Any) -> str:
    """Return the kind of a column of predictions: prediction (regression), score (in [0, 1]), or decision."""
    if task == "regression":
        return "prediction"
    return (
        "score" if getattr(values.dtype, "kind", "O") == "f" and not set(values.unique()) <= {0.0, 1.0} else "decision"
    )


# Findings as the metrics of a tracker: one number under one name.


PREFIX = "fairkit"
_ODD = re.compile(r"[^A-Za-z0-9_\-. :/]")
VERDICTS = {"pass": 1.0, "inconclusive": 0.0, "fail": -1.0}


def name_of(finding: Finding) -> str:
    """Return a metric's name: ``fairkit/demographic_parity_difference/sex``; what trackers do not take is a ``_``."""
    parts = [PREFIX, finding.metric, *([finding.place] if finding.place else [])]
    parts += [f"{key} {finding.parameters[key]}" for key in ("class", "epsilon") if key in finding.parameters]
    return "/".join(_ODD.sub("_", part.replace("/", "_").replace("+", " and ")) for part in parts)


def numbers_of(report: Report, *, everything: bool = False) -> dict[str, float]:
    """Return a report's numbers by name.

    Each number has its interval under ``.../low`` and ``.../high``, and what the policy limits also ``.../max`` or
    ``.../min`` and ``.../verdict`` (1 pass, 0 inconclusive, -1 fail); ``fairkit/verdict`` is that of all rules.
    """
    from fairkit.reading import disparities, performance, rule_for

    chosen = report.findings if everything else [*performance(report), *disparities(report)]
    numbers: dict[str, float] = {}
    for finding in chosen:
        name, pair = name_of(finding), finding.interval or (None, None)
        values = {name: finding.value, f"{name}/low": pair[0], f"{name}/high": pair[1]}
        rule = rule_for(report, finding)
        if rule is not None:
            values[f"{name}/{rule.rule.side}"] = rule.limit
            values[f"{name}/verdict"] = VERDICTS[rule.verdict]
        numbers |= {key: float(value) for key, value in values.items() if value is not None and math.isfinite(value)}
    if report.verdict is not None:
        numbers[f"{PREFIX}/verdict"] = VERDICTS[report.verdict]
    return numbers


# The MLflow evaluator: `mlflow.models.evaluate(model, data, targets=..., evaluators="fairkit", ...)`.


FOLDER, RUN_TAG = "fairkit", "fairkit.run"
"""Where a run has what the evaluator writes; the tag of a logged model that names its newest evaluation's run."""


class FairkitEvaluator(ModelEvaluator):  # type: ignore[misc]  # MLflow has no types
    """Audits a model, logs findings with their limits, and the report (and a certificate) as artifacts.

    A model that was logged as ONNX is audited as that very file, so that its certificate is about the file; another one
    as it predicts; a table with predictions by its columns. What it takes in ``evaluator_config`` is in
    `fairkit_mlflow.evaluator.EvaluatorConfig`.
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
