"""How many documents, names and calls decide a limit, before anything is asked.

    se² = (τ² + σ²/m) / T + ν/J

τ² is the variance of document x group, σ² what is left of one answer, of both groups together, ν the variance of name
effects of both. calls = documents x contexts x groups x m x K. The chance to pass, names as samples, is
Φ((L - θ - ts)/se) - Φ((θ - L + ts)/se), where s² is the expectation of V with its floors.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit.intervals import student, two_sided

if TYPE_CHECKING:
    from fairkit_correspondence.interval import Cells

_NORMAL = NormalDist()
MOST_DOCUMENTS = 100_000
ENOUGH_NAMES, ENOUGH_DOCUMENTS, PLANNED_NAMES = 30, 30, 40
"""Fewer cannot stand for a group or for documents like these; 40 names meet rare kinds of names as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Variances of answers on [0, 1], of both groups together.

    Attributes
    ----------
    interaction
        τ²: of the difference between the groups from document to document.
    answer
        σ²: of one answer around its document and group (2 p (1 - p) for two groups of yes and no).
    name
        ν: of the names' effects.
    largest
        The largest |d_t| that is expected, in [0, 1]: 1 where few answers differ.
    """

    interaction: float = 0.0
    answer: float = 0.5
    name: float = 0.0
    largest: float = 1.0

    @classmethod
    def of_rate(cls, base: float, *, probabilities: bool = False) -> Spread:
        """Return what to assume without a pilot: answers yes with chance `base`, or probabilities of yes.

        Documents are taken to differ by one unit of log-odds (standard deviation), which makes draws vary less.
        """
        x = math.log(base / (1 - base)) + np.linspace(-6, 6, 601)
        weight = np.exp(-(np.linspace(-6, 6, 601) ** 2) / 2)
        p = 1 / (1 + np.exp(-x))
        variance = 2 * float(weight @ (p * (1 - p)) / weight.sum())
        # probabilities of yes have no draw in them; a tenth of the variance is what names and wording leave
        return cls(answer=variance * (0.04 if probabilities else 1.0), largest=0.5 if probabilities else 1.0)

    @classmethod
    def of_pilot(cls, cells: Cells) -> Spread:
        """Estimate the variances from a pilot's answers, by moments."""
        from fairkit_correspondence.interval import parts

        found = parts(cells)
        y = cells.answers(0.5)
        key = 2 * cells.document + cells.side
        count = np.bincount(key, minlength=2 * cells.documents).astype(float)
        mean = np.bincount(key, y, minlength=2 * cells.documents) / np.maximum(count, 1)
        rest = np.bincount(key, (y - mean[key]) ** 2, minlength=2 * cells.documents)
        several = count > 1
        each = float(rest[several].sum() / np.maximum(count[several] - 1, 1).sum()) if several.any() else 0.25
        name = sum(n * j for n, j in zip(found.names, found.counts, strict=True) if math.isfinite(n))
        answer = max(2 * each - name, 1e-6)
        m = float(np.median(count[several])) if several.any() else 1.0
        tau = max(0.0, float(found.differences.var(ddof=1)) - 2 * each / m)
        return cls(
            interaction=tau,
            answer=answer,
            name=name,
            largest=float(max(np.abs(found.differences).max(), 0.05)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What an audit of some size will see.

    Attributes
    ----------
    documents, names, each
        T, J, and m: the names of a group on each document.
    half_width
        Of the interval, in [0, 1].
    passes, fails
        The chances that the whole interval lies inside ± the limit, and outside.
    """

    documents: int
    names: int
    each: int
    half_width: float
    passes: float
    fails: float

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def forecast(
    spread: Spread,
    documents: int,
    names: int,
    each: int,
    *,
    limit: float,
    truth: float = 0.0,
    confidence: float = 0.95,
    fixed: bool = False,
) -> Forecast:
    """Return what an audit of this size will see, if the true difference is `truth`."""
    v = (spread.interaction + spread.answer / each) / documents
    # h: the largest of T differences that spread like d_t, or 1 where few documents speak
    deviation = math.sqrt(v * documents)
    reach = min(spread.largest, deviation * _NORMAL.inv_cdf(1 - 0.35 / documents))
    floor = (v * documents * (documents - 1) + 2 * reach**2) / ((documents + 1) * (documents + 2))
    of_documents = max(v, floor)
    # one group's W without name effects, and the expectation of N = max(0, W - Σc² + v/J), whose noise is W's
    half = spread.answer / 2
    noise = (half * (1 + 1 / each) + spread.interaction) / (each * documents)
    effect = 0.0 if fixed else spread.name / 2 / names
    mean = effect + max(noise - v / names, 0.0) / max(names - 1, 1)
    spreads = effect + noise
    error = spreads * math.sqrt(2 / max(names - 1, 1))
    truncated = mean * _NORMAL.cdf(mean / error) + error * math.exp(-((mean / error) ** 2) / 2) / math.sqrt(
        2 * math.pi
    )
    # two pseudo-names with the largest of J squares
    most = _NORMAL.inv_cdf(1 - 0.35 / max(names, 2)) ** 2 / names
    pseudo = (1 - 1 / names) * (1 + 2 * most) * names**2 / ((names + 1) * (names + 2))
    of_names = 0.0 if fixed else 2 * truncated * max(1.0, pseudo)
    expected = of_documents + of_names
    degrees = documents - 1.0
    if not fixed:
        bottom = of_documents**2 / max(documents - 1, 1) + 2 * spreads**2 / max(names - 1, 1)
        degrees = (of_documents + 2 * spreads) ** 2 / bottom
    z = two_sided(confidence)
    t = float(student(z, np.array([degrees + 1]))[0])
    half_width = t * math.sqrt(expected)
    # the half-width varies from audit to audit, as √V does
    square = (mean**2 + error**2) * _NORMAL.cdf(mean / error) + mean * (
        truncated - mean * _NORMAL.cdf(mean / error)
    )
    variance = 2 * of_documents**2 / max(documents - 1, 1) + (0.0 if fixed else 2 * (square - truncated**2))
    wander = t * math.sqrt(max(variance, 0.0)) / (2 * math.sqrt(expected))
    theta = abs(truth)
    error = max(math.sqrt(v + (0.0 if fixed else spread.name / names) + wander**2), 1e-12)
    inside, outside = limit - theta - half_width, theta - limit - half_width
    passes = max(_NORMAL.cdf(inside / error) - _NORMAL.cdf((half_width - limit - theta) / error), 0.0)
    fails = _NORMAL.cdf(outside / error) + _NORMAL.cdf((-theta - limit - half_width) / error)
    return Forecast(
        documents=documents,
        names=names,
        each=each,
        half_width=half_width,
        passes=passes,
        fails=min(fails, 1.0),
    )


def documents_needed(
    spread: Spread,
    names: int,
    each: int,
    *,
    limit: float,
    truth: float = 0.0,
    power: float = 0.8,
    confidence: float = 0.95,
    fixed: bool = False,
) -> int | None:
    """Return the smallest number of documents that decides with chance `power`; None where even 100,000 do not.

    Raises
    ------
    ParameterError
        The limit is not above 0, or the power not in (0, 1).
    """
    if not 0 < limit <= 1 or not 0 < power < 1:
        raise ParameterError(f"limit={limit} and power={power}: both are above 0, and power is below 1")

    def enough(documents: int) -> bool:
        seen = forecast(
            spread, documents, names, each, limit=limit, truth=truth, confidence=confidence, fixed=fixed
        )
        return (seen.passes if abs(truth) < limit else seen.fails) >= power

    low, high = 2, 4
    while not enough(high):
        low, high = high, 2 * high
        if low > MOST_DOCUMENTS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, ENOUGH_DOCUMENTS)


def names_needed(spread: Spread, limit: float) -> int:
    """Return how many names a group a limit needs: √(ν/J) ≤ limit / 3.5."""
    return max(PLANNED_NAMES, math.ceil(spread.name * (3.5 / limit) ** 2))
