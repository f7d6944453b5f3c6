"""Consistency: would the decision be the same if the person's sensitive value were another?"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditing.needs import NO_GROUPS
from fairkit.auditors import AuditContext, Auditor
from fairkit.data.roles import value_meant, value_text
from fairkit.errors import ParameterError
from fairkit.hookspecs import hookimpl
from fairkit.intervals import guarded, share_limits, two_sided
from fairkit.limits import mean_limits, weighted_share_limits
from fairkit.metrics import Term
from fairkit.parameters import parameter
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass
from fairkit_dependent import bucket_sums, noisy_share, ratio_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Columns, Predictions, Scorer
    from fairkit_dependent import Noise

    Array = NDArray[np.float64]

MOST_VALUES = 50
"""A column with more distinct values is not flipped through all of them."""

TOP_ROWS = 5

Combination = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Changed:
    """A row whose prediction changes most: where it is, its predictions by combination of values."""

    change: float
    row: int
    scores: tuple[float, ...]

    def to_dict(self, combinations: Sequence[Combination]) -> dict[str, Any]:
        """Return the evidence of a report."""
        low, high = int(np.argmin(self.scores)), int(np.argmax(self.scores))
        return {
            "row": self.row,
            "lowest": {"values": _shown(combinations[low]), "score": self.scores[low]},
            "highest": {"values": _shown(combinations[high]), "score": self.scores[high]},
        }


@dataclass(frozen=True, slots=True)
class Flips:
    """Totals of one flip; adding two merges the rows behind them."""

    rows: int  # how many rows
    sums: Array  # Σ w, Σ w c, Σ w d, for consistency c and mean absolute change d of the score
    squares: Array  # Σ w², Σ w² c, Σ w² c², Σ w² d, Σ w² d²
    whole: bool  # whether every c was 0 or 1 and no row weighted
    top: tuple[Changed, ...]  # the rows that change most
    buckets: Array | None = None  # `sums` by bucket of clusters, shape [B, 3]

    def __add__(self, other: Flips) -> Flips:
        top = sorted(self.top + other.top, key=lambda changed: (-changed.change, changed.row))[:TOP_ROWS]
        return Flips(
            self.rows + other.rows,
            self.sums + other.sums,
            self.squares + other.squares,
            self.whole and other.whole,
            tuple(top),
            None if self.buckets is None or other.buckets is None else self.buckets + other.buckets,
        )

    def noise(self, place: int) -> Noise | None:
        """Return what clusters make of a number's noise: 1 is consistency, 2 the change; None without clusters."""
        if self.buckets is None:
            return None
        return ratio_noise(self.buckets[None, :, place], self.buckets[None, :, 0])


@dataclass(frozen=True, slots=True)
class AllFlips:
    """The totals of every flip, by name."""

    by_name: Mapping[str, Flips]

    def __add__(self, other: AllFlips) -> AllFlips:
        return AllFlips({name: flips + other.by_name[name] for name, flips in self.by_name.items()})


class ConsistencyAuditor(Auditor):
    """Sets columns to each of several values for every row, and counts the rows whose decision never changes.

    The metric `consistency` is the share of such rows: 1 means that no decision depends on the flipped
    columns, all else unchanged. For a randomized model a row counts with 1 - (max h - min h), the chance that
    one draw u gives every copy the same decision. `counterfactual_score_change` is the mean absolute change
    of the score against the row as it stands. These are the S-, GR-, G- and R-consistency of the individual
    fairness literature (Yurochkin, Bower & Sun 2020; Vargo et al. 2021).
    """

    name: ClassVar[str] = "consistency"
    asks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"weights", "clusters"})
    unaffected_by: ClassVar[frozenset[str]] = NO_GROUPS
    summary: ClassVar[str] = "Counterfactual flips: rows whose decision stays the same under other values."
    terms: ClassVar[Mapping[str, Term]] = {
        "consistency": Term(
            "decisions that stay when the group changes",
            "The share of decisions that stay the same when a person's sensitive values are changed.",
        ),
        "counterfactual_score_change": Term(
            "change of the score when the group changes",
            "How much a person's score changes, on average, when the sensitive values alone are set to others.",
        ),
    }
    citation: ClassVar[str] = "Yurochkin, Bower & Sun (2020), Training individually fair ML models, ICLR"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set consistency.KEY=VALUE."""

        sensitive: tuple[str, ...] = parameter(
            (),
            help="Columns to flip, several at once as sex+race; by default the sensitive ones that the model reads.",
            former={"flip": 1},
        )
        values: Mapping[str, Any] = parameter(
            {}, help="The values of a column, as consistency.values.relationship=Husband,Wife; default: all observed."
        )

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self._flips: dict[str, list[Combination]] = {}

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Every flipped column."""
        return [column for name in self._names(context) for column in name.split("+")]

    def begin(self, context: AuditContext) -> None:
        """Find the values that the columns are set to."""
        self._flips = {name: self._combinations(name, context) for name in self._names(context)}

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> AllFlips:
        """Score every copy of the batch's rows."""
        columns = batch.columns(context.scorer.columns)
        return AllFlips(
            {
                name: _measure(batch, columns, predictions, combinations, context)
                for name, combinations in self._flips.items()
            }
        )

    def _names(self, context: AuditContext) -> list[str]:
        """The flips: as asked, else the sensitive columns that the model reads."""
        columns = set(context.dataset.columns)
        names = list(self.parameters.sensitive)
        named = {column for name in names for column in name.split("+")}
        names += [column for column in self.parameters.values if column not in named]
        reads = set(context.scorer.columns)
        if not names:
            splits = context.dataset.roles.sensitive
            names = [s.name for s in splits if set(s.columns) <= reads and not any(s.edges)]
        if not names:
            raise ParameterError(
                "there is nothing to flip: the model reads none of the sensitive columns; "
                "name columns with the parameter `consistency.sensitive=COLUMN`"
            )
        for column in dict.fromkeys(column for name in names for column in name.split("+")):
            if column not in columns:
                raise ParameterError(f"consistency cannot flip {column!r}: the data has no such column")
        return names

    def _combinations(self, name: str, context: AuditContext) -> list[Combination]:
        columns = name.split("+")
        values = [self._values(column, context) for column in columns]
        return [dict(zip(columns, choice, strict=True)) for choice in itertools.product(*values)]

    def _values(self, column: str, context: AuditContext) -> list[Any]:
        observed = context.distinct(column)
        wished = self.parameters.values.get(column)
        if wished is None:
            if len(observed) > MOST_VALUES:
                raise ParameterError(
                    f"consistency: column {column!r} has more than {MOST_VALUES} values; "
                    f"choose some with the parameter `consistency.values.{column}=A,B`"
                )
            return observed
        parts = wished.split(",") if isinstance(wished, str) else wished
        parts = list(parts) if isinstance(parts, list | tuple) else [parts]
        chosen = [value_meant(part, observed, f"consistency: column {column!r}") for part in parts]
        if len(chosen) < 2:
            raise ParameterError(f"consistency: flipping {column!r} needs at least two values")
        return chosen

    def findings(self, total: AllFlips, context: AuditContext) -> list[Finding]:
        """Turn the totals into two findings for every flip."""
        result = []
        for name, flips in total.by_name.items():
            combinations = self._flips[name]
            result += _findings(self.name, name, flips, combinations, context)
        return result


def _scored(
    columns: Columns, combination: Combination, original: Predictions, scorer: Scorer, batch: Batch
) -> Predictions:
    """Score the batch's rows with some columns set to given values; rows that have them already are not asked again."""
    assignment = {column: value for column, value in combination.items() if column in columns}
    flipped = np.zeros(len(batch), dtype=bool)
    for column, value in assignment.items():
        flipped |= columns[column] != value
    places = np.flatnonzero(flipped)
    if not len(places):
        return original
    copy = {name: values[places] for name, values in columns.items()}
    for column, value in assignment.items():
        copy[column] = np.full(len(places), value, dtype=columns[column].dtype)
    return original.replaced(places, scorer.predict(copy))


def _measure(
    batch: Batch, columns: Columns, predictions: Predictions, combinations: Sequence[Combination], context: AuditContext
) -> Flips:
    outputs = [_scored(columns, combination, predictions, context.scorer, batch) for combination in combinations]
    same = _sameness(outputs)
    scores = _scores(outputs)
    own = _scores([predictions])
    change = np.zeros(len(batch)) if scores is None or own is None else np.abs(scores - own).mean(axis=0)
    weights = np.ones(len(batch)) if batch.weights is None else batch.weights
    squared = weights**2
    return Flips(
        len(batch),
        np.array([weights.sum(), weights @ same, weights @ change]),
        np.array([squared.sum(), squared @ same, squared @ same**2, squared @ change, squared @ change**2]),
        batch.weights is None and bool(((same == 0) | (same == 1)).all()),
        () if scores is None else _top(batch, scores),
        None if batch.clusters is None else bucket_sums(batch.clusters, weights, weights * same, weights * change),
    )


def _sameness(outputs: Sequence[Predictions]) -> Array:
    """1 where no copy's decision differs; for randomized decisions the chance of that under one draw."""
    if outputs[0].predicted is not None:
        classes = np.stack([np.asarray(output.predicted) for output in outputs])
        return np.asarray((classes == classes[0]).all(axis=0), dtype=np.float64)
    if outputs[0].decision is not None:
        chances = np.stack([np.asarray(output.decision) for output in outputs])
    else:
        chances = np.zeros((1, len(np.asarray(outputs[0].score))))
    return np.asarray(1 - np.ptp(chances, axis=0))


def _scores(outputs: Sequence[Predictions]) -> Array | None:
    if outputs[0].score is None:
        return None
    return np.stack([np.asarray(output.score, dtype=np.float64) for output in outputs])


def _top(batch: Batch, scores: Array) -> tuple[Changed, ...]:
    spread = np.ptp(scores, axis=0)
    order = np.lexsort((batch.rows, -spread))[:TOP_ROWS]
    return tuple(
        Changed(float(spread[i]), int(batch.rows[i]), tuple(float(s) for s in scores[:, i]))
        for i in order
        if spread[i] > 0
    )


def _findings(
    auditor: str, name: str, flips: Flips, combinations: Sequence[Combination], context: AuditContext
) -> list[Finding]:
    parameters = {"flip": name, "values": [_shown(combination) for combination in combinations]}
    evidence = {"most_changed": [changed.to_dict(combinations) for changed in flips.top]}
    notes = []
    ignored = [column for column in name.split("+") if column not in context.scorer.columns]
    if ignored:
        notes.append(f"The model does not read {', '.join(ignored)}, so flipping it changes nothing.")
    noise = flips.noise(0)
    doubt = None if noise is None else noise.few.get(0)
    blocked = f"The interval is not trusted: {doubt}." if doubt else None
    notes += [blocked] if blocked else []
    regression = context.scorer.task == "regression"

    def made(metric: str, value: float, interval: Callable[[float], tuple[float, float]], **told: Any) -> Finding:
        return Finding(
            auditor=auditor,
            metric=metric,
            sensitive=name,
            value=float(value / flips.sums[0]),
            interval=interval(context.confidence),
            confidence=context.confidence,
            parameters=parameters,
            evidence=evidence,
            interval_at=interval,
            inconclusive=blocked,
            **told,
        )

    findings = []
    if not regression:
        told = (*notes, "All other columns keep their values, also those that depend on the flipped ones.")
        interval = functools.partial(_share_interval, flips)
        findings.append(made("consistency", flips.sums[1], interval, better="higher", notes=told))
    if flips.top or regression:
        most = max((flip.change for flip in flips.top), default=0.0) if regression else 1.0
        if regression and not flips.sums[2] > 0:
            notes.append("No row's score changes, so that nothing tells by how much others would.")
        interval = functools.partial(_change_interval, flips, most)
        changed = made("counterfactual_score_change", flips.sums[2], interval, better="lower", notes=tuple(notes))
        findings.append(changed)
    return findings


def _share_interval(flips: Flips, confidence: float) -> tuple[float, float]:
    """Return a share's limits; under weights or randomized decisions with the effective number of rows."""
    total, share, noise = flips.sums[0], flips.sums[1] / flips.sums[0], flips.noise(1)
    if noise is not None:
        low, high = noisy_share(np.array([share]), noise, two_sided(guarded(confidence)))
        return float(low[0]), float(high[0])
    variance = (flips.squares[2] - 2 * share * flips.squares[1] + share**2 * flips.squares[0]) / total**2
    size, z = total**2 / flips.squares[0], two_sided(confidence)
    if not flips.whole and variance > 0:
        size = min(size, share * (1 - share) / variance)
    limits = share_limits if flips.whole else weighted_share_limits
    low, high = limits(np.array([share]), np.array([size]), z)
    return float(low[0]), float(high[0])


def _change_interval(flips: Flips, most: float, confidence: float) -> tuple[float, float]:
    """Return Student's limits of a mean, widened by unseen rows, whose change may be 0 or the largest there can be."""
    total, mean = flips.sums[0], flips.sums[2] / flips.sums[0]
    squares = flips.squares[4] - 2 * mean * flips.squares[3] + mean**2 * flips.squares[0]
    rows, z = np.array([total**2 / flips.squares[0]]), two_sided(confidence)
    error = math.sqrt(max(squares, 0) * float(rows[0]) / max(float(rows[0]) - 1, 1)) / total
    level, spread = np.array([mean]), np.array([error])
    reach = np.zeros(1), np.array([max(most, mean)])
    noise = flips.noise(2)
    if noise is not None:
        z, rows, spread = two_sided(guarded(confidence)), noise.degrees + 1, np.sqrt(noise.variance)
    low, high = mean_limits(level, spread, np.zeros(1), rows, reach, z)
    return max(float(low[0]), 0.0), float(min(high[0], reach[1][0]))


def _shown(combination: Combination) -> dict[str, str]:
    return {column: value_text(value) for column, value in combination.items()}


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Return the auditor."""
    return [ConsistencyAuditor]
