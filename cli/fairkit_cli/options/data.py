"""The data of a command: its options, and the dataset that they and the configuration file name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fairkit.errors import ParameterError
from fairkit_cli.options.declare import DATA, Rare, option
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.predictions import PredictionRoles
    from fairkit_cli.config import Config

DataFile = Annotated[
    str | None,
    option(
        "--data",
        "FILE",
        "The data: a CSV or Parquet file, a folder or glob of such files, or an address such as s3://bucket/key.",
        DATA,
    ),
]
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


Join = Annotated[
    str | None, option("--join", "FILE", "Another table with more columns, such as sensitive ones; needs --on.", DATA)
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


References = Annotated[
    list[str] | None,
    option(
        "--reference",
        "SENSITIVE=GROUP",
        "Compare every group with this one, too; sex=@largest, sex=@highest (repeatable).",
        DATA,
    ),
]
Within = Annotated[
    list[str] | None,
    option(
        "--within",
        "COL",
        "Measure every disparity inside the strata of a column, and pooled over them, too (repeatable).",
        DATA,
    ),
]
Cluster = Annotated[
    str | None, option("--cluster", "COL", "The column of ids: rows with one id depend on each other.", DATA)
]
Query = Annotated[
    str | None,
    Rare("data.query", "The column of queries: rows with one value are ranked together by the model's score."),
]
SensitiveProbability = Annotated[
    list[str] | None,
    option(
        "--sensitive-probability",
        "NAME=COL,COL",
        "Columns of group probabilities in place of a sensitive column (repeatable).",
        DATA,
    ),
]
CountsFrom = Annotated[
    int | None,
    Rare("data.counts_from", "Groups of fewer rows have no numbers of their own: they are one, '(small groups)'."),
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
Refused = Annotated[
    str | None,
    Rare("data.refused", "no-better: suppose that refused people have no larger share of favorable outcomes."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOptions:
    """How groups are compared, as it was typed; None where nothing was."""

    KEYS: ClassVar[Mapping[str, str]] = {
        name: f"data.{name}" for name in ("reference", "within", "cluster", "sensitive_probability")
    }

    reference: References = None
    within: Within = None
    cluster: Cluster = None
    sensitive_probability: SensitiveProbability = None
    counts_from: CountsFrom = None
    labelled: Labelled = None
    refused: Refused = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The data options of a command as they were typed; None where nothing was."""

    KEYS: ClassVar[Mapping[str, str]] = {"data": "data.path"} | {
        name: f"data.{name}" for name in ("label", "favorable", "sensitive", "features", "drop")
    }

    data: DataFile = None
    label: Label = None
    favorable: Favorable = None
    sensitive: SensitiveColumns = None
    features: Features = None
    drop: Drop = None
    weights: Weights = None
    missing: MissingValues = None
    join: Join = None
    on: On = None
    query: Query = None


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
        sensitive=listed(setting("sensitive", split_names(typed.sensitive))),
        features=split_names(typed.features) or config.data.get("features"),
        drop=listed(setting("drop", split_names(typed.drop))),
        weights=setting("weights", typed.weights),
        missing=setting("missing", typed.missing) or "drop",
        predictions=predictions,
        join=typed.join or (config.table(join_settings["path"]) if join_settings.get("path") else None),
        on=split_names(typed.on) or listed(join_settings.get("on")) or None,
        reference=listed(setting("reference", condition_options.reference)),
        within=listed(setting("within", split_names(condition_options.within))),
        cluster=setting("cluster", condition_options.cluster),
        sensitive_probability=listed(setting("sensitive_probability", condition_options.sensitive_probability)),
        query=setting("query", typed.query),
        # of what is published: commands that train have no such option
        counts_from=0 if conditions is None else setting("counts_from", conditions.counts_from) or 0,
        labelled=None if conditions is None else _labelled(conditions, config),
    )


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


def split_names(items: Sequence[str] | None) -> list[str] | None:
    """Split ``["a,b", "c"]`` into names; None stays None."""
    if items is None:
        return None
    return [name.strip() for item in items for name in item.split(",") if name.strip()]


def listed(value: Any) -> list[str]:
    """Return a setting of the configuration file as a list: one name, several, or none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def first_known(*values: Any) -> Any:
    """Return the first that is not None: what was typed, what the configuration file says, the default."""
    return next(value for value in values if value is not None)
