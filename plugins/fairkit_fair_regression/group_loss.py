"""Bounded group loss: solved, or shown to be out of reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit_fair_regression.solver import Pool, Solution, SolverSettings, solve

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit_fair_regression.oracles import GroupLossOracle
    from fairkit_fair_regression.solver import Moment

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far bounds of group losses are out of reach."""

    excess: float  # the smallest t for which losses of ζ_a + t can be reached in all groups at once
    group: int  # the group that keeps t from being smaller: the one with the largest multiplier
    gap: float  # how much smaller t might be, if a best response was missed


def solve_group_loss(
    pool: Pool,
    zeta: Array,
    oracle: GroupLossOracle,
    settings: SolverSettings,
    names: tuple[str, ...],
    watch: Callable[[Moment], None],
) -> Solution:
    """Find the mixture of least loss with E[ℓ | a] <= ζ_a (algorithm 2)."""
    found = solve(pool, zeta, oracle.respond, settings, watch=watch)
    if found.violation <= tolerance(zeta, settings):
        return found
    reach = smallest_excess(pool, zeta, oracle, settings)
    if reach.excess <= tolerance(zeta, settings):
        # within reach after all: the pool now holds the predictors that show it
        return solve(pool, zeta, oracle.respond, settings, watch=watch)
    raise DataError(_message(zeta, reach, names))


def tolerance(zeta: Array, settings: SolverSettings) -> float:
    """Return the violation that counts as none: (1 + 2ν) / B bounds it where the bounds can be met."""
    return max(1e-9, min(settings.nu, 1e-3 * float(zeta.min())) / 2)


def smallest_excess(pool: Pool, zeta: Array, oracle: GroupLossOracle, settings: SolverSettings) -> Reach:
    """Find the smallest t with E[ℓ | a] <= ζ_a + t for all groups: the game in which only groups count."""
    # predictors are shared; answers to multipliers without the loss itself are another problem's
    game = Pool(list(pool.responses), [], 0, pool.costs, pool.values)
    solution = solve(
        game,
        zeta,
        oracle.worst,
        SolverSettings(nu=settings.nu / 10, bound=1.0, iterations=settings.iterations, least=3, strength=0.0),
    )
    for response in game.responses:
        pool.add(response)
    return Reach(excess=solution.violation, group=int(solution.multipliers.argmax()), gap=solution.gap)


def _message(zeta: Array, reach: Reach, names: tuple[str, ...]) -> str:
    group = reach.group
    smallest = float(zeta[group] + reach.excess)
    # rounded up, so that the number that is named can be reached
    shown = np.ceil(smallest * 1e6) / 1e6
    advice = (
        f"the parameter `zeta={shown:.6f}`"
        if len(set(zeta.tolist())) == 1
        else f"the parameter `bounds.{names[group]}={shown:.6f}`"
    )
    return (
        f"fair-regression: the group {names[group]!r} cannot reach a loss of {zeta[group]:g} with this learner: the "
        f"smallest that can be reached while the other groups exceed their bounds by no more is {shown:.6f}. "
        f"Allow it ({advice}), or give more or better data about this group"
    )
