"""What a training takes and gives: settings, encoded rows, the trained network with its history."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

STEPS = 1_250
"""About so many batches teach a small network on a small table."""

Method = Literal["sensei", "sensr", "clp", "erm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SenSeISettings:
    """How to train; see the plugin's parameters of the same names."""

    method: Method = "sensei"
    rho: float = 5.0
    epsilon: float = 0.1
    epochs: int | None = None
    batch: int | None = None
    rate: float = 0.002
    weight_decay: float = 0.0
    free_steps: int = 3
    steps: int = 5
    multiplier: float | None = None
    multiplier_rate: float | None = None
    patience: int | None = None
    warm_start: bool = False
    device: str = "auto"

    def resolved(self, rows: int, classes: int) -> SenSeISettings:
        """Fill in what depends on the numbers of rows and classes, where it was left open.

        Batches of 256, or of a hundredth of the rows where that is less, but 32 at least; at least 10 epochs and about
        1,250 batches in all; patience for a quarter of them, at least 5.
        """
        batch = max(min(256, max(32, rows // 100)), 2 * classes) if self.batch is None else self.batch
        steps = max(1, rows // batch)
        epochs = max(10, -(-STEPS // steps)) if self.epochs is None else self.epochs
        patience = max(5, epochs // 4) if self.patience is None else self.patience
        return dataclasses.replace(self, batch=batch, epochs=epochs, patience=patience)


def usual_rho(rows: int) -> float:
    """Return the regulariser's default weight: small for few rows, which carry little invariance.

    5 from 20,000 rows on, below that less by the square of the rows, at least .3. With 5 on 5,800 rows of COMPAS the
    network accepts one person in nine and is right less often than naming the most frequent outcome.
    """
    return max(0.3, 5.0 * min(1.0, rows / 20_000) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SenSeIRows:
    """Encoded rows."""

    x: NDArray[np.float32]  # shape (n, d), float32
    target: NDArray[np.float64]  # shape (n,): classes 0, 1, ... or numbers
    weights: NDArray[np.float64] | None = None  # shape (n,), nonnegative; None where all count the same

    def take(self, rows: NDArray[np.int64]) -> SenSeIRows:
        """Return some rows."""
        return SenSeIRows(
            x=self.x[rows], target=self.target[rows], weights=None if self.weights is None else self.weights[rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What training gave."""

    module: Any  # the network with the parameters of the best epoch, on the processor, in evaluation mode
    history: Sequence[dict[str, float]]
    best: int  # the epoch that was kept, from 1; 0: the network as it was given
    notes: tuple[str, ...] = ()  # what went otherwise than planned
