"""Choosing iterates: the last, the best, or a distribution over a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_fairgbm.constraints import Constraints
    from fairkit_fairgbm.trainer import Moment

Iterate = Literal["last", "best", "mixture", "all"]
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Choice:
    """A distribution over iterates."""

    rounds: tuple[int, ...]  # the numbers of trees, ascending
    weights: tuple[float, ...]  # their probabilities; they add up to 1
    notes: tuple[str, ...] = ()  # what the user must know about the choice


def choose(iterate: Iterate, path: Sequence[Moment], constraints: Constraints) -> Choice:
    """Choose iterates by the moments of validation rows (`last` and `all` need no more than their number)."""
    total = len(path)
    if iterate == "all":
        return Choice(tuple(range(1, total + 1)), (1 / total,) * total)
    if iterate == "mixture":
        return choose_mixture(path, constraints)
    return choose_best(path) if iterate == "best" else Choice((total,), (1.0,))


def choose_best(path: Sequence[Moment]) -> Choice:
    """Return the round of least error plus violation that does not decide all people alike.

    The notes say where all rounds decide everybody alike, and where none meets the constraints: these count as met
    where the violation is within one standard error of the validation rates.
    """
    from fairkit_fairgbm.trainer import better

    best = 0
    for place, moment in enumerate(path):
        if place and better(moment, path[best]):
            best = place
    notes: list[str] = []
    if path[best].is_constant:
        notes.append("Every round decides all people alike: there is nothing to choose.")
    if all(moment.excess > 0 for moment in path):
        notes.append("No round meets the constraints on the validation rows.")
    return Choice((best + 1,), (1.0,), tuple(notes))


def choose_mixture(path: Sequence[Moment], constraints: Constraints) -> Choice:
    """Solve the LP of least expected error among distributions over rounds whose expected rates are feasible.

    A vertex of the LP has at most m + 1 rounds for m groups and one constraint. Where no distribution is
    feasible, the one of least violation is taken, and of those the one of least error. Rounds that decide all people
    alike are left out: they violate nothing.
    """
    places = [place for place, moment in enumerate(path) if not moment.is_constant]
    if not places:
        return choose_best(path)
    kept_path = [path[place] for place in places]
    errors = np.array([moment.error for moment in kept_path])
    rows, bounds = _inequalities(kept_path, constraints)
    weights = _solve(errors, rows, bounds, slack=0.0)
    notes: tuple[str, ...] = ()
    if weights is None:
        slack = _least_slack(rows, bounds)
        weights = _solve(errors, rows, bounds, slack=slack + 1e-9)
        notes = (
            f"No distribution over rounds meets the constraints on the validation rows; "
            f"the chosen one violates them least, by {slack:.3g}.",
        )
    if weights is None:
        return choose_best(path)
    kept = np.flatnonzero(weights > _TINY)
    shares = weights[kept] / weights[kept].sum()
    return Choice(tuple(places[k] + 1 for k in kept.tolist()), tuple(float(share) for share in shares), notes)


def _inequalities(path: Sequence[Moment], constraints: Constraints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A, b of ``A p <= b`` over rounds: every ordered pair of groups, and every target."""
    by_group = np.stack([moment.rates.by_group for moment in path], axis=-1)  # [constraints, groups, rounds]
    rows: list[NDArray[np.float64]] = []
    bounds: list[float] = []
    for rates, tolerance in zip(by_group, constraints.tolerances, strict=True):
        known = np.flatnonzero(~np.isnan(rates).any(axis=1))
        for a in known:
            for b in known:
                if a != b:
                    rows.append(rates[a] - rates[b])
                    bounds.append(tolerance)
    for place, (_, limit) in enumerate(constraints.targets):
        overall = np.array([moment.rates.overall[place] for moment in path])
        rows.append(overall)
        bounds.append(limit)
        if constraints.two_sided:
            rows.append(-overall)
            bounds.append(-limit)
    return np.array(rows).reshape(-1, len(path)), np.array(bounds)


def _solve(
    errors: NDArray[np.float64], rows: NDArray[np.float64], bounds: NDArray[np.float64], *, slack: float
) -> NDArray[np.float64] | None:
    from scipy.optimize import linprog

    result = linprog(
        errors,
        A_ub=rows if len(rows) else None,
        b_ub=bounds + slack if len(rows) else None,
        A_eq=np.ones((1, len(errors))),
        b_eq=[1.0],
        method="highs-ds",
    )
    return np.asarray(result.x) if result.status == 0 else None


def _least_slack(rows: NDArray[np.float64], bounds: NDArray[np.float64]) -> float:
    """Return the smallest s such that ``A p <= b + s`` has a distribution p."""
    from scipy.optimize import linprog

    count = rows.shape[1]
    result = linprog(
        [0.0] * count + [1.0],
        A_ub=np.hstack([rows, -np.ones((len(rows), 1))]),
        b_ub=bounds,
        A_eq=[[1.0] * count + [0.0]],
        b_eq=[1.0],
        method="highs-ds",
    )
    return float(result.x[-1])
