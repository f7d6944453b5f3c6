"""What is searched: columns in cells, strata, and what each row adds to the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing.views import views
from fairkit.errors import DataError, ModelError
from fairkit_subgroups.searching.cells import ColumnCells, make_cells
from fairkit_subgroups.searching.family import Family
from fairkit_subgroups.searching.measures import RESIDUAL, SOFT, STATES, Measure, values_of, width_of
from fairkit_subgroups.searching.tables import RowSample, Totals, count, hashes
from fairkit_subgroups.searching.values import tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.batch import Batch
    from fairkit.models.scorer import Predictions
    from fairkit.statistics import Rows
    from fairkit_subgroups.parameters import Parameters

MOST_STRATA = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Everything that is known before a row is scored."""

    family: Family  # the groups
    strata: tuple[ColumnCells, ...]  # the columns inside whose values groups are compared, in cells
    measures: tuple[Measure, ...]  # what is measured
    halves: int  # 2 where half of the rows is for testing, else 1
    weight: float  # the largest weight; 0 without weights
    unit: float  # what a loss of 1 is in the label's unit; whether losses are squares of differences of probabilities
    squared: bool  # what a loss of 1 is in the label's unit; whether losses are squares of differences of probabilities
    seed: int  # of the split in halves
    left: dict[str, str]  # why columns are not searched

    @property
    def layers(self) -> int:
        """How many copies of the tables there are: strata, times halves."""
        return int(np.prod([one.size for one in self.strata], dtype=np.int64)) * self.halves

    def stratum(self, layer: int) -> list[dict[str, Any]]:
        """Return the conditions that make a layer's stratum."""
        number, found = layer // self.halves, []
        for column in reversed(self.strata):
            number, cell = divmod(number, column.size)
            found.append(column.condition((cell, cell)))
        return found[::-1]

    def statistics(self, *, soft: bool) -> list[str]:
        """Return the names of the statistics that are counted."""
        return list(dict.fromkeys(measure.statistic(soft) for measure in self.measures))

    def count(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Totals:
        """Count the rows of a batch that have a weight."""
        if self.weight and batch.weights is not None and not bool((batch.weights > 0).all()):
            keep = batch.weights > 0
            batch, predictions = batch.take(keep), predictions.take(keep)
        rows = next(iter(views(batch, predictions, context.scorer, context.dataset)))[1]
        columns = {one.name: batch.arrow(one.name) for one in (*self.family.columns, *self.strata)}
        codes = self.family.encode(columns)
        keys = hashes(batch.rows, self.seed)
        layer = np.zeros(len(batch), dtype=np.int64)
        for column in self.strata:
            layer = layer * column.size + column.encode(columns[column.name])
        if self.halves == 2:
            layer = 2 * layer + (keys & np.uint64(1)).astype(np.int64)
        values = self.values(rows)
        widths = {name: width_of(name, weighted=self.weight > 0) for name in values}
        kept = RowSample(keys, codes, layer, values).smallest()
        return Totals(count(self.family, codes, layer, values, widths, self.layers), len(batch), kept)

    def values(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """Return the rows' contributions to the tables, by statistic."""
        decision, score = rows.decision, rows.score
        hard = decision is None or bool(((decision == 0) | (decision == 1)).all())
        weights = None if not self.weight or rows.weights is None else rows.weights / self.weight
        loss = None if score is None else self._loss(rows.outcome, score)
        by_statistic = {}
        for name in self.statistics(soft=self.weight > 0 or not hard):
            if name in (STATES, SOFT) and decision is None:
                raise ModelError("subgroups: the model gives no decisions; set subgroups.metrics to mean_loss")
            if name not in (STATES, SOFT) and score is None:
                raise ModelError(
                    "subgroups: the model gives no scores, and mean_loss and calibration_residual are about scores; "
                    "set subgroups.metrics to error_rate or selection_rate"
                )
            if name == RESIDUAL and score is not None and not bool(((score >= 0) & (score <= 1)).all()):
                raise ModelError("subgroups: calibration_residual needs scores that are probabilities, in [0, 1]")
            by_statistic[name] = values_of(name, rows.outcome, decision, score, loss, weights)
        return by_statistic

    def _loss(self, outcome: NDArray[np.float64], score: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each row's loss in [0, 1]: the squared difference of a probability, the absolute one of a number."""
        apart = np.abs(outcome - score)
        return np.minimum(apart**2 if self.squared else apart / self.unit, 1.0)


def search_for(
    chosen: Parameters, names: list[str], named: bool, measures: list[Measure], context: AuditContext
) -> Searched:
    """Look at the columns once, without the model, and make their cells."""
    data = context.dataset
    wanted = [*names, *(name for name in chosen.within if name not in names)]
    shared = context.engine.share(data.without_rows())
    tallies = context.engine.total(tally, data.source, shared, wanted)
    if tallies is None:
        raise DataError(f"subgroups: no row of {data.name} has a weight above 0 in {data.roles.weights!r}")
    edges = {
        column: given
        for split in data.roles.sensitive
        for column, given in zip(split.columns, split.edges, strict=True)
        if given is not None
    }
    found, left = make_cells(tallies, tallies.rows, share=chosen.share, bins=chosen.bins, edges=edges)
    cells = [one for one in found if one.name in names and one.name not in chosen.within]
    left = {name: reason for name, reason in left.items() if name in names and name not in chosen.within}
    if left and (named or not cells):
        name, reason = next(iter(left.items()))
        more = f" ({len(left) - 1} more columns cannot be used either)" if len(left) > 1 else ""
        raise DataError(
            f"subgroups: column {name!r} of {data.name} can describe no group: {reason}{more}; "
            "name other columns with subgroups.columns"
        )
    if not cells:
        raise DataError("subgroups: all columns to search are in `within` too; name others with subgroups.columns")
    searched = Searched(
        family=Family(tuple(cells), chosen.depth),
        strata=tuple(_strata(chosen, tallies, data.name)),
        measures=tuple(measures),
        halves=2 if chosen.validate == "half" else 1,
        weight=tallies.weight,
        unit=_unit(context),
        squared=context.scorer.task != "regression",
        seed=context.seed,
        left=left,
    )
    sums = sum(width_of(s, weighted=searched.weight > 0) for s in searched.statistics(soft=searched.weight > 0))
    searched.family.check_size(sums, searched.layers)
    return searched


def _strata(chosen: Parameters, tallies: Any, table: str) -> list[ColumnCells]:
    some = type(tallies)({name: tallies.columns[name] for name in chosen.within}, tallies.rows)
    made, left = make_cells(some, tallies.rows, share=0.0, bins=MOST_STRATA, edges={})
    for name, reason in left.items():
        raise DataError(f"subgroups.within: column {name!r} of {table} makes no strata: {reason}")
    for one in made:
        many = len(getattr(tallies.columns[one.name], "values", ())) > one.plain
        if many or one.size > MOST_STRATA:
            raise DataError(
                f"subgroups.within: column {one.name!r} of {table} has more than {MOST_STRATA} values; "
                "compare inside a column with fewer"
            )
    return made


def _unit(context: AuditContext) -> float:
    if context.scorer.task != "regression":
        return 1.0
    low, high = context.dataset.profile.label_range or (0.0, 1.0)
    return (high - low) or 1.0
