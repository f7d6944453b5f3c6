"""Every group against one: signed differences and ratios, with intervals that hold for all groups at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import HIGHEST, LARGEST, reference_of
from fairkit.intervals import difference_limits, guarded, pairwise_quantile, ratio_limits, two_sided
from fairkit.limits import bisected
from fairkit.results.findings import GroupValue
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_group.between import surely_apart
from fairkit_group.finding_writer import known_ends
from fairkit_group.ranking import SCORES
from fairkit_group.rates import of_key
from fairkit_group.strata import mean_differences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.metrics import Estimate
    from fairkit.results.findings import Better, Finding
    from fairkit_group.section import Section

    Array = NDArray[np.float64]


IMPACT_RATIO = "impact_ratio"
ODDS_RATIO = "odds_ratio"
STANDARDISED = "standardized_mean_difference"

_DECIDES = ("selection_rate", "mean_prediction")


@dataclass(frozen=True, slots=True)
class Reference:
    """The group that others are compared with."""

    place: int  # among the groups
    chosen: bool = False

    def quantile(self, errors: Array, confidence: float, correlation: Array | None) -> float:
        """Return the factor with which all comparisons hold at once.

        Dunnett's for independent groups; Tukey's where the data chose the reference; Šidák's where groups depend.
        """
        level, groups = guarded(confidence), len(errors)
        if correlation is not None:
            count = groups * (groups - 1) // 2 if self.chosen else groups - 1
            return two_sided(level ** (1 / max(count, 1)))
        if self.chosen:
            return pairwise_quantile(groups, level)
        squares = errors**2
        others = np.delete(squares, self.place)
        with np.errstate(all="ignore"):
            ratios = np.nan_to_num(squares[self.place] / (squares[self.place] + others), nan=0.5)
        return dunnett_quantile(ratios.tolist(), level)


def asked_reference(context: AuditContext, sensitive: str | None) -> str | None:
    """Return the group that was named for a sensitive column; None where none was."""
    columns = list(context.dataset.profile.groups)
    for text in context.dataset.roles.reference:
        name, group = reference_of(text, columns)
        if name == sensitive:
            return group
    return None


def reference_in(section: Section) -> Reference | None:
    """Return the reference of a section's column; None where none was named."""
    requested = asked_reference(section.context, section.sensitive)
    if requested is None:
        return None
    if requested == LARGEST:
        return Reference(int(np.argmax(section.about.rows)))
    if requested != HIGHEST:
        return Reference(section.about.names.index(requested))
    by = next((section.estimates[name][1] for name in _DECIDES if name in section.estimates), None)
    if by is None or not np.isfinite(by.values).any():
        return None
    return Reference(int(np.nanargmax(by.values)), chosen=True)


def against_reference(section: Section) -> list[Finding]:
    """Return every number of every group against the reference's; nothing where no reference was named."""
    reference = reference_in(section)
    if reference is None:
        return []
    findings: list[Finding] = []
    for name, (metric, estimate) in section.estimates.items():
        names = {"difference": [f"{name}_difference"], "ratio": [f"{name}_ratio"]}
        if metric.alias:
            names = {kind: [*names_of_kind, f"{metric.alias}_{kind}"] for kind, names_of_kind in names.items()}
        if name == "selection_rate":
            names["ratio"].append(IMPACT_RATIO)
        for kind in ("difference", "ratio"):
            if kind in metric.between:
                findings += [_finding(section, reference, estimate, kind, each) for each in names[kind]]
    table = of_key(section.totals, SCORES.key)
    if table is not None and not hasattr(table, "error"):
        standard = mean_differences(table, of_key(section.buckets, SCORES.key), reference.place)
        findings.append(_finding(section, reference, standard, "number", STANDARDISED))
    return findings


def _finding(section: Section, reference: Reference, estimate: Estimate, kind: str, metric: str) -> Finding:
    """Write one number of all groups; its value is that of the group that is farthest from the reference."""
    about, index = section.about, reference.place
    others = [g for g in range(len(about.names)) if g != index and math.isfinite(estimate.values[g])]
    usable = others if math.isfinite(estimate.values[index]) else []
    compared = Compared(estimate, reference, tuple(usable), kind)
    values = compared.values
    worst = compared.worst(lowest=metric == IMPACT_RATIO)
    low, high = compared.limits(about.confidence)
    better: Better = "higher" if metric == IMPACT_RATIO else "none"

    def interval(confidence: float) -> tuple[float, float] | None:
        ends = compared.limits(confidence)
        pair = float(ends[0][worst]), float(ends[1][worst])
        return pair if all(map(math.isfinite, pair)) else None

    groups = tuple(
        GroupValue(group=about.names[g], rows=about.rows[g], value=_finite(v), interval=known_ends(lo, hi))
        for g, v, lo, hi in zip(usable, values, low, high, strict=True)
    )
    evidence: dict[str, Any] = {}
    if usable:
        evidence = {"group": about.names[usable[worst]]}
    finding = about.finding(
        metric,
        better,
        float(values[worst]) if usable else math.nan,
        interval,
        groups=groups,
        evidence=evidence,
        caveats=about.caveats.of(estimate),
    )
    return replace(finding, reference=about.names[index])


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Compared:
    """Groups against the reference."""

    estimate: Estimate  # of every group
    reference: Reference  # the group that the others are compared with
    groups: tuple[int, ...]  # the others' places
    kind: str  # `difference`, `ratio`, or `number` where the estimate is the comparison already

    @property
    def values(self) -> Array:
        """The groups' differences from, or ratios to, the reference."""
        values = self.estimate.values[list(self.groups)]
        base = self.estimate.values[self.reference.place]
        if self.kind == "number" or not self.groups:
            return np.asarray(values)
        with np.errstate(all="ignore"):
            return np.asarray(
                values - base
                if self.kind == "difference"
                else np.where((base > 0) & (values >= 0), values / base, np.nan)
            )

    def worst(self, *, lowest: bool) -> int:
        """Return which group is farthest from the reference, or lowest."""
        if not self.groups:
            return 0
        with np.errstate(all="ignore"):
            distance = np.abs(np.log(self.values) if self.kind == "ratio" else self.values)
            far = -self.values if lowest else distance
        return int(np.argmax(np.nan_to_num(far, nan=-1e300, posinf=1e300)))

    def limits(self, confidence: float) -> tuple[Array, Array]:
        """Return the limits of every group, which hold for all at once."""
        nothing = np.empty(0)
        if not self.groups:
            return nothing, nothing
        estimate, groups = self.estimate, np.array(self.groups)
        places = np.append(groups, self.reference.place)
        low, high = estimate.limits(two_sided(confidence))
        reference = Reference(len(groups), self.reference.chosen)
        together = None if estimate.correlation is None else estimate.correlation[np.ix_(places, places)]
        z = reference.quantile((high - low)[places], confidence, together)
        if self.kind == "number":
            ends = estimate.limits(z)
            return ends[0][groups], ends[1][groups]
        base = np.full(len(groups), self.reference.place)
        if self.kind == "difference" and estimate.inflated is not None:
            return -surely_apart(estimate, z, base, groups), surely_apart(estimate, z, groups, base)
        function: Callable[..., tuple[Array, Array]] = difference_limits if self.kind == "difference" else ratio_limits
        return function(estimate.values, estimate.limits, z, groups, base, estimate.correlation)


# The factor with which several groups are compared with one: Dunnett's quantile for any precision of the groups.


_NORMAL = NormalDist()
_GRID = np.linspace(-40, 40, 80_001)
_STEPS = 50


@functools.cache
def _cdf() -> Array:
    """Return the normal distribution function on the grid."""
    return np.array([_NORMAL.cdf(x) for x in _GRID.tolist()])


def dunnett_quantile(ratios: Sequence[float], confidence: float) -> float:
    """Return the factor that makes all differences to one reference hold at once (Dunnett 1955).

    With independent estimates the differences D_g to the reference have correlations λ_g λ_h, where
    λ_g² = v_ref / (v_ref + v_g). Given the reference's own deviation x the differences are independent:
    P(max |T_g| ≤ c) = ∫ φ(x) Π_g [Φ((c + λ_g x) / √(1 - λ_g²)) - Φ((-c + λ_g x) / √(1 - λ_g²))] dx.
    """
    rounded = tuple(sorted(round(float(min(max(ratio, 0.0), 0.999)), 3) for ratio in ratios))
    return _solved(rounded, confidence)


@functools.lru_cache(maxsize=4_096)
def _solved(ratios: tuple[float, ...], confidence: float) -> float:
    if len(ratios) <= 1:
        return _NORMAL.inv_cdf(0.5 + confidence / 2)
    x = np.linspace(-8, 8, 801)
    phi = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    same, counts = np.unique(np.array(ratios), return_counts=True)
    slope, scale = np.sqrt(same)[:, None], np.sqrt(1 - same)[:, None]
    cdf = _cdf()

    def probability(c: float) -> float:
        high = np.interp((c + slope * x) / scale, _GRID, cdf)
        low = np.interp((-c + slope * x) / scale, _GRID, cdf)
        inside = np.clip(high - low, 0, 1) ** counts[:, None]
        return float(np.trapezoid(phi * inside.prod(axis=0), x))

    most = _NORMAL.inv_cdf(0.5 + confidence ** (1 / len(ratios)) / 2) + 1e-9
    return bisected(lambda c: probability(c) < confidence, 0.0, most, _STEPS)[1]
