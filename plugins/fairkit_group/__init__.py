"""Group fairness: every rate, score and error per group, and the disparities between groups."""

from __future__ import annotations

from fairkit.auditors import Auditor
from fairkit.hookspecs import hookimpl
from fairkit.metrics import Metric


@hookimpl
def fairkit_metrics() -> list[type[Metric]]:
    """Give the metrics."""
    from fairkit_group.errors import ERRORS
    from fairkit_group.rates import RATES
    from fairkit_group.ranking import RocAuc

    return [*RATES, *ERRORS, RocAuc]


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Give the auditor."""
    from fairkit_group.auditor import GroupAuditor

    return [GroupAuditor]
