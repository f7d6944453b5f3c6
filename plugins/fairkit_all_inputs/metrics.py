"""Which fair metric `near` uses: a saved one, or one that ignores a sensitive subspace, learned from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit_similarity.metric import FairMetric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditors import AuditContext
    from fairkit_all_inputs.parameters import Parameters

SUBSPACE = "subspace"
STRENGTH = 0.1
"""The default l2 penalty of the subspace's regressions."""


def check_metric(parameters: Parameters) -> None:
    """Refuse parameters of a metric where they mean nothing."""
    if parameters.fair_metric is not None and parameters.near is None:
        raise ParameterError("all-inputs: fair_metric is the distance of near, which is not given; add near=0.1")
    if parameters.fair_metric != SUBSPACE and (parameters.strength != STRENGTH or parameters.directions is not None):
        raise ParameterError(
            "all-inputs: strength and directions belong to fair_metric=subspace; leave them out, or add it"
        )


def metric_of(parameters: Parameters, context: AuditContext) -> FairMetric:
    """Load or learn the metric; a subspace is that of `restricted-dro`, from all rows."""
    assert parameters.fair_metric is not None  # noqa: S101 -- asked only then
    if parameters.fair_metric != SUBSPACE:
        return _loaded(parameters.fair_metric, context.dataset.columns)
    from fairkit_similarity import learn
    from fairkit_similarity.search.memory import check_memory

    sensitive = list(dict.fromkeys(c for split in context.dataset.roles.sensitive for c in split.columns))
    if not sensitive:
        raise ParameterError(
            "all-inputs: fair_metric=subspace is learned from the sensitive columns, and none is named; name some with "
            "`sensitive`, or give a saved metric's file"
        )
    names = list(dict.fromkeys([*context.scorer.columns, *sensitive]))
    check_memory(context.dataset.profile.rows, len(names))
    parts = [batch.columns(names) for batch in context.dataset.batches(names)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
    return learn.subspace(columns, sensitive, strength=parameters.strength, directions=parameters.directions)


def _loaded(name: str, columns: Sequence[str]) -> FairMetric:
    """Read a saved fair metric."""
    metric = FairMetric.load(name)
    absent = [column for column in metric.columns if column not in columns]
    if absent:
        hint = did_you_mean(absent[0], columns, what="columns")
        raise DataError(f"the fair metric {name!r} was made for {absent[0]!r}, which the data does not have. {hint}")
    return metric
