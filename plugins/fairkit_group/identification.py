"""What group probabilities leave open: the smallest and the largest difference of two groups' rates.

Let z be a cell of rows with about the same group probabilities, C and F the masses of its rows that a rate counts and
of those that it is over and does not count, n its mass, and π_a its mass times the probability of group a. Nobody knows
which rows are in which group. The mass of a among the counted ones lies between max(0, π_a + C - n) and min(π_a, C)
(Fréchet), and a's rate is largest where it has as many counted and as few other rows as possible. The largest rate of a
and the smallest of b are reached together, as there are enough other rows for both (Kallus, Mao & Zhou 2022, prop. 3).
Rows whose probabilities differ a little share a cell: that can only widen the bounds.

The smaller of two noisy masses is too small on average where the two are about equal: in a population whose decisions
*are* the groups the plain bounds would hold the truth in none of a thousand samples of 20 cells. In limits a cell whose
two masses are nearer than `NEAR` standard errors has the mean of the two, which is no smaller than the smaller one and
has no such bias (the problem of intersection bounds; Chernozhukov, Lee & Rosen 2013).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairkit.data.labelled import check_cells
from fairkit.errors import ParameterError
from fairkit.few_labels import (
    CELLS,
    FALL_BACK,
    SUSPECT,
    LabelTotals,
    Shares,
    falls_back,
    few_label_estimate,
    label_totals,
    leaning,
    metric_inside,
    shares_of,
)
from fairkit.intervals import two_sided
from fairkit.limits import student
from fairkit.metrics import Rate
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_dependent import noise_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.labelled import Drawn
    from fairkit.metrics import Estimate, Metric
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]


NEAR = 2.5
"""So many standard errors apart it is known which of two masses is the smaller one."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a group's rate."""

    value: float  # the rate; NaN where the group may have no rows that it is over
    slopes: Array  # in each cell's sums (π_1 .. π_K, confusion cells), shape [Z, K + 4]


def end_of(
    sums: Array,
    group: int,
    groups: int,
    over: Array,
    counted: Array,
    *,
    largest: bool,
    sampling: Sampling | None = None,
    off: float = 0.0,
) -> End:
    """Return the smallest or the largest rate of a group, whose share of a cell may be `off` its probability."""
    group_mass = np.zeros(groups + 4)
    group_mass[group] = 1
    good, bad = np.append(np.zeros(groups), counted), np.append(np.zeros(groups), over - counted)
    if not largest:
        good, bad = bad, good
    everybody = np.append(np.zeros(groups), np.ones(4))
    # Fréchet, by cell: at most min(π, good) of the group is counted, at least π + bad - 1 is not
    most, spare = group_mass + off * everybody, group_mass + bad - (1 + off) * everybody
    whole, some = (_chosen(sums, part, sampling)[:, None] for part in (good - most, spare))
    gained, forced = whole * most + (1 - whole) * good, some * spare
    top, rest = float((gained * sums).sum()), float((forced * sums).sum())  # the rest may be below 0 by noise
    with np.errstate(all="ignore"):
        share = np.float64(top) / (top + rest)
        # delta method: derivatives of top / (top + rest) in the sums
        slopes = ((1 - share) * gained - share * forced) / (top + rest)
    return End(float(share), slopes) if largest else End(float(1 - share), -slopes)


def _chosen(sums: Array, excess: Array, sampling: Sampling | None) -> Array:
    """Return by cell 1 where an excess is positive, 0 where it is not, one half where noise hides it, shape [Z]."""
    value = sums @ excess
    sign = np.asarray(value > 0, dtype=np.float64)
    if sampling is None:
        return sign
    return np.where(np.abs(value) < NEAR * sampling.cell_errors(excess), 0.5, sign)


@dataclass(frozen=True, slots=True)
class Error:
    """A standard error and its degrees of freedom: without end where rows are independent."""

    value: float
    degrees: float

    def reach(self, z: float) -> float:
        """Return how far an end goes at a normal quantile."""
        return self.value * float(student(z, np.array([self.degrees + 1]))[0])


@dataclass(frozen=True, slots=True)
class Sampling:
    """Where the noise of functions of the sums comes from: rows, or buckets of clusters (the sandwich over buckets)."""

    second: Array  # by cell the sums of the products by row, shape [Z, K + 4, K + 4]
    buckets: Array | None = None  # the sums by cell and bucket, shape [Z, B, K + 4]; None where rows are independent
    off: float = 0.0  # how far a group's share of a cell may be from its mean probability

    def cell_errors(self, direction: Array) -> Array:
        """Return the standard error of a combination of each cell's sums, shape [Z]."""
        if self.buckets is None:
            square = np.einsum("i,zij,j->z", direction, self.second, direction)
        else:
            pull = self.buckets @ direction
            square = ((pull - pull.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))

    def error(self, slopes: Array) -> Error:
        """Return the error of a number with these slopes in the sums, shape [Z, K + 4]."""
        if self.buckets is None:
            square = np.einsum("zi,zij,zj->", slopes, self.second, slopes)
            return Error(float(np.sqrt(max(square, 0.0))), np.inf)
        pull = np.einsum("zi,zbi->b", np.nan_to_num(slopes), self.buckets)
        sizes = np.abs(self.buckets).sum(axis=(0, 2))
        noise = noise_of(pull[None], (sizes > 0)[None], sizes[None])
        return Error(float(np.sqrt(noise.variance[0])), float(noise.degrees[0]))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of what a number can be."""

    low: float  # on these rows
    high: float
    outer: tuple[float, float]  # the two ends with equal masses taken as equal: what limits start from
    errors: tuple[Error, Error]  # their standard errors

    def limits(self, z: float) -> tuple[float, float]:
        """Return the ends with sampling error on top."""
        low, high = min(self.low, self.outer[0]), max(self.high, self.outer[1])
        return low - self.errors[0].reach(z), high + self.errors[1].reach(z)


def rate_bounds(sums: Array, sampling: Sampling, group: int, over: Array, counted: Array) -> Bounds:
    """Return the bounds of a group's rate."""
    plain, outer = (_ends(sums, group, over, counted, noise, sampling.off) for noise in (None, sampling))
    errors = sampling.error(outer[0].slopes), sampling.error(outer[1].slopes)
    return Bounds(plain[0].value, plain[1].value, (outer[0].value, outer[1].value), errors)


def difference_bounds(sums: Array, sampling: Sampling, pair: tuple[int, int], over: Array, counted: Array) -> Bounds:
    """Return the bounds of the difference of two groups' rates, first minus second."""
    plain, outer = (
        [_ends(sums, group, over, counted, noise, sampling.off) for group in pair] for noise in (None, sampling)
    )
    ends = [(first[0].value - second[1].value, first[1].value - second[0].value) for first, second in (plain, outer)]
    first, second = outer
    errors = []
    for side in (0, 1):
        ours, theirs = first[side].slopes, second[1 - side].slopes
        alone = min(sampling.error(ours), sampling.error(theirs), key=lambda error: error.value)
        errors.append(max(sampling.error(ours - theirs), alone, key=lambda error: error.value))  # they may cancel
    return Bounds(*ends[0], ends[1], (errors[0], errors[1]))


def _ends(
    sums: Array, group: int, over: Array, counted: Array, sampling: Sampling | None, off: float
) -> tuple[End, End]:
    groups = sums.shape[1] - 4
    low, high = (
        end_of(sums, group, groups, over, counted, largest=side, sampling=sampling, off=off) for side in (False, True)
    )
    return low, high


# Outcomes that are known for some rows: the totals of a batch, estimates under the design, and what is said of it.


LABELLED_SHARE = "labelled_share"
"""The finding that says how many outcomes are known, why these, and what they are worth."""

OVER_BOTH = ("equalized_odds", "gap_max", "gap_rms")  # disparities in two rates, without difference and ratio
_LEAST_ROWS = 5  # of a cell whose sums over scores are published
_HOLDS = {
    "list": "The limits hold if outcomes were looked up for exactly the drawn rows.",
    "random": "The limits hold if every row had the same chance of being looked up, whatever its outcome.",
    "probability": "The limits hold if each row was looked up with its probability there, whatever its outcome.",
    "by": "The limits hold if rows with the same values of these columns had the same chance of being looked up.",
    "selective": "The limits hold whatever the unknown outcomes are: the known ones say nothing about them.",
}


class BaseRate(Rate):
    """The share of favorable outcomes."""

    name: ClassVar[str] = "base_rate"
    over = (1, 1, 1, 1)
    counted = (0, 0, 1, 1)


def check_design(context: AuditContext, label_error: Sequence[str]) -> None:
    """Refuse a design of labels for what it cannot be meant for."""
    design = context.dataset.roles.labelled
    if design is None or not context.dataset.profile.unlabelled:
        return
    if context.scorer.task != "binary":
        raise ParameterError(
            f"`labelled` is for decisions of yes or no, and this is a {context.scorer.task} task: leave it out; "
            "rows without an outcome then give bounds"
        )
    if label_error:
        raise ParameterError("`labelled` and `label_error` cannot be used together: leave one of them out")
    if design.sensitive is not None and design.sensitive not in context.dataset.profile.groups:
        raise ParameterError(
            f"the rows were drawn inside the groups of {design.sensitive!r}: name it as a sensitive column, too"
        )


def known_rows(batch: Batch, predictions: Predictions, design: Drawn | None) -> tuple[Batch, Predictions] | None:
    """Return the rows whose outcomes are used, with what each stands for as its weight; None without any."""
    keep = batch.labelled
    chosen = None if design is not None or keep is None else batch.take(keep)
    if design is not None:
        keep, chosen = design.known(batch)
    return None if keep is None or chosen is None or not len(chosen) else (chosen, predictions.take(keep))


def label_totals_of(batch: Batch, predictions: Predictions, dataset: Dataset) -> dict[str | None, LabelTotals]:
    """Total the rows of a batch by sensitive column, and as one group (None)."""
    design, decision = dataset.roles.labelled, predictions.decision
    assert design is not None and batch.labelled is not None and batch.favorable is not None  # noqa: S101, PT018
    if decision is None or not ((decision == 0) | (decision == 1)).all():
        raise ParameterError("`labelled` is for decisions of yes or no; these are drawn by chance, or there are none")
    has_label = batch.labelled if batch.drawn is None else batch.labelled & batch.drawn
    splits: dict[str | None, tuple[NDArray[np.int64], int]] = {None: (np.zeros(len(batch), dtype=np.int64), 1)}
    splits |= {name: (codes, len(dataset.group_names(name))) for name, codes in batch.groups.items()}
    totals = {}
    for name, (codes, groups) in splits.items():
        some = codes >= 0
        parts: dict[str, Any] = {
            "score": predictions.score, "weights": batch.weights, "drawn": batch.drawn,
            "chance": None if name is not None and name == design.sensitive else batch.chance,
        }  # fmt: skip
        chosen = {key: None if part is None else part[some] for key, part in parts.items()}
        totals[name] = label_totals(
            codes[some], groups, decision[some], batch.favorable[some].astype(float), has_label[some],
            stated=design.kind in ("by", "probability"), **chosen,
        )  # fmt: skip
    return totals


class Labelled:
    """What few labels say of one sensitive column (None: all rows as one group)."""

    def __init__(self, totals: LabelTotals, sensitive: str | None, context: AuditContext) -> None:
        dataset = context.dataset
        assert dataset.roles.labelled is not None  # noqa: S101 -- `of` looks
        self.totals, self.sensitive, self.design = totals, sensitive, dataset.roles.labelled
        self.names = ["all"] if sensitive is None else dataset.group_names(sensitive)
        self.rows, self.answers = dataset.profile.rows, dataset.profile.rows - dataset.profile.unlabelled
        self.confidence = context.confidence
        if self.design.sensitive is not None and self.design.sensitive == sensitive:
            check_cells(self.design, self.names, totals.pairs(0), totals.pairs(3), dataset.name)
        if dataset.roles.reference and self.unanswered:
            raise ParameterError("some drawn rows have no outcome, which `reference` does not bound: leave it out")
        self.even = np.full(len(self.names), self.design.kind == "random")
        self.shares = replace(shares_of(totals), no_better=self.design.no_better)
        if self.design.kind == "selective":  # whoever has no outcome may have either
            rows, labels = totals.pairs(0), totals.pairs(1)
            self.shares = replace(self.shares, missing=np.where(labels > 0, 1 - labels / np.maximum(rows, 1), 0.0))
        self.today: dict[str, tuple[Metric, Estimate]] = {}
        self.chance = self._chance()

    @classmethod
    def of(cls, totals: Mapping[str | None, LabelTotals], sensitive: str | None, context: AuditContext) -> Self | None:
        """Return it; None where there is no design, or every row has its outcome."""
        return None if sensitive not in totals else cls(totals[sensitive], sensitive, context)

    def _chance(self) -> float | None:
        """Return the p-value that labels were drawn as the design says; None where it cannot be told."""
        own_design = self.design.sensitive is None or self.design.sensitive == self.sensitive
        return None if self.design.kind == "selective" or not own_design else leaning(self.totals, self.even)[0]

    @property
    def unanswered(self) -> int:
        """How many rows were drawn and have no outcome."""
        return int((self.totals.pairs(3) - self.totals.pairs(1)).sum())

    def estimate(self, metric: Metric, today: Estimate) -> Estimate:
        """Return a metric of all rows; `today` is that of the labelled rows alone."""
        self.today[metric.name] = metric, today
        return few_label_estimate(metric, self.totals, today, self.even, self.shares)

    def under(self, name: str, odds: float) -> tuple[Metric, Estimate]:
        """Return a metric again where the odds of a label may differ so much between the outcomes of a pair."""
        metric, today = self.today[name]
        shares: Shares = replace(self.shares, odds=odds)
        return metric, few_label_estimate(metric, self.totals, today, self.even, shares)

    def caveat(self, metric: Metric) -> str | None:
        """Return why no verdict may be made: labels that lean, or fewer than ten where they matter."""
        if self.chance is not None and self.chance < SUSPECT:
            return (
                f"The rows with an outcome differ from the others in decision or score more than a draw makes them "
                f"(p = {self.chance:.1g}): they were not drawn as `labelled` says, and no verdict is made from them."
            )
        rows, labels = self.totals.pairs(0), self.totals.pairs(1)
        over = getattr(metric, "over", ())
        used = [tuple(over).index(1)] if over in ((0, 1, 0, 1), (1, 0, 1, 0)) else [0, 1]
        few = [
            f"{name} {'selected' if d else 'refused'} ({labels[g, d]:.0f})"
            for g, name in enumerate(self.names)
            for d in used
            if labels[g, d] < min(FALL_BACK, rows[g, d]) and (labels[g, d] or self.design.kind != "selective")
        ]
        return f"Fewer than {FALL_BACK} outcomes are known of: {', '.join(few[:5])}." if few else None

    def finding(self, auditor: str) -> Finding:
        """Return how many outcomes are known, why these, and what they are worth."""
        rows, labels, favorable, drawn = (self.totals.pairs(column) for column in range(4))
        value = float(labels.sum() / rows.sum())
        cells = []
        f = (np.arange(CELLS) + 0.5) / CELLS
        for g, name in enumerate(self.names):
            for d in (0, 1):
                n, m, y = self.totals.sums[g, d, :, :3].T
                cell: dict[str, Any] = {
                    "group": name, "decision": d, "rows": int(rows[g, d]), "drawn": int(drawn[g, d]),
                    "labels": int(labels[g, d]), "favorable": int(favorable[g, d]),
                    "worth": float(self.shares.worth[g, d]), "slope": float(self.shares.slope[g, d]),
                }  # fmt: skip
                if rows[g, d] >= _LEAST_ROWS:  # Σ f over rows; Σ f, Σ f², Σ f y over labels
                    cell["score_sums"] = [float(part) for part in (n @ f, m @ f, m @ f**2, y @ f)]
                cells.append(cell)
        base = few_label_estimate(BaseRate(), self.totals, None, self.even, self.shares)
        low, high = base.limits(two_sided(self.confidence))
        is_known = np.isfinite(base.values)
        evidence: dict[str, Any] = {
            "rows": int(rows.sum()), "labels": cells, "design": self.design.told(), "p_value": self.chance,
            "fallback": self._fallback(),
            "base_rate": [
                {"group": name, "value": float(base.values[g]), "interval": [float(low[g]), float(high[g])]}
                for g, name in enumerate(self.names) if is_known[g]
            ],
        }  # fmt: skip
        return Finding(
            auditor=auditor,
            metric=LABELLED_SHARE,
            sensitive=self.sensitive,
            value=value,
            interval=(value, value),
            confidence=self.confidence,
            evidence=evidence,
            notes=tuple(self._sentences(int(labels.sum()), int(rows.sum()))),
            interval_at=lambda _: (value, value),
        )

    def _fallback(self) -> dict[str, list[str]]:
        """Return by rate the groups whose number is that of their labelled rows alone."""
        each = {
            name: [self.names[g] for g in np.flatnonzero(falls_back(metric_inside(metric), self.shares, self.even))]
            for name, (metric, _) in self.today.items()
        }
        return {name: groups for name, groups in each.items() if groups}

    def _sentences(self, labels: int, rows: int) -> list[str]:
        design = self.design
        how = {
            "list": f"drawn at random inside {design.sensitive} and decision",
            "random": "said to be drawn at random",
            "probability": f"said to be drawn with the probabilities in {', '.join(design.columns)}",
            "by": f"said to be drawn at random inside {', '.join(design.columns)}",
            "selective": "and nobody drew them",
        }[design.kind]
        if isinstance(design.design, Mapping):
            how += f" (seed {design.design['seed']})"
        sentences = [
            f"{labels:,} of {rows:,} outcomes are known, {how}. Decisions are those of all {rows:,} rows.",
            _HOLDS[design.kind],
        ]
        if self.unanswered:
            sentences.append(f"{self.unanswered:,} drawn rows have no outcome: either is taken to be possible.")
        if design.kind == "list" and self.answers > labels:
            sentences.append(
                f"{self.answers - labels:,} known outcomes are of rows that were not drawn, and are not used."
            )
        if design.no_better:
            sentences.append(
                "It is supposed that refused people have no larger share of favorable outcomes (no-better)."
            )
        if self.chance is None and design.kind != "selective":
            sentences.append(
                "Whether labels could have been drawn so was not checked: they are too few, or of another column."
            )
        return sentences
