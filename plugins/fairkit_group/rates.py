"""Rates of decisions: functions of the soft confusion cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.metrics import CONFUSION, Estimate, Headline, Metric, Rate, Term

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.results.values import Better
    from fairkit.statistics import Statistic, Sums

    Array = NDArray[np.float64]

# cells: (outcome 0, no), (outcome 0, yes), (outcome 1, no), (outcome 1, yes)


class Accuracy(Rate):
    """The share of rows whose decision equals the outcome."""

    name: ClassVar[str] = "accuracy"
    term: ClassVar[Term | None] = Term(
        "right decisions",
        "The share of people whose decision agrees with the outcome.",
        share=("people", "get the right decision"),
        share_of_class=("people", "get the right class"),
    )
    headline: ClassVar[Headline] = Headline(performance=1, between=5, column=5, sentence=True)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: every decision is wrong; 1: every decision is right."
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    over = (1, 1, 1, 1)
    counted = (1, 0, 0, 1)


class SelectionRate(Rate):
    """The share of rows with the favorable decision."""

    name: ClassVar[str] = "selection_rate"
    alias: ClassVar[str] = "demographic_parity"
    term: ClassVar[Term | None] = Term(
        "favorable decisions",
        "The share of people who get the favorable decision.",
        share=("people", "get a favorable decision"),
        share_of_class=("people", "are put in class {0}"),
    )
    terms_between: ClassVar[Mapping[str, Term]] = {
        "difference": Term(
            "difference in favorable decisions",
            "The largest minus the smallest share of people with a favorable decision, between groups; 0 is equal.",
            short="DP",
        ),
        "ratio": Term(
            "ratio of favorable decisions",
            "The smallest over the largest share of people with a favorable decision, between groups; 1 is equal.",
            short="DP",
        ),
    }
    headline: ClassVar[Headline] = Headline(between=1, column=1, disparity=False, sentence=True)
    meaning: ClassVar[str] = "0: nobody gets the favorable decision; 1: everybody does."
    outcome: ClassVar[bool] = False
    over = (1, 1, 1, 1)
    counted = (0, 1, 0, 1)


class TruePositiveRate(Rate):
    """The share of favorable outcomes that get the favorable decision."""

    name: ClassVar[str] = "true_positive_rate"
    alias: ClassVar[str] = "equal_opportunity"
    term: ClassVar[Term | None] = Term(
        "favorable decisions among the qualified",
        "The share of qualified people who get the favorable decision.",
        share=("qualified people", "get a favorable decision"),
        share_of_class=("people whose class is {0}", "are put in it"),
        short="TPR",
    )
    terms_between: ClassVar[Mapping[str, Term]] = {
        "difference": Term(
            "difference in favorable decisions among the qualified",
            "The largest minus the smallest share of qualified people who get the favorable decision; 0 is equal.",
            short="TPR",
        ),
        "ratio": Term(
            "ratio of favorable decisions among the qualified",
            "The smallest over the largest share of qualified people who get the favorable decision; 1 is equal.",
            short="TPR",
        ),
    }
    headline: ClassVar[Headline] = Headline(between=2, column=2, disparity=False, sentence=True)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: nobody with the favorable outcome is selected; 1: all of them are."
    over = (0, 0, 1, 1)
    counted = (0, 0, 0, 1)


class FalseNegativeRate(Rate):
    """The share of favorable outcomes that get the unfavorable decision."""

    name: ClassVar[str] = "false_negative_rate"
    term: ClassVar[Term | None] = Term(
        "qualified people turned down",
        "The share of qualified people who get the unfavorable decision.",
        share=("qualified people", "get an unfavorable decision"),
        share_of_class=("people whose class is {0}", "are not put in it"),
        short="FNR",
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "lower"
    meaning: ClassVar[str] = "0: nobody with the favorable outcome is missed; 1: all of them are."
    over = (0, 0, 1, 1)
    counted = (0, 0, 1, 0)


class FalsePositiveRate(Rate):
    """The share of unfavorable outcomes that get the favorable decision."""

    name: ClassVar[str] = "false_positive_rate"
    term: ClassVar[Term | None] = Term(
        "favorable decisions among the unqualified",
        "The share of unqualified people who get the favorable decision all the same.",
        share=("unqualified people", "get a favorable decision"),
        share_of_class=("people whose class is not {0}", "are put in class {0}"),
        short="FPR",
    )
    headline: ClassVar[Headline] = Headline(between=3, column=3)
    better: ClassVar[Better] = "lower"
    meaning: ClassVar[str] = "0: nobody with the unfavorable outcome is selected; 1: all of them are."
    over = (1, 1, 0, 0)
    counted = (0, 1, 0, 0)


class TrueNegativeRate(Rate):
    """The share of unfavorable outcomes that get the unfavorable decision."""

    name: ClassVar[str] = "true_negative_rate"
    term: ClassVar[Term | None] = Term(
        "unfavorable decisions among the unqualified",
        "The share of unqualified people who get the unfavorable decision.",
        share=("unqualified people", "get an unfavorable decision"),
        share_of_class=("people whose class is not {0}", "are not put in class {0}"),
        short="TNR",
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: everybody with the unfavorable outcome is selected; 1: nobody is."
    over = (1, 1, 0, 0)
    counted = (1, 0, 0, 0)


class Precision(Rate):
    """The share of favorable outcomes among the favorable decisions."""

    name: ClassVar[str] = "precision"
    term: ClassVar[Term | None] = Term(
        "qualified among those with a favorable decision",
        "The share of people with a favorable decision who are qualified.",
        share=("people with a favorable decision", "are qualified"),
        share_of_class=("people put in class {0}", "belong there"),
    )
    headline: ClassVar[Headline] = Headline(column=4)
    better: ClassVar[Better] = "higher"
    meaning: ClassVar[str] = "0: every favorable decision is wrong; 1: every one is right."
    over = (0, 1, 0, 1)
    counted = (0, 0, 0, 1)


class BalancedAccuracy(Metric):
    """The mean of true positive rate and true negative rate."""

    name: ClassVar[str] = "balanced_accuracy"
    term: ClassVar[Term | None] = Term(
        "right decisions, both outcomes weighing the same",
        "The mean of the share of right decisions among qualified people and among unqualified people.",
    )
    headline: ClassVar[Headline] = Headline(performance=2)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0.5: no better than chance; 1: every decision is right."

    @property
    def statistic(self) -> Statistic:
        """The shared confusion cells."""
        return CONFUSION

    def compute(self, sums: Array) -> Array:
        """Average the two rates."""
        return np.asarray((TruePositiveRate().compute(sums) + TrueNegativeRate().compute(sums)) / 2)

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Combine the limits of two independent rates (Donner & Zou 2012)."""
        positive = TruePositiveRate().estimate(totals, rng)
        negative = TrueNegativeRate().estimate(totals, rng)
        values = (positive.values + negative.values) / 2

        def limits(z: float) -> tuple[Array, Array]:
            (p_low, p_high), (n_low, n_high) = positive.limits(z), negative.limits(z)
            down = np.hypot(positive.values - p_low, negative.values - n_low) / 2
            up = np.hypot(p_high - positive.values, n_high - negative.values) / 2
            return values - down, values + up

        sizes = [part.sizes for part in (positive, negative) if part.sizes is not None]
        return Estimate(values, limits, sizes=np.minimum(*sizes))


class _Overlap(Rate):
    """The share of rows right among those that are favorable or called so: the Jaccard index q."""

    name: ClassVar[str] = "overlap"
    over = (0, 1, 1, 1)
    counted = (0, 0, 0, 1)


class F1Score(Metric):
    """The harmonic mean of precision and true positive rate."""

    name: ClassVar[str] = "f1_score"
    term: ClassVar[Term | None] = Term(
        "F1 score", "One number for precision and true positive rate: their harmonic mean, from 0 to 1."
    )
    headline: ClassVar[Headline] = Headline(disparity=False)
    better: ClassVar[Better] = "higher"
    range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    meaning: ClassVar[str] = "0: no favorable decision is right; 1: every decision is right."
    shares: ClassVar[str] = "decision-outcome"
    overlap: ClassVar[Rate] = _Overlap()

    @property
    def statistic(self) -> Statistic:
        """The shared confusion cells."""
        return CONFUSION

    def compute(self, sums: Array) -> Array:
        """Twice the true positives over all that are positive or called so."""
        right = 2 * sums[..., 3]
        return np.asarray(right / (right + sums[..., 1] + sums[..., 2]))

    def estimate(self, totals: Sums, rng: np.random.Generator) -> Estimate:
        """Compute F1 = 2q / (1 + q) from the limits of the share q = TP / (TP + FP + FN), which grows with it."""
        share = _Overlap().estimate(totals, rng)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = share.limits(z)
            return 2 * low / (1 + low), 2 * high / (1 + high)

        return Estimate(2 * share.values / (1 + share.values), limits, sizes=share.sizes)


RATES: list[type[Metric]] = [
    Accuracy,
    BalancedAccuracy,
    SelectionRate,
    TruePositiveRate,
    FalsePositiveRate,
    TrueNegativeRate,
    FalseNegativeRate,
    Precision,
    F1Score,
]
