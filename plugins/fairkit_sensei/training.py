"""The training loop: SenSeI, SenSR, counterfactual logit pairing, and the plain network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.progress import no_progress
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_repair.learners import device_for, one_pool
from fairkit_sensei.metric import stepper
from fairkit_sensei.networks import SenSeIRows, SenSeISettings, Trained
from fairkit_similarity.ascent import Disparity, Frame, Origin, output_directions, worst_case
from fairkit_similarity.networks import check_module, squared_difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.progress import Progress
    from fairkit_sensei.counterfactuals import Counterfactuals
    from fairkit_similarity.ascent import AscentResult, Reward
    from fairkit_similarity.metric import Geometry


Tensor = Any

VALIDATION_ROWS = 4_096
"""At most so many validation rows are looked at after an epoch."""

DIVERGED = 1e6
"""A mean objective above this, or one that is no number, ends the training."""


def train(
    module: Any,
    rows: SenSeIRows,
    settings: SenSeISettings,
    *,
    geometry: Geometry | None = None,
    counterfactuals: Counterfactuals | None = None,
    validation: SenSeIRows | None = None,
    regression: bool = False,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Trained:
    """Train a network in place."""
    import torch

    settings = settings.resolved(len(rows.target), 1 if regression else int(rows.target.max()) + 1)
    run = _Run.prepare(module, rows, settings, geometry, counterfactuals, validation, regression, seed)
    with torch.random.fork_rng(devices=[]), one_pool(module, settings.batch or 1, threads), torch.no_grad():
        torch.manual_seed(seed)
        try:
            return run.all_epochs(progress)
        finally:
            module.cpu().eval()


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """The state of one training."""

    module: Any
    rows: SenSeIRows
    settings: SenSeISettings
    frame: Frame | None
    counterfactuals: Counterfactuals | None
    validation: SenSeIRows | None
    regression: bool
    seed: int
    x: Tensor
    y: Tensor
    outputs: int
    multiplier: float
    moves: tuple[Tensor, Tensor] | None = None
    steps: Any = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def prepare(
        cls,
        module: Any,
        rows: SenSeIRows,
        settings: SenSeISettings,
        geometry: Geometry | None,
        counterfactuals: Counterfactuals | None,
        validation: SenSeIRows | None,
        regression: bool,
        seed: int,
    ) -> _Run:
        """Check that all fits together, and put it on the device."""
        import torch

        classes = 1 if regression else int(rows.target.max()) + 1
        accepted = (1,) if regression else (1, 2) if classes == 2 else (classes,)
        outputs = check_module(module, rows.x.shape[1], accepted)
        if settings.method in ("sensei", "sensr") and geometry is None:
            raise ParameterError(f"method={settings.method} needs a fair metric")
        if settings.method == "clp" and counterfactuals is None:
            raise ParameterError("method=clp needs counterfactuals: name the columns to flip, as in sensitive=sex")
        if geometry is not None and geometry.width != rows.x.shape[1]:
            raise DataError(
                f"the fair metric is for {geometry.width} features, but there are {rows.x.shape[1]}: learn the "
                "metric on the features that the network gets"
            )
        device = device_for(settings.device)
        module.to(device=device, dtype=torch.float32).eval()
        x = torch.as_tensor(rows.x, device=device)
        y = torch.as_tensor(rows.target.astype(np.float32 if regression else np.int64), device=device)
        return cls(
            module=module,
            rows=rows,
            settings=settings,
            frame=None if geometry is None else Frame.of(geometry, x),
            counterfactuals=counterfactuals,
            validation=validation,
            regression=regression,
            seed=seed,
            x=x,
            y=y,
            outputs=outputs,
            multiplier=1.0 / _weight(settings) if settings.multiplier is None else settings.multiplier,
        )

    def all_epochs(self, progress: Progress) -> Trained:
        """Train until the last epoch, until patience ends, or until the objective diverges."""
        settings, epochs = self.settings, self.settings.epochs or 1
        self.steps = stepper(self.module, settings.rate, settings.weight_decay)
        rng = np.random.default_rng([self.seed, 1])
        classes = np.zeros(len(self.rows.target), np.int64)
        if not self.regression:
            classes = self.rows.target.astype(np.int64)
        batches = BalancedBatches(classes, settings.batch or 1, rng, self.rows.weights)
        self._warm()
        history: list[dict[str, float]] = []
        best, least, best_state = 0, math.inf, self.steps.state()
        for epoch in range(1, epochs + 1):
            record = self._epoch(batches, rng)
            if not record["objective"] < DIVERGED:
                self.notes.append(
                    f"The training diverged in epoch {epoch} (its objective reached {record['objective']:.3g}): it was "
                    f"stopped, and the network of epoch {best} is kept. Try a smaller rate than {settings.rate:g}."
                )
                break
            record["validation"] = self._validate()
            history.append(record)
            progress("training epochs", epoch, epochs, loss=record["loss"], disparity=record["disparity"])
            if self.validation is None or record["validation"] < least:
                best, least, best_state = epoch, record["validation"], self.steps.state()
            elif epoch - best >= (settings.patience or 1):
                break
        self.steps.restore(best_state)
        return Trained(module=self.module, history=history, best=best, notes=tuple(self.notes))

    @property
    def _searches(self) -> bool:
        return self.settings.method == "sensr" or (self.settings.method == "sensei" and self.settings.rho > 0)

    def _warm(self) -> None:
        if self._searches and self.settings.warm_start and self.frame is not None:
            rows = len(self.x)
            widths = self.frame.free.shape[1], len(self.frame.price)
            self.moves = (self.x.new_zeros(rows, widths[0]), self.x.new_zeros(rows, widths[1]))

    def _epoch(self, batches: BalancedBatches, rng: np.random.Generator) -> dict[str, float]:
        import torch

        totals = torch.zeros(3, device=self.x.device)
        for rows in batches.epoch():
            index = torch.as_tensor(rows, device=self.x.device)
            totals += self._batch(index, rows, rng)
        loss, disparity, distance = (totals / batches.count).tolist()
        weight = 0.0 if self.settings.method in ("sensr", "erm") else self.settings.rho
        return {
            "objective": loss + weight * disparity,
            "loss": loss,
            "disparity": disparity,
            "distance": distance,
            "multiplier": self.multiplier,
        }

    def _batch(self, index: Tensor, rows: NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Take one step; return the mean loss, d_Y and d²."""
        import torch

        method, rho = self.settings.method, self.settings.rho
        x, y = self.x[index], self.y[index]
        loss = loss_for(self.outputs, regression=self.regression)
        distance = x.new_zeros(())
        counterpart: Tensor | None = None
        if self._searches and self.frame is not None:
            result = self._search(x, y, index)
            distance = result.cost.mean()
            counterpart = result.moved(x, self.frame)
            self._ascend(float(distance))
        elif method == "clp" and rho > 0:
            assert self.counterfactuals is not None  # noqa: S101 -- checked in `prepare`
            counterpart = self.counterfactuals.draw(x, rows, rng)
        count = len(x)
        if method == "sensr":
            outputs = self.steps.outputs(counterpart)
            value, up = loss(outputs, y)
            self.steps.step(up / count)
            return torch.stack([value.mean(), distance.new_zeros(()), distance])
        if counterpart is None:
            value, up = loss(self.steps.outputs(x), y)
            self.steps.step(up / count)
            return torch.stack([value.mean(), distance, distance])
        here, there = self.steps.outputs(torch.cat([x, counterpart])).split(count)
        value, up = loss(here, y)
        disparity, slope = squared_difference(there - here, logits=not self.regression)
        pull = slope * (rho / count)
        self.steps.step(torch.cat([up / count - pull, pull]))
        return torch.stack([value.mean(), disparity.mean(), distance])

    def _ascend(self, distance: float) -> None:
        """λ ← max(0, λ - η_λ ρ (ε - mean d²)); ρ counts as 1 in SenSR."""
        weight = _weight(self.settings)
        rate = self.settings.multiplier_rate
        step = (0.05 / weight**2 if rate is None else rate) * weight
        if math.isfinite(distance):
            self.multiplier = max(0.0, self.multiplier - step * (self.settings.epsilon - distance))

    def _search(self, x: Tensor, y: Tensor, index: Tensor | None) -> AscentResult:
        """Find x' for some rows; `index` names their last moves, for a warm start."""
        assert self.frame is not None  # noqa: S101 -- checked in `prepare`
        settings, network = self.settings, self.steps.network
        origin = Origin.of(network, x)
        reward: Reward = (
            LossReward(loss_for(self.outputs, regression=self.regression), y)
            if settings.method == "sensr"
            else Disparity(origin.outputs, output_directions(origin.outputs), logits=not self.regression)
        )
        start = None
        if self.moves is not None and index is not None:
            start = (self.moves[0][index], self.moves[1][index])
        ascent = worst_case(
            network,
            origin,
            x,
            reward,
            self.frame,
            multiplier=self.multiplier,
            epsilon=settings.epsilon,
            free_steps=settings.free_steps,
            steps=settings.steps,
            start=start,
        )
        if self.moves is not None and index is not None:
            self.moves[0][index], self.moves[1][index] = ascent.s, ascent.t
        return ascent

    def _validate(self) -> float:
        """Return the objective on validation rows, classes in balance; by duality any λ gives an upper bound."""
        import torch

        if self.validation is None:
            return math.nan
        rows = self.validation
        part = slice(0, VALIDATION_ROWS)
        x = torch.as_tensor(rows.x[part], device=self.x.device)
        target = rows.target[part]
        y = torch.as_tensor(target.astype(np.float32 if self.regression else np.int64), device=self.x.device)
        weights = torch.as_tensor(_balanced(rows, part, self.regression), device=self.x.device)
        settings = self.settings
        loss = loss_for(self.outputs, regression=self.regression)
        network = self.steps.network
        if not self._searches:
            value = loss(network.tail(network.root(x))[0], y)[0]
            return float(weights @ value)
        result = self._search(x, y, None)
        worst = settings.epsilon * self.multiplier + result.reward - self.multiplier * result.cost
        if settings.method == "sensr":
            return float(weights @ worst)
        value = loss(network.tail(network.root(x))[0], y)[0]
        return float(weights @ (value + settings.rho * worst))


def _weight(settings: SenSeISettings) -> float:
    """What the regulariser counts against the loss: ρ, or 1 in SenSR."""
    return settings.rho if settings.method == "sensei" and settings.rho > 0 else 1.0


def _balanced(rows: SenSeIRows, part: slice, regression: bool) -> NDArray[np.float32]:
    """Weights of sum 1 that give every class the same share, as the batches do."""
    weights = np.ones(len(rows.target)) if rows.weights is None else rows.weights
    weights = weights[part].astype(np.float64)
    if weights.sum() == 0:
        weights = np.ones(len(weights))
    if not regression:
        codes = rows.target[part].astype(np.int64)
        weights /= np.maximum(np.bincount(codes, weights)[codes], 1e-300)
    return np.asarray(weights / weights.sum(), dtype=np.float32)


# Mini-batches in which every class has the same number of rows.


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
        weights_here = None if weights is None else weights[rows]
        self.chance = (
            None if weights_here is None or weights_here.sum() == 0 else np.cumsum(weights_here) / weights_here.sum()
        )

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        if self.chance is not None:
            places = np.searchsorted(self.chance, rng.random(count), side="right")
            return self.rows[np.minimum(places, len(self.rows) - 1)]
        rounds = -(-count // len(self.rows))
        return np.concatenate([rng.permutation(self.rows) for _ in range(rounds)])[:count]


# Losses of a network's outputs with their gradients, for one logit, several logits, and numbers.


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss ℓ(y, outputs), row by row."""

    name: str  # `cross_entropy` (K logits), `logistic` (one logit) or `squared`
    evaluate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

    def __call__(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient."""
        return self.evaluate(outputs, target)


def loss_for(outputs: int, *, regression: bool) -> Loss:
    """Choose the loss by the number of outputs."""
    if regression:
        return Loss("squared", _squared)
    return Loss("logistic", _logistic) if outputs == 1 else Loss("cross_entropy", _cross_entropy)


class LossReward:
    """The loss at x' as what the search makes large (SenSR); see `fairkit_similarity.ascent.Reward`."""

    def __init__(self, loss: Loss, target: Tensor) -> None:
        self.loss, self.target = loss, target

    def __call__(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and its gradient."""
        return self.loss(outputs, self.target)

    def toward(self, outputs: Tensor) -> Tensor:
        """Set out where the loss grows."""
        return self.loss(outputs, self.target)[1]


def _cross_entropy(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logs = outputs.log_softmax(dim=1)
    target_column = target.unsqueeze(1)
    slope = logs.exp()
    slope.scatter_add_(1, target_column, slope.new_full(target_column.shape, -1.0))
    return -logs.gather(1, target_column).squeeze(1), slope


def _logistic(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    import torch

    logit, yes = outputs.squeeze(1), target.to(outputs.dtype)
    return torch.nn.functional.softplus(logit) - yes * logit, (logit.sigmoid() - yes).unsqueeze(1)


def _squared(outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    gap = outputs - target.unsqueeze(1)
    return gap.square().mean(dim=1), gap * (2.0 / gap.shape[1])
