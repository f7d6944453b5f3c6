"""How many documents, names and calls decide a limit, before anything is asked.

    se² = (τ² + σ²/m) / T + ν/J

τ² is the variance of document x group, σ² what is left of one answer, of both groups together, ν the variance of name
effects of both. The interval adds floors and Student's quantile to it, which no short formula has: audits of that size
are drawn and judged, and the formula only says how their power changes with T.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError
from fairkit.intervals import clopper_pearson, student, two_sided
from fairkit.limits import bisected
from fairkit.planning.results import two_digits
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.findings import Interval

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]


_NORMAL = NormalDist()
MOST_DOCUMENTS, MOST_ANSWERS, STAGES = 100_000, 200_000, (400, 800, 1_600)
"""The largest plan, the largest audit that is drawn, and how many are drawn while a size is searched."""
ENOUGH_NAMES, ENOUGH_DOCUMENTS, PLANNED_NAMES = 30, 30, 40
"""Fewer cannot stand for a group or for documents like these; 40 names meet rare kinds of names as well."""
_GRID = np.linspace(-5, 5, 101)
_WEIGHT = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


def _expit(x: Array) -> Array:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Variances of answers on [0, 1], of both groups together."""

    interaction: float = 0.0  # τ²: of the difference between the groups from document to document
    answer: float = 0.5  # σ²: of one answer around its document and group (2 p (1 - p) for two groups of yes and no)
    name: float = 0.0  # ν: of the names' effects
    base: float = 0.5  # the mean answer
    whole: bool = True  # whether an answer is yes or no, and no number between

    @classmethod
    def of_rate(cls, base: float, *, probabilities: bool = False) -> Spread:
        """Return what to assume without a pilot: answers yes with chance `base`, or probabilities of yes.

        Documents are taken to differ by one unit of log-odds (standard deviation), which makes draws vary less.
        """
        p = _expit(_middle(base, 1.0) + _GRID)
        variance = 2 * float(_WEIGHT @ (p * (1 - p)))
        # probabilities of yes have no draw in them; a tenth of the deviation is what names and wording leave
        return cls(answer=variance * (0.04 if probabilities else 1.0), base=base, whole=not probabilities)

    @classmethod
    def of_pilot(cls, *pairs: Cells) -> Spread:
        """Estimate the variances from a pilot's pairs of groups by moments: the largest of all pairs."""
        spreads = [cls._of_pair(cells) for cells in pairs]
        largest = {key: max(getattr(spread, key) for spread in spreads) for key in ("interaction", "answer", "name")}
        base = min((spread.base for spread in spreads), key=lambda rate: abs(rate - 0.5))
        return cls(**largest, base=base, whole=all(spread.whole for spread in spreads))

    @classmethod
    def _of_pair(cls, cells: Cells) -> Spread:
        divided, y, size = parts(cells), cells.answers(0.5), 2 * cells.documents
        key = 2 * cells.document + cells.side
        count = np.bincount(key, minlength=size).astype(float)
        mean = np.bincount(key, y, size) / np.maximum(count, 1)
        rest, several = np.bincount(key, (y - mean[key]) ** 2, size), count > 1
        each = float(rest[several].sum() / (count[several] - 1).sum()) if several.any() else 0.25
        name = sum(n * j for n, j in zip(divided.names, divided.counts, strict=True) if math.isfinite(n))
        m = float(np.median(count[several])) if several.any() else 1.0
        varied = float(divided.differences.var(ddof=1)) if len(divided.differences) > 1 else 0.0
        tau = max(0.0, varied - 2 * each / m)
        whole = bool(np.isin(y, (0.0, 1.0)).all())
        return cls(interaction=tau, answer=max(2 * each - name, 1e-6), name=name, base=float(y.mean()), whole=whole)

    @cached_property
    def odds(self) -> tuple[float, float, float, float, float]:
        """Middle and deviations of yes and no in log-odds: documents, document x group, names; and a unit's slope."""
        base = min(max(self.base, 0.01), 0.99)
        # σ²/2 = E p(1 - p): what it lacks to base (1 - base) is the spread of all effects together

        def chances(deviation: float) -> Array:
            return _expit(_middle(base, deviation) + deviation * _GRID)

        deviation = sum(bisected(lambda d: _WEIGHT @ ((p := chances(d)) * (1 - p)) > self.answer / 2, 0.0, 5.0, 50)) / 2
        middle, p = _middle(base, deviation), chances(deviation)
        slope, square = float(_WEIGHT @ (p * (1 - p))), float(_WEIGHT @ (p * (1 - p)) ** 2)
        both, names = math.sqrt(self.interaction / 2 / square), math.sqrt(self.name / 2) / slope
        return middle, math.sqrt(max(deviation**2 - both**2 - names**2, 0.0)), both, names, slope

    def error(self, documents: int, names: int, each: int, *, fixed: bool) -> float:
        """Return the standard error of an audit."""
        part = 0.0 if fixed else self.name / names
        return math.sqrt((self.interaction + self.answer / each) / documents + part)


def _middle(base: float, deviation: float) -> float:
    """Return the log-odds around which documents have the mean `base`."""
    return sum(bisected(lambda middle: _WEIGHT @ _expit(middle + deviation * _GRID) < base, -12.0, 12.0, 50)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of an audit, and what is judged."""

    names: int  # J
    each: int  # m: the names of a group on each document
    limit: float  # the difference that matters, in [0, 1]
    truth: float = 0.0  # the true one
    confidence: float = 0.95  # of the interval
    fixed: bool = False  # whether the statement is about these names alone


def forecast(spread: Spread, documents: int, size: Size, audits: int = 400) -> tuple[float, float, float]:
    """Return the mean half-width of an audit's interval, and the chances that it lies inside and outside the limit.

    Audits are drawn from a population with these variances: yes and no by log-odds, other answers around a mean.
    """
    rng, (m, names) = np.random.default_rng(0), (size.each, size.names)
    document, side = np.arange(documents).repeat(2 * m), np.tile(np.arange(2).repeat(m), documents)
    name = (document * m + np.tile(np.arange(m), 2 * documents)) % names + names * side
    cells = (document, np.zeros_like(document), name, side == 1)
    middle, of_documents, of_both, of_names, slope = spread.odds
    if not spread.whole:
        middle, of_documents, of_both, of_names = (0.5, 0.0, *np.sqrt([spread.interaction / 2, spread.name / 2]))
    shift = (side - 0.5) * size.truth / (slope if spread.whole else 1.0)
    half, ends = [], []
    for _ in range(audits):
        x = middle + shift + of_names * rng.normal(size=2 * names)[name]
        x += of_both * rng.normal(size=2 * documents)[2 * document + side]
        if spread.whole:
            x += of_documents * rng.normal(size=documents)[document]
            y = (rng.random(len(x)) < _expit(x)).astype(float)
        else:
            y = x + math.sqrt(spread.answer / 2) * rng.normal(size=len(x))
        low, high = limits(parts(Cells(*cells, y, y, documents)), size.confidence, fixed=size.fixed)
        half.append((high - low) / 2)
        ends.append((low, high))
    low, high = np.array(ends).T
    inside = (-size.limit < low) & (high < size.limit)
    outside = (low > size.limit) | (high < -size.limit)
    return float(np.mean(half)), float(inside.mean()), float(outside.mean())


def _power(spread: Spread, documents: int, size: Size) -> float:
    """Return the chance of the verdict that the truth is, by normal quantiles."""
    error, theta = spread.error(documents, size.names, size.each, fixed=size.fixed), abs(size.truth)
    reach = two_sided(size.confidence)
    if theta > size.limit:
        return _NORMAL.cdf((theta - size.limit) / error - reach)
    inside = (_NORMAL.cdf((size.limit - theta) / error - reach), _NORMAL.cdf(reach - (size.limit + theta) / error))
    return max(inside[0] - inside[1], 0.0)


def _smallest(spread: Spread, size: Size, power: float) -> int | None:
    """Return the documents that the normal quantiles need; None where 100,000 are too few."""
    sizes = range(2, MOST_DOCUMENTS + 1)
    index = bisect_left(sizes, power, key=lambda documents: _power(spread, documents, size))
    return sizes[index] if index < len(sizes) else None


def documents_needed(spread: Spread, size: Size, power: float = 0.8) -> int | None:
    """Return the smallest number of documents that decides with chance `power`; None where even 100,000 do not."""
    if not 0 < size.limit <= 1 or not 0 < power < 1:
        raise ParameterError(f"limit={size.limit} and power={power}: both are above 0, and power is below 1")
    target = _smallest(spread, size, power)
    if target is None:
        return None
    # drawn audits of T documents have the power that the normal quantiles give T x worth
    documents, worths, drawn = target, [], []
    for audits in STAGES:
        documents = min(max(documents, ENOUGH_DOCUMENTS), max(MOST_ANSWERS // (2 * size.each), ENOUGH_DOCUMENTS))
        _, passes, fails = forecast(spread, documents, size, audits)
        seen = fails if abs(size.truth) > size.limit else passes
        seen = min(max(seen, 0.5 / audits), 1 - 0.5 / audits)
        worths.append(math.log((_smallest(spread, size, seen) or MOST_DOCUMENTS) / documents))
        drawn.append(audits)
        worth = math.exp(np.average(worths[-2:], weights=drawn[-2:]))
        documents = math.ceil(target / worth)
    return None if documents > MOST_DOCUMENTS else max(documents, ENOUGH_DOCUMENTS)


def advice(spread: Spread, size: Size, power: float = 0.8) -> str:
    """Return which size would decide a limit with chance `power`, by normal quantiles: nothing is drawn."""
    distance = abs(size.limit - abs(size.truth))
    names = size.names if size.fixed or not distance else max(size.names, names_needed(spread, distance))
    documents = _smallest(spread, replace(size, names=names), power) if distance else None
    if documents is None or names > MOST_DOCUMENTS:
        return f"Even {MOST_DOCUMENTS:,} documents would hardly decide it: {size.truth:.4g} is too near the limit"
    documents = max(documents, ENOUGH_DOCUMENTS)
    return (
        f"About {two_digits(documents):,} documents in all with {names} names a group would decide it (with "
        f"{power:.0%} chance, if the true value is {size.truth:.4g}); `fairkit ask plan` says it exactly"
    )


def names_needed(spread: Spread, limit: float) -> int:
    """Return how many names a group a limit needs: √(ν/J) ≤ limit / 3.5."""
    return max(PLANNED_NAMES, math.ceil(spread.name * (3.5 / limit) ** 2))


# The interval of a paired difference whose documents and names are both samples: closed form, two-way, with floors.


FEW_SPEAKING = 10.0
"""With fewer documents that differ the exact limits guard the interval, and h is 1."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Mean answers of two groups: one entry for each document, context and name."""

    document: Indices  # from 0 to `documents` - 1, shape [n]
    context: Indices  # shape [n]
    name: Indices  # shape [n]; numbered across both groups
    side: NDArray[np.bool_]  # whether the name is of the first group, shape [n], bool
    low: Array  # the answer in [0, 1] if everything open is 0, shape [n]
    high: Array  # if it is 1; equal where nothing is open
    documents: int  # how many there are: T

    def answers(self, towards: float) -> Array:
        """Return the answers with open ones at `towards` for the first group and 1 - `towards` for the second."""
        share = np.where(self.side, towards, 1 - towards)
        return np.asarray(self.low + share * (self.high - self.low))


@dataclass(frozen=True, slots=True)
class Parts:
    """What the interval of one difference is made of: see the module's equations."""

    differences: Array  # d_t, shape [T]
    value: float  # D
    documents: float  # V_T
    names: tuple[float, float]  # N_g and N_h
    spread: tuple[float, float]  # W_g and W_h
    counts: tuple[float, float]  # J_g and J_h: as how many names of one size they count
    speaking: float  # k

    @property
    def error(self) -> float:
        """√V, names as samples."""
        return math.sqrt(self.documents + sum(self.names))


def parts(cells: Cells, towards: float = 0.5) -> Parts:
    """Return the parts of a difference's variance; every document must have both groups in each of its contexts."""
    y = cells.answers(towards)
    size, contexts = cells.documents, int(cells.context.max(initial=0)) + 1
    cell = cells.document * contexts + cells.context
    side = cells.side.astype(np.int64)
    both = 2 * cell + side
    count = np.bincount(both, minlength=2 * size * contexts).astype(np.float64)
    mean = np.bincount(both, y, minlength=2 * size * contexts) / np.maximum(count, 1)
    present = count[::2] > 0
    within = present.reshape(size, contexts).sum(axis=1)
    gap = (mean[1::2] - mean[::2]) * present
    d = gap.reshape(size, contexts).sum(axis=1) / within
    value = float(d.mean())
    # weights of a group's answers add up to 1 on each document
    weight = 1 / (count[both] * within[cells.document])
    contribution = np.where(cells.side, 1, -1) * (y - mean[both ^ 1]) - value
    contribution *= weight / size
    residual = float(((d - value) ** 2).sum())
    v = residual / (size * (size - 1)) if size > 1 else math.inf
    total, squares = float(np.abs(d).sum()), float((d**2).sum())
    speaking = total**2 / squares if squares > 0 else 0.0
    reach = 1.0 if speaking < FEW_SPEAKING else float(np.abs(d).max())
    documents = max(v, (residual + 2 * reach**2) / ((size + 1) * (size + 2)))
    sides = [_names(cells, contribution, weight, which, v) for which in (True, False)]
    return Parts(
        differences=d,
        value=value,
        documents=documents,
        names=(sides[0][0], sides[1][0]),
        spread=(sides[0][1], sides[1][1]),
        counts=(sides[0][2], sides[1][2]),
        speaking=speaking,
    )


def _names(cells: Cells, contribution: Array, weight: Array, which: bool, v: float) -> tuple[float, float, float]:
    """Return N, W and J of one group."""
    rows = cells.side == which
    names, local = np.unique(cells.name[rows], return_inverse=True)
    part = contribution[rows]
    count = effective(np.bincount(local, weight[rows]).astype(np.float64))
    if count < 1.5:
        return math.inf, math.inf, count
    moved = np.bincount(local, part)
    # a name's answers on one document, in all contexts, are one contribution
    pair = local * cells.documents + cells.document[rows]
    if len(names) * cells.documents > 8 * len(part):
        pair = np.unique(pair, return_inverse=True)[1]
    squares = float((np.bincount(pair, part) ** 2).sum())
    total = float((moved**2).sum())
    spread = count / (count - 1) * total
    variance = max(0.0, spread - squares + v / count)
    pseudo = (total + 2 * float((moved**2).max())) * count**2 / ((count + 1) * (count + 2))
    if spread > 0:
        variance += variance / spread * max(0.0, pseudo - spread)
    return variance, spread, count


def effective(sizes: Array) -> float:
    """Return as how many names of one size some count: (Σ size)² / Σ size²."""
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def limits(found: Parts, confidence: float, *, fixed: bool = False) -> Interval:
    """Return the two-sided interval of a difference, within [-1, 1]; `fixed` names: V_T alone."""
    z, size = two_sided(confidence), len(found.differences)
    names, degrees = (0.0, size - 1.0) if fixed else (sum(found.names), _degrees(found))
    if not math.isfinite(names + found.documents):
        return -1.0, 1.0
    half = float(student(z, np.array([degrees + 1]))[0]) * math.sqrt(found.documents + names)
    low, high = found.value - half, found.value + half
    if found.speaking < FEW_SPEAKING:
        exact = _exact(found.differences, z)
        low, high = min(low, exact[0]), max(high, exact[1])
    return max(low, -1.0), min(high, 1.0)


def _degrees(found: Parts) -> float:
    """Satterthwaite's degrees of freedom."""
    top = (found.documents + sum(found.spread)) ** 2
    bottom = found.documents**2 / max(len(found.differences) - 1, 1)
    bottom += sum(w**2 / max(j - 1, 0.5) for w, j in zip(found.spread, found.counts, strict=True))
    return top / bottom if math.isfinite(top) and bottom > 0 else 1.0


def _exact(d: Array, z: float) -> Interval:
    """Return MOVER's limits of the mean of max(d, 0) minus that of max(-d, 0)."""
    size = np.array([len(d)], dtype=np.float64)
    rates = [np.array([float(np.maximum(sign * d, 0).mean())]) for sign in (1, -1)]
    (up, down), ends = (float(rate[0]) for rate in rates), [clopper_pearson(rate, size, z) for rate in rates]
    (up_low, up_high), (down_low, down_high) = ((float(low[0]), float(high[0])) for low, high in ends)
    value = up - down
    low = value - math.hypot(up - up_low, down_high - down)
    return low, value + math.hypot(up_high - up, down - down_low)
