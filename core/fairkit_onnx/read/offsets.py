"""What several raw scores of a row have in common: it changes no class, so no audit of classes sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_onnx.read.outputs import as_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit_onnx.read.outputs import Reading

CARRIES = 0.9
"""From this probability on that a member of a group is told from one of the others, an offset tells who is in it."""
FEWEST = 30
"""Groups with fewer rows, and those with fewer others, are not compared."""
BINS = 20
"""Ranges of the offset, each with as many rows: a group may lie on both sides of the others."""


def offset_that_tells_groups(
    settled: Reading, values: Mapping[str, Any], groups: Mapping[str, NDArray[np.int64]]
) -> str | None:
    """Return which groups the common offset of raw scores tells apart; None where it tells none."""
    if settled.kind != "logit" or settled.score is None:
        return None
    scores = np.asarray(as_matrix(settled.score, values[settled.score.name]), dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2:
        return None
    offset = np.logaddexp.reduce(scores, axis=1)  # 0 for logarithms of probabilities
    places = np.unique(offset, return_inverse=True)[1]  # only their order counts
    for name, codes in groups.items():
        for code in np.unique(codes[codes >= 0]):
            within = codes >= 0
            share = _told_apart(places[within], (codes == code)[within])
            if share >= CARRIES:
                return (
                    f"The raw scores of the output {settled.score.name!r} share an offset that tells groups of "
                    f"{name!r} apart (a member of one is told from the others with a probability of {share:.2f}), and "
                    "only their differences were audited."
                )
    return None


def _told_apart(places: NDArray[np.int64], member: NDArray[np.bool_]) -> float:
    """Return the probability that a member is told from another by the order of numbers, or by the range they lie in.

    How many members each range has is counted in one half of the rows, and tried on the other.
    """
    above = _ranks_above(places, member)
    edges = np.quantile(places[::2], np.linspace(0, 1, BINS + 1)[1:-1])
    where = np.searchsorted(edges, places, side="right")
    rows = np.bincount(where[::2], minlength=BINS)
    members = np.bincount(where[::2], member[::2], BINS) / np.maximum(rows, 1)
    return max(above, 1 - above, _ranks_above(members[where[1::2]], member[1::2]))


def _ranks_above(numbers: NDArray[Any], member: NDArray[np.bool_]) -> float:
    """Return the probability that a member's number is larger than another's, ties counted half; .5 for few rows."""
    members, others = numbers[member], np.sort(numbers[~member])
    if min(len(members), len(others)) < FEWEST:
        return 0.5
    below, upto = (np.searchsorted(others, members, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(others)))
