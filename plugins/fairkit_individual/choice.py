"""Which fair metric an audit uses: learned from the sensitive columns, Euclidean, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.search.memory import check_memory

if TYPE_CHECKING:
    from fairkit.auditors import AuditContext
    from fairkit_individual.collect import AuditedRows

SUBSPACE = "subspace"
KINDS = (SUBSPACE, "euclidean")

STRENGTH = 0.1
"""The default l2 penalty of the subspace's regressions."""


def metric_name(kind: str) -> str:
    """Return the metric's name in a report: a kind, or a file's name without its folder."""
    return kind if kind in KINDS else Path(kind).name


def sensitive_columns(context: AuditContext) -> list[str]:
    """The raw columns behind the sensitive roles, each once."""
    return list(dict.fromkeys(c for split in context.dataset.roles.sensitive for c in split.columns))


def metric_columns(kind: str, columns: Sequence[str], context: AuditContext) -> list[str]:
    """The raw columns that the metric reads."""
    if kind not in KINDS:
        return list(_load(kind, context).columns)
    for name in columns:
        if name not in context.dataset.columns:
            hint = did_you_mean(name, context.dataset.columns, what="columns")
            raise ParameterError(f"the metric's column {name!r} is not in the data. {hint}")
    if kind == "euclidean":
        if not columns:
            raise ParameterError("metric=euclidean needs the columns to compare, as in columns=age,income")
        return list(columns)
    if not sensitive_columns(context):
        raise ParameterError(
            "metric=subspace is learned from the sensitive columns, and none is named; name some with `sensitive`, "
            "or use metric=euclidean with columns=A,B, or metric=FILE"
        )
    return list(dict.fromkeys([*(columns or context.scorer.columns), *sensitive_columns(context)]))


def check_subspace(kind: str, strength: float, penalty: str, directions: Sequence[str] | None) -> None:
    """Refuse a strength or directions where they mean nothing."""
    if kind != SUBSPACE and directions is not None:
        raise ParameterError(f"directions belongs to fair_metric=subspace, not to {metric_name(kind)}; leave it out")
    if penalty == "summed" and directions is not None:
        raise ParameterError("penalty=summed always predicts all sensitive columns; leave directions out")
    if kind != SUBSPACE and (strength != STRENGTH or penalty != "mean"):
        raise ParameterError(
            f"strength and penalty belong to fair_metric=subspace, not to {metric_name(kind)}; leave them out"
        )
    if penalty == "summed" and strength != STRENGTH:
        raise ParameterError(f"penalty=summed always has the strength {STRENGTH}; leave strength out")


def make_metric(
    kind: str,
    columns: Sequence[str],
    rows: AuditedRows,
    context: AuditContext,
    *,
    strength: float = STRENGTH,
    penalty: str = "mean",
    directions: Sequence[str] | None = None,
) -> FairMetric:
    """Load or learn the metric."""
    from fairkit_similarity import learn
    from fairkit_similarity.previous_versions import former_subspace

    if kind not in KINDS:
        metric = _load(kind, context)
        check_memory(len(rows), len(metric.encoder.features))
        return metric
    raw = rows.pick(metric_columns(kind, columns, context))
    check_memory(len(rows), len(Encoder.learn(raw).features))
    if kind == "euclidean":
        return learn.euclidean(raw)
    if penalty == "summed":
        return former_subspace(raw, sensitive_columns(context))
    return learn.subspace(raw, sensitive_columns(context), strength=strength, directions=directions)


def _load(name: str, context: AuditContext) -> FairMetric:
    if not Path(name).exists():
        raise ParameterError(
            f"the metric {name!r} is neither {' nor '.join(KINDS)} nor a file. {did_you_mean(name, KINDS)}"
        )
    metric = FairMetric.load(name)
    absent = [column for column in metric.columns if column not in context.dataset.columns]
    if absent:
        hint = did_you_mean(absent[0], context.dataset.columns, what="columns")
        raise DataError(
            f"the fair metric {name!r} was made for the column {absent[0]!r}, which the data does not have. {hint}"
        )
    return metric
