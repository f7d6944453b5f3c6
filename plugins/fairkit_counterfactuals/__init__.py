"""Counterfactual rows: does the prediction stay the same for other versions of a row that the user gives?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditing.needs import NO_GROUPS
from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.hookspecs import hookimpl
from fairkit.intervals import student, two_sided, wilson
from fairkit.metrics import Term
from fairkit.parameters import parameter
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.outside import CounterfactualTable, read_given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]

# versions of a few rows of the checks' sample data
FAIRKIT_CHECK_SETTINGS = {"rows": str(Path(__file__).with_name("sample.csv"))}


@dataclass(frozen=True, slots=True)
class Versions:
    """Totals over originals that have counterfactual rows; adding two merges them."""

    rows: int  # such originals
    all_rows: int  # all rows
    matched: int  # counterfactual rows of these originals
    sums: Array  # Σ w, Σ w c, Σ w d, for consistency c and change d of the score
    squares: Array  # Σ w², Σ w² c, Σ w² c², Σ w² d, Σ w² d²
    whole: bool  # whether every c was 0 or 1 and no row weighted

    def __add__(self, other: Versions) -> Versions:
        return Versions(
            self.rows + other.rows,
            self.all_rows + other.all_rows,
            self.matched + other.matched,
            self.sums + other.sums,
            self.squares + other.squares,
            self.whole and other.whole,
        )


class CounterfactualsAuditor(Auditor):
    """Asks the model about given other versions of rows, such as the embeddings of sentences with swapped words.

    The metric `prediction_consistency` is the share of rows whose decision (or class) is the same in all their
    versions. `counterfactual_token_fairness_gap` is the mean over rows of the mean change of the score against the
    row itself: absolute for a probability (Garg et al. 2019) or a number, the squared Euclidean distance of the class
    probabilities for several classes (Yurochkin and Sun 2021, appendix C). Rows without another version do not count.
    """

    name: ClassVar[str] = "counterfactuals"
    asks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"weights"})
    unaffected_by: ClassVar[frozenset[str]] = NO_GROUPS
    summary: ClassVar[str] = "Given counterfactual rows: predictions that stay the same, and how far scores move."
    terms: ClassVar[Mapping[str, Term]] = {
        "prediction_consistency": Term(
            "decisions that stay in other versions",
            "The share of rows whose decision is the same in all versions of the row that were given.",
        ),
        "counterfactual_token_fairness_gap": Term(
            "change of the score in other versions",
            "How far the score moves, on average, between a row and the versions of it that were given.",
        ),
    }
    citation: ClassVar[str] = (
        "Garg, Perot, Limtiaco, Taly, Chi & Beutel (2019), Counterfactual fairness in text classification through "
        "robustness, AIES"
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set counterfactuals.KEY=VALUE."""

        rows: str = parameter(
            "", help="The table of counterfactual rows: CSV or Parquet, with the columns that the model reads."
        )
        of: str = parameter("of", help="Its column that names the original of each row.")
        key: str | None = parameter(
            None, help="The column of the data that `of` refers to; default: row numbers, from 0."
        )

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self._given = CounterfactualTable({}, {})

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """The key."""
        return () if self.parameters.key is None else (self.parameters.key,)

    def begin(self, context: AuditContext) -> None:
        """Read the counterfactual rows."""
        chosen = self.parameters
        if not chosen.rows:
            raise ParameterError(
                "counterfactuals: name the table of counterfactual rows with the parameter `counterfactuals.rows=FILE`"
            )
        if chosen.key is not None and chosen.key not in context.dataset.columns:
            hint = did_you_mean(chosen.key, context.dataset.columns, what="columns")
            raise ParameterError(f"counterfactuals: the data has no column {chosen.key!r}. {hint}")
        self._given = read_given(chosen.rows, chosen.of, context.scorer.columns)

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Versions:
        """Score the versions of the batch's rows."""
        key = self.parameters.key
        names = (batch.rows if key is None else batch.column(key)).tolist()
        matches = [(row, self._given.places[name]) for row, name in enumerate(names) if name in self._given.places]
        if not matches:
            return Versions(0, len(batch), 0, np.zeros(3), np.zeros(5), True)
        places = np.concatenate([of for _, of in matches])
        owner = np.repeat(np.arange(len(matches)), [len(of) for _, of in matches])
        own_predictions = predictions.take(np.isin(np.arange(len(batch)), [row for row, _ in matches]))
        columns = {name: values[places] for name, values in self._given.columns.items()}
        counterpart = context.scorer.predict(columns)
        same, change = _same(own_predictions, counterpart, owner), _change(own_predictions, counterpart, owner)
        weights = np.ones(len(matches))
        if batch.weights is not None:
            weights = batch.weights[[row for row, _ in matches]]
        squared = weights**2
        return Versions(
            len(matches),
            len(batch),
            len(places),
            np.array([weights.sum(), weights @ same, weights @ change]),
            np.array([squared.sum(), squared @ same, squared @ same**2, squared @ change, squared @ change**2]),
            batch.weights is None and bool(((same == 0) | (same == 1)).all()),
        )

    def findings(self, total: Versions, context: AuditContext) -> list[Finding]:
        """Turn the totals into the share of rows that are decided alike, and the mean change of the score."""
        count = sum(len(of) for of in self._given.places.values())
        notes = self._notes(total, count, context)
        weight = float(total.sums[0])
        if weight <= 0:
            raise DataError(f"{self.parameters.rows}: the rows that have counterfactuals weigh nothing")
        found = []
        if context.scorer.task != "regression":
            found.append(self._finding(total, notes, context, "prediction_consistency", 1))
        found.append(self._finding(total, notes, context, "counterfactual_token_fairness_gap", 2))
        return [finding for finding in found if finding.value is not None and np.isfinite(finding.value)]

    def _finding(
        self, total: Versions, notes: tuple[str, ...], context: AuditContext, metric: str, index: int
    ) -> Finding:
        interval = _share_interval if index == 1 else _mean_interval
        return Finding(
            auditor=self.name,
            metric=metric,
            value=float(total.sums[index] / total.sums[0]),
            interval=interval(total, context.confidence),
            confidence=context.confidence,
            better="higher" if index == 1 else "lower",
            parameters={"of": self.parameters.of, "key": self.parameters.key},
            evidence={"rows": total.rows, "counterfactual_rows": total.matched},
            notes=notes,
            interval_at=lambda confidence: interval(total, confidence),
        )

    def _notes(self, total: Versions, row_count: int, context: AuditContext) -> tuple[str, ...]:
        """Refuse rows without an original, and say how many originals there are."""
        file, key = self.parameters.rows, self.parameters.key
        what = "a row number" if key is None else f"a value of {key!r}"
        if total.matched > row_count:
            raise DataError(
                f"{file}: {self.parameters.of!r} must name one row each, but the column {key!r} of the data has a "
                "value twice"
            )
        left = row_count - total.matched
        if not total.matched or (left and not context.dataset.profile.dropped_rows):
            raise DataError(
                f"{file}: {left} of {row_count} counterfactual rows name no original: {self.parameters.of!r} must be "
                f"{what} of {context.dataset.name}"
            )
        notes = [f"{total.rows:,} of {total.all_rows:,} rows have counterfactual rows, {total.matched:,} in all."]
        if left:
            notes.append(f"{left:,} counterfactual rows belong to rows that were left out.")
        return tuple(notes)


def _same(originals: Predictions, versions: Predictions, owner: NDArray[np.int64]) -> Array:
    """1 where no version is decided otherwise; for randomized decisions the chance of that under one draw."""
    if originals.predicted is not None and versions.predicted is not None:
        same = np.ones(len(originals.predicted))
        np.minimum.at(same, owner, (versions.predicted == originals.predicted[owner]).astype(float))
        return same
    if originals.decision is None or versions.decision is None:
        return np.full(len(np.unique(owner)), np.nan)
    low, high = originals.decision.astype(np.float64).copy(), originals.decision.astype(np.float64).copy()
    np.minimum.at(low, owner, versions.decision)
    np.maximum.at(high, owner, versions.decision)
    return 1 - (high - low)


def _change(own: Predictions, other: Predictions, owner: NDArray[np.int64]) -> Array:
    """The mean change of each original's versions; NaN where the model gives no scores."""
    if own.probabilities is not None and other.probabilities is not None:
        moved = ((other.probabilities - own.probabilities[owner]) ** 2).sum(axis=1)
    elif own.score is not None and other.score is not None:
        moved = np.abs(other.score - own.score[owner])
    else:
        moved = np.full(len(owner), np.nan)
    return np.asarray(np.bincount(owner, moved) / np.bincount(owner), dtype=np.float64)


def _share_interval(total: Versions, confidence: float) -> tuple[float, float]:
    """Wilson's interval; under weights or randomized decisions with the effective number of rows."""
    share = total.sums[1] / total.sums[0]
    size = total.sums[0] ** 2 / total.squares[0]
    spread = total.squares[2] - 2 * share * total.squares[1] + share**2 * total.squares[0]
    if not total.whole and spread > 0:
        size = share * (1 - share) * total.sums[0] ** 2 / spread
    low, high = wilson(np.array([share]), np.array([size]), two_sided(confidence))
    return float(low[0]), float(high[0])


def _mean_interval(total: Versions, confidence: float) -> tuple[float, float]:
    """Student's interval over originals: the versions of one are no independent rows."""
    mean = float(total.sums[2] / total.sums[0])
    if total.rows < 2:
        return 0.0, math.inf
    spread = total.squares[4] - 2 * mean * total.squares[3] + mean**2 * total.squares[0]
    error = math.sqrt(max(float(spread), 0.0) * total.rows / (total.rows - 1)) / float(total.sums[0])
    half = float(student(two_sided(confidence), np.array([float(total.rows)]))[0]) * error
    return max(mean - half, 0.0), mean + half


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    return [CounterfactualsAuditor]
