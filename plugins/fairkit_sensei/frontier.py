"""The frontier over several ρ: performance against how differently similar people are treated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.intervals import student, two_sided
from fairkit_repair.learners.networks import one_pool
from fairkit_sensei.counterfactuals import ColumnFlips
from fairkit_similarity.outputs import squared_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Flip
    from fairkit_sensei.versions import Versions
    from fairkit_similarity.geometry import Geometry

    Array = NDArray[np.float64]

MEASURED_ROWS = 2_000
"""Disparities are measured on at most so many rows, drawn from the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A network on some rows."""

    performance: float  # balanced accuracy; in regression the mean squared error
    performance_interval: tuple[float, float]  # balanced accuracy; in regression the mean squared error
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

    task: Task  # what the numbers mean, and from raw columns to features
    encoder: Encoder  # what the numbers mean, and from raw columns to features
    geometry: Geometry | None  # for R(ε); None under counterfactual logit pairing
    epsilon: float  # for R(ε); None under counterfactual logit pairing
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

    rhos: tuple[float, ...]  # each ρ and its network
    modules: tuple[Any, ...]  # each ρ and its network
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
