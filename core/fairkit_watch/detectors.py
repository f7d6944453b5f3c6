"""Detectors of recent change: e-detectors with a promised run length, and where in time a change was.

An e-detector (Shin, Ramdas & Rinaldo 2024) for a limit sums, once a batch, the evidence of sequences that start at
every batch: R ← (1 + R)·exp(increment). While the limit is kept, E[R_t] ≤ t, so that the mean number of batches until a
weighted mean of the R reaches A is at least A, for every sequence of rates that keep the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_watch import sequences
from fairkit_watch.judging import rate_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate
    from fairkit_watch.judging import Judge, Split
    from fairkit_watch.settings import Question

    Array = NDArray[np.float64]


EXCESSES = np.geomspace(0.005, 0.1, 8)
"""How far beyond the limit the detectors look, in rates."""

LARGEST = 1e12
"""Where evidence is capped, against overflow."""

LEAST_ROWS = 100
"""Rows of each group in a batch of a contrast; days with fewer are taken together."""

_DECAY = 0.5 ** (1 / 10)
_PRIOR = 50.0
LOCATED_WITHIN = 90
"""Batches before an alarm in which the change is looked for."""

_NEAR = 3.0


def rate_increments(counted: Array, n: Array, limit: float) -> Array:
    """Return λ_k S - n log(1 + p₀(exp(λ_k) - 1)) of a rate that is to stay at most p₀."""
    p = min(max(limit, 1e-6), 1 - 1e-6)
    d = np.minimum(EXCESSES, (1 - p) / 2)
    grid = np.log((p + d) * (1 - p) / (p * (1 - p - d)))
    return np.asarray(grid * counted[..., None] - n[..., None] * np.log1p(p * np.expm1(grid)))


def contrast_increments(value: Array, information: Array, limit: float) -> Array:
    """Return δ_k I (D - ε) - δ_k² I/2 of a contrast that is to stay at most ε."""
    is_known = np.isfinite(value) & (information > 0)
    value, information = np.where(is_known, value, limit), np.where(is_known, information, 0.0)
    return np.asarray(information[..., None] * (EXCESSES * (value - limit)[..., None] - EXCESSES**2 / 2))


@dataclass(slots=True)
class Detector:
    """The evidence of several streams against one limit, batch by batch."""

    weights: Array  # of the streams, shape [S]; they add up to at most 1
    length: float  # a: the mean run length that is promised, in batches
    evidence: Array = field(init=False)  # R of each stream and excess, shape [S, K]

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget all evidence."""
        self.evidence = np.zeros((len(self.weights), len(EXCESSES)))

    def step(self, increments: Array) -> float:
        """Take one batch's increments, shape [S, K], and return the weighted evidence: an alarm at `length`."""
        grown = (1 + self.evidence) * np.exp(np.minimum(increments, 30.0))
        self.evidence = np.minimum(grown, LARGEST)
        return float(self.weights @ self.evidence.mean(axis=1))


def batches(n_a: Array, n_b: Array) -> NDArray[np.int64]:
    """Return the batch of each day: days are taken together until both groups have `LEAST_ROWS` rows."""
    if ((n_a >= LEAST_ROWS) & (n_b >= LEAST_ROWS)).all():
        return np.arange(len(n_a))
    batch = np.full(len(n_a), -1, dtype=np.int64)
    number, start, a, b = 0, 0, 0.0, 0.0
    for day, (x, y) in enumerate(zip(n_a.tolist(), n_b.tolist(), strict=True)):
        a, b = a + x, b + y
        if a >= LEAST_ROWS and b >= LEAST_ROWS:
            batch[start : day + 1] = number
            number, start, a, b = number + 1, day + 1, 0.0, 0.0
    return batch


def contrasts(
    first: tuple[Array, Array], second: tuple[Array, Array], scale: float, reference: tuple[float, float]
) -> tuple[Array, Array]:
    """Return D = p_a - scale · p_b by batch, and its information, each at the batch's last day.

    The variance is made with the rates of earlier batches, in sums that halve every ten batches, so that a batch
    does not choose its own weight.
    """
    days = len(first[0])
    value, information = np.full(days, np.nan), np.zeros(days)
    number = batches(first[1], second[1])
    whole = int(number.max(initial=-1)) + 1
    if whole == 0:
        return value, information
    keep = number >= 0
    sums = np.array([np.bincount(number[keep], part[keep], whole) for part in (*first, *second)])
    last = np.zeros(whole, dtype=np.int64)
    last[number[keep]] = np.flatnonzero(keep)
    state = np.array([reference[0] * _PRIOR, _PRIOR, reference[1] * _PRIOR, _PRIOR])
    before = np.empty_like(sums)
    for batch in range(whole):
        before[:, batch] = state
        state = _DECAY * state + sums[:, batch]
    rate_a, rate_b = ((before[i] + 1) / (before[i + 1] + 2) for i in (0, 2))
    variance = rate_a * (1 - rate_a) / sums[1] + scale**2 * rate_b * (1 - rate_b) / sums[3]
    value[last] = sums[0] / sums[1] - scale * sums[2] / sums[3]
    information[last] = 1 / variance
    return value, information


def locate(value: Array, information: Array) -> tuple[int, int, int]:
    """Find where the mean of a sequence changed: the likeliest last day before the change, and its range.

    The likelihood of two means around a split, in the last `LOCATED_WITHIN` entries; the range holds the splits whose
    log likelihood is within 3 of the best.
    """
    start = max(len(value) - LOCATED_WITHIN, 0)
    days = np.flatnonzero((information > 0) & np.isfinite(value))
    days = days[days >= start]
    if len(days) < 2:
        index = len(value) - 1
        return index, start - 1, index
    weight, weighted = information[days], information[days] * value[days]
    before, first = np.cumsum(weight)[:-1], np.cumsum(weighted)[:-1]
    after, second = weight.sum() - before, weighted.sum() - first
    gain = 0.5 * before * after / (before + after) * (second / after - first / before) ** 2
    best = int(gain.argmax())
    near = np.flatnonzero(gain >= gain[best] - _NEAR)
    return int(days[best]), int(days[near[0]]), int(days[near[-1]])


# A rule as streams of evidence for its detector: rates against the limit, or pairs of groups in both directions.


@dataclass(frozen=True, slots=True)
class Streams:
    """One rule as streams of evidence: increments by day, shape [T, S, K]; which days count; each stream's values."""

    increments: Array
    counts: NDArray[np.bool_]
    weights: Array
    names: tuple[str, ...]
    values: Array
    information: Array


def streams_of(judge: Judge, question: Question, split: Split) -> Streams | None:
    """Return a rule's streams; None where its direction has no detector (a least difference, a largest ratio)."""
    kind, upper = question.target.kind, question.rule.upper
    if (kind == "difference" and not upper) or (kind == "ratio" and upper):
        return None
    make = _pairs if kind in ("difference", "ratio") else _levels
    streams = [make(judge, question, rate, split) for rate in question.target.rates]
    streams = [stream for stream in streams if stream.weights.size]
    if not streams:
        return None
    return Streams(
        np.concatenate([stream.increments for stream in streams], axis=1),
        np.any([stream.counts for stream in streams], axis=0),
        np.concatenate([stream.weights for stream in streams]) / len(question.target.rates),
        tuple(name for stream in streams for name in stream.names),
        np.concatenate([stream.values for stream in streams], axis=1),
        np.concatenate([stream.information for stream in streams], axis=1),
    )


def _levels(judge: Judge, question: Question, rate: type[Rate], split: Split) -> Streams:
    """Each group's rate against the limit, on the harmful side; what is unresolved counts for the limit."""
    ends = rate_ends(rate, split.parts)
    upper = question.rule.upper
    value, n = (ends.least, ends.least_n) if upper else (ends.most, ends.most_n)
    limit = question.limit if upper else 1 - question.limit
    harmful = np.nan_to_num(value if upper else 1 - value)
    p = min(max(limit, 1e-6), 1 - 1e-6)
    information = n / (p * (1 - p))
    if judge.settings.columns.weights is None:
        increments = rate_increments(harmful * n, n, limit)
    else:
        increments = contrast_increments(harmful, information, limit)
    names = tuple(f"{rate.name} of {group}" if group else rate.name for group in split.groups)
    weights = sequences.spending(np.arange(len(split.groups)), split.declared)
    weights = np.ones(1) if len(names) == 1 else weights
    return Streams(
        increments, np.asarray((n > 0).any(axis=1)), weights, names, np.where(n > 0, value, np.nan), information
    )


def _pairs(judge: Judge, question: Question, rate: type[Rate], split: Split) -> Streams:
    """Each pair's contrast against the limit, in both directions."""
    ends = rate_ends(rate, split.parts)
    ratio = question.target.kind == "ratio"
    scale, limit = (question.limit, 0.0) if ratio else (1.0, question.limit)
    values, information, increments, names, weights = [], [], [], [], []
    firsts, seconds, shares = sequences.pairs(len(split.groups), split.declared)
    for first, second, share in zip(firsts.tolist(), seconds.tolist(), shares.tolist(), strict=True):
        for a, b in ((first, second), (second, first)):
            # of a ratio: limit · p_a - p_b is above 0 where p_b / p_a is below the limit
            high = np.nan_to_num(ends.least[:, a]) * ends.least_n[:, a], ends.least_n[:, a]
            low = np.nan_to_num(ends.most[:, b]) * ends.most_n[:, b], ends.most_n[:, b]
            reference = tuple(
                judge.settings.reference.rate(question.split, split.groups[g], rate.name) or 0.5 for g in (a, b)
            )
            if ratio and scale > 0:
                value, info = contrasts(high, low, 1 / scale, (reference[0], reference[1]))
                value, info = value * scale, info / scale**2
            else:
                value, info = contrasts(high, low, scale, (reference[0], reference[1]))
            values.append(value)
            information.append(info)
            increments.append(contrast_increments(value, info, limit))
            names.append(f"{rate.name}, {split.groups[a]} against {split.groups[b]}")
            weights.append(share / 2)
    if not names:
        empty = np.empty((len(split.parts["d"]), 0))
        return Streams(empty[..., None], np.zeros(len(empty), bool), np.empty(0), (), empty, empty)
    info = np.array(information).T
    return Streams(
        np.stack(increments, axis=1), np.asarray((info > 0).any(axis=1)), np.array(weights), tuple(names),
        np.array(values).T, info
    )  # fmt: skip
