"""Group probabilities in place of a sensitive column: an estimate, and what is possible whatever they leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.proxies import proxies
from fairkit.data.roles import proxy_of
from fairkit.intervals import two_sided
from fairkit.metrics import Rate
from fairkit.results.findings import Finding
from fairkit.results.values import GroupValue
from fairkit_dependent import effective_clusters, noise_of, too_few
from fairkit_group.identification import Bounds, Sampling, difference_bounds, rate_bounds
from fairkit_group.totals import EVERYBODY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext, Auditor
    from fairkit_group.proxy_totals import ProxyTotals
    from fairkit_group.totals import GroupTotals

    Array = NDArray[np.float64]

_NORMAL, _ALPHA, _KNOWN = NormalDist(), 0.001, 20
"""The level of the test of probabilities, and how many rows of known groups a tenth needs."""


def by_proxies(auditor: Auditor, context: AuditContext, label: str | None, total: GroupTotals) -> list[Finding]:
    """Return the disparities of the rates between the groups of every proxy, for one class."""
    findings: list[Finding] = []
    roles = context.dataset.roles
    columns = dict(map(proxy_of, roles.sensitive_probability))
    for name, groups in proxies(roles).items():
        told = {"probabilities": list(columns[name])} | ({} if label is None else {"class": label})
        for of in ("", EVERYBODY):
            totals = total.proxies.get((name, label, of))
            if totals is None or not totals.sums[:, len(groups) :].any():
                continue
            outcome = (of == "") if context.dataset.profile.unlabelled else None
            findings += Proxy(auditor, context, name, groups, totals, told).findings(outcome)
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
        defined = np.isfinite(differences).all() and all(math.isfinite(one.low + one.high) for one in bounds)
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
        record: dict[str, Any] = {
            "lowest_group": self.groups[low],
            "highest_group": self.groups[high],
            "identified_set": [
                max(max(one.low, -one.high, 0.0) for one in bounds),
                max(max(one.high, -one.low) for one in bounds),
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
        told = {"reason": " and ".join(lost), "binding": True, "stretch": 1.0}
        return {"missing_bounds": told} if lost else {}

    def _thresholded(self, over: Array, counted: Array) -> float | None:
        """Return the disparity with each row in its most probable group: a biased number."""
        with np.errstate(all="ignore"):
            rates = self.totals.thresholded @ counted / (self.totals.thresholded @ over)
        return float(rates.max() - rates.min()) if np.isfinite(rates).all() else None

    def _group_values(self, rates: Array, over: Array, counted: Array) -> tuple[GroupValue, ...]:
        z = two_sided(self.context.confidence)
        expected = self.totals.sums[:, : len(self.groups)].sum(axis=0)
        values = []
        for place, name in enumerate(self.groups):
            low, high = rate_bounds(self.sums, self.sampling, place, over, counted).limits(z)
            there = math.isfinite(rates[place]) and math.isfinite(low + high)
            interval = (max(low, 0.0), min(high, 1.0)) if there else None
            value = float(rates[place]) if math.isfinite(rates[place]) else None
            values.append(
                GroupValue(group=name, rows=round(round(float(expected[place]), 6)), value=value, interval=interval)
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
        told = f"Nothing tests that: no row has a known group in a column {name!r}."
        return told, unstated and f"{unstated} (0: calibrated)."
    z = _NORMAL.inv_cdf(1 - _ALPHA / (2 * int((rows > 0).sum())))
    with np.errstate(all="ignore"):
        off, noise = np.abs(hits - p) / rows, z * np.sqrt(spread) / rows
    least = float(np.where(rows >= _KNOWN, off, 0.0).max())
    surely = np.where(rows >= _KNOWN, off - noise, -1.0)
    at = np.unravel_index(int(surely.argmax()), surely.shape)
    said = f"Tested on the {int(rows[0].sum()):,} rows whose {name} is known"
    if surely[at] > (stated or 0.0):
        told = (
            f"{said}: of those with a probability of {groups[int(at[0])]} of {p[at] / rows[at]:.2f} on average, "
            f"{hits[at] / rows[at]:.2f} are. State an error of {least:.2g} or more with {option}."
        )
        return told, told
    return (
        f"{said}: the largest error seen is {least:.2g}, and none is surely larger than stated.",
        unstated and f"{unstated}; {least:.2g} is seen in the known rows.",
    )
