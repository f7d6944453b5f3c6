"""The `dif` certificate when people may be anywhere: the sample's answer, and what a gradient search finds beyond."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit_individual.gradients import gradients_of, people_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.results.findings import Finding
    from fairkit_individual.certificate import Prepared
    from fairkit_individual.rewards import Difference, Output
    from fairkit_similarity.interval import Spread
    from fairkit_similarity.outside import Outside
    from fairkit_similarity.transport import Solution

ASKED = 5_000
"""So many rows are asked by default: each is searched for anew."""

FITTED = 50_000
"""The fair metric is matched with the model's features on at most so many rows, besides those that are asked."""

NOTES = (
    "People may be replaced by anybody in the metric's encoded columns (also between categories), within the data's "
    "range in the sensitive directions; a gradient search looks for the worst. The number is the value of a plan that "
    "it found, or the exact one over the people of this data where that is larger (evidence: gradient, restricted): a "
    "lower bound of the supremum, under this fair metric.",
    "The interval covers which people were drawn, with the replacements that were found held fixed. The upper "
    "confidence bound is that of what the search finds, not of the supremum.",
)


class OutsideSearch:
    """A model over the fair metric's columns, for the rows that are asked."""

    def __init__(self, prepared: Prepared, context: AuditContext, output: Output, difference: Difference) -> None:
        import torch

        from fairkit_similarity.ascent import Frame
        from fairkit_similarity.geometry import Geometry
        from fairkit_similarity.networks import ModuleNetwork

        if not context.engine.here:
            raise ParameterError(
                "dif: method=gradient runs in one process; run this auditor without workers, or use method=sample"
            )
        queries = prepared.problem.asked
        places = np.arange(len(prepared.rows))
        if len(places) > FITTED:
            draw = context.rng("dif features").choice(len(places), FITTED, replace=False)
            places = np.union1d(draw, queries)
        rows = prepared.rows.take(places)
        opened = gradients_of(context, rows, output, difference)
        found = people_of(prepared.metric, rows, opened)
        shift, forward = torch.from_numpy(found.shift), torch.from_numpy(found.to_features)
        self.network = ModuleNetwork(lambda x: opened.outputs(x @ forward + shift))
        self.x = torch.from_numpy(np.ascontiguousarray(found.x[np.searchsorted(places, queries)]))
        self.frame = Frame.of(Geometry.learn(found.x, found.matrix), self.x)
        self.numbers = prepared.rows.take(queries).numbers

    def search(self, solution: Solution) -> Outside:
        """Search around every asked row; the sample's two answers are candidates too."""
        from fairkit_similarity.outside import search_outside

        problem = solution.problem
        lines = (solution.bracket.low, solution.bracket.high)
        gain, cost = (np.stack([getattr(line, name)[problem.query] for line in lines]) for name in ("reward", "cost"))
        return search_outside(
            self.network,
            self.x,
            self.frame,
            solution.epsilon,
            weights=problem.mass,
            start=(gain, cost),
            steps=20,
            rounds=6,
            tolerance=0.01,
        )

    def finding(self, restricted: Finding, solution: Solution, context: AuditContext) -> Finding:
        """Return the larger of both values, with an interval for it."""
        outside = self.search(solution)
        weights = solution.problem.mass
        sure = outside_spread(outside, weights, solution.epsilon, context.rng("dif outside halves"))
        exact = float(restricted.value or 0.0)
        sure = dataclasses.replace(sure, gap=max(outside.choice.value, exact))
        interval = sure.interval(context.confidence)
        multiplier = outside.choice.multiplier
        beyond = outside.choice.place >= outside.given
        evidence = dict(restricted.evidence) | {
            "restricted": exact,
            "gradient": outside.choice.value,
            "multiplier": multiplier if math.isfinite(multiplier) else None,
            "candidates": len(outside.gain),
            "moved_outside_share": float(weights @ beyond),
            "standard_error": sure.error if interval is not None else None,
            "upper_confidence_bound": sure.upper_bound(context.confidence),
            "outside": self._largest(outside, beyond),
        }
        kept_notes = [note for note in restricted.notes if not note.startswith(("Replacements are", "The interval"))]
        return dataclasses.replace(
            restricted,
            value=sure.gap,
            interval=interval,
            evidence=evidence,
            notes=(*NOTES, *kept_notes),
            interval_at=sure.interval,
            upper_at=sure.upper_bound,
        )

    def _largest(self, found: Outside, beyond: NDArray[np.bool_]) -> list[dict[str, Any]]:
        """The five largest differences that only the search found."""
        columns = np.arange(len(beyond))
        gain, cost = found.gain[found.choice.place, columns], found.cost[found.choice.place, columns]
        places = np.flatnonzero(beyond)
        top = places[np.argsort(-gain[places], kind="stable")][:5]
        return [
            {"row": int(self.numbers[position]), "distance": float(cost[position]), "difference": float(gain[position])}
            for position in top.tolist()
        ]


def outside_spread(outside: Outside, weights: NDArray[np.float64], epsilon: float, rng: np.random.Generator) -> Spread:
    """Measure how sure the value is; see `fairkit_similarity.interval.spread`."""
    from fairkit_similarity.interval import FEWEST, Spread
    from fairkit_similarity.outside import best_plan

    rows = 1.0 / float(weights @ weights)
    value = outside.choice.value
    if rows < FEWEST:
        nothing = {"error": math.nan, "bound_error": math.nan, "bound_skew": math.nan}
        return Spread(gap=value, bound=value, rows=rows, **nothing)
    halves = np.array_split(rng.permutation(len(weights)), 2)
    means, errors, thirds = [], [], []
    for chooser, judged in (halves, halves[::-1]):
        own = weights[chooser] / weights[chooser].sum()
        at = best_plan(outside.gain[:, chooser], outside.cost[:, chooser], own, epsilon).multiplier
        if math.isfinite(at):
            most = (outside.gain[:, judged] - at * outside.cost[:, judged]).max(axis=0)
        else:
            at = 0.0
            most = np.where(outside.cost[:, judged] == 0.0, outside.gain[:, judged], -np.inf).max(axis=0)
        mean, error, third = _mean(most, weights[judged])
        means.append(mean + at * epsilon)
        errors.append(error)
        thirds.append(third)
    bound_error = math.hypot(*errors) / 2.0
    return Spread(
        gap=value,
        error=_mean(outside.choice.contributions, weights)[1],
        bound=float(np.mean(means)),
        bound_error=bound_error,
        bound_skew=sum(thirds) / 8.0 / bound_error**3 if bound_error > 0.0 else 0.0,
        rows=rows,
    )


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float, float]:
    """Weighted mean, its standard error, and its third central moment."""
    share = weights / weights.sum()
    mean = float(share @ values)
    scale = max(1.0 - float(share @ share), 1e-12)
    error = math.sqrt(float(share**2 @ (values - mean) ** 2) / scale)
    return mean, error, float(share**3 @ (values - mean) ** 3)
