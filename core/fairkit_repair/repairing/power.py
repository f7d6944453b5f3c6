"""Before training: the chance that a model without any disparity passes with these test rows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from fairkit.planning.draws import LEAST
from fairkit.planning.results import two_digits
from fairkit.planning.search import search
from fairkit_repair.repairing.chance import predict
from fairkit_repair.searches import Power

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_repair.repairing.audits import ByAudits
    from fairkit_repair.repairing.cells import Planned
    from fairkit_repair.repairing.chance import Limited

    Array = NDArray[np.float64]

WANTED = 0.9
"""The chance at which needed rows are planned."""
_DRAWS = 300
_AUDITS = 60
_BETWEEN = ("difference", "ratio")


def power_of(
    planned: Planned,
    chance: Array,
    limits: Sequence[Limited],
    seed: int,
    *,
    enough: float,
) -> Power:
    """Return the chance that a model passes whose rates are those of `chance` over all rows, equal in all groups.

    Parameters
    ----------
    planned, limits
        As for `fairkit_repair.repairing.chance.predict`; limits on other numbers than disparities are left out.
    chance
        Decisions of a model on the calibration rows, shape [n]: only their rates by outcome over all rows are used.
    enough
        From which chance on the needed rows are not looked for.
    """
    between_groups = [one for one in limits if one.target.kind in _BETWEEN]
    rows = int(planned.sizes.sum())
    small = tuple(
        f"{name} ({size} rows)"
        for split in dict.fromkeys(one.split for one in between_groups if one.split is not None)
        for name, size in zip(planned.names[split], planned.group_sizes(split), strict=True)
        if size < LEAST
    )
    if not between_groups:
        return Power(chance=1.0, rows=rows)
    demographic = any(all(rate.over) for one in between_groups for rate in one.target.rates)
    equal = equal_decisions(planned, chance, by_outcome=not demographic)

    def at(factor: float) -> float:
        rng = np.random.default_rng([seed, 7])
        return predict(planned.scaled(factor), equal, between_groups, rng, _DRAWS, fixed_rates=True).chance

    now = at(1.0)
    if now >= enough or small:
        return Power(chance=now, rows=rows, small=small)
    found = search(
        lambda some: at(some / rows), 2.0 * rows, WANTED, _DRAWS, rounds=((0.8, 0.9, 1.0, 1.1, 1.2),)
    )
    return Power(chance=now, rows=rows, needed=None if found is None else two_digits(max(found.rows, rows)))


def power_by_audits(forecast: ByAudits, said: Array, seed: int, *, enough: float) -> Power:
    """Return the same where verdicts come from audits of rows drawn again.

    Parameters
    ----------
    forecast
        From a few of the rows, with the rules on disparities only.
    said
        What a model says of these rows.
    seed, enough
        As for `power_of`.
    """
    between_groups = dataclasses.replace(forecast, rules=forecast.between())
    equal = between_groups.equal(said) if between_groups.rules else None
    if equal is None:
        return Power(chance=1.0, rows=forecast.rows)

    def at(factor: float) -> float:
        rng = np.random.default_rng([seed, 7])
        return between_groups.scaled(factor).predict(equal, rng, _AUDITS, fixed_rates=True).chance

    now, small = at(1.0), between_groups.small()
    if now >= enough or small:
        return Power(chance=now, rows=forecast.rows, small=small)
    factor = next((factor for factor in (2.0, 4.0, 8.0, 16.0, 32.0) if at(factor) >= WANTED), None)
    needed = None if factor is None else two_digits(factor * forecast.rows)
    return Power(chance=now, rows=forecast.rows, needed=needed)


def equal_decisions(planned: Planned, chance: Array, *, by_outcome: bool) -> Array:
    """Return decisions with the same rate in every group, shape [n]: 0 or 1, up to one row of a group.

    With `by_outcome` the rates among either outcome are those of `chance` over all rows; else the share of favorable
    decisions is, for every outcome alike.
    """
    key = 2 * planned.atoms + (planned.outcome > 0)
    order = np.argsort(key, kind="stable")
    sizes = np.bincount(key, minlength=2 * len(planned.sizes))
    rank = np.empty(len(key))
    rank[order] = np.arange(len(key)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rate = np.full(len(key), np.average(chance, weights=planned.weights))
    for outcome in (False, True):
        own = (planned.outcome > 0) == outcome
        if by_outcome and own.any():
            weights = None if planned.weights is None else planned.weights[own]
            rate[own] = np.average(chance[own], weights=weights)
    return np.asarray(np.clip(sizes[key] * rate - rank, 0.0, 1.0))
