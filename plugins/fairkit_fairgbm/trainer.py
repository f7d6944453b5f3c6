"""Training: LightGBM's rounds with the proxy Lagrangian's gradient, multipliers moved after every tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.progress import Progress, no_progress
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_fairgbm import kernel
from fairkit_fairgbm.constraints import Multipliers, Rates, scale
from fairkit_repair.learners import light_gbm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit_fairgbm.constraints import ConstraintCells, Constraints


Total = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]

_ALREADY_NONE = "_Booster__set_objective_to_none"
"""LightGBM's note that the objective is "none". Where it is not set, the first `update` with a gradient sets the
objective again, which draws the first tree's columns twice: other trees than stock LightGBM's."""
_FEW_ROWS = 1000
"""Below this, features that cannot be split stay in: with none left LightGBM stops with an error."""


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Encoded rows: matrix [n, d] float32, cells, weights [n] or None."""

    matrix: NDArray[np.float32]
    cells: ConstraintCells
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after some trees, on one set of rows."""

    loss: float  # mean cross-entropy
    error: float  # share of wrong decisions, weighted
    rates: Rates  # true rates at the threshold
    violation: float  # the largest violation; at most 0 where all constraints hold
    gap: float  # the largest difference between two groups' rates
    excess: float  # the violation less one standard error of it: positive where the rows show that it is real
    accepted: float  # share of favorable decisions, weighted; at 0 and at 1 all people are decided alike

    @property
    def is_constant(self) -> bool:
        """Whether all people are decided alike."""
        return self.accepted <= 0.0 or self.accepted >= 1.0

    @property
    def cost(self) -> float:
        """What a round is chosen by: the share of wrong decisions plus the violation."""
        return self.error + max(0.0, self.violation)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """How to train."""

    rounds: int  # trees at most
    multiplier_rate: float
    multiplier_cap: float  # the largest multiplier in the same unit
    follow_validation: bool = False
    patience: int = 0  # stop when so many rounds brought nothing better on validation rows; 0 never stops early
    params: Mapping[str, Any] = field(default_factory=dict)  # lightGBM's own parameters
    categorical: Sequence[int] = ()  # columns of codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A booster and its path."""

    booster: Any  # its trees add to `start`, the log-odds of the favorable share
    start: float
    train: list[Moment]  # one moment for each round, after its tree
    validation: list[Moment]  # the same; empty without validation rows
    multipliers: NDArray[np.float64]  # after every round's step, shape [rounds, constraints * groups + targets]

    @property
    def rounds(self) -> int:
        """How many trees were trained."""
        return len(self.train)


def train(
    rows: TrainingRows,
    constraints: Constraints,
    settings: TrainerSettings,
    *,
    validation: TrainingRows | None = None,
    progress: Progress = no_progress,
) -> Trained:
    """Train under constraints.

    Without constraints the trees are stock LightGBM's: gradient and hessian are computed as it does.
    """
    lightgbm = light_gbm("fairgbm")
    state = State(rows, constraints, settings)
    booster, data = _booster(lightgbm, rows, settings, state.start)
    if validation is not None:
        booster.add_valid(_dataset(lightgbm, validation, settings, state.start, data), "validation")
    path: list[Moment] = []
    for _ in range(settings.rounds):
        if booster.update(fobj=state.objective):
            break  # LightGBM found no split: further rounds would find none either
        if validation is not None:
            path.append(_look(booster, validation, constraints))
            state.validation_rates = path[-1].rates if settings.follow_validation else None
        _show(progress, state, path, settings.rounds)
        if settings.patience and stale(path, settings.patience):
            break
    scores = _captured(booster.eval_train)
    state.finish(scores)
    return Trained(
        booster=booster,
        start=state.start,
        train=state.path,
        validation=path,
        multipliers=np.array(state.steps).reshape(len(state.path), -1),
    )


def better(candidate: Moment, best: Moment | None) -> bool:
    """Tell whether a moment is the better iterate: one that does not decide all people alike, then the smaller cost.

    Not the smaller loss: under constraints the scores far from the threshold matter to the loss alone, and a round in
    which nobody is accepted has no violation.
    """
    if best is None:
        return True
    return (candidate.is_constant, candidate.cost) < (best.is_constant, best.cost)


class State:
    """What the objective carries from round to round: multipliers, path, buffers.

    `total` sums an array over all machines that hold rows; `rows.cells` has their codes here and the weights and
    counts of all. Multipliers are then the same everywhere.
    """

    def __init__(
        self, rows: TrainingRows, constraints: Constraints, settings: TrainerSettings, total: Total = np.asarray
    ) -> None:
        self.rows, self.constraints, self.total = rows, constraints, total
        cells = rows.cells
        self.base = _label_weights(settings.params, cells)
        self.start = _start(cells.weight, settings.params)
        speed = settings.multiplier_rate * float(settings.params.get("learning_rate", 0.1))
        self.speed = scale(constraints, cells, speed)
        self.limits = scale(constraints, cells, settings.multiplier_cap)
        self.multipliers = Multipliers.zero(constraints, cells)
        self.gradient = np.empty(len(cells.codes), dtype=np.float32)
        self.hessian = np.empty(len(cells.codes), dtype=np.float32)
        self.path: list[Moment] = []
        self.steps: list[NDArray[np.float64]] = []
        self.calls = 0
        self.validation_rates: Rates | None = None

    def objective(self, scores: NDArray[np.float64], _: Any) -> tuple[Any, Any]:
        """Return for LightGBM the gradient at the scores; from the second round on the multipliers step first."""
        cells = self.rows.cells
        positive = self._count(scores)
        rates = self._followed(positive)
        if self.calls:
            self._step(rates)
        error, pressed = self.constraints.coefficients(self.multipliers, rates, cells)
        loss = kernel.gradients(
            scores,
            cells.codes,
            self.rows.weights,
            base=self.base,
            error=error,
            positive=pressed,
            gradient=self.gradient,
            hessian=self.hessian,
        )
        if self.calls:
            self._note(positive, self._whole(loss))
        self.calls += 1
        return self.gradient, self.hessian

    def finish(self, scores: NDArray[np.float64]) -> None:
        """Take the last round's step."""
        if self.calls > len(self.path):
            positive = self._count(scores)
            self._step(self._followed(positive))
            loss = kernel.total_loss(scores, self.rows.cells.codes, self.rows.weights)
            self._note(positive, self._whole(loss))

    def _followed(self, positive: NDArray[np.float64]) -> Rates:
        """Return the rates that violations and the worst group are told by."""
        return self.validation_rates or self.constraints.true_rates(positive, self.rows.cells)

    def _count(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        cells = self.rows.cells
        return self.total(kernel.count_positive(scores, cells.codes, self.rows.weights, len(cells.weight)))

    def _whole(self, loss: float) -> float:
        return float(self.total(np.array([loss]))[0])

    def _step(self, rates: Rates) -> None:
        self.multipliers = self.multipliers.step(self.constraints, rates, self.speed, self.limits)

    def _note(self, positive: NDArray[np.float64], loss: float) -> None:
        self.path.append(moment(positive, loss, self.rows.cells, self.constraints))
        self.steps.append(np.concatenate([self.multipliers.by_group.ravel(), self.multipliers.overall]))


def moment(positive: NDArray[np.float64], loss: float, cells: ConstraintCells, constraints: Constraints) -> Moment:
    """Return the state from the weight of positive predictions in every cell and the summed loss."""
    rates = constraints.true_rates(positive, cells)
    wrong = positive[0::2].sum() + (cells.weight - positive)[1::2].sum()
    return Moment(
        loss=loss / cells.total,
        error=wrong / cells.total,
        rates=rates,
        violation=constraints.worst(rates),
        gap=constraints.gap(rates),
        excess=constraints.excess(rates, cells),
        accepted=float(positive.sum() / cells.total),
    )


def _look(booster: Any, rows: TrainingRows, constraints: Constraints) -> Moment:
    """Measure the current iterate on validation rows."""
    scores = _captured(booster.eval_valid)
    cells = rows.cells
    positive = kernel.count_positive(scores, cells.codes, rows.weights, len(cells.weight))
    return moment(positive, kernel.total_loss(scores, cells.codes, rows.weights), cells, constraints)


def _captured(evaluate: Callable[..., Any]) -> NDArray[np.float64]:
    """Get the booster's current scores: LightGBM hands them to an evaluation function."""
    captured: list[NDArray[np.float64]] = []

    def catch(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
        captured.append(scores)
        return "scores", 0.0, False

    evaluate(feval=catch)
    return captured[0]


def _booster(lightgbm: Any, rows: TrainingRows, settings: TrainerSettings, start: float) -> tuple[Any, Any]:
    params = dict(settings.params) | {"objective": "none", "metric": "none"}
    data = _dataset(lightgbm, rows, settings, start, None).construct()
    if all(data.feature_num_bin(index) < 2 for index in range(rows.matrix.shape[1])):
        raise DataError(f"all {rows.matrix.shape[1]} features are constant in the training rows; nothing to learn")
    booster = lightgbm.Booster(params=params, train_set=data)
    if hasattr(booster, _ALREADY_NONE):
        setattr(booster, _ALREADY_NONE, True)
    return booster, data


def _dataset(lightgbm: Any, rows: TrainingRows, settings: TrainerSettings, start: float, reference: Any) -> Any:
    """Return LightGBM's form of the rows; validation rows take everything else from their reference."""
    codes = rows.cells.codes
    if reference is None:
        params = {"feature_pre_filter": len(codes) >= _FEW_ROWS} | dict(settings.params) | {"objective": "none"}
        arguments: dict[str, Any] = {"categorical_feature": list(settings.categorical), "params": params}
    else:
        arguments = {"reference": reference, "params": reference.params}
    labels = (codes & 1).astype(np.float32)
    return lightgbm.Dataset(
        rows.matrix, labels, weight=rows.weights, init_score=np.full(len(codes), start), **arguments
    )


def _label_weights(params: Mapping[str, Any], cells: ConstraintCells) -> NDArray[np.float64]:
    """Do for our objective what LightGBM's own does with scale_pos_weight and is_unbalance."""
    weights = np.ones(len(cells.weight))
    if params.get("is_unbalance"):
        negative, positive = cells.counts[0::2].sum(), cells.counts[1::2].sum()
        if positive > negative:
            weights[0::2] = positive / negative
        else:
            weights[1::2] = negative / positive
    weights[1::2] *= float(params.get("scale_pos_weight", 1.0))
    return weights


def _start(weight: NDArray[np.float64], params: Mapping[str, Any]) -> float:
    """Return the log-odds that LightGBM begins with (its boost_from_average)."""
    if not params.get("boost_from_average", True):
        return 0.0
    share = min(max(weight[1::2].sum() / weight.sum(), 1e-15), 1 - 1e-15)
    return math.log(share / (1 - share))


def _show(progress: Progress, state: State, path: list[Moment], rounds: int) -> None:
    latest = path[-1] if path else (state.path[-1] if state.path else None)
    numbers = {} if latest is None else {"loss": latest.loss, "violation": max(0.0, latest.violation)}
    progress("training rounds", state.calls, rounds, **numbers)


def stale(path: list[Moment], patience: int) -> bool:
    """Tell whether the last `patience` rounds brought nothing better."""
    best, best_index = None, 0
    for number, candidate in enumerate(path):
        if better(candidate, best):
            best, best_index = candidate, number
    return len(path) - 1 - best_index >= patience
