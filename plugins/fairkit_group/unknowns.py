"""What is not known about a sensitive column's groups, and what it could do to the column's disparities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import CONFUSION
from fairkit.results.findings import Finding
from fairkit.statistics import ScoreTable, Sums
from fairkit_group.allocation import allocated, distance_bounds
from fairkit_group.boxes import Box, disparity_bounds
from fairkit_group.misclassified import LabelError, either_way, independent_boxes, wrong_groups, wrong_outcomes
from fairkit_group.ranking import SCORES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Estimate, Metric
    from fairkit.statistics import Rows

MISSING_SHARE = "missing_group_share"
"""The finding that says how many rows have no group."""

_PER_ROW = ("outcome", "decision", "score", "weights", "members", "undetermined")


def some_rows(rows: Rows, keep: NDArray[np.bool_]) -> Rows:
    """Return the rows where `keep`, shape [n], is true."""
    parts = {name: getattr(rows, name) for name in _PER_ROW}
    return replace(rows, **{name: part[keep] for name, part in parts.items() if part is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknowns:
    """The unknown of one sensitive column, for one class."""

    sensitive: str  # the column
    rows: int  # all rows of the audit, and those without a group
    missing: int  # all rows of the audit, and those without a group
    totals: Mapping[str, Any]  # the totals by group, and those of the rows without a group as one group, by statistic
    without: Mapping[str, Any]  # the totals by group, and those of the rows without a group as one group, by statistic
    estimates: Mapping[str, tuple[Metric, Estimate]]  # metrics with their values in the groups, by name
    error: LabelError | None
    outcome_error: LabelError | None
    binding: float  # the share of missing values above which a disparity of which no bound is known gets no verdict
    labelled: bool = True  # whether there are outcomes
    undetermined: Sums | None = None

    @property
    def share(self) -> float:
        """The share of rows without a group."""
        return self.missing / self.rows

    def bounds(self) -> list[_Bounds]:
        """Return the identification bounds of all disparities, one entry for each cause."""
        bounds = []
        if self.missing:
            bounds.append(
                _Bounds(
                    "missing_bounds",
                    self._boxes(self._allocated),
                    f"{self.share:.1%} of the rows have no value of {self.sensitive}; whatever groups they belong to",
                    binding=self.share > self.binding,
                    others=self._of_scores(),
                )
            )
        for error in (self.error, self.outcome_error):
            if error is not None:
                bounds.append(self._misclassified(error))
        if self.undetermined is not None:
            rows = int(self.undetermined.count.sum())
            bounds.append(
                _Bounds(
                    "rounding_bounds",
                    self._boxes(self._either_way),
                    f"rounding decides {rows:,} of the {self.rows:,} rows; whichever way it does",
                    everything=False,
                )
            )
        return bounds

    def _either_way(self, metric: Metric, known: Any) -> Box | None:
        usable = metric.statistic is CONFUSION and isinstance(known, Sums) and self.undetermined is not None
        return either_way(metric, known, self.undetermined) if usable else None  # type: ignore[arg-type]

    def _boxes(self, bound: Any) -> dict[str, Box]:
        boxes = {name: bound(m, self.totals.get(m.statistic.key)) for name, (m, _) in self.estimates.items()}
        return {name: box for name, box in boxes.items() if box is not None}

    def _of_scores(self) -> dict[str, tuple[float, float]]:
        """Return the bounds on the distance between score distributions."""
        known, without = self.totals.get(SCORES.key), self.without.get(SCORES.key)
        if not (isinstance(known, ScoreTable) and isinstance(without, ScoreTable)):
            return {}
        return {"statistical_parity_ks": distance_bounds(known, without)}

    def _allocated(self, metric: Metric, known: Any) -> Box | None:
        without = self.without.get(metric.statistic.key)
        usable = isinstance(known, Sums | ScoreTable) and type(without) is type(known)
        return allocated(metric, known, without) if usable else None

    def _misclassified(self, error: LabelError) -> _Bounds:
        statement = f"up to {error.share:.3g} of the values of {error.column} may be wrong"
        if error.independent:
            boxes = {
                name: independent_boxes(estimate.values, error.share)
                for name, (metric, estimate) in self.estimates.items()
                if metric.range == (0.0, 1.0) and metric.statistic is CONFUSION
            }
            why = f"{statement}, independently of decisions and outcomes; whichever they are"
            return _Bounds("label_error_bounds", boxes, why, stretch=1 / (1 - 2 * error.share), contracts=True)
        bound = wrong_groups if error.column == self.sensitive else wrong_outcomes
        boxes = self._boxes(lambda metric, known: bound(metric, known, error.share))
        name = "label_error_bounds" if error.column == self.sensitive else "outcome_error_bounds"
        return _Bounds(name, boxes, f"{statement}; whichever they are")

    def finding(self, auditor: str, confidence: float, disparities: Sequence[Finding]) -> Finding:
        """Return the share of rows without a group, and how it differs by outcome and decision."""
        evidence: dict[str, Any] = {"rows": self.missing, "of": self.rows}
        known, without = self.totals.get(CONFUSION.key), self.without.get(CONFUSION.key)
        if isinstance(known, Sums) and isinstance(without, Sums):
            cells, gone = known.first.sum(axis=0) + without.first[0], without.first[0]
            outcomes = _shares(gone, cells, {"favorable": (2, 3), "unfavorable": (0, 1)})
            evidence |= {
                **({"by_outcome": outcomes} if self.labelled else {}),
                "by_decision": _shares(gone, cells, {"favorable": (1, 3), "unfavorable": (0, 2)}),
            }
        return Finding(
            auditor=auditor,
            metric=MISSING_SHARE,
            sensitive=self.sensitive,
            value=self.share,
            interval=(self.share, self.share),
            confidence=confidence,
            better="lower",
            evidence=evidence,
            notes=(
                f"{self.missing:,} of {self.rows:,} rows ({self.share:.1%}) have no value of {self.sensitive}, hence "
                f"no group.{_told(evidence)}{_could(disparities)}",
            ),
            interval_at=lambda _: (self.share, self.share),
        )


def _shares(gone: Any, cells: Any, parts: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the share of missing rows in each part, where it has rows."""
    sums = {name: (float(gone[list(i)].sum()), float(cells[list(i)].sum())) for name, i in parts.items()}
    return {name: part / whole for name, (part, whole) in sums.items() if whole > 0}


def _told(evidence: Mapping[str, Any]) -> str:
    said = []
    for key, what in (("by_outcome", "outcomes"), ("by_decision", "decisions")):
        said += [f"{share:.1%} of {name} {what}" for name, share in evidence.get(key, {}).items()]
    return f" Missing in {', '.join(said)}." if said else ""


def _could(disparities: Sequence[Finding]) -> str:
    """Return a sentence with the bounds of the main disparity under missing groups; empty without bounds."""
    for finding in disparities:
        bounds = finding.evidence.get("missing_bounds", {})
        if finding.metric in ("demographic_parity_difference", "mean_prediction_difference") and "low" in bounds:
            return (
                f" Whatever their groups are, {finding.metric} of these rows lies between {bounds['low']:.3g} and "
                f"{bounds['high']:.3g}."
            )
    return ""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Boxes of all metrics under one thing that is not known; `everything`: also what has no box is in doubt."""

    name: str
    boxes: Mapping[str, Box]
    reason: str
    binding: bool = True
    stretch: float = 1.0
    contracts: bool = False
    everything: bool = True
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, metric: str, value: float) -> dict[str, Any]:
        """Return the evidence about one disparity: low and high are absent where no bound is known."""
        record: dict[str, Any] = {"reason": self.reason, "binding": self.binding, "stretch": self.stretch}
        found = self.others.get(metric) or disparity_bounds(metric, self.boxes)
        if found is None or not np.isfinite(found).all():
            return record if self.everything else record | {"binding": False}
        if self.name == "missing_bounds":  # however few are missing
            record["binding"] = True
        low, high = min(found[0], value), max(found[1], value)
        if self.contracts and metric.endswith("_difference"):  # errors hide a difference, and make none
            low = value
        if self.contracts and metric.endswith("_ratio"):
            high = value
        return record | {"low": float(low), "high": float(high)}
