"""Group probabilities in place of a sensitive column: an estimate, and what is possible whatever they leave open."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.groups import known_shares, proxies
from fairkit.data.hashing import BUCKETS
from fairkit.data.roles import proxy_of
from fairkit.intervals import two_sided
from fairkit.metrics import Rate
from fairkit.results.findings import Finding, GroupValue
from fairkit.support.lazy_dataclass import dataclass, fields
from fairkit_dependent import SCORE_BUCKETS, effective_clusters, noise_of, too_few
from fairkit_group.identification import Bounds, Sampling, difference_bounds, rate_bounds
from fairkit_group.rates import EVERYBODY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit.statistics import Rows
    from fairkit_group.rates import GroupTotals

    Array = NDArray[np.float64]


_NORMAL, _ALPHA, _KNOWN = NormalDist(), 0.001, 20
"""The level of the test of probabilities, and how many rows of known groups a tenth needs."""


def by_proxies(auditor: Auditor, context: AuditContext, label: str | None, total: GroupTotals) -> list[Finding]:
    """Return the disparities of the rates between the groups of every proxy, for one class."""
    findings: list[Finding] = []
    roles = context.dataset.roles
    columns = dict(map(proxy_of, roles.sensitive_probability))
    for name, groups in proxies(roles).items():
        evidence = {"probabilities": list(columns[name])} | ({} if label is None else {"class": label})
        for of in ("", EVERYBODY):
            totals = total.proxies.get((name, label, of))
            if totals is None or not totals.sums[:, len(groups) :].any():
                continue
            outcome = (of == "") if context.dataset.profile.unlabelled else None
            findings += Proxy(auditor, context, name, groups, totals, evidence).findings(outcome)
    return findings


class Proxy:
    """The disparities between groups that only probabilities are known of."""

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
        self.sums, second, buckets = totals.coarse()
        self.sampling = Sampling(second, buckets, auditor.parameters.probability_error or 0.0)
        self.pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]

    def findings(self, outcome: bool | None = None) -> list[Finding]:
        """Return the difference of every rate, or of those that need an outcome, or none."""
        findings = []
        labelled = self.context.dataset.roles.label is not None
        for cls in self.context.metrics:
            if outcome is not None and cls.outcome != outcome:
                continue
            if issubclass(cls, Rate) and (labelled or not cls.outcome) and "difference" in cls.between:
                findings += [self._finding(cls(), name) for name in filter(None, (cls.name, cls.alias))]
        return findings

    def _finding(self, metric: Rate, name: str) -> Finding:
        over, counted = np.array(metric.over, float), np.array(metric.counted, float)
        rates, covariance = self._weighted(over, counted)
        bounds = [difference_bounds(self.sums, self.sampling, pair, over, counted) for pair in self.pairs]
        differences = [float(rates[a] - rates[b]) for a, b in self.pairs]
        defined = np.isfinite(differences).all() and all(math.isfinite(bound.low + bound.high) for bound in bounds)
        value = float(np.max(np.abs(differences))) if defined else None
        confidence = self.context.confidence
        pair = self._interval(bounds, confidence) if defined else None
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
            evidence=self._evidence(rates, covariance, bounds, over, counted) | self._holes(metric) if defined else {},
            notes=(*notes, *([blocking] if blocking else [])),
            inconclusive=blocking or (None if defined else f"{name}_difference is not defined on these rows."),
            interval_at=(lambda c: self._interval(bounds, c)) if defined else None,
        )

    def _weighted(self, over: Array, counted: Array) -> tuple[Array, Array]:
        """Return the weighted rates, shape [K], and their covariance, shape [K, K]."""
        base = self.totals.joint @ over
        with np.errstate(all="ignore"):
            rates = self.totals.joint @ counted / base
            slopes = (counted - rates[:, None] * over) / base[:, None]
        if self.totals.joint_buckets is not None:
            pull = np.einsum("kc,bkc->kb", slopes, self.totals.joint_buckets)
            there = np.tile(self.totals.joint_buckets.any(axis=(1, 2)), (len(pull), 1))
            influence = noise_of(np.nan_to_num(pull), there).influence
            return rates, influence @ influence.T
        return rates, np.einsum("ac,abcd,bd->ab", slopes, self.totals.joint_second, slopes)

    def _interval(self, bounds: list[Bounds], confidence: float) -> tuple[float, float]:
        """Return the largest |difference| that is possible, and the smallest, with sampling error."""
        inner = two_sided(confidence ** (1 / len(bounds)))
        near = [bound.limits(inner) for bound in bounds]
        far = [bound.limits(two_sided(confidence)) for bound in bounds]
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
        record: dict[str, Any] = {
            "lowest_group": self.groups[low],
            "highest_group": self.groups[high],
            "identified_set": [
                max(max(bound.low, -bound.high, 0.0) for bound in bounds),
                max(max(bound.high, -bound.low) for bound in bounds),
            ],
            "weighted_interval": [max(far - half, 0.0), far + half],
        }
        hard = self._thresholded(over, counted)
        return record | ({} if hard is None else {"thresholded": hard})

    def _holes(self, metric: Rate) -> dict[str, Any]:
        """Say that nothing bounds what rows without probabilities, or without an outcome, could do."""
        lost = [f"{self.totals.absent:,} rows have no probabilities of {self.name}"] * bool(self.totals.absent)
        unlabelled = self.context.dataset.profile.unlabelled if metric.outcome else 0
        lost += [f"{unlabelled:,} rows have no value of {self.context.dataset.roles.label}"] * bool(unlabelled)
        evidence = {"reason": " and ".join(lost), "binding": True, "stretch": 1.0}
        return {"missing_bounds": evidence} if lost else {}

    def _thresholded(self, over: Array, counted: Array) -> float | None:
        """Return the disparity with each row in its most probable group: a biased number."""
        with np.errstate(all="ignore"):
            rates = self.totals.thresholded @ counted / (self.totals.thresholded @ over)
        return float(rates.max() - rates.min()) if np.isfinite(rates).all() else None

    def _group_values(self, rates: Array, over: Array, counted: Array) -> tuple[GroupValue, ...]:
        z = two_sided(self.context.confidence)
        expected = self.totals.sums[:, : len(self.groups)].sum(axis=0)
        values = []
        for index, name in enumerate(self.groups):
            low, high = rate_bounds(self.sums, self.sampling, index, over, counted).limits(z)
            there = math.isfinite(rates[index]) and math.isfinite(low + high)
            interval = (max(low, 0.0), min(high, 1.0)) if there else None
            value = float(rates[index]) if math.isfinite(rates[index]) else None
            values.append(
                GroupValue(group=name, rows=round(round(float(expected[index]), 6)), value=value, interval=interval)
            )
        return tuple(values)

    def _notes(self, rates: Array, over: Array, counted: Array, value: float | None) -> tuple[list[str], str | None]:
        notes = [
            f"The groups of {self.name} are known by probabilities only. The value weights rows by them, which is "
            "right if decisions and outcomes do not depend on the group among rows with equal probabilities; the "
            "interval holds whatever that dependence is (Kallus, Mao & Zhou 2022), with sampling error on top. Both "
            f"suppose that of the rows with p a share within {self.sampling.off:.3g} of p is in the group."
        ]
        stated = self.auditor.parameters.probability_error
        tested, doubt = calibration(self.name, self.groups, self.totals.known, stated)
        notes.append(tested)
        hard = self._thresholded(over, counted)
        if hard is not None and value is not None:
            notes.append(
                f"With each row in its most probable group it would be {hard:.3g}: a thresholded proxy is biased "
                "(Chen et al. 2019), and nothing is judged by it."
            )
        if self.totals.absent:
            notes.append(f"{self.totals.absent:,} rows have no probabilities of {self.name} and are left out.")
        least = self.auditor.parameters.min_group
        expected = self.totals.joint @ over
        few = [f"{name} ({rows:.0f})" for name, rows in zip(self.groups, expected, strict=True) if rows < least]
        blocking = [f"Groups with fewer than {least} expected rows: {', '.join(few)}."] if few else []
        blocking += [doubt] if doubt else []
        if self.totals.joint_buckets is not None:
            clusters = int(self.totals.joint_buckets.any(axis=(1, 2)).sum())
            sizes = np.maximum(self.totals.joint_buckets @ over, 0.0)  # by bucket and group
            doubt = too_few(clusters, float(effective_clusters(sizes.T).min()))
            if doubt:
                blocking.append(f"The interval is not trusted: {doubt}.")
        return notes, " ".join(blocking) or None


def calibration(name: str, groups: Sequence[str], known: Array, stated: float | None) -> tuple[str, str | None]:
    """Test probabilities where groups are known: a sentence, and the reason why there is no verdict, or None.

    A verdict needs that somebody states how far a group's share may be from its probability.
    """
    rows, p, hits, spread = np.moveaxis(known, -1, 0)
    option = "the parameter `group.probability_error`"
    unstated = None if stated is not None else f"State how far shares of {name} may be from probabilities with {option}"
    if not rows.any():
        sentence = f"Nothing tests that: no row has a known group in a column {name!r}."
        return sentence, unstated and f"{unstated} (0: calibrated)."
    z = _NORMAL.inv_cdf(1 - _ALPHA / (2 * int((rows > 0).sum())))
    with np.errstate(all="ignore"):
        off, noise = np.abs(hits - p) / rows, z * np.sqrt(spread) / rows
    least = float(np.where(rows >= _KNOWN, off, 0.0).max())
    surely = np.where(rows >= _KNOWN, off - noise, -1.0)
    at = np.unravel_index(int(surely.argmax()), surely.shape)
    said = f"Tested on the {int(rows[0].sum()):,} rows whose {name} is known"
    if surely[at] > (stated or 0.0):
        sentence = (
            f"{said}: of those with a probability of {groups[int(at[0])]} of {p[at] / rows[at]:.2f} on average, "
            f"{hits[at] / rows[at]:.2f} are. State an error of {least:.2g} or more with {option}."
        )
        return sentence, sentence
    return (
        f"{said}: the largest error seen is {least:.2g}, and none is surely larger than stated.",
        unstated and f"{unstated}; {least:.2g} is seen in the known rows.",
    )


# What group probabilities add up to: sums in cells of about equal probabilities, in constant memory.


LEVELS = {2: 40, 3: 20, 4: 12, 5: 8, 6: 6, 7: 5}
"""Into how many steps probabilities are cut, by the number of groups: some 500 cells at most; 4 steps beyond."""

LEAST_CELL = 100
"""Cells with fewer rows are put together with others of the same most probable group."""


@dataclass(frozen=True, slots=True)
class ProxyTotals:
    """What group probabilities and decisions add up to."""

    keys: NDArray[np.int64]  # cells of about equal probabilities, increasing, shape [Z]
    rows: Array  # rows of each, shape [Z]
    sums: Array
    second: Array
    joint: Array  # Σ w p_a c, shape [K, 4]
    joint_second: Array  # Σ w² p_a² c c', shape [K, K, 4, 4]
    thresholded: Array  # confusion cells by each row's most probable group, shape [K, 4]
    absent: int  # rows without probabilities
    known: Array  # of rows of a known group, by group and tenth of its probability: rows, Σ p, hits, Σ p (1 - p)
    buckets: Array | None = None
    joint_buckets: Array | None = None  # `joint` by bucket, shape [B, K, 4]

    def __add__(self, other: ProxyTotals) -> ProxyTotals:
        keys = np.union1d(self.keys, other.keys)

        def total(mine: Array, others: Array) -> Array:
            both = np.zeros((len(keys), *mine.shape[1:]))
            both[np.searchsorted(keys, self.keys)] += mine
            both[np.searchsorted(keys, other.keys)] += others
            return both

        parts: dict[str, Any] = {}
        for name in (each.name for each in fields(self) if each.name != "keys"):
            mine, others = getattr(self, name), getattr(other, name)
            join = total if name in ("rows", "sums", "second", "buckets") else operator.add
            parts[name] = None if mine is None or others is None else join(mine, others)
        return ProxyTotals(keys=keys, **parts)

    def coarse(self) -> tuple[Array, Array, Array | None]:
        """Return sums, products and buckets with small cells put together: that can only widen what is possible."""
        groups = self.joint.shape[0]
        small = self.rows < LEAST_CELL
        code = np.where(small, -1 - self.sums[:, :groups].argmax(axis=1), np.arange(len(self.rows)))
        _, order = np.unique(code, return_inverse=True)

        def joined(part: Array) -> Array:
            whole = np.zeros((order.max() + 1, *part.shape[1:]))
            np.add.at(whole, order, part)
            return whole

        buckets = None if self.buckets is None else joined(self.buckets)
        return joined(self.sums), joined(self.second), buckets


def proxy_totals(
    rows: Rows, shares: Array, clusters: NDArray[np.int64] | None = None, groups_known: NDArray[np.int64] | None = None
) -> ProxyTotals:
    """Add up one batch; `groups_known` has the places of the groups that are known, -1 where none is."""
    has_proxy = np.isfinite(shares[:, 0])
    groups = shares.shape[1]
    p = shares[has_proxy]
    weights = np.ones(len(p)) if rows.weights is None else rows.weights[has_proxy]
    decision = np.zeros(len(p)) if rows.decision is None else rows.decision[has_proxy]
    favorable = rows.outcome[has_proxy] > 0.5
    no, yes = 1 - decision, decision
    cells = np.column_stack([~favorable * no, ~favorable * yes, favorable * no, favorable * yes])
    keys, inverse = np.unique(_keys(p), return_inverse=True)
    every = np.hstack([p, cells]) * weights[:, None]
    width = groups + 4
    sums, second = np.zeros((len(keys), width)), np.zeros((len(keys), width, width))
    for i in range(width):
        sums[:, i] = np.bincount(inverse, every[:, i], len(keys))
        for j in range(i, width):
            second[:, i, j] = second[:, j, i] = np.bincount(inverse, every[:, i] * every[:, j], len(keys))
    buckets: Array | None = None
    joint_buckets: Array | None = None
    weighted = p * weights[:, None]
    if clusters is not None:
        bucket = clusters[has_proxy] // (BUCKETS // SCORE_BUCKETS)
        cell = inverse * SCORE_BUCKETS + bucket
        parts = [np.bincount(cell, column, len(keys) * SCORE_BUCKETS) for column in every.T]
        buckets = np.stack(parts, axis=1).astype(np.float64).reshape(len(keys), SCORE_BUCKETS, width)
        products = (weighted[:, :, None] * cells[:, None, :]).reshape(len(p), groups * 4)
        joint = [np.bincount(bucket, column, SCORE_BUCKETS) for column in products.T]
        joint_buckets = np.stack(joint, axis=1).astype(np.float64).reshape(SCORE_BUCKETS, groups, 4)
    most = np.zeros_like(p)
    most[np.arange(len(p)), p.argmax(axis=1)] = weights
    joint_second = np.zeros((groups, groups, 4, 4))
    for c in range(4):
        for d in range(c, 4):
            part = (weighted * (cells[:, c] * cells[:, d])[:, None]).T @ weighted
            joint_second[:, :, c, d] = joint_second[:, :, d, c] = part
    return ProxyTotals(
        keys=keys,
        rows=np.bincount(inverse, minlength=len(keys)).astype(np.float64),
        sums=sums,
        second=second,
        joint=weighted.T @ cells,
        joint_second=joint_second,
        thresholded=most.T @ cells,
        absent=int((~has_proxy).sum()),
        known=known_shares(p, None if groups_known is None else groups_known[has_proxy]),
        buckets=buckets,
        joint_buckets=joint_buckets,
    )


def _keys(p: Array) -> NDArray[np.int64]:
    """Return the cell of each row's probabilities, shape [n]."""
    levels = LEVELS.get(p.shape[1], 4)
    key = np.zeros(len(p), dtype=np.int64)
    for column in p.T[:-1]:
        key = key * (levels + 1) + np.round(column * levels).astype(np.int64)
    return key
