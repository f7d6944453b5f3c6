"""Gaps in true positive rates over all classes: their root mean square, mean and maximum (Romanov et al. 2019).

With several classes the gap of class k between two groups is d_k = TPR_ak - TPR_bk. Over the K classes

    class_gap_rms = sqrt(mean of d_k²),  class_gap_mean = mean of |d_k|,  class_gap_max = max of |d_k|,

of several groups the largest over pairs. A plain sum of squares finds gaps in pure noise, so the intervals are made
from what noise e = d̂ - d can do. The classes' rates are over different rows, hence independent, and w_k is the
half-width of the interval of d_k at a normal quantile z.

* Upper ends. Along the true direction u = d / |d| the norm is |d| = u·d̂ - u·e <= |d̂| + |u·e|, one normal number with a
  half-width of at most max w_k. In the same way the sum of |d_k| is at most that of |d̂_k| plus sqrt(sum of w_k²), and
  the largest |d_k| is below the largest of the classes' own upper limits.
* Lower ends. |d| >= |d̂| - |e|, with the quantile of |e|, or of the sum of |e_k|, by simulation; the largest |d_k| has
  the classes' limits that hold jointly. Pairs of groups share the error evenly.

Where rows depend on each other, classes do too: half-widths add up, and joint limits are Bonferroni's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import Spread, difference_limits, guarded, two_sided

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.metrics import Estimate
    from fairkit.results.findings import Finding
    from fairkit_group.section import Section

    Array = NDArray[np.float64]

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
        found = []
        for each in self.estimates:
            low, high = difference_limits(each.values, each.limits, z, a, b, each.correlation)
            middle = each.values[a] - each.values[b]
            found.append(np.maximum(middle - low, high - middle))
        return np.nan_to_num(found, nan=0.0)

    def spread(self, name: str, confidence: float) -> Spread:
        """Return the largest over pairs of groups, with its interval."""
        gaps = self.gaps
        known = np.isfinite(gaps)
        count = known.sum(axis=0)
        if not count.any():
            return Spread(np.nan, np.nan, np.nan)
        gaps = np.where(known, gaps, 0.0)[:, count > 0]
        joint = 1 - (1 - guarded(confidence)) / gaps.shape[1]
        out, inner = (self.half_widths(c)[:, count > 0] for c in (confidence, self._of_all(joint)))
        count = count[count > 0]
        if name == "class_gap_max":
            point, low, high = gaps.max(axis=0), (gaps - inner).max(axis=0), (gaps + out).max(axis=0)
        else:
            norm, size = (_length, np.sqrt(count)) if name == "class_gap_rms" else (partial(np.sum, axis=0), count)
            point = norm(gaps) / size
            high = point + self._above(name, out) / size
            low = point - (norm(inner) if self.dependent else self._noise(name, joint, norm)) / size
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

    def _noise(self, name: str, confidence: float, norm: Callable[[Array], Array]) -> Array:
        """Return the quantile of the length of the noise, by pair."""
        gaps = self.gaps
        errors = self.half_widths(confidence)[:, np.isfinite(gaps).any(axis=0)] / two_sided(confidence)
        quantile = (1 + confidence) / 2
        return np.array([np.quantile(norm((self.draws * one).T), quantile) for one in errors.T])


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
    found = []
    for name in NAMES:
        caveats = _caveats(measured, name)
        evidence = _by_class(measured, gaps) | _unknown(name, measured, gaps)
        found.append(first.over_classes(name, partial(gaps.spread, name), evidence, caveats))
    return found


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
        ends = np.array([[one[key].get(end, np.nan) for end in ("low", "high")] for one in by_class])
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
