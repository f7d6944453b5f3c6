"""Rankings with a limit on disparities of exposure, of places in the top, or of exposure for relevance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fairkit
from fairkit.capabilities import FRACTIONS
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import Capability, FittedModel, Mitigator, Prediction, Run, Table
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit.settings import ModelOptions
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.read.outputs import SCORE
from fairkit_onnx.write.compose import Appender, favorable_score, group_codes
from fairkit_onnx.write.export import BaseModel, as_input
from fairkit_onnx.write.rules import learn_keys
from fairkit_rankings import TOP, Chunk, adjusted, per_relevance, queries_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.file import OnnxModel
    from fairkit_onnx.write.rules import GroupKeys
    from fairkit_rankings import Queries

    Array = NDArray[np.float64]


__all__ = ["ExposureShift"]


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [ExposureShift]


# The plugin `exposure`: parameters, the rows as rankings, and the model with shifts by group.


MOST_ROWS = 200_000
"""Shifts are learned from whole queries of about so many items at most, drawn by the seed."""
_MET = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedModel(FittedModel):
    """A ranker whose scores are shifted by group."""

    base: BaseModel  # the ranker
    keys: GroupKeys  # how raw columns become one of K groups
    shifts: NDArray[np.float64]  # K + 1 numbers that are added to the scores; the last, for other values, is 0
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score items given as raw columns."""
        moved = self.base.scores(columns) + self.shifts[self.keys.codes(columns)]
        return Prediction(score=moved.astype(np.float32).astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return the base model's graph with the shifts appended."""
        return self.base.extended(self._shifted)

    def _shifted(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        graph = Appender(proto)
        group = group_codes(graph, self.keys, self.base.column_inputs)
        plain = graph.cast(graph.cast(favorable_score(graph, self.base.head), np.float32), np.float64)
        shift = graph.node("Gather", [graph.constant(self.shifts.reshape(-1, 1)), group], axis=0)
        graph.output(SCORE, graph.cast(graph.node("Add", [plain, shift]), np.float32), np.float32)
        return graph.finish()

    def runner(self, proto: onnx.ModelProto) -> Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]:
        """Return a function from raw columns to the outputs of the graph."""
        from fairkit_onnx.file import OnnxModel

        loaded = OnnxModel.load(proto, sandbox=self.base.model.sandbox)

        def run(columns: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
            feeds = self.base.feeds(columns)
            for column in self.keys.columns:
                if column.name not in self.base.column_inputs:
                    kind = "tensor(string)" if column.is_text else "tensor(float)"
                    feeds[column.name] = as_input(columns[column.name], kind)
            return loaded.run(feeds, [SCORE])

        return run


class ExposureShift(Mitigator):
    """Shift the scores of a ranker by group until a disparity over the training queries keeps its tolerance.

    Inside a group the order stays. Deterministic; the file reads the sensitive column, and scores each item by itself:
    it keeps a limit over queries, not in each of them.
    """

    name = "exposure"
    stage = "post"
    tasks = ("ranking",)
    citation = "Singh and Joachims 2018, Fairness of Exposure in Rankings, doi:10.1145/3219819.3220088"
    capabilities = (
        Capability(
            constraints=("exposure",),
            settings={"constraint": "exposure"},
            dial="tolerance",
            steps=FRACTIONS,
            reads_group=True,
            trainings=0,
        ),
        Capability(
            constraints=("top_k_rate",),
            settings={"constraint": "top_k_rate"},
            dial="tolerance",
            steps=FRACTIONS,
            reads_group=True,
            trainings=0,
        ),
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `ExposureShift`."""

        constraint: Literal["exposure", "top_k_rate", "disparate_treatment"] = parameter(
            "exposure",
            help="What must be equal: mean exposure, the share of items among the first k, or exposure for relevance.",
        )
        tolerance: float = parameter(
            0.0,
            help="The largest difference between groups; of disparate_treatment, 1 minus the smallest ratio.",
            minimum=0,
            maximum=1,
        )
        top_k: int = parameter(TOP, help="How many places of a ranking are its top.", minimum=1)
        sensitive: str | None = parameter(
            None, help="The sensitive column to work on, such as sex+race; default: all of them, crossed."
        )
        min_group: int = parameter(30, help="The least items of a group.", minimum=1)
        score_output: str | None = parameter(None, help="The model's output that holds the scores.")

    def promises(self) -> Sequence[Rule]:
        """Bound the disparity by the tolerance."""
        chosen = self.parameters
        if chosen.constraint == "disparate_treatment":
            return (Rule(metric="disparate_treatment_ratio", min=1 - chosen.tolerance),)
        return (Rule(metric=f"{chosen.constraint}_difference", max=chosen.tolerance),)

    def model_options(self) -> ModelOptions:
        """Return the options for the base model's outputs, from the method's parameters."""
        return ModelOptions(task="ranking", score_output=self.parameters.score_output)

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> ShiftedModel:
        """Score the items and learn the shifts."""
        if model is None:
            raise ParameterError(f"{self.name} repairs a model: name its file with `model`")
        if table.task != "ranking" or table.queries is None:
            raise DataError(f"{table.name}: {self.name} works on rankings; name the column of queries with `query`")
        self.learner(run)
        graded = table.roles.favorable is None
        base = BaseModel(
            model,
            table,
            ModelOptions(task="regression" if graded else "binary", score_output=self.parameters.score_output),
        )
        keys = self._keys(table)
        used = _some_queries(table, run)
        chosen = self.parameters
        items = _items(used, keys, base.scores(used.columns))
        shifts, before, after = learn_shifts(
            items,
            len(keys.names),
            chosen.constraint,
            chosen.tolerance,
            chosen.top_k,
            lambda step: run.progress("shifting groups", step, 60),
        )
        reached = disparity(chosen.constraint, after)
        notes = list(base.notes)
        if reached > chosen.tolerance + _MET:
            notes.append(
                f"The tolerance {chosen.tolerance:g} was not reached on the training queries: the disparity is "
                f"{reached:.3g}. Equal scores, or queries with few items, leave larger steps than that."
            )
        return ShiftedModel(
            base=base,
            keys=keys,
            shifts=np.append(shifts, 0.0),
            details={
                "base_model": model.sha256,
                "shifts": dict(zip(keys.names, shifts.tolist(), strict=True)),
                "training_queries": {
                    "queries": int(items.query[-1]) + 1,
                    "before": disparity(chosen.constraint, before),
                    "after": reached,
                },
            },
            notes=tuple(notes),
        )

    def _keys(self, table: Table) -> GroupKeys:
        groups = table.only_groups(self.parameters.sensitive)
        sizes = groups.sizes()
        if sizes.min() < self.parameters.min_group:
            raise DataError(
                f"{table.name}: group {groups.names[int(sizes.argmin())]!r} has {int(sizes.min())} items, fewer than "
                f"min_group={self.parameters.min_group}; merge groups, add rows, or lower the parameter `min_group=N`"
            )
        return learn_keys(table.columns, groups)


def _some_queries(table: Table, run: Run) -> Table:
    """Return whole queries of at most about `MOST_ROWS` items."""
    if len(table) <= MOST_ROWS:
        return table
    assert table.queries is not None  # noqa: S101 -- a table of rankings
    sizes = np.bincount(table.queries)
    order = run.rng().permutation(len(sizes))
    keep = np.zeros(len(sizes), dtype=bool)
    keep[order[np.cumsum(sizes[order]) <= MOST_ROWS]] = True
    return table.take(keep[table.queries])


def _items(table: Table, keys: GroupKeys, scores: NDArray[np.float64]) -> Chunk:
    assert table.queries is not None  # noqa: S101 -- a table of rankings
    order = np.argsort(table.queries, kind="stable")
    return Chunk(
        table.queries[order].astype(np.uint64),
        scores[None, order],
        table.target[order],
        {"group": keys.codes(table.columns)[order]},
    )


# Shifts of scores by group that bring a disparity between rankings' groups down to a tolerance.


_BISECTIONS = 22
_ROUNDS = 60

NUMBERS: dict[str, Callable[[Queries], Array]] = {
    "exposure": lambda queries: adjusted(queries.exposure, queries)[0],
    "top_k_rate": lambda queries: adjusted(queries.top, queries)[0],
    "disparate_treatment": lambda queries: per_relevance(queries.exposure, queries)[0],
}
"""Each constraint's number in every group."""


def disparity(constraint: str, values: Array) -> float:
    """Return the largest difference, of `disparate_treatment` 1 - the smallest ratio; 0 for fewer than two groups."""
    finite = values[np.isfinite(values)]
    if len(finite) < 2:
        return 0.0
    if constraint == "disparate_treatment":
        return float(1 - finite.min() / finite.max()) if finite.max() > 0 else 0.0
    return float(finite.max() - finite.min())


def learn_shifts(
    items: Chunk, groups: int, constraint: str, tolerance: float, k: int, progress: Callable[[int], None]
) -> tuple[Array, Array, Array]:
    """Return shifts whose rankings keep the tolerance, as small as it takes.

    The group that is worst off is lifted until it keeps the tolerance with the one that is best off, then the next.
    """
    scores, codes = items.scores[0], items.groups["group"]
    size = float(np.ptp(scores)) * (1 + 1e-9) if len(scores) else 0.0

    def numbers(shifts: Array) -> Array:
        moved = (scores + shifts[codes]).astype(np.float32).astype(np.float64)
        shown = type(items)(items.query, moved[None], items.relevance, items.groups)
        return NUMBERS[constraint](queries_of(shown, k, [("group", groups)])[0])

    shifts = np.zeros(groups)
    before = values = numbers(shifts)
    for index in range(_ROUNDS):
        progress(index)
        if size == 0 or disparity(constraint, values) <= tolerance:
            break
        worst = int(np.nanargmin(values))
        low, high = 0.0, size + float(shifts.max() - shifts[worst])
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            trial = shifts.copy()
            trial[worst] += middle
            found = numbers(trial)
            others = np.delete(found, worst)
            pair = np.array([found[worst], np.nanmax(others)])
            near = found[worst] >= pair[1] or disparity(constraint, pair) <= tolerance
            low, high = (low, middle) if near else (middle, high)
        shifts[worst] += high
        values = numbers(shifts)
    centred = shifts - shifts.mean()
    return centred, before, numbers(centred)
