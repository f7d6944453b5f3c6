"""From totals by stratum and group to numbers that can be pooled: values, weights and variances in every cell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import Spread, difference_limits, guarded, two_sided
from fairkit.limits import student
from fairkit.metrics import CONFUSION, Estimate, Mean, Metric, Rate, moments_of
from fairkit.statistics import MomentSums, ScoreTable, Sums
from fairkit.support.lazy_dataclass import dataclass
from fairkit_dependent import (
    SCORE_BUCKETS,
    STRATA_BUCKETS,
    by_bucket,
    doubts_of,
    jackknife_pairs,
    noise_of,
    score_influence,
)
from fairkit_group.rates import EVERYBODY, of_key, of_metric
from fairkit_group.stratified import Pairs, StratumCells, pairs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from fairkit.results.findings import Finding
    from fairkit_dependent import Noise
    from fairkit_group.section import Section
    from fairkit_group.stratified import PairNoise

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Strata:
    """The totals of one sensitive column inside the strata of one column."""

    names: list[str]  # of the strata
    groups: int  # how many groups there are
    totals: Mapping[str, Any]  # by statistic: each of stratum and group
    buckets: Mapping[str, Any]

    def counts(self) -> Array:
        """Return the rows of each stratum and group, shape [S, G]."""
        parts = {key: part for key, part in self.totals.items() if key.endswith(EVERYBODY)} or self.totals
        sums = [part for part in parts.values() if isinstance(part, Sums)]
        if sums:
            return self._shaped(sums[0].count)
        tables = [part for part in parts.values() if isinstance(part, ScoreTable)]
        return self._shaped(tables[0].mass.sum(axis=(0, 2)))

    def confusion(self) -> Array | None:
        """Return the soft confusion cells, shape [S, G, 4]; None without decisions."""
        cells = of_key(self.totals, CONFUSION.key)
        return cells.first.reshape(len(self.names), self.groups, 4) if isinstance(cells, Sums) else None

    def whole(self) -> bool:
        """Whether decisions are whole and rows count the same, so that cells are counts."""
        cells = of_key(self.totals, CONFUSION.key)
        return isinstance(cells, Sums) and np.allclose(cells.second, cells.first[:, :, None] * np.eye(4))

    def effective(self) -> Array:
        """Return the confusion cells scaled to effective numbers of rows, shape [S, G, 4]."""
        cells = of_key(self.totals, CONFUSION.key)
        with np.errstate(all="ignore"):
            factor = cells.first.sum(axis=1) / cells.second.sum(axis=(1, 2))
        return np.asarray((cells.first * np.nan_to_num(factor)[:, None]).reshape(len(self.names), self.groups, 4))

    def cells(self, metric: Metric, rng: np.random.Generator) -> StratumCells | None:
        """Return a metric in every stratum and group; None where its totals are not kept by stratum."""
        totals = of_metric(self.totals, metric)
        if not isinstance(totals, Sums | ScoreTable):
            return None
        if isinstance(metric, Rate) and isinstance(totals, Sums):
            return self._rate(metric, totals)
        if isinstance(metric, Mean) and isinstance(totals, MomentSums):
            return self._mean(metric, totals).inverse_variance()
        return self._other(metric, metric.estimate(totals, rng), totals)

    def pairs(self, metric: Metric, cells: StratumCells, reference: int | None = None) -> Pairs:
        """Pool every pair of groups, or every group with the reference, that some stratum has."""
        return Pairs(cells, pairs_of(self.groups, reference), self._noise(metric))

    def _noise(self, metric: Metric) -> PairNoise | None:
        """Return what buckets of clusters say of two groups' pooled numbers; None without clusters."""
        sums = of_metric(self.buckets, metric)
        if sums is None:
            return None
        if isinstance(sums, ScoreTable):
            mass = sums.mass.sum(axis=(0, 2)).reshape(len(self.names), self.groups, STRATA_BUCKETS)
            return partial(_score_noise, mass, *self.influence(metric, sums))
        shaped = by_bucket(sums, len(self.names) * self.groups)
        shaped = shaped.reshape(len(self.names), self.groups, *shaped.shape[1:])
        return jackknife_pairs(metric.compute, shaped)

    def influence(self, metric: Metric, table: ScoreTable) -> tuple[Array, NDArray[np.bool_]]:
        """Return how far buckets pull a function of scores in every stratum and group, and which do, [S, G, B]."""
        pull, there = score_influence(metric, table, len(self.names) * self.groups, STRATA_BUCKETS)
        shape = (len(self.names), self.groups, STRATA_BUCKETS)
        return pull.reshape(shape), there.reshape(shape)

    def _shaped(self, values: Array) -> Array:
        return np.asarray(values, dtype=np.float64).reshape(len(self.names), self.groups)

    def _rate(self, metric: Rate, totals: Sums) -> StratumCells:
        over, counted = np.array(metric.over, float), np.array(metric.counted, float)
        base = totals.first @ over
        with np.errstate(all="ignore"):
            rate = (totals.first @ counted) / base
            residual = counted - rate[:, None] * over
            square = np.einsum("gi,gij,gj->g", residual, totals.second, residual)
            rows = base**2 / np.einsum("i,gij,j->g", over, totals.second, over)
            variance = square / base**2 * rows / np.maximum(rows - 1, 1)
        return StratumCells(
            values=self._shaped(rate),
            mass=self._shaped(base),
            sizes=self._shaped(np.nan_to_num(rows)),
            variance=self._shaped(np.nan_to_num(variance)),
            cube=np.zeros((len(self.names), self.groups)),
            span=(0.0, 1.0),
            share=True,
        )

    def _mean(self, metric: Mean, totals: MomentSums) -> StratumCells:
        with np.errstate(all="ignore"):
            values = np.asarray(metric.compute(totals.first), dtype=np.float64)
            n, error, skewness = moments_of(totals)
        span, reach = metric.range, totals.reach
        if not np.isfinite(span).all():
            span = (float(totals.least[0]), float(totals.most[0]))
        elif reach[1] > 0 and not totals.certain.any():  # as far as the same rows' losses at the other outcomes go
            span = (float(totals.least[0]), float(max(totals.most[0], reach[0] / reach[1])))
        return StratumCells(
            values=self._shaped(values),
            mass=self._shaped(np.nan_to_num(n)),
            sizes=self._shaped(np.nan_to_num(n)),
            variance=self._shaped(np.nan_to_num(error) ** 2),
            cube=self._shaped(np.nan_to_num(skewness) * np.nan_to_num(error) ** 3),
            span=span,
            share=False,
        )

    def _other(self, metric: Metric, estimate: Estimate, totals: Any) -> StratumCells:
        low, high = estimate.limits(1.0)
        if estimate.inflated is not None:  # its lower limit allows for that, too
            low = 2 * estimate.values - high
        rows = estimate.sizes if estimate.sizes is not None else totals.count
        variance = ((high - low) / 2) ** 2
        is_known = np.isfinite(estimate.values) & np.isfinite(variance)
        return StratumCells(
            values=self._shaped(np.where(is_known, estimate.values, np.nan)),
            mass=self._shaped(np.nan_to_num(rows)),
            sizes=self._shaped(np.nan_to_num(rows)),
            variance=self._shaped(np.nan_to_num(variance, posinf=0.0)),
            cube=np.zeros((len(self.names), self.groups)),
            span=metric.range,
            share=False,
            inflated=estimate.inflated,
        )


def _score_noise(mass: Array, pull: Array, there: NDArray[np.bool_], a: int, b: int, weights: Array) -> Noise:
    """Return the noise of two groups' pooled numbers, from buckets' pulls and masses, [S, G, B]."""
    used = np.flatnonzero(weights > 0)
    cells = np.ix_(used, np.array([a, b]))
    some: NDArray[np.bool_] = np.asarray(there[cells].any(axis=0))
    pooled = np.tensordot(weights[used], pull[cells], axes=1)
    return noise_of(pooled, some | some[::-1], mass[cells].sum(axis=0))


# Gaps in true positive rates over all classes: their root mean square, mean and maximum (Romanov et al. 2019).


NAMES = ("class_gap_rms", "class_gap_mean", "class_gap_max")
RATE = "true_positive_rate"
DRAWS = 20_000


@dataclass(frozen=True, slots=True)
class ClassGaps:
    """The gaps of every class between every pair of groups."""

    estimates: Sequence[Estimate]  # true positive rates by group, of every class
    draws: Array  # absolute standard normals, shape [draws, K]

    @property
    def gaps(self) -> Array:
        """|d̂|, shape [K, P]; NaN where a group has no rows of the class."""
        a, b = np.triu_indices(len(self.estimates[0].values), 1)
        return np.abs([each.values[a] - each.values[b] for each in self.estimates])

    @property
    def largest(self) -> Array:
        """The largest |d̂| over pairs of groups, shape [K]; NaN where no pair has one."""
        filled = np.where(np.isfinite(self.gaps), self.gaps, -1.0).max(axis=1)
        return np.where(filled < 0, np.nan, filled)

    @property
    def dependent(self) -> bool:
        """Whether rows of several classes may depend on each other."""
        return any(each.correlation is not None for each in self.estimates)

    def half_widths(self, confidence: float) -> Array:
        """Return w at the two-sided quantile, shape [K, P]; 0 where there is no gap."""
        z = two_sided(confidence)
        a, b = np.triu_indices(len(self.estimates[0].values), 1)
        widths = []
        for each in self.estimates:
            low, high = difference_limits(each.values, each.limits, z, a, b, each.correlation)
            middle = each.values[a] - each.values[b]
            widths.append(np.maximum(middle - low, high - middle))
        return np.nan_to_num(widths, nan=0.0)

    def spread(self, name: str, confidence: float) -> Spread:
        """Return the largest over pairs of groups, with its interval."""
        gaps = self.gaps
        is_known = np.isfinite(gaps)
        count = is_known.sum(axis=0)
        if not count.any():
            return Spread(np.nan, np.nan, np.nan)
        gaps = np.where(is_known, gaps, 0.0)[:, count > 0]
        joint = 1 - (1 - guarded(confidence)) / gaps.shape[1]
        out, inner = (self.half_widths(c)[:, count > 0] for c in (confidence, self._of_all(joint)))
        count = count[count > 0]
        if name == "class_gap_max":
            point, low, high = gaps.max(axis=0), (gaps - inner).max(axis=0), (gaps + out).max(axis=0)
        else:
            norm, size = (_length, np.sqrt(count)) if name == "class_gap_rms" else (partial(np.sum, axis=0), count)
            point = norm(gaps) / size
            high = point + self._above(name, out) / size
            low = point - norm(inner) / size if self.dependent else self._least(gaps, joint, norm, size)
        return Spread(float(point.max()), max(0.0, float(low.max())), min(1.0, float(high.max())))

    def _of_all(self, confidence: float) -> float:
        """Return the confidence at which each class's interval holds so that all do."""
        share = (1 - confidence) / len(self.estimates)
        return 1 - share if self.dependent else float(confidence ** (1 / len(self.estimates)))

    def _above(self, name: str, widths: Array) -> Array:
        """Return how far the truth may be above, along its own direction, by pair."""
        if name == "class_gap_rms":
            return _length(widths) if self.dependent else np.asarray(widths.max(axis=0))
        return np.asarray(widths.sum(axis=0)) if self.dependent else _length(widths)

    def _least(self, gaps: Array, confidence: float, norm: Callable[[Array], Array], size: Array) -> Array:
        """Return the largest lower end of a pair: its length less the quantile of its noise; 0 where none is above."""
        errors = self.half_widths(confidence)[:, np.isfinite(self.gaps).any(axis=0)] / two_sided(confidence)
        quantile, lengths = (1 + confidence) / 2, norm(gaps)
        # the noise is at least as long as that of any one class, and as if all had the smallest error
        alone, together = np.quantile(self.draws, quantile, axis=0), np.quantile(norm(self.draws.T), quantile)
        least = np.maximum((alone[:, None] * errors).max(axis=0), together * errors.min(axis=0))
        bounds = (lengths - least * (1 - 1e-9)) / size
        low = 0.0
        for pair in np.argsort(-bounds):
            if bounds[pair] <= low:
                break
            noise = float(np.quantile(norm((self.draws * errors[:, pair]).T), quantile))
            low = max(low, float(lengths[pair] - noise) / float(size[pair]))
        return np.array(low)


def _length(values: Array) -> Array:
    return np.asarray(np.sqrt(np.square(values).sum(axis=0)))


def over_classes(sections: Sequence[Section]) -> list[Finding]:
    """Return the gaps over all classes of one sensitive column."""
    measured = [section for section in sections if RATE in section.estimates]
    if len(measured) < 2:
        return []
    first = measured[0]
    estimates = [section.estimates[RATE][1] for section in measured]
    draws = np.abs(first.context.rng(f"class gaps {first.sensitive}").standard_normal((DRAWS, len(estimates))))
    gaps = ClassGaps(estimates, draws)
    result = []
    for name in NAMES:
        caveats = _caveats(measured, name)
        evidence = _by_class(measured, gaps) | _unknown(name, measured, gaps)
        result.append(first.over_classes(name, cache(partial(gaps.spread, name)), evidence, caveats))
    return result


def _by_class(sections: Sequence[Section], gaps: ClassGaps) -> dict[str, Any]:
    """Return each class's gap, over pairs of groups the largest; classes without one are left out."""
    largest = gaps.largest
    order = [k for k in np.argsort(-largest, kind="stable") if np.isfinite(largest[k])]
    return {"class_gaps": {str(sections[k].label): float(largest[k]) for k in order}}


def _unknown(name: str, sections: Sequence[Section], gaps: ClassGaps) -> dict[str, Any]:
    """Return the identification bounds of a norm over classes, from the bounds of each class.

    Between two groups the ends follow from the classes' ends; of several groups the lower one from one class alone.
    """
    largest = gaps.largest
    by_class = [
        section.unknown(f"{RATE}_difference", float(gap))
        for section, gap in zip(sections, largest, strict=True)
        if np.isfinite(gap)
    ]
    combined: dict[str, Any] = {}
    for key, first in (by_class[0] if by_class else {}).items():
        combined[key] = {end: first[end] for end in ("reason", "binding", "stretch")}
        ends = np.array([[ends[key].get(end, np.nan) for end in ("low", "high")] for ends in by_class])
        if np.isfinite(ends).all():
            low = ends[:, 0] if len(gaps.estimates[0].values) == 2 else np.zeros(len(ends))
            low[np.argmax(ends[:, 0])] = ends[:, 0].max()
            combined[key] |= {"low": _norm(name, low), "high": _norm(name, ends[:, 1])}
    return combined


def _norm(name: str, gaps: Array) -> float:
    if name == "class_gap_max":
        return float(gaps.max())
    return float(np.sqrt(np.mean(gaps**2)) if name == "class_gap_rms" else gaps.mean())


def _caveats(sections: Sequence[Section], name: str) -> tuple[list[str], str | None]:
    """Name the classes whose own gap has a caveat.

    A class with few rows has exact limits, which are wide: in a mean over classes it counts with these, and no more
    needs to be known. What blocks a verdict is a class whose interval is in doubt, a largest gap over classes of which
    one has few rows, and numbers of which fewer than half of the classes are known.
    """
    doubtful, few, unknown = [], [], []
    for section in sections:
        estimate, label = section.estimates[RATE][1], str(section.label)
        if section.about.caveats.of(estimate)[1] is None:
            continue
        if name == "class_gap_max" or estimate.doubts:
            doubtful.append(label)
        elif np.isfinite(estimate.values).sum() < 2:
            unknown.append(label)
        else:
            few.append(label)
    notes = []
    if few:
        notes.append(
            f"Classes in which a group has few rows count with their own exact limits: {_some(few)}; "
            f"{RATE}_difference of the class says which."
        )
    if unknown:
        notes.append(f"Not defined, and left out: {_some(unknown)} (a group has no rows of the class).")
    if doubtful:
        notes.append(
            f"Classes in which a group has too few rows, or none, or an interval in doubt: {_some(doubtful)}; "
            f"{RATE}_difference of the class says which."
        )
    blocked = bool(doubtful) or 2 * len(unknown) > len(sections)
    return notes, " ".join(notes) if blocked else None


def _some(names: Sequence[str]) -> str:
    """Return up to five names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# The standardized mean difference of scores: Cohen's d with the mean of the two groups' variances.


def mean_differences(table: ScoreTable, buckets: ScoreTable | None, reference: int) -> Estimate:
    """Return (mean of a group - mean of the reference) / sqrt of the mean of both variances, for every group.

    Its variance is that of the influence function (μ moves by y - μ, a variance by (y - μ)² - σ²), which needs no
    normal scores (Austin 2009 gives the form for normal ones).
    """
    mass = table.mass.sum(axis=2)
    squares = table.squares.sum(axis=2)
    values, influence, base_influence = _influences(mass, table.middles, reference)
    with np.errstate(all="ignore"):
        rows = mass.sum(axis=0) ** 2 / squares.sum(axis=0)
        variance = (influence**2 * squares).sum(axis=0)
        variance += (base_influence**2 * squares[:, [reference]]).sum(axis=0)
    degrees = np.minimum(rows, rows[reference]) - 1
    doubts: dict[int, str] = {}
    if isinstance(buckets, ScoreTable):
        variance, degrees, doubts = _dependent(buckets, reference, len(values))
    error = np.sqrt(variance)
    error[reference] = 0.0

    def limits(z: float) -> tuple[Array, Array]:
        half = student(z, degrees + 1) * error
        return values - half, values + half

    return Estimate(values, limits, sizes=rows, doubts=doubts)


def _influences(mass: Array, scores: Array, reference: int) -> tuple[Array, Array, Array]:
    """Return the differences, and how far a row of the group and one of the reference pull them, each [U, G]."""
    with np.errstate(all="ignore"):
        total = mass.sum(axis=0)
        mean = (mass * scores[:, None]).sum(axis=0) / total
        away = scores[:, None] - mean
        spread = (mass * away**2).sum(axis=0) / total
        scale = np.sqrt((spread + spread[reference]) / 2)
        value = np.where(scale > 0, (mean - mean[reference]) / scale, np.nan)
        influence = (away / scale - value / (4 * scale**2) * (away**2 - spread)) / total
        base, base_spread = away[:, [reference]], spread[reference]
        base_influence = (-base / scale - value / (4 * scale**2) * (base**2 - base_spread)) / total[reference]
    value[reference] = 0.0
    return value, influence, base_influence


def _dependent(buckets: ScoreTable, reference: int, groups: int) -> tuple[Array, Array, dict[int, str]]:
    """Return the variances, their degrees of freedom and what is in doubt, from buckets of clusters."""
    mass = buckets.mass.sum(axis=2).reshape(len(buckets.values), groups, SCORE_BUCKETS)
    _, influence, base_influence = _influences(mass.sum(axis=2), buckets.middles, reference)
    with np.errstate(all="ignore"):
        pull = np.einsum("ug,ugb->gb", np.nan_to_num(influence), mass)
        pull = pull + np.einsum("ug,ub->gb", np.nan_to_num(base_influence), mass[:, reference])
    sizes = mass.sum(axis=0)
    noise = noise_of(pull, (sizes > 0) | (sizes[reference] > 0), sizes)
    fewer = np.minimum(noise.effective, noise.effective[reference])
    return (
        noise.variance,
        np.minimum(noise.degrees, np.maximum(noise.degrees[reference], 1)),
        doubts_of(noise.buckets, fewer),
    )
