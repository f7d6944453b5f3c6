"""Whether the test rows can decide a policy, from a quick model on a few rows, before anything is trained."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError, PowerError
from fairkit.progress import no_progress
from fairkit_repair.repairing.chance import ByRates
from fairkit_repair.repairing.folds import folds_of, learner_scores
from fairkit_repair.repairing.missing import told_missing
from fairkit_repair.repairing.power import power_by_audits, power_of
from fairkit_repair.repairing.preparing import base_of, learner_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_onnx.model import OnnxModel
    from fairkit_repair.repairing.audits import ByAudits
    from fairkit_repair.repairing.preparing import Prepared
    from fairkit_repair.searches import Power

    Array = NDArray[np.float64]

ENOUGH = 0.5
"""The least power to go on with."""
_PILOT = 6_000


def check_power(prepared: Prepared, base: OnnxModel | None, run: Run, *, anyway: bool) -> Power:
    """Return the power of the test rows, from a pilot on a few rows; refuse where it is not enough.

    Raises
    ------
    PowerError
        A model without any disparity would pass with a chance below `ENOUGH`, and `anyway` is not set.
    """
    forecast, table = prepared.forecast, prepared.table
    if isinstance(forecast, ByRates):
        decisions = _pilot(table, run) if base is None else base_of(base, table).decisions(table.columns)
        power = power_of(
            forecast.planned, decisions.astype(np.float64), forecast.limits, run.seed, enough=ENOUGH
        )
    else:
        power = power_by_audits(*_audited_pilot(forecast, table, run), run.seed, enough=ENOUGH)
    if prepared.unseen and not anyway:
        raise PowerError(
            f"test rows are of groups that no training row has: {', '.join(prepared.unseen[:5])}. What a model does to "
            "them cannot be predicted: give training rows of these groups, leave them out of `test`, or go on with "
            "`anyway`"
        )
    if power.chance >= ENOUGH or anyway:
        return power
    what = "queries" if table.task == "ranking" else "rows"
    if power.small:
        raise PowerError(
            f"no verdict can come out: among the test rows, {', '.join(power.small)} have fewer than 30 rows. "
            "Merge groups, give more rows in `test`, or go on with `anyway`"
        )
    more = (
        "no number of rows changes that"
        if power.needed is None
        else f"about {power.needed:,} test {what} would give it 90 %"
    )
    unknown = told_missing(forecast.planned.missing, prepared.test.profile.rows)
    if unknown:
        more = f"{unknown}, and a verdict must hold whatever their groups are: fill these values in"
    raise PowerError(
        f"{power.rows:,} test {what} cannot decide this policy: a model without any disparity would pass with a "
        f"chance of {power.chance:.2f} only; {more}. Give more rows in `test`, a larger `holdout`, a wider limit, "
        "or go on with `anyway`"
    )


def _some_rows(table: Table, run: Run) -> NDArray[np.int64]:
    rows = np.arange(len(table))
    if len(table) > _PILOT:
        rows = np.sort(np.random.default_rng([run.seed, 3]).choice(len(table), _PILOT, replace=False))
    return rows


def _pilot(table: Table, run: Run) -> Array:
    """Return decisions whose rates are those of a quick model on a few rows."""
    part = table.take(_some_rows(table, run))
    quiet = dataclasses.replace(run, progress=no_progress)
    try:
        _, decided = learner_scores(part, folds_of(part, 2, run.seed), learner_of(run), quiet)
    except DataError:
        decided = part.target  # one outcome only in a half: nobody knows better
    decisions = np.empty(len(table))
    for outcome in (0.0, 1.0):
        own, seen = table.target == outcome, part.target == outcome
        decisions[own] = decided[seen].mean() if seen.any() else outcome
    return decisions


def _audited_pilot(forecast: ByAudits, table: Table, run: Run) -> tuple[ByAudits, Array]:
    """Return the forecast from a few of the rows, and what a quick model says of them; of rankings nothing."""
    if table.task == "ranking":
        return forecast, np.zeros(len(table))
    keep = np.zeros(len(table), dtype=bool)
    keep[_some_rows(table, run)] = True
    some = forecast.some(keep)
    quiet = dataclasses.replace(run, progress=no_progress)
    try:
        told = learner_scores(some.table, folds_of(some.table, 2, run.seed), learner_of(run), quiet)[1]
    except DataError:
        told = some.table.target  # a class is in one half only: nobody knows better
        if table.task == "multiclass":
            told = np.eye(len(table.classes))[told.astype(np.int64)]
    return some, told
