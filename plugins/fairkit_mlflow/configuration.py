"""What an evaluation in MLflow asks of fairkit: the keys of ``evaluator_config``."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import DataError, ParameterError, did_you_mean
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
