"""What is left of a gap between people who are alike in allowed columns W: doubly robust, cross-fitted.

Toward a group a: ``U = E_a[D] - E_a[μ_b(W)]``, μ_b(W) being the mean of the reference at W. It is estimated by
``mean_a(D - μ̂_b) - Σ_b r (D - μ̂_b)``, r in proportion to e/(1-e), e = P(a | W) (Robins, Rotnitzky & Zhao 1994), with
nuisances fitted on the other folds (Chernozhukov et al. 2018). Toward the overlap people count with e(1-e) (Li,
Morgan & Zaslavsky 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.duplicates import mixed
from fairkit.intervals import guarded, student, two_sided
from fairkit_why.limits import by_cluster, clustered
from fairkit_why.nuisances import FOLDS, Design, fit_outcome, fit_propensity, mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit_why.people import People

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]

CLIP = 0.01
FAR, MOST_FAR = 20.0, 0.05
"""A density ratio from which a person has no counterpart, and the share of such people from which nothing is said."""
FEWEST = 50
"""Effective rows below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Left:
    """One version of the number."""

    value: float  # what is left of the gap
    error: float  # its standard error, and degrees of freedom
    degrees: float  # its standard error, and degrees of freedom
    refused: str | None  # why it is not printed; None where it is
    effective: float  # the effective rows of the weighted group
    far: float  # the share of people without a counterpart
    explained: float = float("nan")  # the standard error of the rest of the gap; NaN where it is not known

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval."""
        z = two_sided(guarded(confidence))
        half = float(student(z, np.array([self.degrees + 1]))[0]) * self.error
        return self.value - half, self.value + half


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What is left toward the group, toward the reference, and toward the overlap; and the nuisances' facts."""

    toward_group: Left  # the three versions; each is the group's number less the reference's
    toward_reference: Left  # the three versions; each is the group's number less the reference's
    overlap: Left  # the three versions; each is the group's number less the reference's
    learners: dict[str, float | str]  # what the outcome was fitted with, and the share of boosted trees in the mix
    separating: tuple[str, float]  # the allowed column that separates the groups best, and its area under the curve


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Rows of two groups."""

    design: Design  # allowed columns
    group: NDArray[np.bool_]  # whether a row is of the group (else of the reference), shape [n]
    outcome: Array  # decisions or predictions, shape [n]
    weights: Array  # shape [n]
    clusters: Array | None  # buckets of clusters; None where rows are independent
    folds: Ints  # each row's fold, shape [n]
    names: tuple[str, str]  # of the group and of the reference

    @classmethod
    def of(
        cls,
        parts: Sequence[tuple[People, Ints, Array]],
        group: NDArray[np.bool_],
        columns: Sequence[str],
        names: tuple[str, str],
    ) -> Comparison:
        """Take rows of people, each part with its outcomes; folds never cut a cluster, or else equal rows."""
        weights = [np.ones(len(rows)) if p.weights is None else p.weights[rows] for p, rows, _ in parts]
        known = [c[rows] for p, rows, _ in parts if (c := p.number("clusters")) is not None]
        clusters = np.concatenate(known) if len(known) == len(parts) else None
        keys = np.concatenate([p.hashes[rows] for p, rows, _ in parts])
        keys = keys if clusters is None else clusters.astype(np.uint64)
        values = {name: np.concatenate([p.column(name)[rows] for p, rows, _ in parts]) for name in columns}
        return cls(
            design=Design.make(values),
            group=group,
            outcome=np.concatenate([outcome for *_, outcome in parts]),
            weights=np.concatenate(weights),
            clusters=clusters,
            folds=(mixed(keys) % np.uint64(FOLDS)).astype(np.int64),
            names=names,
        )


def unexplained(comparison: Comparison) -> Unexplained:
    """Estimate what is left of a gap."""
    size, sides = len(comparison.outcome), (comparison.group, ~comparison.group)
    chance, said = np.empty(size), np.empty((2, 2, size))
    for fold in range(FOLDS):
        out = comparison.folds == fold
        if not out.any():
            continue
        chance[out] = fit_propensity(comparison.design, comparison.group.astype(np.float64), comparison.weights, ~out)[
            out
        ]
        for place, mine in enumerate(sides):
            said[place][:, out] = fit_outcome(comparison.design, comparison.outcome, comparison.weights, ~out & mine)[
                :, out
            ]
    (mean_a, first), (mean_b, second) = (
        mix(said[place], comparison.outcome, comparison.weights, mine) for place, mine in enumerate(sides)
    )
    toward_a = _toward(comparison, comparison.group, chance, mean_b, comparison.names)
    toward_b = _toward(comparison, ~comparison.group, 1 - chance, mean_a, comparison.names[::-1])
    back = Left(-toward_b.value, toward_b.error, toward_b.degrees, toward_b.refused, toward_b.effective, toward_b.far)
    over = _overlap(comparison, chance, mean_a, mean_b, toward_a.refused)
    learners: dict[str, float | str] = {
        "propensity": "logistic, cells" if comparison.design.saturated else "logistic, splines",
        "outcome": "cells" if comparison.design.saturated else "splines and boosted trees",
        "boosted": (first + second) / 2,
    }
    return Unexplained(
        toward_a,
        back,
        over,
        learners,
        comparison.design.separating(comparison.group, comparison.weights, comparison.folds),
    )


def _finish(
    comparison: Comparison,
    value: float,
    pulls: Array,
    effective: float,
    far: float,
    refused: str | None,
    rest: Array | None = None,
) -> Left:
    """Return a number with the noise of its influence function, and of that of the rest of the gap."""
    both = np.stack([pulls, np.full_like(pulls, np.nan) if rest is None else rest], axis=1)
    if comparison.clusters is not None:
        variance, degrees = clustered(by_cluster(both, comparison.clusters), comparison.clusters)
        freedom = float(degrees[0])
    else:
        variance, freedom = (both**2).sum(axis=0), max(effective - 1, 1.0)
    error, explained = np.sqrt(variance)
    return Left(value, float(error), freedom, refused, effective, far, float(explained))


def _toward(
    comparison: Comparison, mine: NDArray[np.bool_], chance: Array, other_mean: Array, names: tuple[str, str]
) -> Left:
    """Return ``E_mine[D] - E_mine[μ_other(W)]``; `chance` is that of being of `mine`."""
    w, d, others = comparison.weights, comparison.outcome, ~mine
    away = d - other_mean
    clipped = np.clip(chance, CLIP, 1 - CLIP)
    # weights e / (1 - e) give the other group this one's distribution of the allowed columns
    odds = w * others * clipped / (1 - clipped)
    ratio = odds / odds.sum()
    shares = w * mine / (w * mine).sum()
    here, there = float(shares @ away), float(ratio @ away)
    # influence function of the augmented estimator, doubly robust (Robins, Rotnitzky & Zhao 1994)
    pulls = shares * (away - here) - ratio * (away - there)
    base = w * others / (w * others).sum()
    rest = shares * (d - shares @ d) - base * (d - base @ d) - pulls
    effective = float(1 / (ratio**2).sum())
    with np.errstate(divide="ignore"):
        density = chance / (1 - chance) * (w @ others) / (w @ mine)
    far = float(shares @ (density > FAR))
    refused = None
    if far > MOST_FAR:
        refused = (
            f"{far:.0%} of group {names[0]} have no counterpart in group {names[1]}: their values of the allowed "
            f"columns are more than {FAR:.0f} times as common in the one as in the other"
        )
    elif effective < FEWEST:
        refused = f"only {effective:.0f} rows of group {names[1]} are like group {names[0]}"
    return _finish(comparison, here - there, pulls, effective, far, refused, rest)


def _overlap(comparison: Comparison, chance: Array, mean_a: Array, mean_b: Array, refused: str | None) -> Left:
    """Return the difference between the groups where people count with e(1-e)."""
    w, d = comparison.weights, comparison.outcome
    # overlap weights e (1 - e) (Li, Morgan & Zaslavsky 2018)
    both = w * chance * (1 - chance)
    both = both / both.sum()
    first, second = w * comparison.group * (1 - chance), w * ~comparison.group * chance
    first, second = first / first.sum(), second / second.sum()
    modelled = float(both @ (mean_a - mean_b))
    left_a, left_b = float(first @ (d - mean_a)), float(second @ (d - mean_b))
    pulls = both * (mean_a - mean_b - modelled) + first * (d - mean_a - left_a) - second * (d - mean_b - left_b)
    effective = float(1 / max((first**2).sum(), (second**2).sum()))
    return _finish(comparison, modelled + left_a - left_b, pulls, effective, 0.0, refused)
