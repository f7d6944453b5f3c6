"""What a training takes and gives: settings, encoded rows, the trained network, and its model behind an encoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.export import TabularModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from fairkit_similarity.metric import FairMetric


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


# The trained network with its encoder.


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel(TabularModel):
    """An encoder, and a torch module behind it (`estimator`)."""

    metric: FairMetric | None = None  # the fair metric that it was trained under; None for the plain network
    audited_at: float | None = None

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Measure `dif`, which the training bounds, under the metric and the budget of training."""
        if self.metric is None or self.audited_at is None:
            return {}
        path = folder / "fair-metric.json"
        self.metric.save(path)
        return {"dif": {"epsilon": (self.audited_at,), "fair_metric": str(path)}}


# A trained network in the units of its target.


def in_units(module: Any, scale: float, shift: float) -> Any:
    """Put a network that learned scaled numbers back into their unit: the outputs times scale, plus shift."""
    import torch

    from fairkit_similarity.networks import dense_layers

    with torch.no_grad():
        if dense_layers(module) is not None:
            last = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][-1]
            if list(module.modules())[-1] is last:
                last.weight.mul_(scale)
                last.bias.mul_(scale).add_(shift)
                return module
        affine = torch.nn.Linear(1, 1)
        affine.weight.fill_(scale)
        affine.bias.fill_(shift)
    return torch.nn.Sequential(module, _Column(), affine)


def _Column() -> Any:  # noqa: N802 - it stands for a module
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.Unflatten(0, (-1, 1)))
