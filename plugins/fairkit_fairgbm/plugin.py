"""The plugin `fairgbm`: the way from a table to a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction, Run, Table
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_fairgbm.parameters import FairGBMParameters
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.export import add_outputs
from fairkit_onnx.write.graph import GraphBuilder, add_mixture_outputs, add_prefix_sums, mixture_chance
from fairkit_onnx.write.trees import add_ensemble, lightgbm_trees
from fairkit_repair.learners import check_target, fit_learner

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups
    from fairkit.results.rules import Rule
    from fairkit_fairgbm.constraints import ConstraintCells, Constraints
    from fairkit_fairgbm.parameters import Choice, Iterate
    from fairkit_fairgbm.trainer import Trained, TrainerSettings, TrainingRows
    from fairkit_onnx.file import OnnxModel
    from fairkit_onnx.write.encode import Encoder


class FairGBM(Mitigator):
    """Gradient boosting under fairness constraints, on stock LightGBM.

    Trains one gradient boosted model whose error rates (or positive rates) are alike between groups at the
    threshold 1/2: by the proxy Lagrangian, every tree follows the gradient of the loss plus multipliers
    times smooth stand-ins for the rates, and the multipliers move with the true rates.
    """

    name = "fairgbm"
    stage = "in"
    tasks = ("binary",)
    citation = "Cruz, Belém, Jesus, Bravo, Saleiro, Bizarro: FairGBM, ICLR 2023, arXiv:2209.07850"
    capabilities = tuple(
        Capability(
            constraints=(name,),
            settings={"constraint": (name,)},
            dial="tolerance",
            steps=(0.0, 0.25, 0.5, 0.75, 1.0),
            trainings=3,
        )
        for name in ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")
    )

    Parameters = FairGBMParameters  # type: ignore[assignment]

    def check(self) -> None:
        """Refuse parameters that contradict each other."""
        self.parameters.check()

    def promises(self) -> Sequence[Rule]:
        """Bound the differences of the constrained rates by their tolerances."""
        rules: Sequence[Rule] = self.parameters.rules()
        return rules

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        self.learner(run)
        check_target(table)
        groups = table.only_groups(self.parameters.sensitive)
        train, validation_rows = self._split(table, groups, validation, run)
        encoder = fit_encoder(train.columns, train.features, text="ordinal")
        return self._fit(encoder, train, validation_rows, run)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the stock library with the same parameters."""
        settings = self.parameters.lightgbm_params(run) | {"n_estimators": self.parameters.n_estimators}
        return fit_learner("lightgbm", table, run, settings=settings)

    def _fit(self, encoder: Encoder, train: Table, validation: Table | None, run: Run) -> FittedModel:
        from fairkit_fairgbm import trainer

        wanted = self.parameters.sensitive
        rows = _rows(encoder, train, wanted)
        constraints, notes = self._constraints(rows.cells, what=train.name)
        groups = train.only_groups(wanted)
        seen = None if validation is None else _rows(encoder, validation, wanted, names=groups.names)
        result: Trained = trainer.train(
            rows, constraints, self._settings(run, encoder), validation=seen, progress=run.progress
        )
        return self._fitted(encoder, result, groups, constraints, notes)

    def _constraints(self, cells: ConstraintCells, *, what: str) -> tuple[Constraints, tuple[str, ...]]:
        """Return the constraints on the groups that are large enough, and what the user must know of them."""
        chosen = self.parameters
        asked: Constraints = chosen.constraints()
        constraints, notes = asked.among(
            cells, chosen.min_group, what=what, leave_out=chosen.small_groups == "unconstrained"
        )
        return constraints, (*notes, *constraints.resolution(cells))

    def _fitted(
        self, encoder: Encoder, result: Trained, groups: Groups, constraints: Constraints, notes: Sequence[str]
    ) -> FittedModel:
        """Choose iterates, and put the model together."""
        from fairkit_fairgbm import parameters
        from fairkit_fairgbm.parameters import details, unmet

        choice = parameters.choose(self._iterate(len(groups.names)), result.validation or result.train, constraints)
        return FairGBMModel(
            encoder=encoder,
            booster=result.booster,
            start=result.start,
            choice=choice,
            details=details(result, choice, constraints, groups.names),
            notes=(*notes, *choice.notes, *unmet(result, choice)),
        )

    def _split(self, table: Table, groups: Groups, validation: Table | None, run: Run) -> tuple[Table, Table | None]:
        """Return training and validation rows; split some off, group by group and label by label, if needed."""
        needs_rows = self.parameters.needs_validation(len(groups.names))
        if validation is not None or not needs_rows:
            return table, validation if needs_rows else None
        held_out = self._held(table, groups, run)
        return table.take(~held_out), table.take(held_out)

    def _held(self, table: Table, groups: Groups, run: Run) -> NDArray[np.bool_]:
        """Choose validation rows, group by group and label by label."""
        from fairkit_repair.mitigation.choose import stratified

        cells = 2 * groups.codes + table.target.astype(np.int64)
        share = self.parameters.validation_share or min(0.2, max(0.1, 0.2 * (20_000 / len(table)) ** 0.5))
        return stratified(cells, share, run.rng())

    def _iterate(self, groups: int) -> Iterate:
        """Without a constraint (and without early stopping) all trees are kept: plain LightGBM."""
        plain = not self.parameters.is_constrained(groups) and not self.parameters.early_stopping
        iterate: Iterate = "last" if plain else self.parameters.iterate
        return iterate

    def _settings(self, run: Run, encoder: Encoder) -> TrainerSettings:
        """Return the settings of a training."""
        from fairkit_fairgbm.trainer import TrainerSettings

        chosen = self.parameters
        return TrainerSettings(
            rounds=chosen.n_estimators,
            multiplier_rate=chosen.multiplier_rate,
            multiplier_cap=chosen.multiplier_cap,
            follow_validation=chosen.follow == "validation",
            patience=chosen.early_stopping,
            params=chosen.lightgbm_params(run),
            categorical=encoder.categorical,
        )


def _rows(encoder: Encoder, table: Table, wanted: str | None, names: tuple[str, ...] | None = None) -> TrainingRows:
    from fairkit_fairgbm.constraints import make_cells
    from fairkit_fairgbm.trainer import TrainingRows

    groups = table.only_groups(wanted)
    codes = groups.codes
    if names is not None and names != groups.names:
        names_present = [name for name in groups.names if name in names]
        if len(names_present) < len(groups.names):
            strange = next(name for name in groups.names if name not in names)
            raise ParameterError(f"{table.name}: the group {strange!r} does not occur in the training rows")
        codes = np.array([names.index(name) for name in groups.names], dtype=np.int64)[codes]
    weights = None if table.weights is None else table.weights.astype(np.float32)
    cells = make_cells(codes, table.target, names or groups.names, None if weights is None else weights.astype(float))
    return TrainingRows(encoder.transform(table.columns), cells, weights)


# A FairGBM in memory: one booster, read after one or several numbers of trees.


@dataclass(frozen=True, slots=True, kw_only=True)
class FairGBMModel(FittedModel):
    """An encoder, a booster whose trees add to `start`, and a distribution over numbers of trees."""

    encoder: Encoder
    booster: Any
    start: float
    choice: Choice
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns; the score of a mixture is its members' mean probability."""
        scores = 0.5 * (1 + np.tanh(0.5 * self.margins(self.encoder.transform(columns))))
        weights = self.choice.weights
        return Prediction(score=scores @ np.array(weights), decision_probability=mixture_chance(scores, weights))

    def margins(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the log-odds of every chosen iterate, shape [n, members]."""
        margins = np.empty((len(matrix), len(self.choice.rounds)))
        total = np.full(len(matrix), self.start)
        before = 0
        for member, rounds in enumerate(self.choice.rounds):
            part = self.booster.predict(matrix, raw_score=True, start_iteration=before, num_iteration=rounds - before)
            total = total + part
            margins[:, member] = total
            before = rounds
        return margins

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph; the iterates of a mixture share their trees."""
        graph = GraphBuilder()
        matrix = self.encoder.add_to(graph)
        ends = np.array(self.choice.rounds)
        trees = lightgbm_trees(self.booster, rounds=int(ends[-1]))
        outputs = [int(np.searchsorted(ends, index, side="right")) for index in range(len(trees))]
        parts = add_ensemble(graph, matrix, trees, outputs=outputs, base=[self.start] + [0.0] * (len(ends) - 1))
        scores = graph.node("Sigmoid", [add_prefix_sums(graph, parts, len(ends))])
        if len(ends) == 1:
            add_outputs(graph, scores, "binary")
        else:
            add_mixture_outputs(graph, scores, self.choice.weights)
        return graph.build()
