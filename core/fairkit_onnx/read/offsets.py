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
"""From this probability on that members of a group rank above the others, an offset tells who is in the group."""
FEWEST = 30
"""Groups with fewer rows, and those with fewer others, are not compared."""


def offset_that_tells_groups(
    settled: Reading, values: Mapping[str, Any], groups: Mapping[str, NDArray[np.int64]]
) -> str | None:
    """Return which groups the common offset of raw scores tells apart; None where it tells none.

    Parameters
    ----------
    settled, values
        How the outputs are read, and the outputs of some rows.
    groups
        By split, each row's group, -1 where it has none, shape [n].
    """
    if settled.kind != "logit" or settled.score is None:
        return None
    scores = np.asarray(as_matrix(settled.score, values[settled.score.name]), dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2:
        return None
    highest = scores.max(axis=1)
    offset = highest + np.log(
        np.exp(scores - highest[:, None]).sum(axis=1)
    )  # 0 for logarithms of probabilities
    for name, codes in groups.items():
        for code in np.unique(codes[codes >= 0]):
            share = _ranks_above(offset[codes == code], offset[(codes >= 0) & (codes != code)])
            if share is not None and max(share, 1 - share) >= CARRIES:
                return (
                    f"The raw scores of the output {settled.score.name!r} share an offset that tells groups of "
                    f"{name!r} apart (one ranks above the others with a probability of "
                    f"{max(share, 1 - share):.2f}), and only their differences were audited."
                )
    return None


def _ranks_above(members: NDArray[np.float64], others: NDArray[np.float64]) -> float | None:
    """Return the probability that a member's number is larger than another's, ties counted half."""
    if min(len(members), len(others)) < FEWEST:
        return None
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, members, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(others)))
