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
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.intervals import clopper_pearson, two_sided
from fairkit.planning.assumptions import target_of
from fairkit.plugins import installed_metrics
from fairkit.statistics import Sums
from fairkit.support.lazy_dataclass import dataclass
from fairkit_comparing.collect import Paired, paired
from fairkit_comparing.disparities import change, differences, ratios

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate

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

    rate: Rate
    kind: str  # difference or ratio
    loss: float
    reduction: float
    share: float
    costs: tuple[float, float] = (1.0, 1.0)  # of a false approval and of a false refusal, per person
    alpha: float = 0.05

    @classmethod
    def of(cls, disparity: str, **numbers: Any) -> Aim:
        """Return what is asked about a difference or a ratio of one rate, by its name."""
        target = target_of(disparity, installed_metrics()[0])
        if len(target.rates) > 1 or target.kind not in ("difference", "ratio"):
            raise ParameterError(
                f"alternatives are looked for under a difference or ratio of one rate, which {disparity!r} is not"
            )
        return cls(rate=target.rates[0](), kind=target.kind, **numbers)

    def draws(self, laws: int = 1) -> int:
        """Return N: with no hit among so many draws of each of some laws, the share is at most p."""
        return math.ceil(math.log(self.alpha / laws / 2) / math.log1p(-self.share * (1 - HIDDEN)))

    def disparity(self, rates: Array) -> Array:
        """Return the largest difference or the smallest ratio between groups, over the last axis; NaN is left out."""
        is_known = np.isfinite(rates)
        low, high = np.where(is_known, rates, np.inf).min(axis=-1), np.where(is_known, rates, -np.inf).max(axis=-1)
        with np.errstate(all="ignore"):
            seen = np.where(low > 0, low / high, math.nan) if self.kind == "ratio" else high - low
        return np.where(is_known.sum(axis=-1) < 2, math.nan, seen)


def reductions(counts: PairedCounts, aim: Aim) -> Array:
    """Return what each alternative has less of the disparity, as observed, shape [K]."""
    with np.errstate(all="ignore"):
        before, after = (aim.rate.compute(cells) for cells in (counts.before, counts.after))
    before = np.where(np.isfinite(after), before, math.nan)
    less = aim.disparity(before) - aim.disparity(np.where(np.isfinite(before), after, math.nan))
    return np.asarray(-less if aim.kind == "ratio" else less)


def reduction_ends(counts: PairedCounts, aim: Aim, tail: float) -> tuple[Array, Array]:
    """Return ends of what each alternative has less, one-sided at `tail` each, shapes [K]."""
    whole = paired(aim.rate, counts.joint(), tail_of(tail))
    low, high = np.full(len(counts), -np.inf), np.full(len(counts), np.inf)
    groups = len(counts.base)
    for index in range(len(counts)):
        mine = slice(index * groups, (index + 1) * groups)
        one = Paired(whole.values[:, mine], whole.covariance[mine]).known()
        if one.values.shape[1] < 2 or (aim.kind == "ratio" and not (one.values > 0).all()):
            continue
        # a largest difference, or minus a smallest ratio: what falls is a reduction
        seen = change((ratios if aim.kind == "ratio" else differences)(one), one, 1 - 2 * tail)
        low[index], high[index] = -seen.high, -seen.low
    return low, high


def losses(counts: PairedCounts, aim: Aim) -> tuple[Array, Array]:
    """Return what each alternative loses, as cost per person, and its paired standard error, shapes [K].

    As Bonett & Price (2012) do, one row each way is added to the disagreements, so that no error is 0.
    """
    false_approval, false_refusal = aim.costs
    # what a row that is lost or gained adds to the cost, by outcome (unfavorable first)
    lost, more = np.array([-false_approval, false_refusal]), np.array([false_approval, -false_refusal])
    n = float(counts.base.sum())
    total = (counts.lost @ lost + counts.gained @ more).sum(axis=1)
    squares = (counts.lost @ lost**2 + counts.gained @ more**2).sum(axis=1)
    return total / n, np.sqrt(np.maximum(squares + 2 * max(aim.costs) ** 2 - total**2 / n, 0.0)) / n


def tail_of(probability: float) -> float:
    """Return the normal quantile of 1 - `probability`."""
    return two_sided(1 - 2 * probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCandidate:
    """The pick on the test rows: at least so much less disparity, at most so much loss."""

    place: int
    reduction: float
    at_least: float
    loss: float
    at_most: float
    counts: bool  # whether it has less disparity for sure, at a loss that is accepted for sure


def pick(selection: Sequence[PairedCounts], aim: Aim, names: Sequence[str] = ()) -> int | None:
    """Return the alternative with the largest reduction on selection rows whose loss + 3 standard errors is accepted.

    The reduction is the sum over the sensitive columns that are asked about, each with its counts. Ties go to the first
    name, so that the order of the list is no choice.
    """
    lost, error = losses(selection[0], aim)
    less = np.sum([reductions(counts, aim) for counts in selection], axis=0)
    fit = np.flatnonzero((lost + SHY * error <= aim.loss) & (less > 0))
    return min(map(int, fit), key=lambda index: (-less[index], names[index] if names else "", index), default=None)


def found(test: PairedCounts, place: int, aim: Aim) -> BestCandidate:
    """Return what the test rows say of the pick (found)."""
    row = test.take([place])
    (lost,), (error,) = losses(row, aim)
    (low,), _ = reduction_ends(row, aim, aim.alpha / 2)
    at_most = float(lost + tail_of(aim.alpha / 2) * error)
    return BestCandidate(
        place=place,
        reduction=float(reductions(row, aim)[0]),
        at_least=float(low),
        loss=float(lost),
        at_most=at_most,
        counts=bool(low > 0 and at_most <= aim.loss),
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
    lost, error = losses(test, aim)
    close = test.take(np.flatnonzero(lost - tail_of(_LEAVE * aim.alpha) * error <= aim.loss))
    with np.errstate(all="ignore"):
        base = float(aim.disparity(aim.rate.compute(test.before)))
    return NoneOf(  # the model in use has 0 less and loses nothing
        count=len(test),
        kept=len(close),
        at_most=float(reduction_ends(close, aim, _KEEP * aim.alpha)[1].max(initial=0.0)),
        largest=float(np.nan_to_num(reductions(close, aim)).max(initial=0.0)),
        base=base,
    )


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
    lost, error = losses(test, aim)
    close = test.take(np.flatnonzero(lost - tail_of(_LEAVE * beta) * error <= aim.loss))
    hits = failed + int((reduction_ends(close, aim, _KEEP * beta)[1] >= aim.reduction).sum())
    draws, seen = len(test) + failed, reductions(test, aim)
    seen = seen[np.isfinite(seen)]
    return OneMore(
        law=law,
        draws=draws,
        hits=hits,
        share=min(1.0, upper_share(hits, draws, alpha / 2) / (1 - HIDDEN)),
        variety=(float(np.quantile(seen, 0.05)), float(np.quantile(seen, 0.95))) if len(seen) else None,
        close=len(close),
    )


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

    def merged(self, group_of: NDArray[np.int64]) -> Disagreement:
        """Return the counts of groups that are made of several, as `PairedCounts.merged` does."""
        return Disagreement(accepted=merged(self.accepted, group_of, 0), apart=merged(self.apart, group_of, 1))


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
            # one contested row is added (h is at most ½): few rows may hold all that is contested
            rows[g] = (table @ h**2 / n[g] - means[g] ** 2) / (n[g] - 1) + 0.25 / n[g] ** 2

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


def denominators(counts: PairedCounts, aim: Aim) -> Array:
    """Return the rows by group that the rate is a share of."""
    return np.asarray(counts.before @ np.array(aim.rate.over, dtype=np.float64))


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
        lost = [by_cell(decided & ~decisions) for decisions in others]
        gained = [by_cell(~decided & decisions) for decisions in others]
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
        result = cls(margins, flat[:, 0], flat[:, 1])
        if (flat < 0).any() or (result.lost > margins[..., 1]).any() or (result.gained > margins[..., 0]).any():
            raise DataError("an alternative decides more rows otherwise than there are")
        return result

    def lines(self) -> list[list[int]]:
        """Return the counts of each alternative as one flat line: lost, then gained, by group and outcome."""
        return np.stack([self.lost, self.gained], axis=1).reshape(len(self), 4 * len(self.base)).tolist()

    def take(self, places: Sequence[int] | Whole) -> PairedCounts:
        """Return some of the alternatives."""
        chosen = np.asarray(places, dtype=np.int64)
        return PairedCounts(self.base, self.lost[chosen], self.gained[chosen])

    def merged(self, group_of: Whole) -> PairedCounts:
        """Return the counts of groups that are made of several: `group_of` names the group of each, shape [G]."""
        return PairedCounts(*(merged(part, group_of, axis)
                              for part, axis in ((self.base, 0), (self.lost, 1), (self.gained, 1))))  # fmt: skip

    def joint(self) -> Sums:
        """Return joint sums of (TN, FP, FN, TP) of both models by alternative and group, as from the rows themselves.

        Groups are together: shapes [K G], [K G, 8], [K G, 8, 8].
        """
        # rows by outcome, decision in use and the alternative's decision, shape [K, G, 2, 2, 2]
        refused = np.stack([self.base[..., 0] - self.gained, self.gained], axis=-1)
        accepted = np.stack([self.lost, self.base[..., 1] - self.lost], axis=-1)
        cells = np.stack([refused, accepted], axis=-2).reshape(-1, 8).astype(np.float64)
        outcome, before, after = np.indices((2, 2, 2)).reshape(3, 8)
        held = np.eye(8)[2 * outcome + before] + np.eye(8)[4 + 2 * outcome + after]  # what a row of each kind adds
        return Sums(cells.sum(axis=1), cells @ held, np.einsum("nc,ci,cj->nij", cells, held, held))

    @property
    def before(self) -> Array:
        """Rows by group and (TN, FP, FN, TP) of the model in use, shape [G, 4]."""
        return self.base.reshape(-1, 4).astype(np.float64)

    @property
    def after(self) -> Array:
        """Rows by alternative, group and (TN, FP, FN, TP) of the alternative, shape [K, G, 4]."""
        moved = self.gained - self.lost
        return self.before + np.stack([-moved, moved], axis=-1).reshape(*moved.shape[:2], 4)

    @property
    def apart(self) -> Array:
        """The share of rows that each alternative decides otherwise, shape [K]."""
        return np.asarray((self.lost + self.gained).sum(axis=(1, 2)) / self.base.sum())


def merged(counts: Whole, group_of: Whole, axis: int) -> Whole:
    """Add up counts of small groups to those of the groups that they are part of."""
    sums = [counts.compress(group_of == group, axis).sum(axis=axis) for group in range(int(group_of.max()) + 1)]
    return np.stack(sums, axis=axis)


def _whole(values: Any) -> Whole:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError
    return array.astype(np.int64)
