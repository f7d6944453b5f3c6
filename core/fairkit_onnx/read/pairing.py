"""Which column of the scores belongs to which value of the label output, where the graph does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import value_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


def classes_by_labels(
    scores: NDArray[np.float64], labels: NDArray[Any], label_values: Sequence[Any]
) -> list[Any] | None:
    """Name the columns of scores by the labels that go with them.

    A label's column is the one that is highest above its mean where the model gives that label. That holds also
    where the label is made with a threshold other than the largest score.
    """
    values, inverse = np.unique(labels.astype(str), return_inverse=True)
    width = scores.shape[1]
    if len(values) > width or len(values) == 0:
        return None
    centred = scores - scores.mean(axis=0)
    sums = np.zeros((len(values), width))
    np.add.at(sums, inverse, centred)
    means = sums / np.bincount(inverse)[:, None]
    alone = len(values) == 1  # nothing is above its mean: the one that is largest in most rows
    places = (
        [int(np.bincount(scores.argmax(axis=1), minlength=width).argmax())] if alone else list(means.argmax(axis=1))
    )
    if len(set(places)) != len(places):
        return None
    classes: list[Any] = [None] * width
    for value, place in zip(values.tolist(), places, strict=True):
        classes[place] = _typed(value, labels)
    unnamed = [place for place, value in enumerate(classes) if value is None]
    left = [value for value in label_values if value_text(value) not in {value_text(one) for one in values.tolist()}]
    if len(unnamed) == 1 and len(left) == 1:
        classes[unnamed[0]] = left[0]
        unnamed = []
    return None if unnamed else classes


def _typed(text: str, labels: NDArray[Any]) -> Any:
    kind = labels.dtype.kind
    return int(text) if kind in "iu" else text == "True" if kind == "b" else text
