"""The data of a command, where it works and whom it asks: options, and what they and the configuration file name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

import typer

from fairkit.errors import ParameterError, did_you_mean
from fairkit.settings import Setting, declared
from fairkit.sources.address import TOKEN
from fairkit.support.escaping import listed_names
from fairkit.support.lazy_dataclass import dataclass, fields, replace
from fairkit_cli.config import FACTS, Config, check_host
from fairkit_cli.process_environment import load_compute
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.roles import PredictionRoles
    from fairkit_onnx.sandbox.confine import Limits


# How a command declares an option: one line each, in a panel of its help.


DATA = "Data"
ENGINE = "Engine"
MODEL = "Model"
POLICY = "Policy"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Rare:
    """What is rarely set: it has no option, but ``--set KEY=VALUE``."""

    key: str
    help: str


def option(name: str, metavar: str, help_text: str, panel: str | None = None, **more: Any) -> Any:
    """Declare an option that takes a value."""
    return typer.Option(name, metavar=metavar, help=help_text, rich_help_panel=panel, **more)


_TYPES: dict[str, Any] = {"text": str, "number": float, "integer": int, "names": list[str], "columns": list[str]}


def declared_option(setting: Setting) -> Any:
    """Return the annotation of the option that gives a setting."""
    shown: Any = option(setting.option, setting.metavar, setting.help, setting.panel)
    if setting.rare:
        shown = Rare(f"{setting.table}.{setting.key}", setting.help)
    return Annotated[_TYPES[setting.kind] | None, shown]


def setting_option(name: str) -> Any:
    """Declare the option of a setting in a command that takes it alone."""
    setting = next(each for each in declared() if each.name == name)
    return option(setting.option, setting.metavar, setting.help, setting.panel)


def formats(*described: str, exporters: bool = False) -> Any:
    """Declare ``--format`` of a command that knows these formats (``NAME`` or ``NAME: what it is``).

    With `exporters` also those of plugins (`fairkit.exporters`).
    """
    names = [text.partition(":")[0] for text in described]

    def check(value: str) -> str:
        if value not in names and exporters:
            from fairkit.plugins import exporter_of

            exporter_of(value)
        elif value not in names:
            hint = did_you_mean(value, names, what="formats")
            raise ParameterError(f"--format: there is no format {value!r}. {hint}")
        return value

    told = [re.sub(r"(\w+): (.*)", r"\1 (\2)", text) for text in described]
    told += ["one that a plugin writes"] if exporters else []
    help_text = f"How the result is written: {', '.join(told[:-1])} or {told[-1]}."
    return typer.Option("--format", metavar="NAME", help=help_text, callback=check, rich_help_panel=OUTPUT)


Label = Annotated[str | None, option("--label", "COL", "The outcome column.", DATA)]
Favorable = Annotated[
    str | None, option("--favorable", "V", "The label's value that is good for the person, such as approved.", DATA)
]
SensitiveColumns = Annotated[
    list[str] | None,
    option(
        "--sensitive", "A,B", "Sensitive columns. A+B adds an intersection, age:25:60 bins a number at 25 and 60.", DATA
    ),
]
Features = Annotated[
    list[str] | None,
    option(
        "--features",
        "A,B",
        "The columns that the model gets, in its order. Default: by name, else all but the label.",
        DATA,
    ),
]
Drop = Annotated[list[str] | None, option("--drop", "A,B", "Columns that the model does not get.", DATA)]
Weights = Annotated[str | None, Rare("data.weights", "The column of sample weights.")]
MissingValues = Annotated[
    str | None,
    Rare(
        "data.missing",
        "Rows without a sensitive value: in no group of that column (drop, the default), or a group of their own "
        "(group).",
    ),
]


On = Annotated[
    list[str] | None,
    option("--on", "COL", "The key of --join, one row for each; COL=OTHER where it has another name there.", DATA),
]
PredictionColumns = Annotated[
    list[str] | None,
    option(
        "--predictions",
        "KIND=COL,...",
        "Columns of the data to audit in place of a model: decision=, score=, probability=, class=, prediction= or "
        "answer=.",
        DATA,
    ),
]


Labelled = Annotated[
    str | None,
    option(
        "--labelled",
        "FILE|HOW",
        "How rows with a known outcome were chosen, where some have none: a file of `plan --draw`, random, "
        "probability=COL, by=COL,COL, or selective (nobody drew them).",
        DATA,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOptions:
    """How groups are compared, as it was typed; None where nothing was."""

    KEYS: ClassVar[Mapping[str, str]] = {
        name: f"data.{name}" for name in ("reference", "within", "cluster", "sensitive_probability")
    }

    reference: Annotated[
        list[str] | None,
        option(
            "--reference",
            "SENSITIVE=GROUP",
            "Compare every group with this one, too; sex=@largest, sex=@highest (repeatable).",
            DATA,
        ),
    ] = None
    within: Annotated[
        list[str] | None,
        option(
            "--within",
            "COL",
            "Measure every disparity inside the strata of a column, and pooled over them, too (repeatable).",
            DATA,
        ),
    ] = None
    cluster: Annotated[
        str | None, option("--cluster", "COL", "The column of ids: rows with one id depend on each other.", DATA)
    ] = None
    sensitive_probability: Annotated[
        list[str] | None,
        option(
            "--sensitive-probability",
            "NAME=COL,COL",
            "Columns of group probabilities in place of a sensitive column (repeatable).",
            DATA,
        ),
    ] = None
    counts_from: Annotated[
        int | None,
        Rare("data.counts_from", "Groups of fewer rows have no numbers of their own: they are one, '(small groups)'."),
    ] = None
    labelled: Labelled = None
    refused: Annotated[
        str | None,
        Rare("data.refused", "no-better: suppose that refused people have no larger share of favorable outcomes."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The data options of a command as they were typed; None where nothing was."""

    KEYS: ClassVar[Mapping[str, str]] = {"data": "data.path"} | {
        name: f"data.{name}" for name in ("label", "favorable", "sensitive", "features", "drop")
    }

    data: Annotated[
        str | None,
        option(
            "--data",
            "FILE",
            "The data: a CSV or Parquet file, a folder or glob of such files, or an address such as s3://bucket/key.",
            DATA,
        ),
    ] = None
    label: Label = None
    favorable: Favorable = None
    sensitive: SensitiveColumns = None
    features: Features = None
    drop: Drop = None
    weights: Weights = None
    missing: MissingValues = None
    join: Annotated[
        str | None,
        option("--join", "FILE", "Another table with more columns, such as sensitive ones; needs --on.", DATA),
    ] = None
    on: On = None
    query: Annotated[
        str | None,
        Rare("data.query", "The column of queries: rows with one value are ranked together by the model's score."),
    ] = None


def load_dataset(
    typed: DataOptions,
    config: Config,
    embedded: Mapping[str, Any] | None = None,
    *,
    file: str = "path",
    predictions: PredictionRoles | None = None,
    conditions: ConditionOptions | None = None,
    outcomes_optional: bool = False,
) -> Dataset:
    """Load the data: options win over the configuration file, which wins over the model's metadata."""
    from fairkit.data.loading import load_data

    load_compute()
    carried, condition_options = embedded or {}, conditions or ConditionOptions()
    path = typed.data or (config.table(config.data[file]) if config.data.get(file) else None)
    if path is None:
        raise ParameterError("which data? Give --data FILE (CSV, Parquet, an address), or [data] path in fairkit.toml")

    join_settings = config.data.get("join", {})

    def setting(key: str, value: Any) -> Any:
        if value is not None:
            return value
        return config.data[key] if key in config.data else carried.get(key)

    label = setting("label", typed.label)
    if outcomes_optional and typed.label is None and label is not None:
        from fairkit.data.sources import open_source

        if label not in open_source(path).columns:
            say(f"note: {path} has no column {label!r}, the configured label: what needs outcomes is left out")
            label = None
    return load_data(
        path,
        label=label,
        favorable=setting("favorable", typed.favorable),
        sensitive=listed(setting("sensitive", split_names(typed.sensitive, exact=True))),
        features=split_names(typed.features, exact=True) or config.data.get("features"),
        drop=listed(setting("drop", split_names(typed.drop, exact=True))),
        weights=setting("weights", typed.weights),
        missing=setting("missing", typed.missing) or "drop",
        predictions=predictions,
        join=typed.join or (config.table(join_settings["path"]) if join_settings.get("path") else None),
        on=split_names(typed.on, exact=True) or listed(join_settings.get("on")) or None,
        reference=listed(setting("reference", condition_options.reference)),
        within=listed(setting("within", split_names(condition_options.within, exact=True))),
        cluster=setting("cluster", condition_options.cluster),
        sensitive_probability=listed(setting("sensitive_probability", condition_options.sensitive_probability)),
        query=setting("query", typed.query),
        # of what is published: commands that train have no such option
        counts_from=0 if conditions is None else setting("counts_from", conditions.counts_from) or 0,
        labelled=None if conditions is None else _labelled(conditions, config),
    )


def load_test(
    test: str | None, typed: DataOptions, config: Config, embedded: Mapping[str, Any] | None = None
) -> Dataset | None:
    """Load the rows to audit on, where a file of their own is named."""
    if test is None and (typed.data is not None or not config.data.get("test")):
        return None
    return load_dataset(replace(typed, data=test), config, embedded, file="test")


def _labelled(typed: ConditionOptions, config: Config) -> Any:
    """Return how the rows with an outcome were chosen; None where nothing was said."""
    from fairkit.data.labelled import KINDS, Drawn

    design, refused = typed.labelled, typed.refused or config.data.get("refused")
    named = config.data.get("labelled")
    if design is None and named is not None:  # a path is beside the configuration file
        design = named if named.split("=")[0] in KINDS else config.table(named)
    if design is None and refused is not None:
        raise ParameterError("data.refused goes with --labelled: say how the rows with an outcome were chosen")
    return None if design is None else Drawn(str(design), refused)


def split_names(items: Sequence[str] | None, *, exact: bool = False) -> list[str] | None:
    """Split ``["a,b", "c"]`` into names, which keep spaces around them where `exact`; None stays None."""
    return None if items is None else [name for item in items for name in listed_names(item, exact=exact)]


def listed(value: Any) -> list[str]:
    """Return a setting of the configuration file as a list: one name, several, or none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def first_known(*values: Any) -> Any:
    """Return the first that is not None: what was typed, what the configuration file says, the default."""
    return next(value for value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Where the work is done; None: in this process."""

    KEYS: ClassVar[Mapping[str, str]] = {"engine": "engine.name"}

    engine: Annotated[
        str | None,
        option(
            "--engine",
            "NAME",
            "Where the work runs: dask spreads it over processes or machines; sql has the database of --data count, "
            "for audits of --predictions. Default: this process.",
            ENGINE,
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        Rare("engine.scheduler", "The address of a Dask scheduler, as tcp://host:8786. Default: a cluster here."),
    ] = None
    no_pull: Annotated[
        bool | None, Rare("engine.no_pull", "With --engine sql: refuse what the database cannot count; no row is read.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.audit`."""
        if self.no_pull:
            if self.engine != "sql":
                raise ParameterError("engine.no_pull is about --engine sql; add it, or leave engine.no_pull out")
            from fairkit_sql.counted import SqlEngine

            return {"engine": SqlEngine(pulls=False), "scheduler": self.scheduler}
        return {"engine": self.engine, "scheduler": self.scheduler}


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """What the process of a model may take; None: the default."""

    memory: Annotated[
        str | None,
        Rare("sandbox.memory", "The most memory that a model may take, as 2GB. Default: what is free, less a tenth."),
    ] = None
    timeout: Annotated[
        float | None, Rare("sandbox.timeout", "Seconds that a model may take to load, or for one batch. Default: 300.")
    ] = None
    allow_domain: Annotated[
        list[str] | None,
        Rare(
            "sandbox.allow_domain", "Also run operators of this domain, as com.microsoft. Default: ai.onnx, ai.onnx.ml."
        ),
    ] = None

    def limits(self, config: Config) -> Limits:
        """Return the limits: options win over the configuration file."""
        from fairkit_onnx.sandbox.confine import TIMEOUT, Limits, read_bytes

        configured = config.sandbox
        memory = self.memory or configured.get("memory")
        timeout = first_known(self.timeout, configured.get("timeout"), TIMEOUT)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ParameterError(f"[sandbox] timeout={timeout!r} is no number of seconds")
        return Limits(
            memory=None if memory is None else read_bytes(str(memory)),
            timeout=float(timeout),
            domains=tuple(split_names(self.allow_domain) or listed(configured.get("allow_domain"))),
        )


PANEL = "Endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingOptions:
    """How a server is asked; None: the default."""

    model_name: Annotated[str | None, option("--model-name", "NAME", "The model's name on the server.", PANEL)] = None
    model_version: Annotated[
        str | None, Rare("endpoint.model_version", "The model's version on the server. Default: the server chooses.")
    ] = None
    endpoint_timeout: Annotated[
        float | None, Rare("endpoint.timeout", "Seconds that one answer of the server may take. Default: 60.")
    ] = None
    endpoint_rate: Annotated[
        float | None, Rare("endpoint.rate", "The most requests to the server in a second. Default: no limit.")
    ] = None

    def settings(self, url: str, config: Config) -> dict[str, Any]:
        """Return the settings: options win over the configuration file."""
        configured = config.endpoint
        name = self.model_name or configured.get("model_name")
        if not name:
            raise ParameterError("an endpoint serves models by name; say which one with --model-name")
        return {
            "url": url,
            "model": name,
            "version": self.model_version or configured.get("model_version"),
            "timeout": float(first_known(self.endpoint_timeout, configured.get("timeout"), 60.0)),
            "rate": configured.get("rate") if self.endpoint_rate is None else self.endpoint_rate,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions(AskingOptions):
    """A server whose model is audited, and how it is asked."""

    endpoint: Annotated[
        str | None,
        option(
            "--endpoint",
            "URL",
            "Audit the model behind this server (KServe, Triton, MLServer), as http://host:8000.",
            PANEL,
        ),
    ] = None

    @property
    def typed(self) -> bool:
        """Whether any option of an endpoint was typed."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    def chosen(self, config: Config) -> dict[str, Any] | None:
        """Return the settings; None where no server is named."""
        url = self.endpoint or config.endpoint.get("url")
        if self.endpoint is None and url is not None and os.environ.get(TOKEN):
            check_host(urlsplit(url).netloc or url, config.path, f"the token in {TOKEN}")
        if url is None and self.typed:
            raise ParameterError("--model-name and the other options of an endpoint need --endpoint URL")
        return None if url is None else self.settings(url, config)


About = Annotated[
    list[str] | None,
    Rare("about.*", "A fact that the report states as you say it: about.intended_use, about.owner, about.period."),
]


def stated_facts(typed: Sequence[str] | None, config: Config, *, dated: bool) -> dict[str, str]:
    """Return the facts: what was typed wins over the configuration file."""
    from fairkit.results.findings import facts_of

    facts = {**config.about, **{key: str(config.model[key]) for key in FACTS if key in config.model}}
    typed_facts: dict[str, str] = {}
    for text in typed or ():
        name, equals, value = text.partition("=")
        if not equals or name in typed_facts:
            raise ParameterError(
                f"--set about.{text} gives {name!r} twice"
                if equals
                else f"--set about.{text} is not understood; write about.NAME=TEXT, as in --set about.owner=Lending"
            )
        typed_facts[name] = value
    facts |= typed_facts
    if dated and "date" not in facts:
        facts["date"] = today()
    return facts_of(facts)


def today() -> str:
    """Return the day in UTC as 2026-01-31; that of SOURCE_DATE_EPOCH (seconds since 1970) where it is set."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return moment.date().isoformat()
