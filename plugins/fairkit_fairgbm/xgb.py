"""Training on XGBoost, on one machine or inside an XGBoost collective: Dask's, Spark's, Ray's.

The objective, an evaluation function and a callback share one `State` in each process. What they sum over the rows
(cells, rates, losses) goes through `xgboost.collective.allreduce`, so that all processes move the same multipliers.
A row's label is its cell, ``2 * group + label``: that is all that the objective needs besides the scores, and it
travels with the rows wherever XGBoost puts them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.progress import Progress, no_progress
from fairkit_fairgbm import kernel
from fairkit_fairgbm.constraints import ConstraintCells, Rates
from fairkit_fairgbm.trainer import Moment, State, Trained, TrainingRows, moment, stale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_fairgbm.constraints import Constraints
    from fairkit_fairgbm.trainer import TrainerSettings

PATH = "fairkit_fairgbm_path"
"""The booster's attribute that carries the path of a training elsewhere."""

_JOBS: dict[str, _Job] = {}
"""The jobs that run in this process, by name: hooks are pickled apart from each other, and find each other here."""


def train(
    rows: TrainingRows,
    constraints: Constraints,
    settings: TrainerSettings,
    *,
    validation: TrainingRows | None = None,
    progress: Progress = no_progress,
) -> Trained:
    """Train on one machine; see `fairkit_fairgbm.trainer.train`."""
    import xgboost

    hooks = Hooks(f"one machine {uuid.uuid4().hex}", constraints, settings, rows.cells.names)
    start = start_of(rows.cells.weight)
    data = _matrix(xgboost, rows, settings)
    evals = [] if validation is None else [(_matrix(xgboost, validation, settings, data), "validation")]
    try:
        booster = xgboost.train(
            hooks.params(start),
            data,
            num_boost_round=settings.rounds,
            obj=hooks.objective,
            evals=evals,
            custom_metric=hooks.metric if evals else None,
            callbacks=[hooks.callback(progress)],
            verbose_eval=False,
        )
    finally:
        _JOBS.pop(hooks.job, None)
    return trained(booster, start)


def start_of(weight: NDArray[np.float64]) -> float:
    """Return the log-odds of the favorable share, in single precision as XGBoost keeps them."""
    share = min(max(weight[1::2].sum() / weight.sum(), 1e-15), 1 - 1e-15)
    return float(np.float32(np.log(share / (1 - share))))


def trained(booster: Any, start: float) -> Trained:
    """Read the path off a booster."""
    record = json.loads(booster.attr(PATH))
    booster.set_attr(**{PATH: None})
    path = [_moment_of(one) for one in record["train"]]
    return Trained(
        booster=booster,
        start=start,
        train=path,
        validation=[_moment_of(one) for one in record["validation"]],
        multipliers=np.array(record["multipliers"]).reshape(len(path), -1),
    )


@dataclass(frozen=True, slots=True)
class Hooks:
    """What XGBoost calls in every process of a training; small, and made to be pickled."""

    job: str  # the training's name, unique in a process
    constraints: Constraints
    settings: TrainerSettings
    names: tuple[str, ...]  # the groups' names

    def params(self, start: float) -> dict[str, Any]:
        """Return XGBoost's parameters for scores that begin at `start`."""
        return {**self.settings.params, "base_score": start, "disable_default_eval_metric": 1}

    def objective(self, scores: NDArray[Any], data: Any) -> tuple[Any, Any]:
        """Return the gradient at the scores; see `State.objective`."""
        job = self._job()
        if job.state is None:
            rows = rows_of(data, self.names)
            job.state, job.data = State(rows, self.constraints, self.settings, allreduce), data
        found: tuple[Any, Any] = job.state.objective(scores, None)
        return found

    def metric(self, scores: NDArray[Any], data: Any) -> tuple[str, float]:
        """Look at the validation rows after every tree."""
        job = self._job()
        if job.validation is None:
            job.validation = rows_of(data, self.names)
        rows = job.validation
        cells, state = rows.cells, job.state
        positive = allreduce(kernel.count_positive(scores, cells.codes, rows.weights, len(cells.weight)))
        loss = float(allreduce(np.array([kernel.total_loss(scores, cells.codes, rows.weights)]))[0])
        job.path.append(moment(positive, loss, cells, self.constraints))
        if state is not None and self.settings.follow_validation:
            state.validation_rates = job.path[-1].rates
        return "violation", job.path[-1].violation

    def callback(self, progress: Progress = no_progress) -> Any:
        """Return the callback that tells of rounds, stops early, and leaves the path in the booster."""
        import xgboost

        hooks = self

        class Watch(xgboost.callback.TrainingCallback):
            """See `Hooks.callback`."""

            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return hooks.after_round(epoch, progress)

            def after_training(self, model: Any) -> Any:
                return hooks.after_training(model)

        return Watch()

    def after_round(self, epoch: int, progress: Progress) -> bool:
        """Tell of a round; give whether to stop."""
        job = self._job()
        latest = job.path[-1] if job.path else job.latest()
        numbers = {}
        if latest is not None:
            numbers = {"loss": latest.loss, "violation": max(0.0, latest.violation)}
        progress("training rounds", epoch + 1, self.settings.rounds, **numbers)
        return bool(self.settings.patience) and stale(job.path, self.settings.patience)

    def after_training(self, model: Any) -> Any:
        """Take the last step, and leave the path in the booster."""
        job = _JOBS.pop(self.job)
        assert job.state is not None  # noqa: S101 -- there was a round at least
        job.state.finish(model.predict(job.data, output_margin=True, training=True))
        model.set_attr(**{PATH: json.dumps(job.record())})
        return model

    def _job(self) -> _Job:
        return _JOBS.setdefault(self.job, _Job())


class _Job:
    """What the hooks of one training share in a process."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.data: Any = None
        self.validation: TrainingRows | None = None
        self.path: list[Moment] = []

    def latest(self) -> Moment | None:
        return self.state.path[-1] if self.state is not None and self.state.path else None

    def record(self) -> dict[str, Any]:
        assert self.state is not None  # noqa: S101 -- there was a round at least
        return {
            "train": [_plain(one) for one in self.state.path],
            "validation": [_plain(one) for one in self.path],
            "multipliers": [step.tolist() for step in self.state.steps],
        }


def rows_of(data: Any, names: tuple[str, ...]) -> TrainingRows:
    """Read cells and weights off a DMatrix; the cells' totals are those of all processes."""
    kind = np.uint8 if len(names) <= 128 else np.uint32
    codes = data.get_label().astype(kind)
    weights = data.get_weight()
    size = 2 * len(names)
    weight = np.bincount(codes, weights if len(weights) else None, minlength=size).astype(np.float64)
    counts = np.bincount(codes, minlength=size).astype(np.float64)
    both = allreduce(np.concatenate([weight, counts]))
    cells = ConstraintCells(codes, both[:size], both[size:].astype(np.int64), names)
    return TrainingRows(np.empty((0, 0), np.float32), cells, weights if len(weights) else None)


def allreduce(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum an array over the processes of the training; give it back where there is one only."""
    from xgboost import collective

    if collective.get_world_size() == 1:
        return values
    summed: NDArray[np.float64] = collective.allreduce(np.ascontiguousarray(values), collective.Op.SUM)
    return summed


def _matrix(xgboost: Any, rows: TrainingRows, settings: TrainerSettings, reference: Any = None) -> Any:
    threads = settings.params.get("nthread")
    return xgboost.QuantileDMatrix(
        rows.matrix,
        rows.cells.codes.astype(np.float32),
        weight=rows.weights,
        ref=reference,
        nthread=threads,
        max_bin=int(settings.params.get("max_bin", 256)) if reference is None else None,
    )


def _plain(one: Moment) -> dict[str, Any]:
    rates = {"by_group": one.rates.by_group.tolist(), "overall": one.rates.overall.tolist()}
    return asdict(one) | {"rates": rates}


def _moment_of(record: dict[str, Any]) -> Moment:
    rates = record["rates"]
    found = Rates(np.array(rates["by_group"], dtype=float), np.array(rates["overall"], dtype=float))
    return Moment(**(record | {"rates": found}))
