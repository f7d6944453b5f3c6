"""Scored items of rankings: all that is kept of the rows until the items of every query are together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError, ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]

GRADES = 50.0
"""The largest relevance: gains are powers of two."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Items of one batch."""

    query: NDArray[np.uint64]  # a number for each item's query, shape [n], uint64
    scores: Array  # of each model, shape [M, n]
    relevance: Array | None  # shape [n]; None without a label
    groups: Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Items:
    """Items of rankings, in pieces that add up with ``+`` in any order: about 40 bytes a row."""

    chunks: tuple[Chunk, ...]

    def __add__(self, right: Items) -> Items:
        return Items(self.chunks + right.chunks)

    def whole(self) -> Chunk:
        """Return all items in one order whatever the pieces were: by query, then as their numbers say."""
        first = self.chunks[0]
        query = np.concatenate([one.query for one in self.chunks])
        scores = np.concatenate([one.scores for one in self.chunks], axis=1)
        relevance = None
        if first.relevance is not None:
            relevance = np.concatenate([one.relevance for one in self.chunks if one.relevance is not None])
        groups = {name: np.concatenate([one.groups[name] for one in self.chunks]) for name in first.groups}
        keys = [*groups.values(), *([] if relevance is None else [relevance]), *scores, query]
        order = np.lexsort(keys)
        return Chunk(
            query[order],
            scores[:, order],
            None if relevance is None else relevance[order],
            {name: codes[order] for name, codes in groups.items()},
        )


def items_of(batch: Batch, said: Sequence[Predictions], dataset: Dataset) -> Items:
    """Keep what rankings need of a batch."""
    if batch.queries is None:
        raise DataError("a ranking needs the column of queries; name it with `query`")
    if batch.labelled is not None:
        raise DataError(
            f"{int((~batch.labelled).sum()):,} items have no label, and places in the rankings; give each one a "
            "label, or leave `label` out: what needs none is then measured"
        )
    scores = []
    for predictions in said:
        if predictions.score is None:
            raise ModelError("a ranking needs scores, and this model gives none")
        if predictions.members is not None:
            raise ModelError("this model draws its scores by chance, and a ranking is made from one score an item")
        scores.append(predictions.score)
    return Items((Chunk(batch.queries, np.stack(scores), relevance_of(batch, dataset), dict(batch.groups)),))


def relevance_of(batch: Batch, dataset: Dataset) -> Array | None:
    """Return each item's relevance, shape [n]: 1 for the favorable label, where one is named, else the label."""
    name = dataset.roles.label
    if name is None:
        return None
    if batch.favorable is not None:
        return batch.favorable.astype(np.float64)
    assert batch.label is not None  # noqa: S101 -- there is a label
    grades = batch.label.astype(np.float64)
    if len(grades) and (grades.min() < 0 or grades.max() > GRADES):
        raise DataError(
            f"the label {name!r} reaches {grades.min():g} and {grades.max():g}; relevance is a grade between 0 and "
            f"{GRADES:g} (0: not relevant); rescale it, or name the relevant value with `favorable`"
        )
    return grades
