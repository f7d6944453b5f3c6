"""Learning corrections: Newton steps of the log loss for one group after the other, until other rows gain no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.write.correct import Correction, logit
from fairkit_subgroups.searching.gains import Residuals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.progress import Progress
    from fairkit_subgroups.multicalibrate.cells import FamilyCells

    Array = NDArray[np.float64]

PATIENCE = 15
"""So many steps without a gain on the other rows end the learning."""

SURE = 1.64
"""Standard errors by which the loss of the other rows must fall for the model to be changed at all."""


@dataclass(frozen=True, slots=True)
class LearningRows:
    """Rows to learn from, or to stop by."""

    codes: NDArray[np.uint8]
    base: Array
    outcome: Array
    weights: Array

    def losses(self, moved: Array) -> Array:
        """Return each row's log loss at a logit, shape [n]."""
        return np.asarray(np.logaddexp(0.0, moved) - self.outcome * moved)


@dataclass(frozen=True, slots=True)
class Learned:
    """The corrections, as steps of groups, and what became of the loss of the other rows."""

    corrections: tuple[Correction, ...]
    groups: tuple[tuple[int, int], ...]
    losses: tuple[float, ...]
    gain: float
    error: float


def learn(
    cells: FamilyCells,
    fit: LearningRows,
    stop: LearningRows,
    *,
    rounds: int,
    rate: float,
    shrinkage: float,
    share: float,
    progress: Progress,
) -> Learned:
    """Learn corrections."""
    tables = Residuals(cells.family, fit.codes, fit.outcome, fit.weights)
    moved, stop_logits = logit(fit.base), logit(stop.base)
    tables.set(_sigmoid(moved))
    first = stop.losses(stop_logits)
    losses = [float(np.average(first, weights=stop.weights))]
    corrections: list[Correction] = []
    groups: list[tuple[int, int]] = []
    best, best_losses = 0, first
    for step in range(rounds):
        progress("correcting groups", step, rounds)
        candidate = tables.best(share * len(fit.base), shrinkage)
        if candidate is None or candidate.gain < 0.5:
            break
        amount = float(np.float32(rate * candidate.amount))
        place = cells.family.places[candidate.table]
        conditions = tuple(cells.condition(*one) for one in place.literals(candidate.number))
        corrections.append(Correction(conditions, amount))
        groups.append((candidate.table, candidate.number))
        rows = np.flatnonzero(cells.family.member(fit.codes, candidate.table, candidate.number))
        before = _sigmoid(moved[rows])
        moved[rows] += amount
        tables.move(rows, before, _sigmoid(moved[rows]))
        stop_logits[cells.family.member(stop.codes, candidate.table, candidate.number)] += amount
        now = stop.losses(stop_logits)
        losses.append(float(np.average(now, weights=stop.weights)))
        if losses[-1] < losses[best]:
            best, best_losses = step + 1, now
        if step + 1 - best >= PATIENCE:
            break
    gain, error = _gain(first - best_losses, stop.weights)
    if gain <= SURE * error:
        best = 0
    return Learned(tuple(corrections[:best]), tuple(groups[:best]), tuple(losses), gain, error)


def _gain(differences: Array, weights: Array) -> tuple[float, float]:
    mean = float(np.average(differences, weights=weights))
    square = float(np.sum((weights * (differences - mean)) ** 2))
    return mean, float(np.sqrt(square) / weights.sum())


def _sigmoid(moved: Any) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * moved) + 1))
