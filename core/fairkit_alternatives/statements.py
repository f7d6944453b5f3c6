r"""Four statements about alternatives to a model: found, none of these, one more, arbitrary.

θ_k is what alternative k has less of a disparity, ℓ_k what it loses (cost per person), ε the loss that would be
accepted, δ the reduction that counts. The test rows trained nothing and chose nothing. Each statement holds with
chance 1 - α by itself.

found: k* was chosen on other rows, so that its own one-sided ends at α/2 hold: θ ≥ L and ℓ ≤ z.
none: T = max U_k at .8 α over all k that do not surely lose more than ε (lower end at .2 α). For every number of
alternatives P(some k with ℓ_k ≤ ε has θ_k > T) ≤ α: the best of these is one fixed k, which must be left out
wrongly or exceed its own U_k (an intersection-union test; Berger 1982).
one more: of N independent draws of one law x are hits, which the rows do not exclude at β = η α/2 (.2 β, .8 β). By
Markov the rows hide more than a share η of the good ones with chance at most α/2; given the rows, hits are binomial:
the law's share of good models is at most q / (1 - η), q the end of Clopper & Pearson (1934) at α/2.
arbitrary: h_i = 2 x_i (K - x_i) / (K (K - 1)) is how often two of K equally good draws disagree about row i; its mean
has variance S²(h) / n + 4 S²(a_k) / K (Hájek's projection on rows and on draws), a_k how often draw k disagrees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.intervals import clopper_pearson, two_sided
from fairkit.metrics import Rate, field_names
from fairkit.statistics import Sums
from fairkit_comparing.collect import Difference, paired
from fairkit_comparing.disparities import change, differences, mirrored, ratios

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]


HIDDEN = 0.25
"""η: the share of good draws that the test rows may hide."""
SHY = 3.0
"""The pick's loss on selection rows is so many standard errors inside the accepted loss."""
FEWEST = 50
"""Rows of a group from which on "arbitrary" has an interval that covers (.886 with 25 rows)."""
_LEAVE, _KEEP = 0.2, 0.8
_RESOLVED = 5.3
"""*one more* can say something where δ is at least so many standard errors of a difference between models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What is asked: the disparity, the accepted loss ε, the reduction δ that counts, the share p of one more."""

    metric: Metric  # a rate
    kind: str  # difference or ratio
    loss: float
    reduction: float
    share: float
    costs: tuple[float, float] = (1.0, 1.0)  # of a false approval and of a false refusal, per person
    alpha: float = 0.05

    def draws(self, laws: int = 1) -> int:
        """Return N: with no hit among so many draws of each of some laws, the share is at most p."""
        return math.ceil(math.log(self.alpha / laws / 2) / math.log1p(-self.share * (1 - HIDDEN)))


def disparity(name: str, metrics: Sequence[type[Metric]]) -> tuple[Metric, str]:
    """Return the rate and the kind (difference, ratio) of a disparity's name.

    Raises
    ------
    ParameterError
        It is none of a rate.
    """
    known: dict[str, tuple[Metric, str]] = {}
    for cls in metrics:
        if issubclass(cls, Rate):
            names = field_names([cls()])
            for kind in ("difference", "ratio"):
                if kind in cls.between:
                    own = f"{cls.name}_{kind}"
                    known[names.get(own, own)] = known[own] = cls(), kind
    if name not in known:
        hint = did_you_mean(name, known, what="disparities")
        raise ParameterError(f"alternatives are looked for under a difference or ratio of a rate, not {name!r}. {hint}")
    return known[name]


def reduction(counts: PairedCounts, place: int, aim: Aim, tail: float) -> Difference:
    """Return what an alternative has less of the disparity, with ends that are one-sided at `tail`.

    `first` and `second` are the disparity of the model in use and the alternative's.
    """
    found = paired(aim.metric, counts.joint(place), two_sided(1 - 2 * tail)).known()
    if found.values.shape[1] < 2:
        return Difference(math.nan, math.nan, -math.inf, math.inf)
    if aim.kind == "ratio":
        if not (found.values > 0).all():
            return Difference(math.nan, math.nan, -math.inf, math.inf)
        return mirrored(change(ratios(found), found, 1 - 2 * tail))
    seen = change(differences(found), found, 1 - 2 * tail)
    return Difference(seen.first, seen.second, -seen.high, -seen.low)


def gained(found: Difference, aim: Aim) -> float:
    """Return the observed reduction."""
    return found.second - found.first if aim.kind == "ratio" else found.first - found.second


def loss(counts: PairedCounts, place: int, aim: Aim) -> tuple[float, float]:
    """Return what an alternative loses, as cost per person, and its paired standard error.

    As Bonett & Price (2012) do, one row each way is added to the disagreements, so that no error is 0.
    """
    false_approval, false_refusal = aim.costs
    # what a row that is lost or gained adds to the cost, by outcome (unfavorable first)
    lost, more = np.array([-false_approval, false_refusal]), np.array([false_approval, -false_refusal])
    n = float(counts.base.sum())
    total = float((counts.lost[place] * lost + counts.gained[place] * more).sum())
    squares = float((counts.lost[place] * lost**2 + counts.gained[place] * more**2).sum())
    extra = 2 * max(aim.costs) ** 2
    return total / n, math.sqrt(max(squares + extra - total**2 / n, 0.0)) / n


def tail_of(probability: float) -> float:
    """Return the normal quantile of 1 - `probability`."""
    return two_sided(1 - 2 * probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The pick on the test rows: at least so much less disparity, at most so much loss."""

    place: int
    reduction: float
    at_least: float
    loss: float
    at_most: float
    counts: bool  # whether it has less disparity for sure, at a loss that is accepted for sure


def pick(selection: PairedCounts, aim: Aim, names: Sequence[str] = ()) -> int | None:
    """Return the alternative with the largest reduction on selection rows whose loss + 3 standard errors is accepted.

    Ties go to the first name, so that the order of the list is no choice.
    """
    best: tuple[float, str, int] | None = None
    for place in range(len(selection)):
        lost, error = loss(selection, place, aim)
        if lost + SHY * error > aim.loss:
            continue
        seen = gained(reduction(selection, place, aim, 0.25), aim)
        if not seen > 0:
            continue
        entry = (-seen, names[place] if names else "", place)
        best = entry if best is None else min(best, entry)
    return None if best is None else best[2]


def found(test: PairedCounts, place: int, aim: Aim) -> Found:
    """Return what the test rows say of the pick (found)."""
    seen, (lost, error) = reduction(test, place, aim, aim.alpha / 2), loss(test, place, aim)
    at_most = lost + tail_of(aim.alpha / 2) * error
    return Found(
        place=place,
        reduction=gained(seen, aim),
        at_least=seen.low,
        loss=lost,
        at_most=at_most,
        counts=seen.low > 0 and at_most <= aim.loss,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneOf:
    """None of the alternatives that lose at most ε has more than so much less disparity."""

    count: int
    kept: int  # those that do not surely lose more than ε
    at_most: float  # T
    largest: float  # the largest observed reduction among them
    base: float  # the disparity in use


def none_of(test: PairedCounts, aim: Aim) -> NoneOf:
    """Return T over the alternatives that do not surely lose more than ε (none)."""
    leave, keep = _LEAVE * aim.alpha, _KEEP * aim.alpha
    ends, seen, kept, base = [0.0], [0.0], 0, math.nan  # the model in use has 0 less and loses nothing
    for place in range(len(test)):
        lost, error = loss(test, place, aim)
        if lost - tail_of(leave) * error > aim.loss:
            continue
        kept += 1
        one = reduction(test, place, aim, keep)
        base = one.first
        ends.append(one.high)
        seen.append(gained(one, aim))
    if len(test) and math.isnan(base):
        base = reduction(test, 0, aim, keep).first
    return NoneOf(count=len(test), kept=kept, at_most=max(ends), largest=float(np.nanmax(seen)), base=base)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMore:
    """At most so large a share of a law's trainings has δ less and loses at most ε."""

    law: str
    draws: int
    hits: int  # draws that the test rows do not exclude, failed ones too
    share: float
    variety: tuple[float, float] | None  # the middle 90 % of the draws' observed reductions
    close: int  # draws that do not surely lose more than ε


def one_more(test: PairedCounts, aim: Aim, law: str, *, failed: int = 0, laws: int = 1) -> OneMore:
    """Return the bound on the share of a law (one more); `laws` are said in one breath."""
    alpha = aim.alpha / laws
    beta = HIDDEN * alpha / 2
    hits, close, seen = failed, 0, []
    for place in range(len(test)):
        lost, error = loss(test, place, aim)
        one = reduction(test, place, aim, _KEEP * beta)
        seen.append(gained(one, aim))
        near = lost - tail_of(_LEAVE * beta) * error <= aim.loss
        close += near
        hits += near and not one.high < aim.reduction
    draws = len(test) + failed
    share = min(1.0, upper_share(hits, draws, alpha / 2) / (1 - HIDDEN))
    known = [value for value in seen if math.isfinite(value)]
    variety = (float(np.quantile(known, 0.05)), float(np.quantile(known, 0.95))) if known else None
    return OneMore(law=law, draws=draws, hits=hits, share=share, variety=variety, close=close)


def upper_share(hits: int, draws: int, tail: float) -> float:
    """Return the upper end of Clopper & Pearson, one-sided at `tail`."""
    return float(clopper_pearson(np.array([hits / draws]), np.array([float(draws)]), tail_of(tail))[1][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Counts of K equally good draws of a law on the test rows.

    Attributes
    ----------
    accepted
        Rows by group and by how many of the draws accept them, shape [G, K + 1].
    apart
        For each draw and group, the sum over rows of how many others disagree with it, shape [K, G].
    """

    accepted: NDArray[np.int64]
    apart: NDArray[np.int64]

    @classmethod
    def of_rows(cls, decisions: NDArray[np.bool_], codes: NDArray[np.int64], groups: int) -> Disagreement:
        """Count decisions, shape [K, n]."""
        count = len(decisions)
        accepts = decisions.sum(axis=0)
        table = np.bincount(codes * (count + 1) + accepts, minlength=groups * (count + 1)).reshape(groups, count + 1)
        apart = np.stack(
            [np.bincount(codes, np.where(row, count - accepts, accepts), groups).astype(np.int64) for row in decisions]
        )
        return cls(accepted=table.astype(np.int64), apart=apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitrary:
    """How often two equally good draws of a law decide otherwise about a person, by group."""

    law: str
    models: int
    shares: Mapping[str, tuple[float, float, float] | None]  # value, low, high; None under 50 rows
    difference: tuple[float, float, float] | None  # of two groups: the first's less the second's


def arbitrary(counted: Disagreement, law: str, groups: Sequence[str], aim: Aim) -> Arbitrary | None:
    """Return the shares with intervals (arbitrary); None with fewer than two draws."""
    from scipy.stats import t

    k = len(counted.apart)
    if k < 2:
        return None
    x = np.arange(k + 1)
    h = 2.0 * x * (k - x) / (k * (k - 1))
    n = counted.accepted.sum(axis=1).astype(np.float64)
    each = np.divide(counted.apart, n * (k - 1), out=np.zeros(counted.apart.shape), where=n > 0)
    z = float(t.ppf(1 - aim.alpha / 2, k - 1))
    means, rows = np.zeros(len(n)), np.zeros(len(n))
    for g, table in enumerate(counted.accepted):
        if n[g] > 1:
            means[g] = table @ h / n[g]
            rows[g] = (table @ h**2 / n[g] - means[g] ** 2) / (n[g] - 1)

    def interval(value: float, variance: float, low: float) -> tuple[float, float, float]:
        half = z * math.sqrt(max(variance, 0.0))
        return value, max(low, value - half), min(1.0, value + half)

    shares = {
        name: interval(means[g], rows[g] + 4 * each[:, g].var(ddof=1) / k, 0.0) if n[g] >= FEWEST else None
        for g, name in enumerate(groups)
    }
    difference = None
    if len(n) == 2 and n.min() >= FEWEST:
        moved = (each[:, 0] - each[:, 1]).var(ddof=1)
        difference = interval(means[0] - means[1], rows.sum() + 4 * moved / k, -1.0)
    return Arbitrary(law=law, models=k, shares=shares, difference=difference)


def resolution(rows: Array, apart: float) -> float:
    """Return the smallest reduction that "one more" can exclude, of models that decide a share `apart` otherwise.

    `rows` are those that the rate is a share of, by group; the two smallest groups are the hardest to tell.
    """
    small = np.sort(np.asarray(rows, dtype=np.float64))[:2]
    return _RESOLVED * math.sqrt(apart * float((1 / np.maximum(small, 1)).sum()))


def denominators(base: NDArray[Any], metric: Metric) -> Array:
    """Return the rows by group that a rate is a share of."""
    cells = np.asarray(base).reshape(len(base), 4).astype(np.float64)  # TN, FP, FN, TP
    return np.asarray(cells @ np.array(getattr(metric, "over"), dtype=np.float64))  # noqa: B009 -- of rates


# Paired counts: what each alternative decides otherwise than the model in use, by group and outcome.


@dataclass(frozen=True, slots=True, eq=False)
class PairedCounts:
    """Rows by group, outcome and the two decisions; all rates, costs and their paired variances follow."""

    base: Whole  # rows by group, outcome and the decision of the model in use, favorable last, shape [G, 2, 2]
    lost: Whole  # rows that it accepts and the alternative does not, by group and outcome, shape [K, G, 2]
    gained: Whole  # the reverse

    def __len__(self) -> int:
        return len(self.lost)

    @classmethod
    def of_rows(
        cls,
        codes: Whole,
        favorable: Array,
        decided: NDArray[np.bool_],
        others: Sequence[NDArray[np.bool_]],
        groups: int,
    ) -> Self:
        """Count rows: their groups in [0, groups), outcomes, decisions in use and of each alternative, shape [n]."""
        cell = 2 * codes + (favorable > 0)

        def by_cell(mask: NDArray[np.bool_]) -> Whole:
            return np.bincount(cell[mask], minlength=2 * groups).reshape(groups, 2).astype(np.int64)

        base = np.stack([by_cell(~decided), by_cell(decided)], axis=2)
        empty = np.zeros((0, groups, 2), dtype=np.int64)
        lost = [by_cell(decided & ~other) for other in others]
        gained = [by_cell(~decided & other) for other in others]
        return cls(base, np.stack(lost) if lost else empty, np.stack(gained) if gained else empty)

    @classmethod
    def from_lists(cls, base: Any, lines: Sequence[Sequence[int]]) -> Self:
        """Read what `lines` and `base` wrote; refuse what cannot be counts.

        Raises
        ------
        DataError
            A number is no count, or larger than its margin.
        """
        try:
            margins = _whole(base)
            groups = len(margins)
            flat = _whole(lines).reshape(len(lines), 2, groups, 2)
        except (ValueError, TypeError) as error:
            raise DataError("the counts of the alternatives are not whole numbers by group and outcome") from error
        if margins.ndim != 3 or margins.shape[1:] != (2, 2) or (margins < 0).any():
            raise DataError("the counts of the model in use are not rows by group, outcome and decision")
        found = cls(margins, flat[:, 0], flat[:, 1])
        if (flat < 0).any() or (found.lost > margins[..., 1]).any() or (found.gained > margins[..., 0]).any():
            raise DataError("an alternative decides more rows otherwise than there are")
        return found

    def lines(self) -> list[list[int]]:
        """Return the counts of each alternative as one flat line: lost, then gained, by group and outcome."""
        return np.stack([self.lost, self.gained], axis=1).reshape(len(self), 4 * len(self.base)).tolist()

    def take(self, places: Sequence[int]) -> PairedCounts:
        """Return some of the alternatives."""
        chosen = np.asarray(places, dtype=np.int64)
        return PairedCounts(self.base, self.lost[chosen], self.gained[chosen])

    def joint(self, place: int) -> Sums:
        """Return joint sums of (TN, FP, FN, TP) of both models by group, as from the rows themselves."""
        cells = self.cells(place)
        groups = len(cells)
        first, second = np.zeros((groups, 8)), np.zeros((groups, 8, 8))
        for outcome in (0, 1):
            for before in (0, 1):
                for after in (0, 1):
                    a, b = 2 * outcome + before, 4 + 2 * outcome + after
                    rows = cells[:, outcome, before, after]
                    first[:, a] += rows
                    first[:, b] += rows
                    second[:, a, a] += rows
                    second[:, b, b] += rows
                    second[:, a, b] += rows
                    second[:, b, a] += rows
        return Sums(cells.sum(axis=(1, 2, 3)).astype(np.float64), first, second)

    def cells(self, place: int) -> Whole:
        """Return rows by group, outcome, decision in use and the alternative's decision, shape [G, 2, 2, 2]."""
        lost, gained = self.lost[place], self.gained[place]
        refused = np.stack([self.base[..., 0] - gained, gained], axis=2)
        accepted = np.stack([lost, self.base[..., 1] - lost], axis=2)
        return np.stack([refused, accepted], axis=2)

    @property
    def apart(self) -> Array:
        """The share of rows that each alternative decides otherwise, shape [K]."""
        return np.asarray((self.lost + self.gained).sum(axis=(1, 2)) / self.base.sum())


def _whole(values: Any) -> Whole:
    found = np.asarray(values)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise ValueError
    return found.astype(np.int64)
