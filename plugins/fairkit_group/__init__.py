"""Group fairness: every rate, score and error per group, and the disparities between groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.hookspecs import hookimpl

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric


@hookimpl
def fairkit_metrics() -> list[type[Metric]]:
    """Return the metrics."""
    from fairkit_group.calibration import CALIBRATION
    from fairkit_group.errors import ERRORS
    from fairkit_group.ranking import RocAuc
    from fairkit_group.rankings import EXPOSURE
    from fairkit_group.rates import RATES

    return [*RATES, *ERRORS, RocAuc, *CALIBRATION, *EXPOSURE]


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    from fairkit_group.auditor import GroupAuditor

    return [GroupAuditor]
