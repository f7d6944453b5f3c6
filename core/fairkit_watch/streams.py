"""A rule as streams of evidence for its detector: rates against the limit, or pairs of groups in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_watch import between
from fairkit_watch.detectors import contrast_increments, contrasts, rate_increments
from fairkit_watch.totals import rate_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Rate
    from fairkit_watch.judging import Judge
    from fairkit_watch.questions import Question
    from fairkit_watch.totals import Split

    Array = NDArray[np.float64]


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
    streams = [one for one in streams if one.weights.size]
    if not streams:
        return None
    return Streams(
        np.concatenate([one.increments for one in streams], axis=1),
        np.any([one.counts for one in streams], axis=0),
        np.concatenate([one.weights for one in streams]) / len(question.target.rates),
        tuple(name for one in streams for name in one.names),
        np.concatenate([one.values for one in streams], axis=1),
        np.concatenate([one.information for one in streams], axis=1),
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
    weights = between.spending(np.arange(len(split.groups)), split.declared)
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
    firsts, seconds, shares = between.pairs(len(split.groups), split.declared)
    for one, other, share in zip(firsts.tolist(), seconds.tolist(), shares.tolist(), strict=True):
        for a, b in ((one, other), (other, one)):
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
