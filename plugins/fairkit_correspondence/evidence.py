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
        size = min(_CHUNK, len(answers.documents) - start)
        flat = (document[here] - start) * len(names) + local[here]
        sums = np.bincount(flat, y[here], minlength=size * len(names)).reshape(size, -1)
        counts = np.bincount(flat, minlength=size * len(names)).reshape(size, -1).astype(float)
        first, many = sums @ half, counts @ half
        second, rest = sums.sum(1)[:, None] - first, counts.sum(1)[:, None] - many
        both = (many > 0) & (rest > 0)
        gap = first / np.maximum(many, 1) - second / np.maximum(rest, 1)
        total += (gap * both).sum(axis=0)
        used += both.sum(axis=0)
    if not (used > 0).all():
        return None
    return float(np.sqrt(np.mean((total / used) ** 2)))


def drift(answers: Answers) -> dict[str, Any] | None:
    """Return late minus early answers of the same documents, at the 1 % level; None where the order is not known."""
    if answers.order is None or np.isnan(answers.order).any():
        return None
    cell = answers.context * len(answers.groups) + answers.group
    mean = np.bincount(cell, answers.middle) / np.maximum(np.bincount(cell), 1)
    residual = answers.middle - mean[cell]
    # early and late: before and after the middle of the look in which a document was asked about
    middle = [
        float(np.median(answers.order[answers.block == b])) for b in range(int(answers.block.max()) + 1)
    ]
    early = answers.order <= np.array(middle)[answers.block]
    halves = []
    for part in (early.astype(float), (~early).astype(float)):
        count = np.bincount(answers.document, part, minlength=len(answers.documents))
        with np.errstate(invalid="ignore"):
            halves.append(np.bincount(answers.document, residual * part, minlength=len(count)) / count)
    e = halves[1] - halves[0]
    e = e[~np.isnan(e)]
    if len(e) < 2:
        return None
    shift = float(e.mean())
    error = float(e.std(ddof=1) / math.sqrt(len(e)))
    t = float(student(two_sided(DRIFT_LEVEL), np.array([float(len(e))]))[0])
    return {
        "shift": shift,
        "low": shift - t * error,
        "high": shift + t * error,
        "level": 1 - DRIFT_LEVEL,
        "found": bool(abs(shift) > t * error),
    }


def group_means(answers: Answers) -> Array:
    """Return the mean answer by document, context and group, NaN where there is none, shape [T, C, G]."""
    shape = (len(answers.documents), len(answers.contexts), len(answers.groups))
    flat = np.ravel_multi_index((answers.document, answers.context, answers.group), shape)
    size = math.prod(shape)
    count = np.bincount(flat, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.asarray((np.bincount(flat, answers.middle, minlength=size) / count).reshape(shape))


def changed(answers: Answers, means: Array, first: int, second: int) -> NDArray[np.bool_]:
    """Return on which documents two groups' answers differ, shape [T].

    Answers that are all yes or no differ where their means do; others where one group's mean is at least 1/2 and the
    other's below.
    """
    known = answers.low[answers.outcome == 0]
    one, other = means[:, :, first], means[:, :, second]
    whole = np.isin(known, (0.0, 1.0)).all()
    differ = one != other if whole else (one >= 0.5) != (other >= 0.5)
    return np.asarray((differ & ~np.isnan(one) & ~np.isnan(other)).any(axis=1))


def examples(answers: Answers, means: Array, first: int, second: int, most: int = 5) -> list[dict[str, Any]]:
    """Return the documents, by their names or digests, on which two groups' mean answers differ most."""
    gap = np.nan_to_num(means[:, :, first] - means[:, :, second])
    order = np.argsort(-np.abs(gap), axis=None, kind="stable")[:most]
    found = []
    for flat in order:
        t, c = (int(i) for i in np.unravel_index(flat, gap.shape))
        if gap[t, c] == 0:
            break
        found.append(
            {
                "document": answers.documents[t],
                "context": answers.contexts[c],
                "groups": [answers.groups[first], answers.groups[second]],
                "answers": [float(means[t, c, first]), float(means[t, c, second])],
            }
        )
    return found


def all_equal(answers: Answers) -> int:
    """Return how many documents have the same answer everywhere: instructions in a text can cause that."""
    size = len(answers.documents)
    low = np.full(size, np.inf)
    high = np.full(size, -np.inf)
    np.minimum.at(low, answers.document, answers.middle)
    np.maximum.at(high, answers.document, answers.middle)
    return int((low == high).sum())
