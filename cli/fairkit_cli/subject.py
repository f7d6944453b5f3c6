"""What a command audits: a model's file, a server's answers, or columns of the table in place of one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.data.answers import carried_by
from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.names import model_file
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.data.predictions import PredictionRoles
    from fairkit.settings import AuditSettings
    from fairkit_cli.config import Config
    from fairkit_onnx.model import OnnxModel


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, or the columns that are audited in its place; `table` is a table that was named in place of a model."""

    model: OnnxModel | Any | None
    predictions: PredictionRoles | None
    table: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        """Where the model answers, as a certificate keeps it; empty for a file and for columns."""
        return getattr(self.model, "record", {})

    def dataset(
        self, typed: opt.DataOptions, config: Config, conditions: opt.ConditionOptions | None = None
    ) -> Dataset:
        """Load the data that it is audited on."""
        file = "test" if "test" in config.data else "path"
        carried: dict[str, Any] = {} if self.model is None else dict(self.model.settings)
        if self.table is not None:
            if typed.data is not None:
                raise ParameterError(
                    f"{self.table} is a table, and so is --data: give a MODEL.onnx for --data, or leave --data out and "
                    f"name its columns: fairkit audit {self.table} --predictions decision=COL"
                )
            typed, carried = dataclasses.replace(typed, data=self.table), carried_by(self.table)
        return opt.load_dataset(typed, config, carried, file=file, predictions=self.predictions, conditions=conditions)

    def settings(self, settings: AuditSettings, typed: opt.AuditOptions, config: Config) -> AuditSettings:
        """Return the settings of the audit: answers are looked at by `correspondence` where no auditor is named.

        Of the configuration file's policy an audit of the table alone keeps the rules that its auditors measure.
        """
        if self.model is None and self.predictions is None and not (typed.maximums or typed.minimums):
            from fairkit import plugins

            others = plugins.third_party()[0]
            named = {
                one for name in settings.auditors for one in plugins.find_auditor(name, others)[0].measures(()) or ()
            }
            return dataclasses.replace(settings, policy=tuple(rule for rule in settings.policy if rule.metric in named))
        answers = self.predictions is not None and self.predictions.answer is not None
        if not answers or typed.auditors or config.audit.get("auditors"):
            return settings
        rest = (name for name in settings.auditors if name not in ("group", "correspondence"))
        return dataclasses.replace(settings, auditors=("correspondence", *rest))


def chosen(
    model: str | None,
    predictions: Sequence[str] | None,
    config: Config,
    served: opt.EndpointOptions | None = None,
    auditors: Sequence[str] = (),
) -> Subject:
    """Return the audit's subject; the command line wins over the configuration file."""
    from fairkit.data.predictions import PredictionRoles

    if served is not None and (answering := _answering(model, predictions, config, served)) is not None:
        return Subject(answering, None)
    columns = config.data.get("predictions")
    if model is not None and model.endswith((".parquet", ".csv")) and Path(model).exists():
        roles = PredictionRoles.parse(predictions) if predictions else PredictionRoles(answer="answer")
        return Subject(None, roles, model)
    if model is not None:
        if predictions:
            raise ParameterError("give a model or --predictions, not both: which of the two is audited?")
        if columns:
            say("the model is audited, not the [data] predictions of the configuration file")
        return Subject(load_model(model, config), None)
    if predictions:
        return Subject(None, PredictionRoles.parse(predictions))
    if _looks_at_tables(auditors):
        return Subject(None, None)
    if not columns:
        raise ParameterError(
            "what is audited? Give a MODEL.onnx, or name columns of the data with "
            "--predictions decision=COL,score=COL, or a server with --endpoint URL"
        )
    return Subject(None, PredictionRoles.of(columns))


def _looks_at_tables(auditors: Sequence[str]) -> bool:
    """Tell whether auditors were named, and all of them look at the table alone."""
    from fairkit import plugins

    others = plugins.third_party()[0] if auditors else []
    return bool(auditors) and all(plugins.find_auditor(name, others)[0].tasks == {"table"} for name in auditors)


def _answering(
    model: str | None, predictions: Sequence[str] | None, config: Config, served: opt.EndpointOptions
) -> Any:
    """Return the model behind a server, where one is named; the configuration file's only where nothing else is."""
    source = "a model" if model is not None else "--predictions" if predictions else None
    if served.endpoint is not None and source is not None:
        raise ParameterError(f"give {source} or --endpoint, not both: which of the two is audited?")
    if source is not None:
        if served.typed:
            raise ParameterError(f"the options of an endpoint mean nothing for {source}: they need --endpoint URL")
        return None
    settings = served.chosen(config)
    if settings is None:
        return None
    from fairkit.plugins import model_source

    return model_source("endpoint").open(settings)


def load_model(model: str, config: Config) -> OnnxModel:
    """Load a model from a file, or by its name in the registry, which says more than the file's digest."""
    from fairkit_onnx.model import OnnxModel

    path = model_file(model, config)
    loaded = OnnxModel.load(path)
    if path != Path(model):
        loaded.name = model
    return loaded
