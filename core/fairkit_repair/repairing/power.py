"""Whether the test rows can decide a policy, from a quick model on a few rows, before anything is trained."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError, PowerError
from fairkit.planning.results import two_digits
from fairkit.progress import no_progress
from fairkit_repair.repairing.folds import folds_of, learner_scores
from fairkit_repair.repairing.missing import told_missing
from fairkit_repair.repairing.preparing import base_of, learner_of
from fairkit_repair.studies import Power

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.fitted import Run
    from fairkit_onnx.model import OnnxModel
    from fairkit_repair.repairing.chance import Forecast
    from fairkit_repair.repairing.preparing import Prepared

    Array = NDArray[np.float64]

ENOUGH = 0.5
"""The least power to go on with."""
_PILOT = 6_000


def check_power(prepared: Prepared, base: OnnxModel | None, run: Run, *, anyway: bool) -> Power:
    """Return the power of the test rows, from a pilot on a few rows; refuse where it is not enough."""
    forecast, table = prepared.forecast, prepared.table
    if table.task == "ranking":
        pilot = forecast, np.zeros(len(table))
    elif base is not None:
        pilot = forecast, base_of(base, table).decisions(table.columns).astype(np.float64)
    else:
        pilot = forecast.pilot(*_pilot(table, run))
    power = power_of(*pilot, run.seed)
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


def _pilot(table: Table, run: Run) -> tuple[NDArray[np.int64], Array]:
    """Return a few of the rows, and what a quick model says of them."""
    rows = np.arange(len(table))
    if len(table) > _PILOT:
        rows = np.sort(np.random.default_rng([run.seed, 3]).choice(len(table), _PILOT, replace=False))
    part = table.take(rows)
    quiet = dataclasses.replace(run, progress=no_progress)
    try:
        return rows, learner_scores(part, folds_of(part, 2, run.seed), learner_of(run), quiet)[1]
    except DataError:  # a class is in one half only: nobody knows better
        if table.task == "multiclass":
            return rows, np.eye(len(table.classes))[part.target.astype(np.int64)]
        return rows, part.target


def power_of(forecast: Forecast, said: Array, seed: int) -> Power:
    """Return the chance that a model without any disparity passes the rules on disparities."""
    between, equal = forecast.equal(said)
    if equal is None:
        return Power(chance=1.0, rows=forecast.rows)

    def at(factor: float) -> float:
        rng = np.random.default_rng([seed, 7])
        return between.scaled(factor).predict(equal, rng, between.few, fixed_rates=True).chance

    now, small = at(1.0), between.small()
    needed = None if now >= ENOUGH or small else between.needed(at)
    rows = None if needed is None else two_digits(needed)
    return Power(chance=now, rows=forecast.rows, needed=rows, small=small)
