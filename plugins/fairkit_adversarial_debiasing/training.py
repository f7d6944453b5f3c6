"""The training: network and adversaries in turn, and the networks on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_adversarial_debiasing.adversary import update
from fairkit_repair.learners.networks import one_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.progress import Progress
    from fairkit_adversarial_debiasing.groups import Protected

Tensor = Any

LOOKS = 4
"""How often in an epoch the network is kept as one to choose from."""
DIVERGED = 1e6
"""A loss above this, or one that is no number, ends the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """How to train; see the plugin's parameters of the same names."""

    adversary_weight: float
    projection: bool
    warm_up: float
    adversary_rate: float
    rate: float
    epochs: int
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """A network on the way."""

    epoch: float  # how far training was, in epochs
    weight: float  # α then
    loss: float
    adversary: float
    state: dict[str, Tensor]  # the network's parameters
    accuracy: float  # on the rows that choose
    disparity: float  # on the rows that choose
    constant: bool  # whether it decides all of them alike


def train(
    network: Any,
    adversaries: Sequence[Any],
    x: NDArray[np.float32],
    target: NDArray[np.float64],
    share: NDArray[np.float64],
    protected: Sequence[Protected],
    settings: TrainingSettings,
    measure: Callable[[Any], tuple[float, float, bool]],
    *,
    device: Any,
    seed: int,
    threads: int | None,
    progress: Progress,
) -> tuple[list[Stage], tuple[str, ...]]:
    """Train a network in place, and return the networks on the way."""
    import torch

    def put(values: NDArray[Any], kind: Any) -> Tensor:
        return torch.as_tensor(values, dtype=kind, device=device)

    rows = [put(x, torch.float32), put(target, torch.float32), put(share, torch.float32)]
    attributes = [(put(one.codes, torch.int64), put(one.share, torch.float32)) for one in protected]
    with torch.random.fork_rng(devices=[]), one_pool(network, settings.batch, threads):
        torch.manual_seed(seed)
        network.to(device)
        for one in adversaries:
            one.to(device)
        run = _Run(network, adversaries, rows, attributes, [math.log(one.count) for one in protected], settings)
        try:
            return run.all_epochs(measure, np.random.default_rng([seed, 1]), progress)
        finally:
            network.cpu().eval()


class _Run:
    """The state of one training."""

    def __init__(
        self,
        network: Any,
        adversaries: Sequence[Any],
        rows: list[Tensor],
        attributes: list[tuple[Tensor, Tensor]],
        nothing: list[float],
        settings: TrainingSettings,
    ) -> None:
        import torch

        self.network, self.adversaries, self.settings = network, adversaries, settings
        self.rows, self.asked, self.nothing = rows, attributes, nothing
        self.weights = list(network.parameters())
        self.opponents = [part for one in adversaries for part in one.parameters()]
        self.optimizer = torch.optim.Adam(self.weights, settings.rate)
        self.opposing = torch.optim.Adam(self.opponents, settings.adversary_rate) if self.opponents else None

    def all_epochs(
        self, measure: Callable[[Any], tuple[float, float, bool]], rng: np.random.Generator, progress: Progress
    ) -> tuple[list[Stage], tuple[str, ...]]:
        settings, stages = self.settings, list[Stage]()
        count = max(1, len(self.rows[0]) // settings.batch)
        looks = {round((look + 1) * count / LOOKS) for look in range(LOOKS)} - {0}
        for epoch in range(settings.epochs):
            order = rng.permutation(len(self.rows[0]))
            totals: list[tuple[float, float]] = []
            for batch in range(count):
                done = (epoch + batch / count) / settings.epochs
                totals.append(self._step(order[batch * settings.batch : (batch + 1) * settings.batch], done))
                if batch + 1 not in looks:
                    continue
                loss, adversary = np.mean(totals, axis=0).tolist()
                if not loss < DIVERGED:
                    at = epoch + (batch + 1) / count
                    return stages, (
                        f"The training diverged in epoch {at:.3g} (its loss reached {loss:.3g}) and was stopped. Try "
                        f"a smaller rate than {settings.rate:g}, or a smaller adversary_weight than "
                        f"{settings.adversary_weight:g}.",
                    )
                stages.append(self._stage(epoch + (batch + 1) / count, done, loss, adversary, measure))
                totals = []
            progress("training epochs", epoch + 1, settings.epochs, loss=stages[-1].loss)
        return stages, ()

    def _weight(self, done: float) -> float | None:
        """Return α, which grows evenly after the warm-up; None during it."""
        settings = self.settings
        if done < settings.warm_up or not self.adversaries:
            return None
        return settings.adversary_weight * (done - settings.warm_up) / (1 - settings.warm_up)

    def _step(self, picked: NDArray[np.int64], done: float) -> tuple[float, float]:
        """Take one step of the network and of its adversaries; return their losses."""
        import torch
        from torch.nn import functional

        index = torch.as_tensor(picked, device=self.rows[0].device)
        x, y, share = (part[index] for part in self.rows)
        logit = self.network(x)[:, 0]
        loss = (functional.binary_cross_entropy_with_logits(logit, y, reduction="none") * share).mean()
        slopes = list(torch.autograd.grad(loss, self.weights, retain_graph=bool(self.adversaries)))
        adversary_loss = 0.0
        if self.opposing is not None:
            against = self._against(logit, y, index)
            adversary_loss = float(against.detach())
            gradients = torch.autograd.grad(against, [*self.weights, *self.opponents])
            weight = self._weight(done)
            if weight is not None:
                slopes = update(slopes, gradients[: len(self.weights)], weight, projection=self.settings.projection)
            _descend(self.opposing, self.opponents, gradients[len(self.weights) :])
        self.optimizer.param_groups[0]["lr"] = self.settings.rate * (1 - 0.9 * done)
        _descend(self.optimizer, self.weights, slopes)
        return float(loss.detach()), adversary_loss

    def _against(self, logit: Tensor, y: Tensor, index: Tensor) -> Tensor:
        """Return the adversaries' mean loss, each in units of what one that knows nothing has."""
        from torch.nn import functional

        parts = [
            (functional.cross_entropy(one(logit, y), codes[index], reduction="none") * share[index]).mean() / most
            for one, (codes, share), most in zip(self.adversaries, self.asked, self.nothing, strict=True)
        ]
        return sum(parts[1:], parts[0]) / len(parts)

    def _stage(
        self,
        epoch: float,
        done: float,
        loss: float,
        adversary: float,
        measure: Callable[[Any], tuple[float, float, bool]],
    ) -> Stage:
        accuracy, disparity, constant = measure(self.network)
        return Stage(
            epoch=epoch,
            weight=self._weight(done) or 0.0,
            loss=loss,
            adversary=adversary,
            state={name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()},
            accuracy=accuracy,
            disparity=disparity,
            constant=constant,
        )


def _descend(optimizer: Any, parameters: Sequence[Tensor], slopes: Sequence[Tensor]) -> None:
    for one, slope in zip(parameters, slopes, strict=True):
        one.grad = slope
    optimizer.step()
