"""The interface of metrics: small functions of mergeable totals, with intervals."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.intervals import student, wilson
from fairkit.statistics import Confusion, Contributions, Moments, Rows, Statistic, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.intervals import Limits
    from fairkit.results.findings import Better

    Array = NDArray[np.float64]

REPLICATES = 1_000
"""Bootstrap replicates of the totals, for metrics without a closed interval."""

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
    """

    values: Array
    limits: Limits

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", functools.cache(self.limits))


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
    tasks
        The tasks for which the metric makes sense.
    between
        Which comparisons between groups are reported: a subset of {``difference``, ``ratio``, ``extreme``}.
    citation
        Where the metric is defined; empty for what every textbook has.
    """

    name: ClassVar[str]
    better: ClassVar[Better] = "none"
    range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    meaning: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset({"decision"})
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary"})
    between: ClassVar[frozenset[str]] = frozenset({"difference", "ratio", "extreme"})
    citation: ClassVar[str] = ""

    def contributions(self, rows: Rows) -> Array:
        """Return what each row adds to the sums, shape [n, m]; weights are applied by fairkit.

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
        """Compute the share in every group with Wilson limits.

        Under weights or fractional decisions n is the effective number of rows, p(1-p) / var(p), with the
        variance of a ratio of sums; for whole decisions without weights that is the denominator itself.
        """
        rate = _quiet(self.compute, totals.first)
        over, counted = np.array(self.over, float), np.array(self.counted, float)
        base = totals.first @ over
        with np.errstate(divide="ignore", invalid="ignore"):
            residual = counted - rate[:, None] * over
            variance = np.einsum("gi,gij,gj->g", residual, totals.second, residual) / base**2
            kish = base**2 / np.einsum("i,gij,j->g", over, totals.second, over)
            effective = np.where(variance > 0, rate * (1 - rate) / variance, kish)
        whole = np.allclose(totals.second, totals.first[:, :, None] * np.eye(4))
        n = base if whole else np.where(np.isfinite(effective), effective, kish)
        return Estimate(rate, lambda z: wilson(rate, n, z))


class Mean(Metric):
    """A weighted mean of one number per row, with Student intervals."""

    @abstractmethod
    def per_row(self, rows: Rows) -> Array:
        """Return the number whose mean it is, shape [n]."""

    def contributions(self, rows: Rows) -> Array:
        """Return (1, number)."""
        values = self.per_row(rows)
        return np.column_stack([np.ones_like(values), values])

    @property
    def statistic(self) -> Statistic:
        """The sums of the contributions, without building them."""
        return Moments(_key(self), self.per_row)

    def compute(self, sums: Array) -> Array:
        """Divide."""
        return np.asarray(sums[..., 1] / sums[..., 0])

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute the mean in every group with Student limits."""
        mean = _quiet(self.compute, totals.first)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = totals.second
            squares = s[:, 1, 1] - 2 * mean * s[:, 0, 1] + mean**2 * s[:, 0, 0]
            correction = totals.count / np.maximum(totals.count - 1, 1)
            error = np.sqrt(np.maximum(squares, 0) * correction) / totals.first[:, 0]

        def limits(z: float) -> tuple[Array, Array]:
            half = student(z, totals.count) * error
            return np.clip(mean - half, *self.range), np.clip(mean + half, *self.range)

        return Estimate(mean, limits)


def _key(metric: Metric) -> str:
    """Name a metric's own totals: classes of one name may stand in several modules."""
    cls = type(metric)
    return f"contributions of {cls.__module__}.{cls.__qualname__} {cls.name}"


def _quiet(function: Any, sums: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(function(sums), dtype=np.float64)
