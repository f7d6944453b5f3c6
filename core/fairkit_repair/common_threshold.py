"""One threshold for everybody, set for the objective: the operating point of a model, without reading a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.fitted import RunsItself
from fairkit.mitigators import Capability
from fairkit.settings import ModelOptions
from fairkit_onnx.model import OnnxModel
from fairkit_onnx.write.base import BaseModel
from fairkit_onnx.write.export import export_bytes
from fairkit_onnx.write.rules import GroupKeys, Piece
from fairkit_repair.postprocess import PostProcessor, RuleModel, Solution
from fairkit_repair.scored_rows import even_folds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.fitted import FittedModel, Run
    from fairkit_repair.scored_rows import ScoredRows

MARGINS = (3.0, 4.0, 5.0)
"""Standard errors inside the limits of rules on rates: to pass with a chance of .95 takes 1.96 + 1.65 √(1 + refits)."""
_OWN = ("held_out", "audits", "attachments")  # of MeasuresItself, NamesAudits, Attaches
_BREACH, _OFF, _HALF = 1e4, 1e2, 0.5


class CommonThreshold(PostProcessor):
    """Accept everybody from one score on: the rate is kept, or the objective is best, within the rules on rates."""

    name = "common-threshold"
    objectives = ("rate", "accuracy", "balanced_accuracy", "cost", "value")
    capabilities = (Capability(constraints=("none",), trainings=0),)

    def _keys(self, table: Table) -> tuple[GroupKeys, tuple[str, ...]]:
        return GroupKeys(columns=(), names=(), cells=()), ()

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Take the best of all cutoffs."""
        threshold = common_threshold(rows)
        rate = float(np.average(rows.scores >= threshold, weights=rows.weights))
        return Solution(pieces=((Piece(threshold=threshold),),), details={"threshold": threshold, "rate": rate})


def common_threshold(rows: ScoredRows) -> float:
    """Return the cutoff of the highest gain; a rate to keep comes before it, and rules on rates before both."""
    weights = rows.row_weights / rows.row_weights.sum()
    values, place = np.unique(-rows.scores, return_inverse=True)

    def summed(each: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.append(0.0, np.cumsum(np.bincount(place.ravel(), each, len(values))))

    gain, total = summed(weights * rows.gains), summed(weights)
    size = np.abs(rows.gains).max() or 1.0
    rank = -gain / size
    if rows.rate is not None:
        rank = rank + _OFF * np.abs(total - rows.rate)
    for bound in rows.bounds:
        rank = rank + _BREACH * np.maximum(bound.refused.sum() + summed(bound.accepted - bound.refused), 0.0)
    at, below = int(rank.argmin()), np.append(0.5 * (-values[:-1] - values[1:]), 0.0)
    return float(np.append(2.0, below)[at])


def aimed(fit: Callable[[Table], Sequence[FittedModel]], table: Table, run: Run) -> list[FittedModel]:
    """Train on all rows, and set one threshold for the run's objective on scores by models of the other half.

    A model that decides by more than its score keeps its decisions; whether they keep the rate is measured.
    """
    models = list(fit(table))
    places = [place for place, fitted in enumerate(models) if _by_half(fitted, table)]
    if table.task != "binary" or run.objective.is_plain or not places:
        return models
    half = even_folds(2 * (table.target > 0).astype(np.int64), 2, np.random.default_rng([run.seed, 2]))
    scores = np.empty((len(models), len(table)))
    for number in (0, 1):
        inside = half == number
        part = table.take(inside)
        for place, fitted in enumerate(fit(table.take(~inside))):
            scores[place, inside] = fitted.predict(part.columns).score
    for place in places:
        unseen = scores[place].astype(np.float32).astype(np.float64)
        models[place] = with_threshold(models[place], table, run, unseen)
    return models


def _by_half(fitted: FittedModel, table: Table) -> bool:
    """Return whether a model decides by its score's half."""
    if table.task != "binary" or isinstance(fitted, RunsItself):
        return False
    found = fitted.predict(table.columns)
    return found.decision_probability is None or np.array_equal(found.decision_probability, found.score >= _HALF)


def with_threshold(fitted: FittedModel, table: Table, run: Run, scores: NDArray[np.float64]) -> RuleModel:
    """Put one threshold for the run's objective on a trained model, set on scores of rows that it did not see."""
    model = OnnxModel(export_bytes(fitted, table), "trained")
    rule = CommonThreshold.with_values({"margin": MARGINS[1] if run.objective.bounds else 0.0})
    cut, solution = rule.learn(scores, table, run)
    base = BaseModel(model, table, ModelOptions(task="binary"))
    details = {**fitted.details, "threshold": solution.details, "rule": cut.to_dict()}
    return _kind(fitted)(base=base, rule=cut, details=details, notes=fitted.notes)


def _kind(trained: FittedModel) -> type[RuleModel]:
    """Return rule models that still do what only the trained model does; type checks look at the class."""
    kept = {name: staticmethod(getattr(trained, name)) for name in _OWN if hasattr(trained, name)}
    return type("AimedModel", (RuleModel,), kept) if kept else RuleModel
