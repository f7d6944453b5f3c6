"""Group probabilities in place of a sensitive column: an estimate, and what is possible whatever they leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.proxies import proxies
from fairkit.data.roles import proxy_of
from fairkit.intervals import two_sided
from fairkit.metrics import Rate
from fairkit.results.findings import Finding, GroupValue
from fairkit_group.identification import Bounds, difference_bounds, rate_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.statistics import Rows
    from fairkit_group.totals import GroupTotals

    Array = NDArray[np.float64]

LEVELS = {2: 40, 3: 20, 4: 12, 5: 8, 6: 6, 7: 5}
"""Into how many steps probabilities are cut, by the number of groups: some 500 cells at most; 4 steps beyond."""

LEAST_CELL = 100
"""Cells with fewer rows are put together with others of the same most probable group."""


@dataclass(frozen=True, slots=True)
class ProxyTotals:
    """What group probabilities and decisions add up to.

    Attributes
    ----------
    keys
        Cells of about equal probabilities, increasing, shape [Z].
    rows
        Rows of each, shape [Z].
    sums, second
        By cell, of the probabilities and the confusion cells of every row, with weights: sums [Z, K + 4], and sums of
        products [Z, K + 4, K + 4].
    joint, joint_second
        Σ w p_a c, shape [K, 4], and Σ w² p_a² c c', shape [K, K, 4, 4].
    thresholded
        Confusion cells by each row's most probable group, shape [K, 4].
    absent
        Rows without probabilities.
    """

    keys: NDArray[np.int64]
    rows: Array
    sums: Array
    second: Array
    joint: Array
    joint_second: Array
    thresholded: Array
    absent: int

    def __add__(self, other: ProxyTotals) -> ProxyTotals:
        keys = np.union1d(self.keys, other.keys)

        def total(mine: Array, others: Array) -> Array:
            both = np.zeros((len(keys), *mine.shape[1:]))
            both[np.searchsorted(keys, self.keys)] += mine
            both[np.searchsorted(keys, other.keys)] += others
            return both

        return ProxyTotals(
            keys,
            total(self.rows, other.rows),
            total(self.sums, other.sums),
            total(self.second, other.second),
            self.joint + other.joint,
            self.joint_second + other.joint_second,
            self.thresholded + other.thresholded,
            self.absent + other.absent,
        )

    def coarse(self) -> tuple[Array, Array]:
        """Return sums and products with small cells put together: fewer cells only widen what is possible."""
        groups = self.joint.shape[0]
        small = self.rows < LEAST_CELL
        place = np.where(small, -1 - self.sums[:, :groups].argmax(axis=1), np.arange(len(self.rows)))
        _, order = np.unique(place, return_inverse=True)
        sums = np.zeros((order.max() + 1, self.sums.shape[1]))
        second = np.zeros((order.max() + 1, *self.second.shape[1:]))
        np.add.at(sums, order, self.sums)
        np.add.at(second, order, self.second)
        return sums, second


def proxy_totals(rows: Rows, shares: Array) -> ProxyTotals:
    """Add up one batch.

    Parameters
    ----------
    rows
        With decisions; without them only the rows are counted.
    shares
        The group probabilities, shape [n, K]; NaN in rows that have none.
    """
    known = np.isfinite(shares[:, 0])
    groups = shares.shape[1]
    p = shares[known]
    weights = np.ones(len(p)) if rows.weights is None else rows.weights[known]
    decision = np.zeros(len(p)) if rows.decision is None else rows.decision[known]
    favorable = rows.outcome[known] > 0.5
    no, yes = 1 - decision, decision
    cells = np.column_stack([~favorable * no, ~favorable * yes, favorable * no, favorable * yes])
    keys, place = np.unique(_keys(p), return_inverse=True)
    every = np.hstack([p, cells]) * weights[:, None]
    width = groups + 4
    sums, second = np.zeros((len(keys), width)), np.zeros((len(keys), width, width))
    for i in range(width):
        sums[:, i] = np.bincount(place, every[:, i], len(keys))
        for j in range(i, width):
            second[:, i, j] = second[:, j, i] = np.bincount(place, every[:, i] * every[:, j], len(keys))
    weighted = p * weights[:, None]
    most = np.zeros_like(p)
    most[np.arange(len(p)), p.argmax(axis=1)] = weights
    joint_second = np.zeros((groups, groups, 4, 4))
    for c in range(4):
        for d in range(c, 4):
            part = (weighted * (cells[:, c] * cells[:, d])[:, None]).T @ weighted
            joint_second[:, :, c, d] = joint_second[:, :, d, c] = part
    return ProxyTotals(
        keys=keys,
        rows=np.bincount(place, minlength=len(keys)).astype(np.float64),
        sums=sums,
        second=second,
        joint=weighted.T @ cells,
        joint_second=joint_second,
        thresholded=most.T @ cells,
        absent=int((~known).sum()),
    )


def _keys(p: Array) -> NDArray[np.int64]:
    """Return the cell of each row's probabilities, shape [n]."""
    levels = LEVELS.get(p.shape[1], 4)
    key = np.zeros(len(p), dtype=np.int64)
    for column in p.T[:-1]:
        key = key * (levels + 1) + np.round(column * levels).astype(np.int64)
    return key


def by_proxies(
    auditor: Auditor, context: AuditContext, label: str | None, total: GroupTotals
) -> list[Finding]:
    """Return the disparities of the rates between the groups of every proxy, for one class."""
    found: list[Finding] = []
    roles = context.dataset.roles
    columns = dict(map(proxy_of, roles.sensitive_probability))
    for name, groups in proxies(roles).items():
        totals = total.proxies.get((name, label))
        if totals is None or not totals.sums[:, len(groups) :].any():
            continue
        told = {"probabilities": list(columns[name])} | ({} if label is None else {"class": label})
        found += Proxy(auditor, context, name, groups, totals, told).findings()
    return found


class Proxy:
    """The disparities between groups that only probabilities are known of.

    Parameters
    ----------
    auditor, context
        The audit.
    name, groups
        Of the proxy.
    totals
        What it adds up to.
    parameters
        Of every finding.
    """

    def __init__(
        self,
        auditor: Auditor,
        context: AuditContext,
        name: str,
        groups: tuple[str, ...],
        totals: ProxyTotals,
        parameters: Mapping[str, Any],
    ) -> None:
        self.auditor, self.context, self.name, self.groups = auditor, context, name, groups
        self.totals, self.parameters = totals, parameters
        self.sums, self.second = totals.coarse()
        self.pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]

    def findings(self) -> list[Finding]:
        """Return the difference of every rate."""
        found = []
        labelled = self.context.dataset.roles.label is not None
        for cls in self.context.metrics:
            if (
                issubclass(cls, Rate)
                and (labelled or cls.name == "selection_rate")
                and "difference" in cls.between
            ):
                found += [self._finding(cls(), name) for name in filter(None, (cls.name, cls.alias))]
        return found

    def _finding(self, metric: Rate, name: str) -> Finding:
        over, counted = np.array(metric.over, float), np.array(metric.counted, float)
        rates, covariance = self._weighted(over, counted)
        bounds = [difference_bounds(self.sums, self.second, pair, over, counted) for pair in self.pairs]
        differences = [float(rates[a] - rates[b]) for a, b in self.pairs]
        known = np.isfinite(differences).all() and all(math.isfinite(one.low + one.high) for one in bounds)
        value = float(np.max(np.abs(differences))) if known else None
        confidence = self.context.confidence
        pair = self._interval(bounds, confidence) if known else None
        notes, blocking = self._notes(rates, over, counted, value)
        return Finding(
            auditor=self.auditor.name,
            metric=f"{name}_difference",
            sensitive=self.name,
            value=value,
            interval=pair,
            confidence=confidence,
            better="lower",
            groups=self._group_values(rates, over, counted),
            parameters=dict(self.parameters),
            evidence=self._evidence(rates, covariance, bounds, over, counted) if known else {},
            notes=(*notes, *([blocking] if blocking else [])),
            inconclusive=blocking or (None if known else f"{name}_difference is not defined on these rows."),
            interval_at=(lambda c: self._interval(bounds, c)) if known else None,
        )

    def _weighted(self, over: Array, counted: Array) -> tuple[Array, Array]:
        """Return the weighted rates, shape [K], and their covariance, shape [K, K]."""
        base = self.totals.joint @ over
        with np.errstate(all="ignore"):
            rates = self.totals.joint @ counted / base
            slopes = (counted - rates[:, None] * over) / base[:, None]
        return rates, np.einsum("ac,abcd,bd->ab", slopes, self.totals.joint_second, slopes)

    def _interval(self, bounds: list[Bounds], confidence: float) -> tuple[float, float]:
        """Return the largest |difference| that is possible, and the smallest, with sampling error."""
        inner = two_sided(confidence ** (1 / len(bounds)))
        near = [one.limits(inner) for one in bounds]
        far = [one.limits(two_sided(confidence)) for one in bounds]
        low = max(max(low, -high, 0.0) for low, high in near)
        return low, min(max(max(high, -low) for low, high in far), 1.0)

    def _evidence(
        self, rates: Array, covariance: Array, bounds: list[Bounds], over: Array, counted: Array
    ) -> dict[str, Any]:
        differences = [rates[a] - rates[b] for a, b in self.pairs]
        a, b = self.pairs[int(np.argmax(np.abs(differences)))]
        error = math.sqrt(max(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b], 0.0))
        half = two_sided(self.context.confidence) * error
        far = abs(float(rates[a] - rates[b]))
        low, high = (a, b) if rates[a] < rates[b] else (b, a)
        told: dict[str, Any] = {
            "lowest_group": self.groups[low],
            "highest_group": self.groups[high],
            "identified_set": [
                max(max(one.low, -one.high, 0.0) for one in bounds),
                max(max(one.high, -one.low) for one in bounds),
            ],
            "weighted_interval": [max(far - half, 0.0), far + half],
        }
        hard = self._thresholded(over, counted)
        return told | ({} if hard is None else {"thresholded": hard})

    def _thresholded(self, over: Array, counted: Array) -> float | None:
        """Return the disparity with each row in its most probable group: a biased number."""
        with np.errstate(all="ignore"):
            rates = self.totals.thresholded @ counted / (self.totals.thresholded @ over)
        return float(rates.max() - rates.min()) if np.isfinite(rates).all() else None

    def _group_values(self, rates: Array, over: Array, counted: Array) -> tuple[GroupValue, ...]:
        z = two_sided(self.context.confidence)
        expected = self.totals.sums[:, : len(self.groups)].sum(axis=0)
        found = []
        for place, name in enumerate(self.groups):
            low, high = rate_bounds(self.sums, self.second, place, over, counted).limits(z)
            there = math.isfinite(rates[place]) and math.isfinite(low + high)
            interval = (max(low, 0.0), min(high, 1.0)) if there else None
            value = float(rates[place]) if math.isfinite(rates[place]) else None
            found.append(GroupValue(group=name, rows=round(expected[place]), value=value, interval=interval))
        return tuple(found)

    def _notes(
        self, rates: Array, over: Array, counted: Array, value: float | None
    ) -> tuple[list[str], str | None]:
        notes = [
            f"The groups of {self.name} are known by probabilities only. The value weights rows by them, which is "
            "right if decisions and outcomes do not depend on the group among rows with equal probabilities; the "
            "interval holds whatever that dependence is (Kallus, Mao & Zhou 2022), with sampling error on top."
        ]
        hard = self._thresholded(over, counted)
        if hard is not None and value is not None:
            notes.append(
                f"With each row in its most probable group it would be {hard:.3g}: a thresholded proxy is biased "
                "(Chen et al. 2019), and nothing is judged by it."
            )
        if self.totals.absent:
            notes.append(
                f"{self.totals.absent:,} rows have no probabilities of {self.name} and are left out."
            )
        least = self.auditor.parameters.min_group
        expected = self.totals.joint @ over
        few = [
            f"{name} ({rows:.0f})" for name, rows in zip(self.groups, expected, strict=True) if rows < least
        ]
        blocking = f"Groups with fewer than {least} expected rows: {', '.join(few)}." if few else None
        return notes, blocking
