"""The parameters of the auditor, and what they mean for a model and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters.declare import parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditors import AuditContext

RATES = {"selection_rate": "decision", "true_positive_rate": "true_positive_rate",
         "false_positive_rate": "false_positive_rate"}  # fmt: skip
"""Numbers about decisions, and what a finding says that it is of."""
NUMBERS = {"score": "score", "mean_prediction": "prediction", "mean_residual": "residual"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set why.KEY=VALUE."""

    metric: tuple[str, ...] = parameter(
        (),
        help="What to divide: any of selection_rate, true_positive_rate, false_positive_rate, score, mean_prediction, "
        "mean_residual; default: the selection rate, and the score before the link where it is exact.",
    )
    allowed: tuple[str, ...] = parameter(
        (), help="Columns in which a difference is allowed: what is left between people who are alike in them."
    )
    together: tuple[str, ...] = parameter(
        (), help="Columns that belong together, joined by +, such as job=a+job=b; by default each is alone."
    )
    people: tuple[str, ...] = parameter(
        (),
        help="Conditions of a group to compare with everybody else, such as age=25:60 or job=clerk; income=:30000 is "
        "open below, job= is a missing value.",
    )
    calls: int = parameter(
        400_000, help="The most rows that the model is asked about for each attribution by sampling.", minimum=1_000
    )
    refit: str | None = parameter(
        None, help="A table to train on again with and without the columns of `without`; default: no training."
    )
    without: tuple[str, ...] = parameter(
        (), help="The columns to leave out with `refit`; default: the one that carries the most of the gap."
    )
    refits: int = parameter(
        1,
        help="How often to train: beyond 1 on resampled rows, whose variance joins the interval.",
        minimum=1,
        maximum=50,
    )


def metrics_of(chosen: Parameters, context: AuditContext) -> list[str]:
    """Return the names of the gaps to divide, as in findings; see `RATES` and `NUMBERS`."""
    task, labelled = context.scorer.task, context.dataset.roles.label is not None
    metrics = {**RATES, **NUMBERS}
    rates = [*RATES, "score", "mean_residual"]
    fit = {"regression": ["mean_prediction", "mean_residual"], "binary": rates}[task]
    for name in chosen.metric:
        if name not in metrics:
            raise ParameterError(
                f"why.metric: there is no metric {name!r}. {did_you_mean(name, metrics, what='metrics')}"
            )
        if name not in fit:
            raise ParameterError(f"why.metric: {name} is not for a {task} task; possible: {', '.join(fit)}")
        if not labelled and name in ("true_positive_rate", "false_positive_rate", "mean_residual"):
            raise ParameterError(f"why.metric: {name} needs the outcome; name its column with `label`")
    default = ["mean_prediction"] if task == "regression" else ["selection_rate", "score"]
    return [metrics[name] for name in dict.fromkeys(chosen.metric or default)]


def players_of(chosen: Parameters, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the columns of every player: those that belong together, and each of the others."""
    groups: list[tuple[str, ...]] = []
    for text in chosen.together:
        names = _joined(text, columns)
        if names is None:
            raise ParameterError(
                f"why.together: {text!r} is not made of columns that the model reads, joined by +; "
                f"it reads: {', '.join(columns)}"
            )
        groups.append(names)
    taken = [name for group in groups for name in group]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise ParameterError(f"why.together: the column {twice!r} is named twice")
    owner = {name: group for group in groups for name in group}
    return list(dict.fromkeys(owner.get(name, (name,)) for name in columns))


def _joined(text: str, columns: Sequence[str]) -> tuple[str, ...] | None:
    """Split names at +, of which names may have some themselves."""
    names, rest = [], text.split("+")
    while rest:
        size = next((k for k in range(len(rest), 0, -1) if "+".join(rest[:k]) in columns), None)
        if size is None:
            return None
        names.append("+".join(rest[:size]))
        rest = rest[size:]
    return tuple(names)


def conditions_of(chosen: Parameters) -> list[dict[str, Any]]:
    """Return the conditions of the group of `people` (see `fairkit.results.conditions`)."""
    conditions: list[dict[str, Any]] = []
    for text in chosen.people:
        column, sign, value = text.partition("=")
        low, colon, high = value.partition(":")
        try:
            ends = [float(end) if end else None for end in (low, high)] if colon else []
        except ValueError:
            ends = []
        if not column or not sign:
            raise ParameterError(f"why.people: {text!r} is no condition; write COLUMN=VALUE or COLUMN=LOW:HIGH")
        told = {"low": ends[0], "high": ends[1]} if ends else {"value": value or None}
        conditions.append({"column": column, **told})
    return conditions


def allowed_columns(chosen: Parameters, context: AuditContext) -> tuple[str, ...]:
    """Return the allowed columns."""
    roles, data = context.dataset.roles, context.dataset
    sensitive = {column for split in roles.sensitive for column in split.columns}
    said = set() if roles.predictions is None else set(roles.predictions.columns)
    for name in chosen.allowed:
        if name not in data.columns:
            hint = did_you_mean(name, data.columns, what="columns")
            raise DataError(f"why.allowed: {data.name} has no column {name!r}. {hint}")
        reason = (
            "the outcome: people with one outcome are what true and false positive rates compare"
            if name == roles.label
            else "what the model says"
            if name in said
            else "the rows' weight"
            if name == roles.weights
            else "sensitive: between groups nobody is alike in it"
            if name in sensitive
            else None
        )
        if reason is not None:
            raise ParameterError(f"why.allowed: {name!r} is {reason}; allow other columns")
    return tuple(dict.fromkeys(chosen.allowed))
