"""The parameters of the auditor, and what follows from them before any row is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_subgroups.searching.measures import MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditors import AuditContext
    from fairkit_subgroups.searching.measures import Measure

ALL = "all"
DIFFERENCE, GAP, SINGLE = "subgroup_difference", "worst_subgroup_gap", "subgroup_gap"
"""The names of findings."""
_RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
_ANY_COLUMNS = ("calibration_residual", "error_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set subgroups.KEY=VALUE."""

    columns: tuple[str, ...] = parameter(
        (), help="Columns that conditions are about; `all`: every feature and sensitive column; default: sensitive."
    )
    metrics: tuple[str, ...] = parameter(
        (),
        help="Any of selection_rate, true_positive_rate, false_positive_rate, error_rate, mean_loss, "
        "calibration_residual; default: the first three, or the last and error_rate where other columns are searched.",
    )
    depth: int = parameter(3, help="The most conditions of a group.", minimum=1, maximum=3)
    share: float = parameter(0.01, help="The least share of the rows that a group has.", minimum=0.001, maximum=0.5)
    least: int = parameter(
        50, help="The least rows that a rate is over, in a group and outside; smaller ones are never shown.", minimum=10
    )
    bins: int = parameter(
        8, help="The most cells that the values of a numeric column are put in.", minimum=2, maximum=50
    )
    show: int = parameter(6, help="The most groups that are listed for each metric.", minimum=0, maximum=50)
    within: tuple[str, ...] = parameter(
        (), help="Columns inside whose values groups are compared with the rest; default: among all rows."
    )
    simultaneous: Literal["exact", "bootstrap"] = parameter(
        "exact",
        help="How limits hold for all groups at once: exact tails over the number of groups, or over an effective "
        "number from a bootstrap of their overlaps.",
    )
    validate: Literal["no", "half"] = parameter(
        "no",
        help="`half` searches half of the rows and tests at most ten groups on the other; no bound for all groups.",
    )


def chosen_columns(chosen: Parameters, context: AuditContext) -> tuple[list[str], bool]:
    """Return the columns to search, and whether they were named by the user one by one."""
    data = context.dataset
    sensitive = list(dict.fromkeys(column for split in data.roles.sensitive for column in split.columns))
    if chosen.columns and chosen.columns != (ALL,):
        require(chosen.columns, data.columns, "columns", data.name)
        return list(dict.fromkeys(chosen.columns)), True
    names = sensitive
    if chosen.columns == (ALL,):
        features = [c for c in data.features if c in data.columns]
        names = list(dict.fromkeys([*features, *(c for c in context.scorer.columns if c in data.columns), *sensitive]))
    names = [name for name in names if name not in (data.roles.label, data.roles.weights, *chosen.within)]
    if not names:
        raise ParameterError(
            "the auditor 'subgroups' has no columns to search: name some in `sensitive`, or set subgroups.columns "
            "to columns of the data, or to `all`"
        )
    return names, False


def require(names: Sequence[str], known: Sequence[str], parameter_name: str, table: str) -> None:
    """Refuse names that are no columns."""
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, what="columns")
            raise DataError(f"subgroups.{parameter_name}: {table} has no column {name!r}. {hint}")


def chosen_measures(chosen: Parameters, columns: Sequence[str], context: AuditContext) -> list[Measure]:
    """Return the measures to search, by the parameters, the task and the data."""
    task, data = context.scorer.task, context.dataset
    fit = {"binary": set(MEASURES), "regression": {"mean_loss"}, "multiclass": {"error_rate"}}[task]
    for name in chosen.metrics:
        if name not in MEASURES:
            raise ParameterError(f"subgroups.metrics: {did_you_mean(name, MEASURES, what='metrics')}")
        if name not in fit:
            raise ParameterError(
                f"subgroups.metrics: {name} is not for a {task} task; possible: {', '.join(sorted(fit))}"
            )
    labelled = data.roles.label is not None
    names = chosen.metrics or _default(columns, context)
    for name in chosen.metrics:
        if "outcome" in MEASURES[name].needs and not labelled:
            raise ParameterError(
                f"subgroups.metrics: {name} needs the outcome; name its column with `label`, or measure selection_rate"
            )
    names = tuple(name for name in names if name in fit and (labelled or "outcome" not in MEASURES[name].needs))
    if not names:
        raise ParameterError(
            f"the auditor 'subgroups' measures nothing on a {task} task without outcomes; name the outcome's column "
            "with `label`"
        )
    return [MEASURES[name] for name in dict.fromkeys(names)]


def _default(columns: Sequence[str], context: AuditContext) -> tuple[str, ...]:
    if context.scorer.task == "regression":
        return ("mean_loss",)
    if context.scorer.task == "multiclass":
        return ("error_rate",)
    sensitive = {column for split in context.dataset.roles.sensitive for column in split.columns}
    if set(columns) <= sensitive or context.dataset.roles.label is None:
        return _RATES
    return _ANY_COLUMNS
