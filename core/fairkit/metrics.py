"""The interface of metrics: small functions of mergeable totals, with intervals."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fairkit.limits import bounded_mean_limits, heavy, mean_limits, share_limits, student, weighted_share_limits
from fairkit.statistics import CellSums, Confusion, Contributions, Moments, MomentSums, Rows, Statistic, Sums
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass, field, fields, replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.intervals import Limits
    from fairkit.results.findings import Better

    Array = NDArray[np.float64]

REPLICATES = 1_000
"""Bootstrap replicates of the totals, for metrics without a closed interval."""

HEAVY = "heavy tails: a few rows make up most of the variance"
"""Why the interval of a mean is not trusted."""

_SMALLEST = float(np.finfo(np.float64).eps)

ODDS = ("true_positive_rate", "false_positive_rate")
"""The two rates that equalized odds are about, over different rows."""

FAVORABLE_OUTCOMES = (0, 0, 1, 1)
"""`Rate.over` of the rates among rows with the favorable outcome."""

CONFUSION = Confusion()
"""The one confusion statistic, so that all rates share its totals."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric's value in every group.

    Attributes
    ----------
    values
        Shape [G]; NaN where the metric is not defined for the group.
    limits
        Gives lower and upper limits, each [G], for a normal quantile z. They are computed once for each z.
    sizes
        How many rows, or how many effective ones under weights, the number rests on in each group: those of the
        smallest denominator. Shape [G]; None where that is the number of rows.
    doubts
        Why a group's interval is not to be trusted, by the group's place; no verdict is made from such a one.
    correlation
        Of the groups' numbers, shape [G, G], where rows of several groups depend on each other; None: independent.
    notes
        What is said wherever the numbers stand, such as how their interval was made.
    inflated
        How many standard errors a number is too large on average where the truth is 0, and how many it is at most at a
        normal quantile, for all groups or by group: of numbers that are the largest of many noisy sizes. None where
        nothing is the largest.
    bounded
        Whether the limits hold what is possible where outcomes are unknown, so that groups are compared at their ends.
    """

    values: Array
    limits: Limits
    sizes: Array | None = None
    doubts: Mapping[int, str] = field(default_factory=dict)
    correlation: Array | None = None
    notes: tuple[str, ...] = ()
    inflated: tuple[float | Array, Callable[[float], float | Array]] | None = None
    bounded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", functools.cache(self.limits))


class Term(NamedTuple):
    """A number in the words of people who are no statisticians.

    Attributes
    ----------
    plain
        Its name, without an article.
    meaning
        One sentence.
    share
        Of a rate: of 100 of whom, and how many do what: ``("qualified people", "get a favorable decision")``.
    share_of_class
        The same where the decision is one of several classes, which stands for ``{0}``.
    short
        The field's short name, as ``TPR``.
    """

    plain: str
    meaning: str
    share: tuple[str, str] | None = None
    share_of_class: tuple[str, str] | None = None
    short: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """Where a number stands in what is shown first: ranks from 1; None where it does not stand.

    Attributes
    ----------
    performance
        Among the numbers over all rows that a comparison begins with.
    between
        Its difference between groups, among the disparities that a comparison begins with.
    column
        In the table of groups.
    disparity
        Whether its difference may be among a report's largest disparities; False where another name says the same.
    tasks
        The tasks in which all this holds; None for all of the metric's.
    sentence
        Whether a page says the number over all rows in a sentence.
    worse_of
        Of a finding that is the worse of two others: their names.
    condition
        What must be asked for it to be measured at all: "against a group that `reference` names".
    """

    performance: int | None = None
    between: int | None = None
    column: int | None = None
    disparity: bool = True
    tasks: frozenset[Task] | None = None
    sentence: bool = False
    worse_of: tuple[str, ...] = ()
    condition: str = ""

    def holds(self, task: str) -> bool:
        """Whether it holds in a task."""
        return self.tasks is None or task in self.tasks


class Metric(ABC):
    """A number about each group, made from sums over the group's rows.

    A metric says what each row contributes and how the sums become the number; fairkit streams, merges,
    weights, and makes intervals, differences and ratios between groups. A complete example::

        import numpy as np
        import fairkit

        class MeanScoreOfRejected(fairkit.Metric):
            \"\"\"The mean score of the rows with an unfavorable decision.\"\"\"

            name = "mean_score_of_rejected"
            better = "none"
            range = (0.0, 1.0)
            meaning = "0: those rejected had no chance; 1: they were rejected at full score."
            needs = frozenset({"decision", "score"})

            def contributions(self, rows):
                rejected = 1 - rows.decision
                return np.column_stack([rejected * rows.score, rejected])

            def compute(self, sums):
                return sums[..., 0] / sums[..., 1]

        @fairkit.hookimpl
        def fairkit_metrics():
            return [MeanScoreOfRejected]

    Attributes
    ----------
    name
        Lower case with underscores; the field's term.
    better
        ``lower``, ``higher`` or ``none``.
    range
        The smallest and largest possible value.
    meaning
        One sentence: what 0, 1 or the ends of the range mean.
    needs
        What a model must give: a subset of {``decision``, ``score``}.
    outcome
        Whether the number depends on outcomes: data without a label has none.
    tasks
        The tasks for which the metric makes sense.
    between
        Which comparisons between groups are reported: a subset of {``difference``, ``ratio``, ``extreme``}.
    citation
        Where the metric is defined; empty for what every textbook has.
    alias
        The field's own name for equality of this number between groups, such as ``demographic_parity``: the
        difference and the ratio are reported under it, too.
    headline
        Where views show it (see `Headline`).
    term
        What it is called in plain words (see `Term`); None: its name, and the first sentence of its documentation.
    terms_between
        The same of its ``difference`` and ``ratio`` between groups, where they have words of their own.
    ranks
        Whether of scores only their order counts, so that scores that are no probabilities can be measured, too.
    shares
        ``decision-outcome`` where `compute` takes the four confusion cells, so that the number follows from the shares
        of favorable outcomes among selected and refused people: few labels then do (see `fairkit.Drawn`). Empty:
        where outcomes are missing the number is that of the labelled rows.
    """

    name: ClassVar[str]
    better: ClassVar[Better] = "none"
    range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    meaning: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"decision"})
    outcome: ClassVar[bool] = True
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "ratio", "extreme"})
    citation: ClassVar[str] = ""
    alias: ClassVar[str] = ""
    headline: ClassVar[Headline] = Headline()
    term: ClassVar[Term | None] = None
    terms_between: ClassVar[Mapping[str, Term]] = {}
    ranks: ClassVar[bool] = False
    shares: ClassVar[str] = ""

    def contributions(self, rows: Rows) -> Array:
        """Return each row's contributions to the sums, shape [n, m]; fairkit applies the weights.

        Parameters
        ----------
        rows
            Outcomes, decisions and scores of n rows.
        """
        raise NotImplementedError(f"{type(self).__name__} gives neither contributions nor a statistic")

    @abstractmethod
    def compute(self, sums: Array) -> Array:
        """Turn sums into the number.

        Parameters
        ----------
        sums
            Weighted sums of the contributions, shape [..., m]: the last axis is what `contributions` gave.

        Returns
        -------
        array
            Shape [...]; NaN where the number is not defined.
        """

    @property
    def statistic(self) -> Statistic:
        """The totals that the metric is a function of; by default the sums of its contributions."""
        return Contributions(_key(self), self.contributions)

    def estimate(self, totals: Any, rng: np.random.Generator) -> Estimate:
        """Compute the number in every group with limits from a bootstrap of the totals.

        The sums of a resampled group are close to normal with the covariance Σ w² s sᵀ (Poisson bootstrap);
        `REPLICATES` draws give the number's standard error.
        """
        values = _quiet(self.compute, totals.first)
        error = self._standard_error(totals, rng)

        def limits(z: float) -> tuple[Array, Array]:
            half = student(z, totals.count) * error
            return np.clip(values - half, *self.range), np.clip(values + half, *self.range)

        return Estimate(values, limits)

    def influence(self, mass: Array, scores: Array) -> Array:
        """Return how far a row of weight 1 pulls a number that is a function of score tables, shape [U, G, 2].

        Only metrics whose statistic is `fairkit.statistics.Scores` need it, for rows that depend on each other.

        Parameters
        ----------
        mass
            By score, group and outcome, shape [U, G, 2], scores increasing.
        scores
            Shape [U].
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how rows of one cluster add up")

    def _standard_error(self, totals: Sums, rng: np.random.Generator) -> Array:
        values, vectors = np.linalg.eigh(totals.second)
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        draws = rng.standard_normal((REPLICATES, *totals.first.shape))
        replicates = _quiet(self.compute, totals.first + np.einsum("gij,rgj->rgi", root, draws))
        replicates[~np.isfinite(replicates)] = np.nan
        good = np.isfinite(replicates).sum(axis=0)
        error = np.full(totals.first.shape[0], np.nan)
        usable = good > REPLICATES // 2
        error[usable] = np.nanstd(replicates[:, usable], axis=0)
        return error


def shown_of(metric: type[Metric]) -> dict[str, Any]:
    """Return how a metric is shown, as plain JSON values: a report has this of metrics that not every machine has."""
    headline = {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name in (one.name for one in fields(Headline))
        if (value := getattr(metric.headline, name)) != getattr(Headline(), name)
    }
    term = metric.term or Term(metric.name.replace("_", " "), first_sentence(metric))
    return {
        "alias": metric.alias,
        "outcome": metric.outcome,
        "tasks": sorted(metric.tasks),
        "headline": headline,
        "term": list(term[:2]),
    }


def first_sentence(metric: type[Metric]) -> str:
    """Return the first paragraph of its documentation in one line; its name where it has none."""
    return (metric.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ") or metric.name


def recorded(name: str, shown: Mapping[str, Any]) -> type[Metric]:
    """Make a class that declares what `shown_of` recorded, and measures nothing."""
    headline = dict(shown["headline"])
    if headline.get("tasks") is not None:
        headline["tasks"] = frozenset(headline["tasks"])
    return type(
        "Recorded",
        (Metric,),
        {
            "name": name,
            "alias": str(shown["alias"]),
            "outcome": bool(shown["outcome"]),
            "tasks": frozenset(shown["tasks"]),
            "headline": Headline(**headline),
            "term": Term(visible(shown["term"][0]), visible(shown["term"][1])),
        },
    )


def field_names(metrics: Iterable[Metric | type[Metric]]) -> dict[str, str]:
    """Return the field's own names: ``selection_rate_difference`` is ``demographic_parity_difference``."""
    return {
        f"{metric.name}_{kind}": f"{metric.alias}_{kind}"
        for metric in metrics
        if metric.alias
        for kind in ("difference", "ratio")
    }


class Rate(Metric):
    """A share: the sum of some confusion cells over the sum of others, with Wilson intervals.

    Attributes
    ----------
    over
        The cells of the denominator, as 0/1 factors of (outcome 0, no), (outcome 0, yes), (outcome 1, no),
        (outcome 1, yes).
    counted
        The cells of the numerator, a subset of them.
    """

    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    shares: ClassVar[str] = "decision-outcome"
    over: ClassVar[tuple[int, int, int, int]]
    counted: ClassVar[tuple[int, int, int, int]]

    @property
    def statistic(self) -> Statistic:
        """The shared confusion cells."""
        return CONFUSION

    def compute(self, sums: Array) -> Array:
        """Divide."""
        return np.asarray((sums @ np.array(self.counted, float)) / (sums @ np.array(self.over, float)))

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute the share in every group, with limits for whole, weighted or fractional decisions."""
        rate = _quiet(self.compute, totals.first)
        over, counted = np.array(self.over, float), np.array(self.counted, float)
        base = totals.first @ over
        if np.allclose(totals.second, totals.first[:, :, None] * np.eye(4)):
            return Estimate(rate, lambda z: share_limits(rate, base, z), sizes=base)
        with np.errstate(all="ignore"):
            residual = counted - rate[:, None] * over
            square = np.einsum("gi,gij,gj->g", residual, totals.second, residual)
            kish = base**2 / np.einsum("i,gij,j->g", over, totals.second, over)
            n = np.where(square > 0, np.minimum(kish, rate * (1 - rate) * base**2 / square), kish)
        if not (_fractional(totals) and isinstance(totals, CellSums)):
            return Estimate(rate, lambda z: weighted_share_limits(rate, n, z), sizes=n)
        skewness = _skewness(_cube(residual, totals.cubes), square)
        with np.errstate(all="ignore"):
            error = np.sqrt(square * kish / np.maximum(kish - 1, 1)) / base
        span = np.zeros_like(rate), np.ones_like(rate)
        return Estimate(
            rate, lambda z: bounded_mean_limits(rate, error, skewness, kish, (0.0, 1.0), span, z), sizes=kish
        )


def _fractional(totals: Sums) -> bool:
    """Whether some row adds to two cells."""
    return bool((totals.second[:, 0, 1] > 1e-12).any() or (totals.second[:, 2, 3] > 1e-12).any())


def _cube(residual: Array, cubes: Array) -> Array:
    """Return Σ (w r)³ of residuals that are `residual[:, no] + (yes - no) h` for each outcome."""
    total = np.zeros(len(residual))
    for outcome in (0, 1):
        start = residual[:, 2 * outcome]
        slope = residual[:, 2 * outcome + 1] - start
        ones, h, h2, h3 = (cubes[:, outcome, power] for power in range(4))
        total = total + start**3 * ones + 3 * start**2 * slope * h + 3 * start * slope**2 * h2 + slope**3 * h3
    return total


def _skewness(cube: Array, square: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.where(square > 0, cube / np.maximum(square, 1e-300) ** 1.5, 0.0))


class Mean(Metric):
    """A weighted mean of one number per row, with Student limits moved by skewness.

    Attributes
    ----------
    by_outcome
        Whether the number is a loss on a binary outcome: what it would be at the other outcome then bounds what
        unseen rows could add.
    centred
        Whether the number is in the unit of the target.
    """

    by_outcome: ClassVar[bool] = False
    centred: ClassVar[bool] = False

    @abstractmethod
    def per_row(self, rows: Rows) -> Array:
        """Return the number whose mean it is, shape [n]."""

    def contributions(self, rows: Rows) -> Array:
        """Return (1, number)."""
        values = self.per_row(rows)
        return np.column_stack([np.ones_like(values), values])

    @property
    def statistic(self) -> Statistic:
        """The sums of the contributions, without building them, and of powers."""
        flipped = self.flipped_sum if self.by_outcome else None
        return Moments(_key(self), self.per_row, flipped, centred=self.centred, certain=self.certain)

    @staticmethod
    def certain(rows: Rows) -> Array | None:
        """Return, of a loss of probabilities, which rows were given 0 or 1, and which of them wrongly, shape [n, 2]."""
        del rows
        return None

    def flipped_sum(self, rows: Rows) -> float:
        """Return Σ w of what the numbers would be if every outcome were the other one."""
        others = replace(rows, outcome=1.0 - rows.outcome).expected(self.per_row)
        return float(others.sum() if rows.weights is None else (rows.weights * others).sum())

    def compute(self, sums: Array) -> Array:
        """Divide."""
        return np.asarray(sums[..., 1] / sums[..., 0])

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute the mean in every group, with the limits of `fairkit.limits`.

        Where the range of the number is finite they are never wider than those of a share. Where it is not,
        heavy tails and groups without any variation put the interval in doubt.
        """
        if not isinstance(totals, MomentSums):
            raise TypeError(f"the totals of {self.name} are not those of its statistic")
        return self.estimate_from(totals, *moments_of(totals))

    def estimate_from(self, totals: MomentSums, n: Array, error: Array, skewness: Array) -> Estimate:
        """Compute the mean in every group, with limits from its standard error, shapes [G].

        Parameters
        ----------
        totals
            The sums; they also say what range was seen.
        n
            The effective number of rows.
        error, skewness
            Of the mean.
        """
        mean = _quiet(self.compute, totals.first)
        least, most = (np.full_like(mean, end[0]) for end in (totals.least, totals.most))
        if np.isfinite(self.range).all():
            if totals.reach[1] > 0:
                most = np.maximum(most, totals.reach[0] / totals.reach[1])
            else:
                least, most = (np.full_like(mean, end) for end in self.range)

            def bounded(z: float) -> tuple[Array, Array]:
                with np.errstate(all="ignore"):
                    return bounded_mean_limits(mean, error, skewness, n, self.range, (least, most), z)

            return Estimate(mean, bounded, sizes=n)

        def limits(z: float) -> tuple[Array, Array]:
            with np.errstate(all="ignore"):
                low, high = mean_limits(mean, error, skewness, n, (least, most), z)
            varied = most > least
            low, high = np.where(varied, low, self.range[0]), np.where(varied, high, self.range[1])
            return np.clip(low, *self.range), np.clip(high, *self.range)

        return Estimate(mean, limits, sizes=n, doubts=_doubts(mean, skewness, n, least, most))


def moments_of(totals: MomentSums) -> tuple[Array, Array, Array]:
    """Return the effective number of rows, the standard error and the skewness of each group's mean."""
    mass, moved, w2, y2, yy2, w3, y3, yy3, yyy3 = totals.powers.T
    with np.errstate(all="ignore"):
        n = mass**2 / w2
        m = moved / mass
        square = yy2 - 2 * m * y2 + m**2 * w2
        square = np.where(square > 64 * _SMALLEST * yy2, square, 0.0)
        error = np.sqrt(square * n / np.maximum(n - 1, 1)) / mass
        cube = yyy3 - 3 * m * yy3 + 3 * m**2 * y3 - m**3 * w3
    return n, error, _skewness(cube, square)


def _doubts(mean: Array, skewness: Array, n: Array, least: Array, most: Array) -> dict[int, str]:
    """Say which groups' means are not to be trusted: of heavy tails, or where no two rows differ anywhere."""
    doubts = {}
    tails = heavy(skewness, n)
    for index in np.flatnonzero(np.isfinite(mean)).tolist():
        if not most[index] > least[index]:
            doubts[index] = "every row has the same value, so that nothing tells how others vary"
        elif tails[index]:
            doubts[index] = HEAVY
    return doubts


def _key(metric: Metric) -> str:
    """Name a metric's own totals: classes of one name may stand in several modules."""
    cls = type(metric)
    return f"contributions of {cls.__module__}.{cls.__qualname__} {cls.name}"


def _quiet(function: Any, sums: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(function(sums), dtype=np.float64)
