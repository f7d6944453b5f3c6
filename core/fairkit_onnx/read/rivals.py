"""Outputs that nobody audits but that somebody could serve: they must say the same as those that are audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.served import is_flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit_onnx.read.outputs import GraphOutput, Reading

CLOSE = 1e-4
"""Two scores in [0, 1] that differ by more are not the same score."""
ROUNDING = 1e-5
"""Scores that are nearer to a threshold may fall on either side of it by rounding."""
MOST_VALUES = 256
"""An output with more distinct values than this is no decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """What another output says of the rows."""

    name: str  # the output
    rows: int | None  # how many rows contradict what is audited; None where the output cannot be compared
    decides: bool = True  # whether it was compared as a decision, else as a score


def compare_rival(
    output: GraphOutput, value: Any, settled: Reading, predictions: Predictions, drawn: NDArray[np.float64] | None
) -> Rival:
    """Compare another output with what is audited."""
    decision = predictions.decision if drawn is None else drawn
    if settled.task == "multiclass":
        return _multiclass(output, value, settled, predictions)
    values = reading.as_matrix(output, value)
    if settled.task == "regression":
        return _same_numbers(output, values, predictions.score)
    assert decision is not None  # noqa: S101 -- binary predictions have decisions
    if values.ndim == 2:
        if values.shape[1] != 2:
            return Rival(name=output.name, rows=None)
        values = values[:, 1]
    if output.shape == "label" or is_flag(values):
        near = None if predictions.score is None else np.abs(predictions.score - (settled.cut or 0.5)) <= ROUNDING
        return Rival(name=output.name, rows=_undecided(values, decision, near))
    return _score(output, values, predictions.score, decision)


def _same_numbers(output: GraphOutput, values: NDArray[Any], score: NDArray[np.float64] | None) -> Rival:
    if values.dtype.kind == "O" or values.ndim > 1 or score is None:
        return Rival(name=output.name, rows=None)
    scale = max(1.0, float(np.abs(score).max()))
    same = np.abs(values.astype(np.float64) - score) <= CLOSE * scale
    return Rival(name=output.name, rows=int((~same).sum()), decides=False)


def _multiclass(output: GraphOutput, value: Any, settled: Reading, predictions: Predictions) -> Rival:
    values = reading.as_matrix(output, value)
    predicted = predictions.predicted
    if output.shape == "label" and predicted is not None:
        return Rival(name=output.name, rows=_undecided(values, predicted, None))
    if values.ndim == 1 or predictions.probabilities is None or values.shape[1] != predictions.probabilities.shape[1]:
        return Rival(name=output.name, rows=None)
    chances = values[:, np.argsort(settled.class_places)]
    if not _are_chances(chances):
        chances = reading.probabilities(chances, "logit")
    apart = np.abs(chances - predictions.probabilities).max(axis=1) > CLOSE
    return Rival(name=output.name, rows=int(apart.sum()), decides=False)


def _are_chances(values: NDArray[np.float64]) -> bool:
    return bool(values.min() >= -1e-6 and np.abs(values.sum(axis=1) - 1).max() < 1e-3)


def _undecided(values: NDArray[Any], decision: NDArray[Any], near: NDArray[np.bool_] | None) -> int | None:
    """Count the rows that stand against the others: the same value here, another decision there.

    None where there are too many values for a decision.
    """
    if near is not None and not near.all():
        values, decision = values[~near], decision[~near]
    cells = values.tolist()
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells], dtype=np.int64)
    if len(places) > MOST_VALUES:
        return None
    kinds, decided = np.unique(decision, return_inverse=True)
    counts = np.bincount(codes * len(kinds) + decided, minlength=len(places) * len(kinds))
    table = counts.reshape(len(places), len(kinds))
    return int(table.sum() - table.max(axis=1).sum())


def _score(
    output: GraphOutput, values: NDArray[np.float64], score: NDArray[np.float64] | None, decision: NDArray[np.float64]
) -> Rival:
    """Compare a column of numbers with the audited score, or with the decisions where there is none."""
    finite = np.isfinite(values)
    if finite.sum() * 2 < len(values):
        return Rival(name=output.name, rows=None, decides=False)
    bad = len(values) - int(finite.sum())
    values, decision = values[finite], decision[finite]
    if score is None:
        return Rival(name=output.name, rows=bad + min(crossed(v, decision)[0] for v in (values, -values)))
    score = score[finite]
    if reading.are_chances(values):
        apart = min(int((np.abs(v - score) > CLOSE).sum()) for v in (values, 1 - values))
    else:
        apart = min(disordered(score, v) for v in (values, -values))
    return Rival(name=output.name, rows=bad + apart, decides=False)


def crossed(score: NDArray[np.float64], decision: NDArray[np.float64]) -> tuple[int, float]:
    """Count the decisions that no threshold of the score gives, and name the threshold that comes nearest.

    Rows within `ROUNDING` of each other may be on either side.
    """
    taken = decision >= 0.5
    if taken.all() or not taken.any():
        return 0, float(score.min()) if taken.any() else float("inf")
    low, high = float(score[~taken].max()), float(score[taken].min())
    if low <= high + ROUNDING:
        return 0, high
    order = np.argsort(score, kind="stable")
    ranked, favorable = score[order], taken[order]
    wrong = np.concatenate([[0], np.cumsum(favorable)]) + np.concatenate([np.cumsum(~favorable[::-1])[::-1], [0]])
    first = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal scores are decided alike
    place = int(np.where(first, wrong, len(ranked) + 1).argmin())
    return int(wrong[place]), float(ranked[place]) if place < len(ranked) else float("inf")


def disordered(score: NDArray[np.float64], values: NDArray[np.float64]) -> int:
    """Count the rows where other numbers fall although the score rises, beyond rounding."""
    order = np.lexsort((values, score))
    low, high = score[order], values[order]
    peaks = np.maximum.accumulate(high)
    at = np.maximum.accumulate(np.where(high >= peaks, np.arange(len(high)), 0))
    fallen = high < peaks - ROUNDING * np.maximum(1.0, np.abs(peaks))
    return int((fallen & (low > low[at] + ROUNDING)).sum())


def lead(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far the largest number of each row is above the second, shape [n]."""
    best = np.partition(scores, -2, axis=1)
    return np.asarray(best[:, -1] - best[:, -2])


def argmax_misses(probabilities: NDArray[np.float64], predicted: NDArray[np.int64]) -> int:
    """Count the rows whose predicted class is not the most probable one, beyond rounding."""
    own = probabilities[np.arange(len(predicted)), predicted]
    return int((own < probabilities.max(axis=1) - ROUNDING).sum())
