"""Fair regression by Wasserstein barycenters: every group gets the same distribution of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import fairkit
from fairkit.capabilities import FRACTIONS
from fairkit.errors import DataError, did_you_mean
from fairkit.learners import INSTALLED
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction, Run, Table
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.write.estimators import add_estimator
from fairkit_onnx.write.export import TabularModel, add_outputs
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.rules import GroupCodes
from fairkit_repair.learners import check_target, fit_learner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups
    from fairkit_onnx.file import OnnxModel


__all__ = ["Barycenter"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Barycenter]


# The plugin `barycenter`: parameters, out-of-fold predictions, and the maps learned from them.


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
        share_of_plain = graph.node("Mul", [plain, float(1 - np.float32(self.share))])
        mixed = graph.node("Add", [share_of_plain, graph.node("Mul", [moved, self.share])])
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
        Capability(  # equal distributions have equal means
            constraints=("mean_prediction",),
            dial="tolerance",
            steps=(0.0, 0.05, 0.1, 0.2),
            of_limit=False,
            reads_group=True,
            trainings=4,
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
                name: [largest_distance(x.astype(np.float64), split.codes, weights) for x in (plain, reached)]
                for name, split in zip(names, splits, strict=True)
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
        from fairkit_repair.repairing.chance import out_of_folds

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


# The map of every group's predictions to the barycenter of all groups: increasing and piecewise linear.


NEAREST = 1e-4
"""Knots nearer than this share of the range become one: the map's slope would magnify rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """One increasing map for each group of one sensitive column; other values keep their prediction."""

    codes: GroupCodes  # how raw columns become one of K groups
    start: NDArray[np.float32]
    end: NDArray[np.float32]

    def apply(self, values: NDArray[np.float32], columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Map predictions, shape [n]."""
        group = self.codes.transform(columns)
        mapped = np.empty_like(values)
        for code in np.unique(group):
            rows = group == code
            mapped[rows] = along(values[rows], self.start[code], self.end[code])
        return mapped

    def add_to(self, graph: GraphBuilder, values: str) -> str:
        """Put the map into a graph: [rows, 1] to [rows, 1]."""
        codes = graph.reshape(self.codes.add_to(graph), [-1])
        start = graph.node("Gather", [graph.constant(self.start), codes], axis=0)
        end = graph.node("Gather", [graph.constant(self.end), codes], axis=0)
        past = graph.node("Cast", [graph.node("GreaterOrEqual", [values, start])], to=7)
        count = graph.node("ReduceSum", [past, graph.constant([1], np.int64)], keepdims=1)
        last = self.start.shape[1] - 1
        low = graph.node(
            "Max", [graph.node("Sub", [count, graph.constant([[1]], np.int64)]), graph.constant([[0]], np.int64)]
        )
        low = graph.node("Min", [low, graph.constant([[last - 1]], np.int64)])
        high = graph.node("Add", [low, graph.constant([[1]], np.int64)])
        x0, x1, y0, y1 = (
            graph.node("GatherElements", [table, end], axis=1)
            for table, end in ((start, low), (start, high), (end, low), (end, high))
        )
        slope = graph.node("Div", [graph.node("Sub", [y1, y0]), graph.node("Sub", [x1, x0])])
        return graph.node("Add", [y0, graph.node("Mul", [slope, graph.node("Sub", [values, x0])])])


def along(values: NDArray[np.float32], start: NDArray[np.float32], end: NDArray[np.float32]) -> NDArray[np.float32]:
    """Map values along one piecewise linear map, in single precision as in the graph; shape [n]."""
    low = np.clip(np.searchsorted(start, values, side="right") - 1, 0, len(start) - 2)
    slope = (end[low + 1] - end[low]) / (start[low + 1] - start[low])
    return np.asarray(end[low] + slope * (values - start[low]), dtype=np.float32)


def learn(
    values: NDArray[np.float64], codes: GroupCodes, groups: NDArray[np.int64], weights: NDArray[np.float64], knots: int
) -> Transport:
    """Learn the maps from predictions."""
    count = len(codes.names)
    levels = (np.arange(knots) + 0.5) / knots
    quantiles = np.stack(
        [quantile(values[groups == group], weights[groups == group], levels) for group in range(count)]
    )
    shares = np.bincount(groups, weights, minlength=count) / weights.sum()
    middle = shares @ quantiles
    unit = max(float(np.ptp(values)), 1e-12)
    maps = [_knots(quantile_row, middle, unit) for quantile_row in quantiles] + [
        (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    ]
    longest = max(len(start) for start, _ in maps)
    padded = [_padded(start, end, longest, unit) for start, end in maps]
    return Transport(
        codes=codes,
        start=np.stack([start for start, _ in padded]).astype(np.float32),
        end=np.stack([end for _, end in padded]).astype(np.float32),
    )


def quantile(
    values: NDArray[np.float64], weights: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weighted quantiles at levels in (0, 1), linear between the middles of the rows' weights."""
    order = np.argsort(values, kind="stable")
    mass = weights[order]
    middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return np.interp(levels, middle, values[order])


def largest_distance(values: NDArray[np.float64], groups: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """Return the largest difference between a group's distribution function and everybody's, in [0, 1]."""
    order = np.argsort(values, kind="stable")
    sorted_values, codes_sorted, mass = values[order], groups[order], weights[order]
    last = np.append(sorted_values[1:] > sorted_values[:-1], True)
    everybody = np.cumsum(mass)[last] / mass.sum()
    worst = 0.0
    for group in range(int(groups.max()) + 1):
        part = np.where(codes_sorted == group, mass, 0.0)
        if part.sum() > 0:
            worst = max(worst, float(np.abs(np.cumsum(part)[last] / part.sum() - everybody).max()))
    return worst


def _knots(
    start: NDArray[np.float64], end: NDArray[np.float64], unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Make one knot of those that are too near, at their means; add the ends, from where the slope is 1."""
    knot = np.concatenate([[0], np.cumsum(np.diff(start) > NEAREST * unit)])
    sizes = np.bincount(knot)
    start, end = np.bincount(knot, start) / sizes, np.bincount(knot, end) / sizes
    return np.concatenate([[start[0] - unit], start, [start[-1] + unit]]), np.concatenate(
        [[end[0] - unit], end, [end[-1] + unit]]
    )


def _padded(
    start: NDArray[np.float64], end: NDArray[np.float64], length: int, unit: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Go on with slope 1 to so many knots."""
    more = unit * np.arange(1, length - len(start) + 1)
    return np.concatenate([start, start[-1] + more]), np.concatenate([end, end[-1] + more])
