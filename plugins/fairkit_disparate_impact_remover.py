"""Disparate impact remover, a baseline: numbers get one distribution in all groups, also at prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import fairkit
from fairkit.learners import INSTALLED, LEARNERS
from fairkit_onnx.write.encode import NumberColumn
from fairkit_onnx.write.rules import GroupCodes, step_tree
from fairkit_onnx.write.trees import add_ensemble
from fairkit_repair.learners import encoder_for
from fairkit_repair.preprocess import PreParameters, Prepared, PreProcessor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Groups, Run, Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_onnx.write.graph import GraphBuilder

    Floats = NDArray[np.float64]

_FLOAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A step function of one number: ``values[i]`` from ``edges[i - 1]`` on, below ``edges[i]``."""

    edges: NDArray[np.float32]  # increasing, float32, shape [k - 1]
    values: NDArray[np.float32]  # nondecreasing, float32, shape [k]

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values, the shape of `x`."""
        return self.values[np.searchsorted(self.edges, x, side="right")]


def quantile_knots(x: Floats, weights: Floats, most: int) -> tuple[Floats, Floats]:
    """Return the distinct values of a sample with their mid-distribution F(x-)/2 + F(x)/2, both shape [k].

    Of more than `most` distinct values, the most evenly spread over the rows are kept.
    """
    values, places = np.unique(x, return_inverse=True)
    mass = np.bincount(places, weights, minlength=len(values))
    values, mass = values[mass > 0], mass[mass > 0]
    ranks = (np.cumsum(mass) - mass / 2.0) / mass.sum()
    if len(values) > most:
        indices = np.unique(np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], most)))
        values, ranks = values[indices], ranks[indices]
    return values, ranks


def median_repair(samples: list[Floats], weights: list[Floats], most: int) -> list[Steps]:
    """Find for each group the increasing map of its distribution to the median one (Feldman et al. 2015).

    A value x of group g goes to the median over all groups j of F_j⁻¹(F_g(x)). F is the mid-distribution and
    F⁻¹ its linear interpolation, so that groups of one distribution are left as they are. What lies between
    two values of the training rows goes where the nearer one goes.
    """
    knots = [quantile_knots(x, w, most) for x, w in zip(samples, weights, strict=True)]
    everybody = quantile_knots(np.concatenate(samples), np.concatenate(weights), most)
    maps = []
    for values, ranks in [*knots, everybody]:
        images = np.median([np.interp(ranks, ys, xs) for xs, ys in knots], axis=0)
        edges = (values[:-1] + values[1:]) / 2.0
        single, first = np.unique(edges.astype(np.float32), return_index=True)
        images = np.append(images[first], images[-1])
        maps.append(Steps(single, np.maximum.accumulate(images).astype(np.float32)))
    return maps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepairedEncoding:
    """An encoder whose numeric columns are repaired by group: x becomes (1 - λ) x + λ steps(x)."""

    encoder: Encoder  # from raw columns to a matrix; increasing in every number
    groups: GroupCodes  # each row's group
    places: list[int]  # the columns of the matrix that are repaired
    maps: list[list[Steps]]  # for each of them the steps of every group, and of rows of no group
    amount: float  # λ in [0, 1]

    @property
    def names(self) -> list[str]:
        """The matrix's column names."""
        return self.encoder.names

    @property
    def categorical(self) -> list[int]:
        """Places of codes."""
        return self.encoder.categorical

    def transform(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Encode and repair raw columns; shape [n, len(names)]."""
        matrix, codes = self.encoder.transform(columns), self.groups.transform(columns)
        keep, move = np.float32(1.0 - self.amount), np.float32(self.amount)
        for column, maps in zip(self.places, self.maps, strict=True):
            x = matrix[:, column].copy()
            for group, steps in enumerate(maps):
                rows = (codes == group) & ~np.isnan(x)
                matrix[rows, column] = keep * x[rows] + move * steps(x[rows])
        return matrix

    def add_to(self, graph: GraphBuilder) -> str:
        """Put the encoder, the groups and the steps into a graph; gives the matrix's name."""
        matrix = self.encoder.add_to(graph)
        if not self.places:
            return matrix
        wanted = graph.constant(self.places, np.int64)
        x = graph.node("Gather", [matrix, wanted], axis=1)
        codes = graph.node("Cast", [self.groups.add_to(graph)], to=_FLOAT)
        trees = [
            step_tree([(steps.edges, steps.values) for steps in maps], index + 1)
            for index, maps in enumerate(self.maps)
        ]
        stepped = add_ensemble(
            graph,
            graph.node("Concat", [codes, x], axis=1),
            trees,
            outputs=list(range(len(trees))),
            base=[0.0] * len(trees),
        )
        part_kept = graph.node("Mul", [x, 1.0 - self.amount])
        moved = graph.node("Mul", [stepped, self.amount])
        repaired = graph.node("Where", [graph.node("IsNaN", [x]), x, graph.node("Add", [part_kept, moved])])
        untouched = [index for index in range(len(self.names)) if index not in self.places]
        if not untouched:
            return repaired
        rest = graph.node("Gather", [matrix, graph.constant(untouched, np.int64)], axis=1)
        both = graph.node("Concat", [repaired, rest], axis=1)
        order = np.argsort([*self.places, *untouched])
        return graph.node("Gather", [both, graph.constant(order, np.int64)], axis=1)


class DisparateImpactRemover(PreProcessor):
    """Bring every numeric feature to the same distribution in all groups, keeping the order within each: a baseline.

    A baseline to compare with: it has not lowered disparities beyond chance on public data. Prefer ``linear-post``,
    ``threshold-optimizer`` or ``fairgbm``.
    The sensitive columns are no features of the learner, but the model reads them, to repair each row that it
    scores. Text is left as it is (the notes say which), and so is what numbers tell about groups jointly. Of
    numbers with few distinct values the distributions become alike only as far as ties allow.
    """

    name = "disparate-impact-remover"
    tasks = ("binary", "multiclass", "regression")
    citation = (
        "Feldman, Friedler, Moeller, Scheidegger & Venkatasubramanian, Certifying and removing disparate "
        "impact, KDD 2015, doi:10.1145/2783258.2783311"
    )
    learners = (*LEARNERS, INSTALLED)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PreParameters):
        """See `DisparateImpactRemover`."""

        sensitive: str | None = fairkit.parameter(
            None, help="The split to repair for, such as sex+race; default: the only one, else all crossed."
        )
        repair: float = fairkit.parameter(
            1.0, help="How far to move every value: 0 not at all, 1 to the common distribution.", minimum=0, maximum=1
        )
        quantiles: int = fairkit.parameter(1000, help="The most steps of a column's map in each group.", minimum=2)

    def prepare(self, table: Table, run: Run) -> Prepared:
        """Learn the maps."""
        groups = table.only_groups(self.parameters.sensitive)
        encoding = learn_repair(
            table, groups, self.learner(run), amount=self.parameters.repair, most=self.parameters.quantiles
        )
        left = [c.name for c in encoding.encoder.columns if not isinstance(c, NumberColumn)]
        notes = (f"Text columns are not repaired: {', '.join(left)}.",) if left else ()
        return Prepared(table=table, encoder=encoding, notes=notes)


def learn_repair(
    table: Table, groups: Groups, learner: str, *, amount: float = 1.0, most: int = 1000
) -> RepairedEncoding:
    """Learn the encoding that repairs a table's numeric features."""
    codes = GroupCodes.learn(table.columns, groups)
    sensitive = {column.name for column in codes.keys.columns}
    features = tuple(name for name in table.features if name not in sensitive)
    if not features:
        raise fairkit.DataError(f"{table.name}: all features are sensitive; nothing is left to learn from")
    encoder = encoder_for(learner, dataclasses.replace(table, features=features))
    numbers = {column.name for column in encoder.columns if isinstance(column, NumberColumn)}
    places = [index for index, name in enumerate(encoder.names) if name in numbers]
    matrix, weights = encoder.transform(table.columns).astype(np.float64), table.row_weights()
    used, maps = [], []
    for position in places:
        x = matrix[:, position]
        rows = [np.flatnonzero((groups.codes == g) & ~np.isnan(x) & (weights > 0)) for g in range(len(groups.names))]
        if all(len(part) for part in rows):
            used.append(position)
            maps.append(median_repair([x[part] for part in rows], [weights[part] for part in rows], most))
    return RepairedEncoding(encoder=encoder, groups=codes, places=used, maps=maps, amount=amount)


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [DisparateImpactRemover]
