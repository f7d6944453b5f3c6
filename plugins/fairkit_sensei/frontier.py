"""The frontier over several ρ: performance against how differently similar people are treated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.intervals import student, two_sided
from fairkit.support.lazy_dataclass import dataclass
from fairkit_onnx.write.export import TabularModel
from fairkit_repair.learners import one_pool
from fairkit_sensei.counterfactuals import ColumnFlips
from fairkit_similarity.networks import squared_difference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Flip, Versions
    from fairkit_similarity.metric import FairMetric, Geometry

    Array = NDArray[np.float64]


MEASURED_ROWS = 2_000
"""Disparities are measured on at most so many rows, drawn from the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A network on some rows."""

    performance: float  # balanced accuracy; in regression the mean squared error
    performance_interval: tuple[float, float]
    disparity: float
    disparity_interval: tuple[float, float]
    rows: int  # how many rows the disparity was measured on

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Yardstick:
    """How networks are measured."""

    task: Task  # what the numbers mean
    encoder: Encoder  # from raw columns to features
    geometry: Geometry | None  # for R(ε); None under counterfactual logit pairing
    epsilon: float
    flips: Sequence[Flip]  # for the mean over counterfactuals; used where there is no geometry
    seed: int  # which rows are measured
    versions: Versions | None = None  # counterfactual rows of a file in place of `flips`

    def measure(self, module: Any, table: Table, confidence: float) -> Measured:
        """Measure a network on raw rows."""
        import torch

        from fairkit_similarity.networks import as_matrix

        features = self.encoder.transform(table.columns)
        with torch.no_grad():
            outputs = as_matrix(module(torch.from_numpy(features))).double().numpy()
        performance = _performance(outputs, table, self.task, confidence)
        rng = np.random.default_rng([self.seed, 2])
        rows = np.arange(len(table)) if self.versions is None else self.versions.known(features)
        if len(rows) > MEASURED_ROWS:
            rows = np.sort(rng.choice(rows, MEASURED_ROWS, replace=False))
        weights = table.row_weights()[rows]
        weights = weights / weights.sum()
        offset, gains = self._gains(module, features[rows], table, rows, weights, rng)
        mean, half = _mean(gains, weights, confidence)
        return Measured(
            performance=performance[0],
            performance_interval=performance[1],
            disparity=offset + mean,
            disparity_interval=(max(offset + mean - half, 0.0), offset + mean + half),
            rows=len(rows),
        )

    def _gains(
        self,
        module: Any,
        features: NDArray[np.float32],
        table: Table,
        rows: NDArray[np.int64],
        weights: Array,
        rng: np.random.Generator,
    ) -> tuple[float, Array]:
        """Return λε and what each row adds, whose weighted mean with it is the disparity."""
        import torch

        from fairkit_similarity.ascent import Frame
        from fairkit_similarity.networks import as_matrix, as_network
        from fairkit_similarity.outside import search_outside

        x = torch.from_numpy(features)
        if self.geometry is None:
            if self.versions is not None:
                counterpart = self.versions.of(features).draw(x, np.arange(len(rows)), rng)
            elif self.flips:
                counterpart = ColumnFlips(self.flips, self.encoder, table.columns).draw(x, rows, rng)
            else:
                return 0.0, np.zeros(len(rows))
            with torch.no_grad():
                gap = as_matrix(module(counterpart)) - as_matrix(module(x))
            return 0.0, squared_difference(gap, logits=self.task != "regression")[0].double().numpy()
        frame = Frame.of(self.geometry, x)
        choice = search_outside(
            as_network(module),
            x,
            frame,
            self.epsilon,
            weights=weights,
            steps=20,
            rounds=5,
            tolerance=0.01,
            logits=self.task != "regression",
        ).choice
        return (choice.multiplier * self.epsilon if self.epsilon > 0 else 0.0), choice.contributions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """The networks of one run over several ρ."""

    rhos: tuple[float, ...]  # each ρ
    modules: tuple[Any, ...]  # its network
    chosen: float  # the ρ whose network is the result
    yardstick: Yardstick  # how they are measured

    def measure(self, table: Table, confidence: float) -> list[Measured]:
        """Measure every network on the same rows."""
        with one_pool(self.modules[0], 1, None):
            return [self.yardstick.measure(module, table, confidence) for module in self.modules]

    def measurable(self, table: Table) -> bool:
        """Tell whether a row has what the disparity is measured with: another version, where those are in a file."""
        versions = self.yardstick.versions
        return versions is None or len(versions.known(self.yardstick.encoder.transform(table.columns))) > 0

    def to_dict(self, train: Sequence[Measured], test: Sequence[Measured] | None) -> dict[str, Any]:
        """Return plain JSON values, schema ``fairkit.sensei-frontier/1``."""
        return {
            "schema": "fairkit.sensei-frontier/1",
            "performance": "mean_squared_error" if self.yardstick.task == "regression" else "balanced_accuracy",
            "disparity": "dif" if self.yardstick.geometry is not None else "counterfactual",
            "epsilon": self.yardstick.epsilon,
            "chosen": self.chosen,
            "points": [
                {"rho": rho, "train": train[index].to_dict(), "test": None if test is None else test[index].to_dict()}
                for index, rho in enumerate(self.rhos)
            ],
        }


def _performance(outputs: Array, table: Table, task: Task, confidence: float) -> tuple[float, tuple[float, float]]:
    weights = table.row_weights()
    if task == "regression":
        mean, half = _mean((outputs[:, 0] - table.target) ** 2, weights / weights.sum(), confidence)
        return mean, (max(mean - half, 0.0), mean + half)
    decided = outputs.argmax(axis=1) if outputs.shape[1] > 1 else (outputs[:, 0] >= 0).astype(np.int64)
    right = (decided == table.target).astype(np.float64)
    rates, errors = [], []
    for one in np.unique(table.target[weights > 0]):
        inside = (table.target == one) & (weights > 0)
        share = weights[inside] / weights[inside].sum()
        rates.append(float(share @ right[inside]))
        errors.append(float(share @ share) * rates[-1] * (1 - rates[-1]))
    value = float(np.mean(rates))
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(sum(errors)) / len(rates)
    return value, (max(value - half, 0.0), min(value + half, 1.0))


def _mean(values: Array, weights: Array, confidence: float) -> tuple[float, float]:
    """Return a weighted mean, weights of sum 1, and the half-width of its Student interval."""
    mean = float(weights @ values)
    error = math.sqrt(float(weights**2 @ (values - mean) ** 2))
    count = 1.0 / float(weights @ weights)
    return mean, float(student(two_sided(confidence), np.array([count]))[0]) * error


def sentence(frontier: Mapping[str, Any]) -> str:
    """Say where the chosen point lies among the others, on held-out rows."""
    points = [point for point in frontier["points"] if point["test"] is not None]
    shown = "; ".join(
        f"rho {point['rho']:g}: {point['test']['performance']:.3f} and {point['test']['disparity']:.3g}"
        for point in points
    )
    what = frontier["performance"].replace("_", " ")
    return f"The frontier on held-out rows, {what} and disparity: {shown}."


# What a training takes and gives: settings, encoded rows, the trained network with its history.


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


# The trained network with its encoder, and the frontier beside it.


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel(TabularModel):
    """An encoder, and a torch module behind it (`estimator`)."""

    metric: FairMetric | None = None  # the fair metric that it was trained under; None for the plain network
    frontier: Frontier | None = None  # all networks of a run over several ρ; None for one ρ
    train: Sequence[Measured] = ()  # their measurements on the training rows
    audited_at: float | None = None

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Measure `dif`, which the training bounds, under the metric and the budget of training."""
        if self.metric is None or self.audited_at is None:
            return {}
        path = folder / "fair-metric.json"
        self.metric.save(path)
        return {"dif": {"epsilon": (self.audited_at,), "fair_metric": str(path)}}

    def held_out(self, table: Table, confidence: float) -> Mapping[str, Any]:
        """Measure every network of the frontier on held-out rows."""
        if self.frontier is None:
            return {}
        if not self.frontier.measurable(table):
            note = (
                f"No held-out row has another version in {self.frontier.yardstick.versions.name}: the frontier's "  # type: ignore[union-attr]
                "disparities are those of the training rows."
            )
            return {"frontier": self.frontier.to_dict(self.train, None), "notes": [note]}
        record = self.frontier.to_dict(self.train, self.frontier.measure(table, confidence))
        return {"frontier": record, "notes": [sentence(record)]}

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the frontier as JSON, to stand beside the file; the page of the mitigation draws it."""
        import json

        record = details.get("frontier")
        if record is None:
            return {}
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return {".frontier.json": text}


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
