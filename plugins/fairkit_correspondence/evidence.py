"""What stands beside a difference: placebo splits, drift while the answers came in, and documents that change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import student, two_sided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_correspondence.answers import Answers

    Array = NDArray[np.float64]

SPLITS = 200
DRIFT_LEVEL = 0.99
_CHUNK = 2_000


def placebo(answers: Answers, group: int, rng: np.random.Generator) -> float | None:
    """Return the root mean square difference between two random halves of one group's names, in [0, 1].

    What a difference between names of the *same* group looks like; None where no document has two names.
    """
    rows = answers.group == group
    names, local = np.unique(answers.name[rows], return_inverse=True)
    if len(names) < 2:
        return None
    half = np.zeros((len(names), SPLITS))
    for split in range(SPLITS):
        half[rng.permutation(len(names))[: len(names) // 2], split] = 1
    document, y = answers.document[rows], answers.middle[rows]
    total, used = np.zeros(SPLITS), np.zeros(SPLITS)
    for start in range(0, len(answers.documents), _CHUNK):
        here = (document >= start) & (document < start + _CHUNK)
        flat = (document[here] - start) * len(names) + local[here]
        sums, counts = (
            np.bincount(flat, w, _CHUNK * len(names)).reshape(_CHUNK, -1) for w in (y[here], np.ones(len(flat)))
        )
        first, many = sums @ half, counts @ half
        second, rest = sums.sum(1)[:, None] - first, counts.sum(1)[:, None] - many
        both = (many > 0) & (rest > 0)
        gap = first / np.maximum(many, 1) - second / np.maximum(rest, 1)
        total, used = total + (gap * both).sum(axis=0), used + both.sum(axis=0)
    return float(np.sqrt(np.mean((total / used) ** 2))) if (used > 0).all() else None


def drift(answers: Answers) -> dict[str, Any] | None:
    """Return late minus early answers of the same documents, at the 1 % level; None where the order is not known."""
    if answers.order is None or np.isnan(answers.order).any():
        return None
    cell = answers.context * len(answers.groups) + answers.group
    residual = answers.middle - (np.bincount(cell, answers.middle) / np.maximum(np.bincount(cell), 1))[cell]
    # early and late: before and after the middle of the look in which a document was asked about
    middle = [np.median(answers.order[answers.block == b]) for b in range(int(answers.block.max()) + 1)]
    early = answers.order <= np.array(middle)[answers.block]
    with np.errstate(invalid="ignore"):
        before, after = (
            np.bincount(answers.document, residual * part, len(answers.documents))
            / np.bincount(answers.document, part, len(answers.documents))
            for part in (early.astype(float), (~early).astype(float))
        )
    gaps = (after - before)[~np.isnan(after - before)]
    if len(gaps) < 2:
        return None
    shift, half = shift_of(gaps, DRIFT_LEVEL)
    ends = {"shift": shift, "low": shift - half, "high": shift + half}
    return {**ends, "level": 1 - DRIFT_LEVEL, "found": abs(shift) > half}


def shift_of(gaps: Array, confidence: float) -> tuple[float, float]:
    """Return the mean of differences on the same questions, and the half width of its interval (Student's t)."""
    t = float(student(two_sided(confidence), np.array([float(len(gaps))]))[0])
    return float(gaps.mean()), t * float(gaps.std(ddof=1) / math.sqrt(len(gaps)))


def group_means(answers: Answers) -> Array:
    """Return the mean answer by document, context and group, NaN where there is none, shape [T, C, G]."""
    shape = (len(answers.documents), len(answers.contexts), len(answers.groups))
    flat = np.ravel_multi_index((answers.document, answers.context, answers.group), shape)
    size = math.prod(shape)
    with np.errstate(invalid="ignore"):
        means = np.bincount(flat, answers.middle, size) / np.bincount(flat, minlength=size)
    return np.asarray(means.reshape(shape))


def changed(answers: Answers, means: Array, first: int, second: int) -> NDArray[np.bool_]:
    """Return on which documents two groups' answers differ, shape [T].

    Answers that are all yes or no differ where their means do; others where one group's mean is at least 1/2 and the
    other's below.
    """
    left, right = means[:, :, first], means[:, :, second]
    whole = np.isin(answers.low[answers.outcome == 0], (0.0, 1.0)).all()
    differ = left != right if whole else (left >= 0.5) != (right >= 0.5)
    return np.asarray((differ & ~np.isnan(left) & ~np.isnan(right)).any(axis=1))


def examples(answers: Answers, means: Array, first: int, second: int, most: int = 5) -> list[dict[str, Any]]:
    """Return the documents, by their names or digests, on which two groups' mean answers differ most."""
    gap = np.nan_to_num(means[:, :, first] - means[:, :, second])
    order = np.argsort(-np.abs(gap), axis=None, kind="stable")[:most]
    places = [(int(flat) // gap.shape[1], int(flat) % gap.shape[1]) for flat in order if gap.flat[flat]]
    return [
        {
            "document": answers.documents[t],
            "context": answers.contexts[c],
            "groups": [answers.groups[first], answers.groups[second]],
            "answers": [float(means[t, c, first]), float(means[t, c, second])],
        }
        for t, c in places
    ]


def all_equal(answers: Answers) -> int:
    """Return how many documents have the same answer everywhere: instructions in a text can cause that."""
    low, high = np.full(len(answers.documents), np.inf), np.full(len(answers.documents), -np.inf)
    np.minimum.at(low, answers.document, answers.middle)
    np.maximum.at(high, answers.document, answers.middle)
    return int((low == high).sum())
