"""What is not known about rows' groups and outcomes, and what it could do to a column's disparities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.metrics import CONFUSION, Mean
from fairkit.results.findings import Finding
from fairkit.statistics import ScoreTable, Sums
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit_group.errors import LabelError, independent_boxes, of_rates, wrong_groups, wrong_outcomes
from fairkit_group.ranking import SCORES, RocAuc
from fairkit_group.rates import Box, disparity_bounds, of_key, of_metric
from fairkit_group.stratified import in_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Estimate, Metric, Rate
    from fairkit.statistics import Rows

    Array = NDArray[np.float64]


MISSING_SHARE = "missing_group_share"
"""The finding that says how many rows have no group."""

WITHOUT_OUTCOME = ("statistical_parity_ks", "standardized_mean", "impact", "odds")
"""Disparities, besides those of metrics, that need no outcome."""

_STEM = re.compile("_(difference|ratio|group_min|group_max)$")

_PER_ROW = ("outcome", "decision", "score", "weights", "members")


def some_rows(rows: Rows, keep: NDArray[np.bool_]) -> Rows:
    """Return the rows where `keep`, shape [n], is true."""
    parts = {name: getattr(rows, name) for name in _PER_ROW}
    return replace(rows, **{name: part[keep] for name, part in parts.items() if part is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknowns:
    """The unknown of one sensitive column (None: of all rows as one group), for one class."""

    sensitive: str | None  # the column
    rows: int  # all rows of the audit
    missing: int  # those without a group
    unlabelled: int  # rows without an outcome, where there is a label
    totals: Mapping[str, Any]  # by group, by statistic
    without: Mapping[str, Any]  # of the rows without a group as one group, by statistic
    estimates: Mapping[str, tuple[Metric, Estimate]]  # metrics with their values in the groups, by name
    error: LabelError | None
    outcome_error: LabelError | None
    binding: float  # the share of missing values above which a number of which no bound is known gets no verdict
    label: str | None  # the column of outcomes
    reference: int | None = None  # the place of the group that others are compared with
    answered: tuple[str, ...] = ()  # numbers whose limits hold without the missing outcomes, few labels being drawn

    @property
    def share(self) -> float:
        """The share of rows without a group; under weights of all weight."""
        known, gone = (_mass(parts) for parts in (self.totals, self.without))
        return self.missing / self.rows if known + gone <= 0 else gone / (known + gone)

    def bounds(self) -> list[_Bounds]:
        """Return the identification bounds of all disparities, one entry for each cause."""
        bounds = []
        if self.missing or self.unlabelled:
            bounds.append(self._unseen())
        for error in (self.error, self.outcome_error):
            if error is not None:
                bounds.append(self._misclassified(error))
        return bounds

    def _unseen(self) -> _Bounds:
        """Return what rows without a group, or an outcome where the number needs one, could do to a number."""
        reasons = [f"{self.share:.1%} of the rows have no value of {self.sensitive}"] * bool(self.missing)
        outcomes = [f"{self.unlabelled / self.rows:.1%} of the rows have no value of {self.label}"]
        known = {name: m for name, (m, _) in self.estimates.items() if name not in self.answered}
        boxes = {name: allocated(m, self.totals, self.without) for name, m in known.items()}
        return _Bounds(
            "missing_bounds",
            {name: box for name, box in boxes.items() if box is not None},
            f"{' and '.join(reasons)}; whatever they are",
            binding=self.share > self.binding,
            others=self._of_scores(),
            reference=self.reference,
            unlabelled=(
                f"{' and '.join(reasons + outcomes)}; whatever they are",
                max(self.unlabelled, self.missing) / self.rows > self.binding,
            )
            if self.unlabelled
            else None,
            free=self.needs_none(),
        )

    def needs_none(self) -> tuple[str, ...]:
        """Return the names of numbers that need no outcome, without difference and ratio."""
        free = [metric for metric, _ in self.estimates.values() if not metric.outcome]
        free += [metric for metric, _ in self.estimates.values() if metric.name in self.answered]
        names = (name for metric in free for name in (metric.name, metric.alias) if name)
        return (*WITHOUT_OUTCOME, *(name for name in self.answered if name not in self.estimates), *names)

    def _of_scores(self) -> dict[str, tuple[float, float]]:
        """Return the bounds on the distance between score distributions."""
        known, without = of_key(self.totals, SCORES.key), of_key(self.without, SCORES.key)
        if not (isinstance(known, ScoreTable) and isinstance(without, ScoreTable)):
            return {}
        return {"statistical_parity_ks": distance_bounds(known, without)}

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
        each = {name: bound(m, of_metric(self.totals, m), error.share) for name, (m, _) in self.estimates.items()}
        boxes = {name: box for name, box in each.items() if box is not None}
        name = "label_error_bounds" if error.column == self.sensitive else "outcome_error_bounds"
        return _Bounds(name, boxes, f"{statement}; whichever they are")

    def finding(self, auditor: str, confidence: float, disparities: Sequence[Finding]) -> Finding:
        """Return the share of rows without a group, and how it differs by outcome and decision."""
        evidence: dict[str, Any] = {"rows": self.missing, "of": self.rows}
        known, without = (
            parts.get(CONFUSION.key, of_key(parts, CONFUSION.key)) for parts in (self.totals, self.without)
        )
        every = [of_key(parts, CONFUSION.key) for parts in (self.totals, self.without)]
        if isinstance(known, Sums) and isinstance(without, Sums):
            decisions = {"favorable": (1, 3), "unfavorable": (0, 2)}
            cells, gone = known.first.sum(axis=0) + without.first[0], without.first[0]
            outcomes = _shares(gone, cells, {"favorable": (2, 3), "unfavorable": (0, 1)})
            evidence |= {
                **({} if self.label is None else {"by_outcome": outcomes}),
                "by_decision": _shares(every[1].first[0], every[0].first.sum(axis=0) + every[1].first[0], decisions),
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


def _mass(parts: Mapping[str, Any]) -> float:
    for key in (CONFUSION.key, SCORES.key):
        part = of_key(parts, key)
        if isinstance(part, Sums):
            return float(part.first.sum())
        if isinstance(part, ScoreTable):
            return float(part.mass.sum())
    return 0.0


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
    """Boxes of all metrics under one thing that is not known; what has no box is in doubt."""

    name: str
    boxes: Mapping[str, Box]
    reason: str
    binding: bool = True
    stretch: float = 1.0
    contracts: bool = False
    others: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reference: int | None = None
    unlabelled: tuple[str, bool] | None = None  # where outcomes are missing: the reason, and whether it binds
    free: tuple[str, ...] = ()  # the names of numbers that need no outcome, without difference and ratio

    def of(self, metric: str, value: float) -> dict[str, Any]:
        """Return the evidence about one disparity: low and high are absent where no bound is known."""
        reason, binding = self.reason, self.binding
        if self.unlabelled is not None:
            if _STEM.sub("", metric) not in self.free:
                reason, binding = self.unlabelled
            elif reason.startswith(";"):  # every row has a group, and this needs no outcome
                return {}
        record: dict[str, Any] = {"reason": reason, "binding": binding, "stretch": self.stretch}
        bounds = self.others.get(metric) or disparity_bounds(metric, self.boxes, self.reference)
        if bounds is None or not np.isfinite(bounds).all():
            return record
        if self.name == "missing_bounds":  # however few are missing
            record["binding"] = True
        low, high = min(bounds[0], value), max(bounds[1], value)
        if self.contracts and metric.endswith("_difference"):  # errors hide a difference, and make none
            low = value
        if self.contracts and metric.endswith("_ratio"):
            high = value
        return record | {"low": float(low), "high": float(high)}


# What rows without a group or an outcome could do: bounds over all ways to give them one.


_STEPS = 2_001


def allocated(metric: Metric, totals: Mapping[str, Any], without: Mapping[str, Any]) -> Box | None:
    """Return the bounds on a metric in every group, whatever outcomes and groups the rows have that lack one.

    `totals` are by group, `without` those of the rows without a group as one; empty where there are none.
    """
    total: Any = of_metric(totals, metric)
    gone: Any = of_metric(without, metric)
    unseen, nowhere = (_without_outcome(parts) if metric.outcome else None for parts in (totals, without))
    if gone is not None and type(gone) is not type(total):
        return None
    if isinstance(total, Sums) and metric.statistic is CONFUSION:
        parts = total.first, np.zeros((1, 4)) if gone is None else gone.first
        both = [np.zeros((1, 2)) if cells is None else cells for cells in (unseen, nowhere)]
        return of_rates(metric, lambda over, counted: _rate(over, counted, *parts, *both))
    rest = 0.0 if nowhere is None else nowhere.sum()
    if isinstance(metric, Mean) and isinstance(total, Sums):
        if unseen is None:
            return None if gone is None else _mean(metric, total, gone)
        rest = rest + (0.0 if gone is None else gone.first[0, 0])
        return _any_value(metric, total, unseen.sum(axis=1) + rest)
    if isinstance(metric, RocAuc) and isinstance(total, ScoreTable):
        lost = 0.0 if gone is None else gone.mass.sum(axis=(0, 1))
        return _area(metric, total, lost, rest if unseen is None else rest + unseen.sum(axis=1))
    return None


def pooled_bounds(metric: Rate, known: Array, gone: Array, pairs: NDArray[np.intp]) -> Array:
    """Return the smallest and the largest pooled difference of pairs [2, P], first minus second, shape [P, 2].

    `known` are the cells by stratum and group, shape [S, G, 4], `gone` those without a group, shape [S, 4]. In every
    stratum the difference lies between those of the groups' boxes, and the weight n_a n_b / (n_a + n_b) between that
    of the known rows and that of both groups with all that is gone. The largest Σ w d / Σ w gives the strata with the
    largest d their largest weights.
    """
    over, counted = np.array(metric.over, float), np.array(metric.counted, float)
    none, every = np.zeros((1, 2)), np.repeat(gone, known.shape[1], axis=0)
    box = _rate(over, counted, known.reshape(-1, 4), every, none, none)
    low, high = (end.reshape(known.shape[:2]) for end in (box.low, box.high))
    masses = known @ over, known @ over + (gone @ over)[:, None]
    blocks = []
    for a, b in in_blocks(pairs, len(known)):
        ends = np.empty((len(a), 2))
        with np.errstate(all="ignore"):
            least, most = (np.nan_to_num(n[:, a] * n[:, b] / (n[:, a] + n[:, b])) for n in masses)
            for side, apart in enumerate((high[:, b] - low[:, a], high[:, a] - low[:, b])):
                gap = np.where(most > 0, apart, -np.inf)  # strata without both come last, and weigh nothing
                order = np.argsort(-gap, axis=0)
                d, w, more = (np.take_along_axis(part, order, axis=0) for part in (gap, least, most - least))
                d = np.where(np.isneginf(d), 0.0, d)
                tops = (w * d).sum(axis=0) + np.cumsum(more * d, axis=0), (w * d).sum(axis=0)[None]
                bases = w.sum(axis=0) + np.cumsum(more, axis=0), w.sum(axis=0)[None]
                shares = np.concatenate([top / base for top, base in zip(tops, bases, strict=True)])
                ends[:, side] = (2 * side - 1) * np.fmax.reduce(shares, axis=0)
        blocks.append(ends)
    return np.concatenate(blocks)


def _without_outcome(parts: Mapping[str, Any]) -> Array | None:
    """Return the mass of the rows without an outcome by group and decision, shape [G, 2]; None where all have one.

    Without decisions all of it stands as no.
    """
    for key in (CONFUSION.key, SCORES.key):
        every: Any = of_key(parts, key)
        some: Any = parts.get(key)
        if every is some or type(every) is not type(some):
            continue
        if isinstance(every, ScoreTable):
            mass = (every.mass.sum(axis=0) - some.mass.sum(axis=0)).sum(axis=1)
            return np.column_stack([mass, np.zeros_like(mass)])
        return np.asarray((every.first - some.first).reshape(-1, 2, 2).sum(axis=1))
    return None


def _rate(over: Array, counted: Array, known: Array, gone: Array, unseen: Array, nowhere: Array) -> Box:
    def most(good: Array, bad: Array) -> Array:
        best = np.argmax((good - bad).reshape(2, 2), axis=0)  # the outcome, by decision, that raises the share most
        cells, entering = known.copy(), gone.copy()
        for decision, outcome in enumerate(best):
            cells[:, 2 * outcome + decision] += unseen[:, decision]
            entering[:, 2 * outcome + decision] += nowhere[:, decision]
        inside = cells @ good + entering @ good
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(inside / (inside + cells @ bad))

    return Box(1 - most(over - counted, counted), most(counted, over - counted))


def _any_value(metric: Mean, known: Sums, mass: Array) -> Box | None:
    """Bound a mean to which values of some mass are added, of which only the range is known."""
    low, high = metric.range
    if not np.isfinite([low, high]).all():
        return None
    rows, total = known.first[:, 0], known.first[:, 1]
    return Box((total + mass * low) / (rows + mass), (total + mass * high) / (rows + mass))


def _mean(metric: Mean, known: Sums, missing: Sums) -> Box | None:
    """Bound means; under weights only those with a range."""
    rows, total = known.first[:, 0], known.first[:, 1]
    mass = float(missing.first[0, 0])
    if not np.isclose(missing.second[0, 0, 0], mass):
        return _any_value(metric, known, np.array(mass))
    mean = missing.first[0, 1] / mass
    spread = np.sqrt(max(missing.second[0, 1, 1] / mass - mean**2, 0.0))
    taken = mass * np.sin(np.linspace(0, np.pi / 2, _STEPS))[:, None] ** 2  # dense at both ends
    reach = spread * np.sqrt(taken * (mass - taken))
    low = ((total + taken * mean - reach) / (rows + taken)).min(axis=0)
    high = ((total + taken * mean + reach) / (rows + taken)).max(axis=0)
    return Box(np.clip(low, *metric.range), np.clip(high, *metric.range))


def _area(metric: RocAuc, observed: ScoreTable, missing: Any, unseen: Any) -> Box:
    """Bound the area: pairs with a row that lacks a group or an outcome all count, or none."""
    negative, positive = observed.mass.sum(axis=0).T
    lost = np.broadcast_to(missing, 2)
    pairs, all_pairs = negative * positive, (negative + lost[0] + unseen) * (positive + lost[1] + unseen)
    with np.errstate(divide="ignore", invalid="ignore"):
        right = metric.compute(observed.mass) * pairs
        return Box(right / all_pairs, 1 - (pairs - right) / all_pairs)


def distance_bounds(observed: ScoreTable, missing: ScoreTable) -> tuple[float, float]:
    """Return the smallest and largest distance of a group's score distribution to everybody's.

    Everybody's distribution is known. With M(z) the missing mass up to z, of m, and N(z) the group's, of n, its
    distribution at z lies between N(z) / (n + m - M(z)) and (N(z) + M(z)) / (n + M(z)).
    """
    at = np.union1d(observed.values, missing.values)
    below, gone = _up_to(observed, at), _up_to(missing, at).sum(axis=1)
    everybody = (below.sum(axis=1) + gone) / (below[-1].sum() + gone[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        low = below / (below[-1] + (gone[-1] - gone)[:, None])
        high = (below + gone[:, None]) / (below[-1] + gone[:, None])
    away = np.maximum(np.maximum(low - everybody[:, None], everybody[:, None] - high), 0)
    far = np.maximum(high - everybody[:, None], everybody[:, None] - low)
    return float(np.nanmax(away)), float(np.nanmax(far))


def _up_to(table: ScoreTable, at: Array) -> Array:
    """Return each group's mass with a score of at most each of some values, shape [values, G]."""
    below = np.cumsum(table.mass.sum(axis=2), axis=0)
    places = np.searchsorted(table.values, at, side="right")
    return np.asarray(np.vstack([np.zeros(below.shape[1]), below])[places])
