"""From a table to a mixture: scaling, encoding, solving, and what is told about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit_fair_regression.learning import Learner, Values, learner_encoder
from fairkit_fair_regression.losses import Grid, Loss, Rates, Scale, make_parity, netted
from fairkit_fair_regression.parameters import FairRegressionModel
from fairkit_fair_regression.solver import (
    GroupLossOracle,
    ParityOracle,
    Pool,
    Solution,
    SolverSettings,
    check_cover,
    check_targets,
    default_oracle,
    fit_loss,
    fit_seo,
    solve,
    solve_group_loss,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Run, Table
    from fairkit_fair_regression.learning import Member
    from fairkit_fair_regression.parameters import FairRegressionParameters
    from fairkit_fair_regression.solver import Moment, OracleName, Targets
    from fairkit_onnx.write.encode import Encoder

    Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Training:
    """One training run: what was given, brought into the form of the solver."""

    parameters: FairRegressionParameters
    table: Table
    run: Run
    groups: Groups
    loss: Loss
    scale: Scale
    encoder: Encoder
    learner: Learner
    matrix: NDArray[np.float32]
    labels: Array
    weights: Array | None
    notes: tuple[str, ...]
    levels: Sequence[float] = ()  # the bounds that are solved for

    @classmethod
    def prepare(cls, parameters: FairRegressionParameters, base: Any, table: Table, run: Run) -> Training:
        """Check the table, scale the labels, encode the rows; `base` is a learner's name or an estimator."""
        parameters.check_table(table)
        groups = table.only_groups(parameters.sensitive)
        loss, notes = choose_loss(parameters, table)
        low, high = choose_range(parameters, table) if loss.rates is None else (0.0, 1.0)
        used = without_sensitive(table, groups) if parameters.constraint == "seo" else table
        encoder = learner_encoder(base, used)
        grid = Grid(parameters.grid) if parameters.constraint == "statistical_parity" else None
        scale = Scale(low=low, high=high, chances=loss.name == "logistic", grid=grid, rates=loss.rates)
        learner = Learner(base=base, run=run, settings=parameters.settings, categorical=encoder.categorical)
        return cls(
            parameters=parameters,
            table=used,
            run=run,
            groups=groups,
            loss=loss,
            scale=scale,
            encoder=encoder,
            learner=learner,
            matrix=encoder.transform(used.columns),
            labels=scale.to_unit(used.target),
            weights=row_weights(table, groups),
            notes=notes,
        )

    def fit(self) -> FairRegressionModel:
        """Solve for the bound, and return its mixture."""
        return self._seo() if self.parameters.constraint == "seo" else self.fit_each([self.parameters.level])[0]

    def fit_each(self, levels: Sequence[float]) -> list[FairRegressionModel]:
        """Solve for several bounds with the same predictors, and return a mixture for each."""
        self.levels = levels
        bounded = self.parameters.constraint == "bounded_group_loss"
        pool, solutions = self._group_loss() if bounded else self._parity()
        return [self._assembled(pool, solution, level) for level, solution in solutions.items()]

    def unconstrained(self) -> FairRegressionModel:
        """Fit one predictor without constraints; it is not rounded to the grid."""
        if self.parameters.constraint == "seo":
            member = self._least_squares()
        else:
            oracle = self._oracle_name()
            own: OracleName = "loss" if self.loss.rates is not None else "ls"
            by_thresholds = oracle in ("cs", "hinge")
            direct: OracleName = own if by_thresholds and self.learner.gives_numbers else oracle
            if direct == "cs":
                return self._model([self._parity_oracle().unconstrained().member], (1.0,))
            member = fit_loss(self.learner, self.loss, direct, self.matrix, self.labels, self.weights)
        self.scale = dataclasses.replace(self.scale, grid=None)
        return self._model([member], (1.0,))

    def _parity(self) -> tuple[Pool, dict[float, Solution]]:
        oracle = self._parity_oracle()
        check_cover(self.groups.codes, self.groups.names, oracle.parity.grid.size, self.table.name)
        free, pool = oracle.unconstrained(), Pool()
        pool.calls += 1
        pool.answered.append(np.zeros(len(free.values)))
        pool.add(free)
        pool.add(oracle.constant())

        def solved(level: float, settings: SolverSettings) -> Solution:
            bounds = oracle.parity.bounds(self._bounds(level))
            return solve(pool, bounds, oracle.respond, settings, simplify=netted, watch=self._watch(level))

        return pool, self._sweep(pool, solved)

    def _bounds(self, level: float) -> Array:
        return self.parameters.group_bounds(level, self.groups.names, self.groups.sizes())

    def _group_loss(self) -> tuple[Pool, dict[float, Solution]]:
        oracle = GroupLossOracle(
            learner=self.learner,
            loss=self.loss,
            oracle=self._oracle_name(),
            matrix=self.matrix,
            labels=self.labels,
            weights=self.weights,
            groups=self.groups.codes,
            shares=self._shares(),
        )
        pool = Pool()
        zeros = np.zeros(len(self.groups.names))
        pool.add(oracle.respond(zeros))
        pool.calls, pool.answered = 1, [zeros]

        def solved(level: float, settings: SolverSettings) -> Solution:
            zeta = self._bounds(level)
            return solve_group_loss(pool, zeta, oracle, settings, self.groups.names, self._watch(level))

        return pool, self._sweep(pool, solved)

    def _sweep(self, pool: Pool, solved: Callable[[float, SolverSettings], Solution]) -> dict[float, Solution]:
        """Solve for every bound, and then again with the predictors that the other bounds found.

        The last round asks for no more best responses: every mixture is the best of the same predictors, so
        that the loss cannot rise with the bound.
        """
        settings = self._settings(pool)
        solutions = {level: solved(level, settings) for level in self.levels}
        if len(solutions) == 1:
            return solutions
        for iterations in (settings.iterations, 0):
            again = dataclasses.replace(settings, least=0, iterations=iterations)
            solutions = {level: _joined(first, solved(level, again)) for level, first in solutions.items()}
        return solutions

    def _assembled(self, pool: Pool, solution: Solution, level: float) -> FairRegressionModel:
        """Make the model of one bound."""
        members = [pool.responses[place].member for place in solution.places]
        details = {
            "constraint": self.parameters.constraint,
            "loss": self.loss.name,
            "learner": self.learner.name,
            "label_range": [self.scale.low, self.scale.high],
            **_rates_told(self.loss),
            "groups": list(self.groups.names),
            "bound": level,
            "iterations": solution.iterations,
            "oracle_calls": solution.calls,
            "gap": solution.gap,
            "converged": solution.converged,
            "objective": solution.objective,
            "violation": solution.violation,
            "members": len(solution.weights),
            "weights": list(solution.weights),
            "oracle_calls_of_run": pool.calls,
            "history": [dataclasses.asdict(moment) for moment in solution.history],
        }
        notes = (*self.notes, *self._caveats(solution, level))
        model = self._model(members, solution.weights)
        return dataclasses.replace(model, unconstrained=pool.responses[0].member, details=details, notes=notes)

    def _seo(self) -> FairRegressionModel:

        if self.learner.base != "linear":
            raise ParameterError("fair-regression: constraint=seo is a linear method: leave out the learner")
        model = fit_seo(self.matrix, self.labels, self.groups.codes, len(self.groups.names), self.weights)
        result = self._model([Values(model)], (1.0,))
        return dataclasses.replace(
            result,
            unconstrained=self._least_squares(),
            details={"constraint": "seo", "label_range": [self.scale.low, self.scale.high]},
            notes=self.notes,
        )

    def _least_squares(self) -> Member:
        return self.learner.fit_values(self.matrix, self.labels, self.weights)

    def _model(self, members: Sequence[Member], weights: tuple[float, ...]) -> FairRegressionModel:
        return FairRegressionModel(
            encoder=self.encoder,
            members=tuple(members),
            weights=weights,
            scale=self.scale,
            loss=self.loss,
            task=self.table.task,
        )

    def _parity_oracle(self) -> ParityOracle:
        chosen = self.parameters
        check_targets(chosen.targets, self.loss, self._oracle_name())
        targets: Targets = chosen.targets or ("predictions" if self.loss.linear else "labels")
        grid = self.scale.grid or Grid(chosen.grid)
        return ParityOracle(
            parity=make_parity(grid, self.loss, self.labels, self.groups.codes, len(self.groups.names), self.weights),
            learner=self.learner,
            loss=self.loss,
            oracle=self._oracle_name(),
            matrix=self.matrix,
            labels=self.labels,
            weights=self.weights,
            targets=targets,
        )

    def _oracle_name(self) -> OracleName:
        chosen: OracleName | None = self.parameters.oracle
        if chosen is None and self.parameters.constraint == "bounded_group_loss":
            return "loss"
        return chosen or default_oracle(self.loss, self.learner)

    def _settings(self, pool: Pool) -> SolverSettings:
        chosen = self.parameters
        return SolverSettings(
            nu=chosen.nu if chosen.nu is not None else self._standard_error(pool) / 2,
            bound=chosen.multiplier_bound,
            iterations=chosen.iterations,
        )

    def _standard_error(self, pool: Pool) -> float:
        """Return the standard error of the unconstrained predictor's loss, never 0."""
        losses = self.loss(self.labels, np.clip(pool.responses[0].member.predict(self.matrix), 0, 1))
        return max(float(losses.std() / np.sqrt(len(losses))), 1e-8)

    def _shares(self) -> Array:
        shares = np.bincount(self.groups.codes, self.weights, len(self.groups.names))
        return np.asarray(shares / shares.sum())

    def _watch(self, level: float) -> Any:
        most = self.parameters.iterations
        before = self.levels.index(level) * most
        steps = iter(range(before + 1, before + most + 1))

        def watch(moment: Moment) -> None:
            self.run.progress(
                "training rounds",
                next(steps, before + most),
                most * len(self.levels),
                gap=moment.gap,
                violation=moment.violation,
            )

        return watch

    def _caveats(self, solution: Solution, level: float) -> tuple[str, ...]:
        notes = []
        if len(solution.weights) > 1:
            notes.append(
                f"The model is a mixture of {len(solution.weights)} predictors: draw u in [0, 1) for each person, "
                "such as a hash of an id; the bound holds for the drawn predictions, not for their mean."
            )
        if not solution.converged:
            notes.append(
                f"The duality gap is still {solution.gap:.2g} after {solution.iterations} iterations: a better "
                "mixture may exist (iterations allows more, nu says what is enough)."
            )
        if solution.violation > 0.005:
            notes.append(f"On the training rows the bound {level:g} is exceeded by {solution.violation:.3g}.")
        return tuple(notes)


def _joined(first: Solution, second: Solution) -> Solution:
    """Return the second solution with the work of both."""
    return dataclasses.replace(
        second,
        iterations=first.iterations + second.iterations,
        calls=first.calls + second.calls,
        history=first.history + second.history,
    )


def _rates_told(loss: Loss) -> dict[str, Any]:
    """Return the Poisson loss's record: ranges of labels and rates, and the deviance's divisor."""
    if loss.rates is None:
        return {}
    return {
        "label_range": [0.0, loss.rates.largest],
        "rate_range": [loss.rates.low, loss.rates.high],
        "deviance_divisor": 2 * loss.rates.divisor,
    }


# Choices that the data settle: the loss, the label's range, weights, and the features of the baseline.


def choose_loss(parameters: FairRegressionParameters, table: Table) -> tuple[Loss, tuple[str, ...]]:
    """Choose the loss, and say what is unusual about it."""
    chosen = parameters.loss
    two = len(np.unique(table.target)) == 2
    if parameters.constraint == "seo" and chosen not in (None, "squared"):
        raise ParameterError("fair-regression: constraint=seo is least squares: leave out the loss")
    if chosen == "logistic" and not two:
        raise DataError(
            f"{table.name}: the logistic loss is for labels of two values, and {table.roles.label or 'the label'!r} "
            f"has {len(np.unique(table.target))}; use loss=squared, absolute or quantile"
        )
    if chosen == "poisson":
        return Loss("poisson", parameters.quantile, choose_rates(parameters, table)), ()
    if chosen is None:
        binary = table.task == "binary" and parameters.constraint != "seo"
        chosen = "logistic" if binary else "squared"
    notes: tuple[str, ...] = ()
    if two and chosen != "logistic":
        notes = (
            f"The label has two values, and the loss is {chosen}: predictions are fitted as numbers between them "
            "(loss=logistic fits probabilities).",
        )
    return Loss(chosen, parameters.quantile), notes


WIDTH = 4.0
"""Rates go from e^-4 to e^4 times the mean label, but not above the largest label."""


def choose_rates(parameters: FairRegressionParameters, table: Table) -> Rates:
    """Return the rates that may be predicted: declared, else around the mean label."""
    label = repr(table.roles.label) if table.roles.label else "the label"
    if table.task == "binary":
        raise DataError(f"{table.name}: the Poisson loss is for counts and rates; use loss=logistic for classes")
    if (table.target < 0).any():
        raise DataError(
            f"{table.name}: the Poisson loss is for counts and rates, and {int((table.target < 0).sum())} values of "
            f"{label} are negative; use loss=squared"
        )
    mean = float(np.average(table.target, weights=table.weights))
    largest = max([float(table.target.max()), *parameters.label_range[1:]])
    if parameters.rate_range:
        low, high = (float(value) for value in parameters.rate_range)
    else:
        low, high = mean * np.exp(-WIDTH), min(mean * np.exp(WIDTH), largest)
    return Rates(float(low), float(high), mean, largest)


def choose_range(parameters: FairRegressionParameters, table: Table) -> tuple[float, float]:
    """Return the label's range: declared, 0 to 1 for classes, else observed."""
    declared = parameters.label_range
    if declared:
        return float(declared[0]), float(declared[1])
    if table.task == "binary":
        return 0.0, 1.0
    return float(table.target.min()), float(table.target.max())


def row_weights(table: Table, groups: Groups) -> Array | None:
    """Return the weights with mean 1, checked: every group has rows, and some weight."""
    mass = np.bincount(groups.codes, table.weights, len(groups.names))
    if (mass <= 0).any():
        empty = groups.names[int((mass <= 0).argmax())]
        raise DataError(
            f"{table.name}: the group {empty!r} has no training rows (or no weight); leave it out, or merge it "
            "with another group"
        )
    return None if table.weights is None else table.weights / table.weights.mean()


def without_sensitive(table: Table, groups: Groups) -> Table:
    """Leave the sensitive columns out of the features: their part is fitted, and dropped, by itself."""
    columns = {name for name, split in table.groups.items() if split is groups}
    columns |= set() if groups.split is None else set(groups.split.columns)
    features = tuple(name for name in table.features if name not in columns)
    if not features:
        raise DataError(f"{table.name}: constraint=seo needs features besides the sensitive columns")
    return dataclasses.replace(table, features=features)
