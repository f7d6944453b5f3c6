"""The plugin `barycenter`: parameters, out-of-fold predictions, and the maps learned from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.capabilities import FRACTIONS
from fairkit.errors import DataError, did_you_mean
from fairkit.learners import INSTALLED
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction, Run, Table
from fairkit.parameters.declare import parameter
from fairkit.results.rules import Rule
from fairkit_barycenter.transport import Transport, largest_distance, learn
from fairkit_onnx.write.estimators import add_estimator
from fairkit_onnx.write.export import TabularModel, add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.grouping import GroupCodes
from fairkit_repair.learners import check_target, fit_learner
from fairkit_repair.repairing.folds import out_of_folds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups
    from fairkit_onnx.model import OnnxModel

_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BarycenterModel(FittedModel):
    """A regression whose predictions are moved to a common distribution, column by column, and mixed with its own."""

    base: TabularModel  # the regression
    transports: tuple[Transport, ...]  # the maps, in the order in which they are applied
    share: float  # how far predictions are moved: 0 not at all, 1 to the barycenter
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Predict for rows given as raw columns."""
        plain = self.base.predict(columns).score.astype(np.float32)
        moved = plain
        for transport in self.transports:
            moved = transport.apply(moved, columns)
        share = np.float32(self.share)
        return Prediction(score=((1 - share) * plain + share * moved).astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns."""
        graph = GraphBuilder()
        encoder = self.base.encoder
        matrix = encoder.add_to(graph)
        plain = add_estimator(graph, matrix, self.base.estimator, "regression", width=len(encoder.names))
        moved = plain
        for transport in self.transports:
            moved = transport.add_to(graph, moved)
        kept = graph.node("Mul", [plain, float(1 - np.float32(self.share))])
        mixed = graph.node("Add", [kept, graph.node("Mul", [moved, self.share])])
        add_outputs(graph, mixed, "regression")
        return graph.build()


class Barycenter(Mitigator):
    """Move each group's predictions to the barycenter of all groups' distributions.

    Trains any learner, takes the distributions from out-of-fold predictions, and needs no labels for the maps.
    The order of people inside a group stays. Deterministic; it reads the group. With several sensitive columns the
    maps are applied one after the other.
    """

    name = "barycenter"
    stage = "in"
    tasks = ("regression",)
    citation = (
        "Chzhen, Denis, Hebiri, Oneto, Pontil: Fair regression with Wasserstein barycenters, NeurIPS 2020; several "
        "columns: Hu, Ratz, Charpentier: A sequentially fair mechanism for multiple sensitive attributes, AAAI 2024"
    )
    learners = ("lightgbm", "xgboost", "linear", "forest", "mlp", INSTALLED)
    together: ClassVar[tuple[str, ...]] = ("tolerance",)
    capabilities = (
        Capability(
            constraints=("statistical_parity",), dial="tolerance", steps=FRACTIONS, reads_group=True, trainings=4
        ),
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `Barycenter`."""

        tolerance: float = parameter(
            0.0,
            help="How far the distribution of predictions in a group may be from everybody's, at any value (the number "
            "that audits call statistical_parity_ks): predictions are moved no further than this needs.",
            minimum=0,
            maximum=1,
        )
        sensitive: tuple[str, ...] = parameter(
            (), help="The sensitive columns, in the order in which they are treated; default: all of them."
        )
        folds: int = parameter(3, help="Parts of the rows for out-of-fold predictions.", minimum=2)
        knots: int = parameter(200, help="At how many levels distributions are taken.", minimum=10, maximum=2000)
        min_group: int = parameter(30, help="The least rows of a group.", minimum=2)

    def promises(self) -> Sequence[Rule]:
        """Bound the distance of distributions by the tolerance."""
        return (Rule(metric="statistical_parity_ks", max=self.parameters.tolerance),)

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train out of fold, learn the maps, and train on all rows."""
        return self.fit_together([self], table, run)[0]

    @classmethod
    def fit_together(
        cls,
        methods: Sequence[Barycenter],
        table: Table,
        run: Run,
        *,
        validation: Table | None = None,
        model: OnnxModel | None = None,
    ) -> Sequence[FittedModel]:
        """Train out of fold and learn the maps once, choose a share for every tolerance; see `fit`."""
        check_target(table)
        first = methods[0]
        learner = first.learner(run)
        splits = first._splits(table)
        plain = first._out_of_fold(learner, table, run)
        weights = table.row_weights()
        transports: list[Transport] = []
        moved = plain
        for groups in splits:
            codes = GroupCodes.learn(table.columns, groups)
            transports.append(learn(moved.astype(np.float64), codes, groups.codes, weights, first.parameters.knots))
            moved = transports[-1].apply(moved, table.columns)
        base = fit_learner(learner, table, run)
        names = first._names(table)
        models = []
        for method in methods:
            share = method._share(plain, moved, splits, weights)
            reached = (1 - share) * plain + share * moved
            distances = {
                name: [largest_distance(x.astype(np.float64), one.codes, weights) for x in (plain, reached)]
                for name, one in zip(names, splits, strict=True)
            }
            details = {"share": share, "out_of_fold": {"statistical_parity_ks": distances}}
            models.append(BarycenterModel(base=base, transports=tuple(transports), share=share, details=details))
        return models

    def _names(self, table: Table) -> tuple[str, ...]:
        return self.parameters.sensitive or tuple(table.groups)

    def _splits(self, table: Table) -> list[Groups]:
        if not table.groups:
            raise DataError(f"{table.name}: this method needs a sensitive column; name it with `sensitive`")
        for name in self._names(table):
            if name not in table.groups:
                hint = did_you_mean(name, table.groups, what="splits")
                raise DataError(f"{table.name}: there is no sensitive split {name!r}. {hint}")
        splits = [table.groups[name] for name in self._names(table)]
        for groups in splits:
            sizes = groups.sizes()
            if sizes.min() < self.parameters.min_group:
                raise DataError(
                    f"{table.name}: group {groups.names[int(sizes.argmin())]!r} has {int(sizes.min())} rows, fewer "
                    f"than min_group={self.parameters.min_group}; merge groups, add rows, or lower `min_group`"
                )
        return splits

    def _out_of_fold(self, learner: str, table: Table, run: Run) -> NDArray[np.float32]:
        """Return each row's prediction by a model that was not trained on it, shape [n]."""
        fold = run.rng().permutation(len(table)) % self.parameters.folds
        (scores,) = out_of_folds(
            table,
            fold,
            lambda train, rest, _: [fit_learner(learner, train, run).predict(rest.columns).score],
            run.progress,
        )
        return scores.astype(np.float32)

    def _share(
        self,
        plain: NDArray[np.float32],
        moved: NDArray[np.float32],
        splits: Sequence[Groups],
        weights: NDArray[np.float64],
    ) -> float:
        """Return the smallest share of the way, in steps of 1/64, whose distances are at most the tolerance; else 1."""
        if self.parameters.tolerance <= 0:
            return 1.0
        for step in range(_STEPS):
            mixed = (plain + (moved - plain) * (step / _STEPS)).astype(np.float64)
            distance = max(largest_distance(mixed, groups.codes, weights) for groups in splits)
            if distance <= self.parameters.tolerance:
                return step / _STEPS
        return 1.0
