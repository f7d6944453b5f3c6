"""Mini-batches in which every class has the same number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BalancedBatches:
    """Draws epochs of mini-batches.

    An epoch has as many batches as the rows fill. Within a class the rows come in random order, each once before
    any comes twice; with weights they are drawn in proportion to them.
    """

    def __init__(
        self,
        classes: NDArray[np.int64],
        size: int,
        rng: np.random.Generator,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        present = np.unique(classes)
        if size < len(present):
            raise ParameterError(
                f"a batch of {size} rows cannot hold {len(present)} classes; give batch={len(present)} or more"
            )
        self.size = min(size, len(classes)) if len(classes) >= len(present) else size
        self.count = max(1, len(classes) // self.size)
        self.rng = rng
        share = np.full(len(present), self.size // len(present))
        share[: self.size % len(present)] += 1
        self._parts = [_Part(np.flatnonzero(classes == one), weights) for one in present]
        self._share = share.tolist()

    def epoch(self) -> Iterator[NDArray[np.int64]]:
        """Return the row numbers of every batch of one epoch, shape (size,) each."""
        columns: list[Any] = [
            part.draw(self.rng, self.count * share).reshape(self.count, share)
            for part, share in zip(self._parts, self._share, strict=True)
        ]
        yield from np.concatenate(columns, axis=1)


class _Part:
    """The rows of one class."""

    def __init__(self, rows: NDArray[np.int64], weights: NDArray[np.float64] | None) -> None:
        self.rows = rows
        own = None if weights is None else weights[rows]
        self.chance = None if own is None or own.sum() == 0 else np.cumsum(own) / own.sum()

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        if self.chance is not None:
            places = np.searchsorted(self.chance, rng.random(count), side="right")
            return self.rows[np.minimum(places, len(self.rows) - 1)]
        rounds = -(-count // len(self.rows))
        return np.concatenate([rng.permutation(self.rows) for _ in range(rounds)])[:count]
