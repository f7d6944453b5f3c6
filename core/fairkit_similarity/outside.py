"""Distributional individual fairness when rows may move anywhere, by column generation with a gradient search.

    R(ε) = max over Π with marginal P_X, E d² ≤ ε, of E d_Y(h(X), h(X'))
         = min over λ ≥ 0 of λε + mean_j max_c [g_jc - λ c_jc]

where c runs over all x' (SenSeI theorem 2.4). The search finds some of them for every row, each with its gain
g = d_Y and its cost c = d². Over those that were found the problem is a small linear program, solved exactly; its
multiplier is where the search goes on. The result is the value of a feasible plan, hence a lower bound of R(ε).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.ascent import Frame
    from fairkit_similarity.encode import Floats
    from fairkit_similarity.networks import Network

CHUNK = 8_192
"""So many rows are searched at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The best plan over given candidates."""

    value: float  # its mean gain, at a mean cost of at most ε
    multiplier: float  # λ
    contributions: Floats  # shape (n,): max_c [g - λ c]; their weighted mean plus λ ε is `value`
    place: NDArray[np.int64]  # shape (n,): which candidate attains it


def best_plan(gain: Floats, cost: Floats, weights: Floats, epsilon: float) -> Choice:
    """Minimise λ ε + Σ_j w_j max_c [g_cj - λ c_cj] over λ ≥ 0, to the last bit that matters."""

    def at(multiplier: float) -> tuple[float, float, NDArray[np.int64]]:
        place = (gain - multiplier * cost).argmax(axis=0)
        rows = np.arange(len(place))
        spent = float(weights @ cost[place, rows])
        return float(weights @ gain[place, rows]), spent, place

    if epsilon == 0.0:
        free = np.where(cost == 0.0, gain, -np.inf)
        candidate = free.argmax(axis=0)
        rows = np.arange(len(candidate))
        top = free[candidate, rows]
        return Choice(value=float(weights @ top), multiplier=np.inf, contributions=top, place=candidate)
    low, high = 0.0, max(1.0, 2.0 * float(gain.max(initial=0.0)) / epsilon)
    left, right = at(low), at(high)
    if left[1] <= epsilon:
        high = low
    while high > low:
        # where the tangents of the two ends meet: the minimum of what is known so far
        slope = left[1] - right[1]
        middle = (left[0] - right[0]) / slope if slope > 0 else 0.5 * (low + high)
        if not low < middle < high:
            break
        evaluation = at(middle)
        meet = left[0] - middle * left[1]
        # the dual touches the point where the tangents meet: a kink, hence its minimum
        if evaluation[0] - middle * evaluation[1] <= meet + 1e-14 * max(1.0, abs(meet)):
            low = high = middle
        elif evaluation[1] > epsilon:
            low, left = middle, evaluation
        else:
            high, right = middle, evaluation
    multiplier = high
    candidate = at(multiplier)[2]
    rows = np.arange(len(candidate))
    contributions = gain[candidate, rows] - multiplier * cost[candidate, rows]
    return Choice(
        value=float(weights @ contributions) + multiplier * epsilon,
        multiplier=multiplier,
        contributions=contributions,
        place=candidate,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outside:
    """What the search found."""

    choice: Choice  # the best plan over all candidates, the given ones too
    gain: Floats  # shape (C, n): the candidates; first the given ones
    cost: Floats  # shape (C, n): the candidates; first the given ones
    moved: NDArray[Any]  # shape (C - given, n, d): x' of the candidates that were found
    given: int  # how many candidates were given


def search_outside(
    network: Network,
    x: Any,
    frame: Frame,
    epsilon: float,
    *,
    weights: Floats,
    start: tuple[Floats, Floats] | None = None,
    free_steps: int = 10,
    steps: int = 40,
    rounds: int = 8,
    tolerance: float = 1e-3,
    logits: bool = False,
) -> Outside:
    """Search rows' worst cases, and price them until the multiplier settles."""
    stay = np.zeros((1, len(x)))
    gains = [stay] if start is None else [stay, start[0]]
    costs = [stay] if start is None else [stay, start[1]]
    count = sum(len(part) for part in gains)
    moved: list[NDArray[Any]] = []
    searches = _Searches(network, x, frame, epsilon, free_steps, logits)
    _keep(searches.run(0.0, 0), gains, costs, moved)
    choice = best_plan(np.concatenate(gains), np.concatenate(costs), weights, epsilon)
    for _ in range(rounds if epsilon > 0.0 and len(frame.price) else 0):
        multiplier = choice.multiplier or 0.1 * max(choice.value, 1e-300) / epsilon
        _keep(searches.run(multiplier, steps), gains, costs, moved)
        before, choice = choice, best_plan(np.concatenate(gains), np.concatenate(costs), weights, epsilon)
        if before.multiplier > 0.0 and choice.value - before.value <= tolerance * choice.value:
            break
    return Outside(
        choice=choice, gain=np.concatenate(gains), cost=np.concatenate(costs), moved=np.stack(moved), given=count
    )


def _keep(
    result: tuple[Floats, Floats, NDArray[Any]], gains: list[Floats], costs: list[Floats], moved: list[NDArray[Any]]
) -> None:
    gains.append(result[0][None])
    costs.append(result[1][None])
    moved.append(result[2])


class _Searches:
    """Searches of the same rows, some rows at a time; each starts from what the last one found, too."""

    def __init__(self, network: Network, x: Any, frame: Frame, epsilon: float, free_steps: int, logits: bool) -> None:
        import torch

        from fairkit_similarity.ascent import Origin

        self.network, self.frame, self.epsilon, self.free_steps = network, frame, epsilon, free_steps
        self.logits = logits
        self.parts = list(x.split(CHUNK))
        with torch.no_grad():
            self.origins = [Origin.of(network, rows) for rows in self.parts]
        self.last: list[tuple[Any, Any] | None] = [None] * len(self.parts)

    def run(self, multiplier: float, steps: int) -> tuple[Floats, Floats, NDArray[Any]]:
        """Search at one λ; gives gain, cost and x'."""
        import torch

        from fairkit_similarity.ascent import Disparity, output_directions, worst_case

        results: list[tuple[Any, Any, Any]] = []
        with torch.no_grad():
            for number, (rows, origin) in enumerate(zip(self.parts, self.origins, strict=True)):
                worst = worst_case(
                    self.network,
                    origin,
                    rows,
                    Disparity(origin.outputs, output_directions(origin.outputs), logits=self.logits),
                    self.frame,
                    multiplier=multiplier,
                    epsilon=self.epsilon,
                    free_steps=self.free_steps,
                    steps=steps,
                    start=self.last[number],
                )
                self.last[number] = (worst.s, worst.t)
                results.append((worst.reward, worst.cost, worst.moved(rows, self.frame)))
        gain, cost, moved = (torch.cat(list(part)).cpu().numpy() for part in zip(*results, strict=True))
        return gain.astype(np.float64), cost.astype(np.float64), moved
