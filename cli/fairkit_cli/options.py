"""The options that commands share, and how they and the configuration file become settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fairkit.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from fairkit.config import Config
    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import ModelOptions
    from fairkit.onnx.sandbox.limits import Limits
    from fairkit.results.policy import Adjustment, Rule

DATA = "Data"
ENGINE = "Engine"
SANDBOX = "Sandbox"
MODEL = "Model"
POLICY = "Policy"
OUTPUT = "Output"

DataFile = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="The data: a CSV or Parquet file, a folder of such files, or a glob pattern.",
        rich_help_panel=DATA,
    ),
]
Label = Annotated[
    str | None, typer.Option("--label", metavar="COL", help="The outcome column.", rich_help_panel=DATA)
]
Favorable = Annotated[
    str | None,
    typer.Option(
        "--favorable",
        metavar="V",
        help="The label's value that is good for the person, such as approved.",
        rich_help_panel=DATA,
    ),
]
SensitiveColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--sensitive",
        metavar="A,B",
        help="Sensitive columns. A+B adds an intersection, age:25:60 bins a number at 25 and 60.",
        rich_help_panel=DATA,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="A,B",
        help="The columns that the model gets, in its order. Default: by name, else all but the label.",
        rich_help_panel=DATA,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="A,B", help="Columns that the model does not get.", rich_help_panel=DATA),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="COL", help="The column of sample weights.", rich_help_panel=DATA),
]
MissingValues = Annotated[
    str | None,
    typer.Option(
        "--missing",
        metavar="drop|group",
        help="Rows without a sensitive value: in no group of that column (default), or a group of their own.",
        rich_help_panel=DATA,
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME",
        help="The task: binary, multiclass or regression. Default: told by the model and the label.",
        rich_help_panel=MODEL,
    ),
]
ScoreOutput = Annotated[
    str | None,
    typer.Option(
        "--score-output",
        metavar="NAME",
        help="The model's output that holds the scores. Default: found by its type and values.",
        rich_help_panel=MODEL,
    ),
]
DecisionOutput = Annotated[
    str | None,
    typer.Option(
        "--decision-output",
        metavar="NAME",
        help="The output that holds the decisions that are served.",
        rich_help_panel=MODEL,
    ),
]
ScoreKindName = Annotated[
    str | None,
    typer.Option(
        "--score-kind",
        metavar="KIND",
        help="What the scores are: probability, logit, label or value. Default: found from the values.",
        rich_help_panel=MODEL,
    ),
]
FavorableClass = Annotated[
    int | None,
    typer.Option(
        "--favorable-class",
        metavar="K",
        help="Which column of the scores belongs to the favorable label, counted from 0.",
        rich_help_panel=MODEL,
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="P",
        help="The decision threshold: favorable when the probability is at least this. Default: 0.5.",
        rich_help_panel=MODEL,
    ),
]
AuditorNames = Annotated[
    list[str] | None,
    typer.Option("--auditor", metavar="NAME", help="An auditor to run; repeatable. Default: group."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter of a plugin; repeatable. `fairkit plugins show NAME` lists them.",
    ),
]
MaxRules = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="METRIC:COL=X",
        help="A policy rule: the metric must be at most X. Repeatable. METRIC@N=X: for N people as replacements.",
        rich_help_panel=POLICY,
    ),
]
MinRules = Annotated[
    list[str] | None,
    typer.Option(
        "--min",
        metavar="METRIC:COL=X",
        help="A policy rule: the metric must be at least X. Repeatable.",
        rich_help_panel=POLICY,
    ),
]
Adjust = Annotated[
    str | None,
    typer.Option(
        "--adjust",
        metavar="NAME",
        help="Adjust the rules for their number: holm (bounds wrong fails), bonferroni (any wrong verdict) or "
        "benjamini-hochberg (the share of wrong verdicts). Default: none.",
        rich_help_panel=POLICY,
    ),
]
LabelError = Annotated[
    list[str] | None,
    typer.Option(
        "--label-error",
        metavar="COL=E",
        help="Up to this share of a sensitive column's, or the label's, values is wrong; verdicts must hold anyway. "
        "COL=E:independent: errors do not depend on decisions.",
        rich_help_panel=DATA,
    ),
]
Simultaneous = Annotated[
    bool | None,
    typer.Option(
        "--simultaneous",
        help="Add intervals of all disparities that hold together, and mark the disparities that survive.",
        rich_help_panel=OUTPUT,
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        "--confidence", metavar="C", help="The confidence of every interval, between 0 and 1. Default: 0.95."
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="The seed of every random draw. Default: 0.")
]


def _format(*known: str) -> Any:
    """Declare ``--format`` of a command that knows these formats (``NAME`` or ``NAME: what it is``)."""
    names = [text.partition(":")[0] for text in known]

    def check(value: str) -> str:
        if value not in names:
            hint = did_you_mean(value, names, what="formats")
            raise ParameterError(f"--format: there is no format {value!r}. {hint}")
        return value

    told = [re.sub(r"(\w+): (.*)", r"\1 (\2)", text) for text in known]
    help_text = f"How the result is written: {', '.join(told[:-1])} or {told[-1]}."
    return typer.Option("--format", metavar="NAME", help=help_text, callback=check, rich_help_panel=OUTPUT)


TableFormat = Annotated[str, _format("table", "json")]
PageFormat = Annotated[str, _format("table", "json", "html")]
ReportFormat = Annotated[str, _format("table", "json", "junit", "html")]
VersionFormat = Annotated[
    str,
    _format("table", "json", "markdown: a model card", "cyclonedx: a bill of materials", "html: its audit"),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the result to this file instead of standard output.",
        rich_help_panel=OUTPUT,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration file. Default: the nearest fairkit.toml, here or above.",
    ),
]


EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where the work runs: dask spreads it over processes or machines. Default: this process.",
        rich_help_panel=ENGINE,
    ),
]
SchedulerAddress = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="The address of a Dask scheduler, as tcp://host:8786. Default: a cluster on this machine.",
        rich_help_panel=ENGINE,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The data options of a command as they were typed; None where nothing was."""

    data: DataFile = None
    label: Label = None
    favorable: Favorable = None
    sensitive: SensitiveColumns = None
    features: Features = None
    drop: Drop = None
    weights: Weights = None
    missing: MissingValues = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The audit options of a command as they were typed; None where nothing was."""

    task: TaskName = None
    score_output: ScoreOutput = None
    decision_output: DecisionOutput = None
    score_kind: ScoreKindName = None
    favorable_class: FavorableClass = None
    threshold: Threshold = None
    auditors: AuditorNames = None
    assignments: Assignments = None
    maximums: MaxRules = None
    minimums: MinRules = None
    adjust: Adjust = None
    confidence: Confidence = None
    seed: Seed = None
    label_error: LabelError = None
    simultaneous: Simultaneous = None


Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="The most memory that a model may take, as 2GB. Default: what is free, less a tenth.",
        rich_help_panel=SANDBOX,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="The longest that a model may take to load, or for one batch. Default: 300.",
        rich_help_panel=SANDBOX,
    ),
]
AllowedDomains = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-domain",
        metavar="DOMAIN",
        help="Also run operators of this domain, as com.microsoft (repeatable). Default: ai.onnx and ai.onnx.ml.",
        rich_help_panel=SANDBOX,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """What the process of a model may take; None: the default."""

    memory: Memory = None
    timeout: Timeout = None
    allow_domain: AllowedDomains = None

    def limits(self, config: Config) -> Limits:
        """Return the limits: options win over the configuration file.

        Raises
        ------
        ParameterError
            A size or a time cannot be used.
        """
        from fairkit.onnx.sandbox.limits import TIMEOUT, Limits, read_bytes

        told = config.sandbox
        memory = self.memory or told.get("memory")
        timeout = _first(self.timeout, told.get("timeout"), TIMEOUT)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ParameterError(f"[sandbox] timeout={timeout!r} is no number of seconds")
        return Limits(
            memory=None if memory is None else read_bytes(str(memory)),
            timeout=float(timeout),
            domains=tuple(split_names(self.allow_domain) or _listed(told.get("allow_domain"))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Where the work is done; None: in this process."""

    engine: EngineName = None
    scheduler: SchedulerAddress = None

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.audit`."""
        return {"engine": self.engine, "scheduler": self.scheduler}


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take `DataOptions`, `AuditOptions`, `EngineOptions` as parameters: their fields become options.

    typer reads a command's options from its signature; this writes the fields into it, in place of the parameter.
    """
    own = inspect.signature(command, eval_str=True)
    gathered: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in own.parameters.items()
        if is_dataclass(parameter.annotation)
    }
    shown: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        if name not in gathered:
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(gathered[name], include_extras=True)
        shown += [
            inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
            for field, hint in hints.items()
        ]

    def run(**typed: Any) -> Any:
        for name, cls in gathered.items():
            typed[name] = cls(**{field.name: typed.pop(field.name) for field in fields(cls)})
        from fairkit.plugins import listed_once

        with _limited(typed), listed_once():
            return command(**typed)

    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


@contextmanager
def _limited(typed: Mapping[str, Any]) -> Iterator[None]:
    """Let the models of a command that takes `SandboxOptions` have these limits."""
    told = next((value for value in typed.values() if isinstance(value, SandboxOptions)), None)
    if told is None:
        yield
        return
    from fairkit.config import load_config
    from fairkit.onnx.sandbox.limits import using

    with using(told.limits(load_config(typed.get("config")))):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What `fairkit.audit` is called with."""

    auditors: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]]
    policy: tuple[Rule, ...]
    adjustment: Adjustment | None
    confidence: float
    seed: int
    options: ModelOptions

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.audit`."""
        return {name: getattr(self, name) for name in self.__slots__}


def split_names(items: Sequence[str] | None) -> list[str] | None:
    """Split ``["a,b", "c"]`` into names; None stays None."""
    if items is None:
        return None
    return [name.strip() for item in items for name in item.split(",") if name.strip()]


def load_dataset(
    typed: DataOptions, config: Config, embedded: Mapping[str, Any] | None = None, *, file: str = "path"
) -> Dataset:
    """Load the data: options win over the configuration file, which wins over the model's metadata.

    Parameters
    ----------
    typed
        The command's options.
    config
        The configuration file.
    embedded
        The data settings that the model carries (see `OnnxModel.settings`). Its features are not taken from
        here: the model finds them by itself.
    file
        The key of the file in ``[data]``: ``path``, ``train`` or ``test``.

    Raises
    ------
    FairkitError
        No data is named, or what is named cannot be used.
    """
    from fairkit.data.dataset import load_data

    carried = embedded or {}
    path = typed.data or (str(config.file(config.data[file])) if config.data.get(file) else None)
    if path is None:
        raise ParameterError("which data? Give --data FILE (CSV or Parquet), or [data] path in fairkit.toml")

    def setting(key: str, value: Any) -> Any:
        if value is not None:
            return value
        return config.data[key] if key in config.data else carried.get(key)

    return load_data(
        path,
        label=setting("label", typed.label),
        favorable=setting("favorable", typed.favorable),
        sensitive=_listed(setting("sensitive", split_names(typed.sensitive))),
        features=split_names(typed.features) or config.data.get("features"),
        drop=_listed(setting("drop", split_names(typed.drop))),
        weights=setting("weights", typed.weights),
        missing=setting("missing", typed.missing) or "drop",
    )


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def audit_settings(typed: AuditOptions, config: Config) -> AuditSettings:
    """Combine options and configuration file; options win.

    An auditor whose parameters are given is run too.

    Raises
    ------
    FairkitError
        A rule, a parameter or an option cannot be used.
    """
    from fairkit.models.scorer import ModelOptions
    from fairkit.results.policy import Rule

    parameters = {name: dict(values) for name, values in config.auditors.items()}
    for owner, key, value in _owned(typed.assignments or ()):
        parameters.setdefault(owner, {})[key] = value
    if typed.simultaneous:
        parameters.setdefault("group", {})["simultaneous"] = True
    if typed.label_error:
        parameters.setdefault("group", {})["label_error"] = list(typed.label_error)
    names = split_names(typed.auditors) or _listed(config.audit.get("auditors")) or ["group"]
    names += [name for name in parameters if name not in names]
    rules = [Rule.parse(text, "max") for text in typed.maximums or ()]
    rules += [Rule.parse(text, "min") for text in typed.minimums or ()]
    told = {
        key: getattr(typed, key)
        for key in ("score_output", "decision_output", "score_kind", "favorable_class", "threshold")
    }
    model: dict[str, Any] = {
        key: config.model.get(key) if value is None else value for key, value in told.items()
    }
    model["task"] = typed.task or config.audit.get("task")
    return AuditSettings(
        auditors=tuple(names),
        parameters=parameters,
        policy=tuple(rules) or config.policy,
        adjustment=_adjustment(typed.adjust or config.audit.get("adjust")),
        confidence=_first(typed.confidence, config.audit.get("confidence"), 0.95),
        seed=_first(typed.seed, config.audit.get("seed"), 0),
        options=ModelOptions(**model),
    )


def _adjustment(name: Any) -> Adjustment | None:
    from fairkit.results.policy import ADJUSTMENTS

    if name not in (None, *ADJUSTMENTS):
        raise ParameterError(
            f"the adjustment {name!r} is not known; it is {', '.join(ADJUSTMENTS[:-1])} or {ADJUSTMENTS[-1]}"
        )
    adjustment: Adjustment | None = name
    return adjustment


def _owned(assignments: Sequence[str]) -> list[tuple[str, str, str]]:
    """Split ``AUDITOR.KEY=VALUE``."""
    from fairkit.parameters.declare import split_assignment

    parts = []
    for text in assignments:
        name, value = split_assignment(text)
        owner, dot, key = name.partition(".")
        if not dot:
            raise ParameterError(
                f"--set {text!r} does not say whose parameter it is; write AUDITOR.KEY=VALUE, "
                "as in --set restricted-dro.epsilon=0.1"
            )
        parts.append((owner, key, value))
    return parts


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
