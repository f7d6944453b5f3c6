"""What a training takes and gives: settings, encoded rows, the trained network with its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Method = Literal["sensei", "sensr", "clp", "erm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to train; see the plugin's parameters of the same names."""

    method: Method = "sensei"
    rho: float = 5.0
    epsilon: float = 0.1
    epochs: int = 10
    batch: int = 256
    rate: float = 0.002
    weight_decay: float = 0.0
    free_steps: int = 3
    steps: int = 5
    multiplier: float | None = None
    multiplier_rate: float | None = None
    patience: int = 5
    warm_start: bool = False
    device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Encoded rows.

    Attributes
    ----------
    x
        Shape (n, d), float32.
    target
        Shape (n,): classes 0, 1, ... or numbers.
    weights
        Shape (n,), nonnegative; None where all count the same.
    """

    x: NDArray[np.float32]
    target: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Give some rows."""
        return Rows(
            x=self.x[rows],
            target=self.target[rows],
            weights=None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What training gave.

    Attributes
    ----------
    module
        The network with the parameters of the best epoch, on the processor, in evaluation mode.
    history
        One record for each epoch: ``objective``, ``loss``, ``disparity`` (mean d_Y), ``distance`` (mean d²),
        ``multiplier`` (λ), ``validation``.
    best
        The epoch that was kept, from 1; 0: the network as it was given.
    notes
        What went otherwise than planned.
    """

    module: Any
    history: Sequence[dict[str, float]]
    best: int
    notes: tuple[str, ...] = ()
