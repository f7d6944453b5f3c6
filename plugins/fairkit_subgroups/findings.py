"""Findings: the bound for all groups, the same by metric, and each group that is listed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.auditing.measure import views
from fairkit.errors import DataError, ModelError
from fairkit.results.findings import Finding, GroupValue, in_words
from fairkit.support.lazy_dataclass import dataclass
from fairkit_subgroups.parameters import DIFFERENCE, GAP, SINGLE
from fairkit_subgroups.searching.cells import ColumnCells, Family, make_cells, tally, too_long
from fairkit_subgroups.searching.local_search import (
    Bounds,
    Group,
    People,
    RankedGroup,
    Search,
    Size,
    Surest,
    covers,
    worst,
)
from fairkit_subgroups.searching.measures import RESIDUAL, SOFT, STATES, Measure, values_of, width_of
from fairkit_subgroups.searching.tables import RowSample, Totals, count, hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.arrow_types import Batch
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Interval
    from fairkit.statistics import Rows
    from fairkit_subgroups.parameters import Parameters


@dataclass(frozen=True)
class SharedFacts:
    """What all findings of one audit share."""

    auditor: str
    statement: Statement
    settings: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def searched(self) -> Searched:
        """What was searched."""
        return self.statement.searched

    def unit(self, measure: Measure) -> float:
        """Return the size of a difference of 1 in the unit of the metric."""
        return self.searched.unit if measure.kind == "loss" else 1.0

    def conditions(self, group: Group) -> list[dict[str, Any]]:
        """Return the conditions of a group."""
        return self.searched.family.conditions(group.table, group.number)

    def within(self, group: Group) -> list[dict[str, Any]]:
        """Return the conditions of a group's stratum."""
        return self.searched.stratum(group.layer * self.searched.halves)

    def words(self, group: Group) -> str:
        """Return both in words."""
        return in_words(self.conditions(group), self.within(group))


def findings(
    auditor: str, searched: Searched, chosen: Parameters, total: Totals, context: AuditContext
) -> list[Finding]:
    """Turn totals into findings."""
    statement = Statement(searched, chosen, total, context.confidence)
    statement.check()
    facts = SharedFacts(auditor, statement, _settings(searched, chosen), _notes(searched, chosen))
    by_metric, single = [], []
    for measure in searched.measures:
        listed = statement.listed(measure)
        ends = statement.ends(measure, context.confidence)
        by_metric.append((measure, _of_metric(facts, measure, ends, listed)))
        single += [_single(facts, measure, candidate, index) for index, candidate in enumerate(listed, 1)]
    whole = _whole(facts, by_metric)
    return [*whole, *(finding for _, finding in by_metric), *single]


def _settings(searched: Searched, chosen: Parameters) -> dict[str, Any]:
    return {
        "columns": [column.name for column in searched.family.columns],
        "depth": chosen.depth,
        "share": chosen.share,
        "least": chosen.least,
        "bins": chosen.bins,
        "within": list(chosen.within),
        "simultaneous": chosen.simultaneous,
        "validate": chosen.validate,
    }


def _notes(searched: Searched, chosen: Parameters) -> tuple[str, ...]:
    family = searched.family
    most = min(chosen.depth, len(family.columns))
    many = f"at most {most} conditions" if most > 1 else "one condition"
    notes = [
        f"Searched: every group described by {many} on {too_long([c.name for c in family.columns])} that has at least "
        f"{chosen.share:.3g} of the rows, and {chosen.least} rows in the denominator, inside and outside."
    ]
    if searched.left:
        left = "; ".join(f"{name}: {reason}" for name, reason in sorted(searched.left.items())[:6])
        notes.append(f"Not searched: {left}.")
    if searched.weight:
        notes.append("Weighted rows count with their effective number: the tails are then not exact.")
    if chosen.validate == "half":
        notes.append(
            "Groups were found in one half of the rows and tested in the other: there is no bound for all groups."
        )
    return tuple(notes)


def _of_metric(facts: SharedFacts, measure: Measure, ends: Ends, listed: list[RankedGroup]) -> Finding:
    statement, unit = facts.statement, facts.unit(measure)
    confidence = statement.confidence

    def at(level: float) -> Interval:
        found = ends if level == confidence else statement.ends(measure, level)
        return found.low * unit, found.high * unit

    evidence: dict[str, Any] = {
        "groups_searched": statement.searches[measure.name].groups,
        "statements": _statements(statement),
        "critical": statement.searches[measure.name].level(statement.alpha(measure, confidence)).critical,
        "listed": len(listed),
    }
    if ends.bounds:
        bounds = [(share, bound) for share, bound in zip(statement.shares, ends.bounds, strict=True) if bound]
        evidence["share_curve"] = [
            number for share, bound in bounds for number in (share, min(bound.at_most, 1.0) * unit)
        ]
    if ends.surest is not None:
        evidence["conditions"] = facts.conditions(ends.surest.group)
        if facts.within(ends.surest.group):
            evidence["within"] = facts.within(ends.surest.group)
        evidence["rows"] = round(ends.surest.rows)
    if len(listed) > 1:
        evidence["covers"] = [cell for row in statement.covers(listed) for cell in row]
    return Finding(
        auditor=facts.auditor,
        metric=f"{measure.name}_{DIFFERENCE}",
        value=None if ends.surest is None else abs(ends.surest.difference) * unit,
        interval=None if ends.surest is None else at(confidence),
        confidence=confidence,
        better="lower",
        parameters={"measure": measure.name, **facts.settings},
        evidence=evidence,
        notes=facts.notes,
        interval_at=at,
    )


def _statements(statement: Statement) -> int:

    return TESTED * len(statement.searches) if statement.chosen.validate == "half" else statement.groups


def _whole(facts: SharedFacts, by_metric: list[tuple[Measure, Finding]]) -> list[Finding]:
    """Return the bound over all metrics, under its two names."""
    bounded = [finding for _, finding in by_metric if finding.interval is not None]
    surest = max(bounded, key=lambda finding: (finding.interval or (0, 0))[0], default=None)

    def at(level: float) -> Interval:
        ends = [pair for finding in bounded if finding.interval_at and (pair := finding.interval_at(level))]
        return max(low for low, _ in ends), max(high for _, high in ends)

    evidence: dict[str, Any] = {"groups_searched": sum(f.evidence["groups_searched"] for _, f in by_metric)}
    if surest is not None:
        evidence["measure"] = surest.parameters["measure"]
        evidence |= {k: surest.evidence[k] for k in ("conditions", "within", "rows") if k in surest.evidence}
    interval_at: Callable[[float], Interval] | None = at if bounded else None
    names = [measure.name for measure, _ in by_metric]
    return [
        Finding(
            auditor=facts.auditor,
            metric=name,
            value=None if surest is None else surest.value,
            interval=None if interval_at is None else interval_at(facts.statement.confidence),
            confidence=facts.statement.confidence,
            better="lower",
            parameters={"metrics": names, **facts.settings},
            evidence=evidence,
            notes=facts.notes if surest is not None else (*facts.notes, "No group was found in the first half."),
            interval_at=interval_at,
        )
        for name in (DIFFERENCE, GAP)
    ]


def _single(facts: SharedFacts, measure: Measure, ranked: RankedGroup, rank: int) -> Finding:
    statement, unit = facts.statement, facts.unit(measure)
    rows = statement.total.rows / facts.searched.halves
    evidence: dict[str, Any] = {
        "conditions": facts.conditions(ranked.group),
        "rows": round(ranked.rows),
        "share": ranked.rows / rows,
        "rate": ranked.value * unit,
        "rest": ranked.rest * unit,
        "rank": rank,
        "groups_searched": statement.searches[measure.name].groups,
        "critical": statement.searches[measure.name].level(statement.alpha(measure, statement.confidence)).critical,
    }
    if within := facts.within(ranked.group):
        evidence["within"] = within
    against = "mean score" if measure.kind == "residual" else "everybody else"
    return Finding(
        auditor=facts.auditor,
        metric=SINGLE,
        value=ranked.difference * unit,
        interval=(ranked.low * unit, ranked.high * unit),
        confidence=statement.confidence,
        parameters={"measure": measure.name, "group": facts.words(ranked.group), **facts.settings},
        groups=(
            GroupValue(group=facts.words(ranked.group), rows=round(ranked.rows), value=ranked.value * unit),
            GroupValue(group=against, rows=round(rows - ranked.rows), value=ranked.rest * unit),
        ),
        evidence=evidence,
        inconclusive=f"it is one of many groups: a rule on {DIFFERENCE} is about all of them",
    )


# What one audit can say: for every metric the surest difference, the bound for all groups, and the list.


SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Where the curve of the certificate is shown, besides the least share."""

TESTED = 10
"""How many groups are tested on the other half."""


class Ends(NamedTuple):
    """What holds for all groups at once: the surest difference, and by share the largest possible one."""

    surest: RankedGroup | None
    bounds: tuple[RankedGroup | None, ...]

    @property
    def low(self) -> float:
        """The largest difference is at least this."""
        return 0.0 if self.surest is None else self.surest.surely

    @property
    def high(self) -> float:
        """The largest difference is at most this."""
        return 1.0 if not self.bounds or self.bounds[0] is None else min(self.bounds[0].at_most, 1.0)


@dataclass(frozen=True)
class Statement:
    """Searches with the totals of an audit."""

    searched: Searched  # what was searched
    chosen: Parameters  # how
    total: Totals  # what was counted
    confidence: float  # of everything together

    @property
    def soft(self) -> bool:
        """Whether decisions are randomized or weighted."""
        return SOFT in self.total.tables

    @functools.cached_property
    def searches(self) -> dict[str, Search]:
        """By metric; with halves, those of the first one."""
        return {measure.name: self._search(measure, 0) for measure in self.searched.measures}

    @property
    def groups(self) -> int:
        """G: how many statements hold together."""
        return sum(search.groups for search in self.searches.values())

    @functools.cached_property
    def people(self) -> People:
        """The rows to tell groups apart; with halves, those of the first one."""
        halves = self.searched.halves
        return People.of(self.total.kept, self.total.rows, range(0, self.searched.layers, halves))

    @functools.cached_property
    def shares(self) -> list[float]:
        """Where the curve is shown."""
        return [self.chosen.share, *(share for share in SHARES if share > self.chosen.share)]

    def alpha(self, measure: Measure, confidence: float) -> float:
        """Return α' of one group: what may go wrong, over the number of groups."""
        wrong = 1 - confidence
        if self.chosen.validate == "half":
            return wrong / TESTED / len(self.searches)
        if self.chosen.simultaneous == "bootstrap":
            from fairkit_subgroups.searching.local_search import level

            search = self.searches[measure.name]
            return level(search, self._maxima[measure.name], wrong / len(self.searches))
        return wrong / max(self.groups, 1)

    def ends(self, measure: Measure, confidence: float) -> Ends:
        """Return the ends of the simultaneous statement about all groups, at a confidence."""
        if self.chosen.validate == "half":
            tested = self.tested(measure, confidence)
            size = Size(sure=True)
            return Ends(max(tested, key=size.one, default=None), ())
        search, alpha = self.searches[measure.name], self.alpha(measure, confidence)
        surest, bounds = Surest(0, above=-np.inf), Bounds(self.shares, self.total.rows)
        search.look(alpha, [surest, bounds])
        result = surest.result(search, alpha)
        return Ends(result[0] if result else None, tuple(bounds.result(search, alpha)))

    def listed(self, measure: Measure) -> list[RankedGroup]:
        """Return the groups to show."""
        if self.chosen.validate == "half":
            size = Size(sure=True, sign=measure.worse)
            candidates = [candidate for candidate in self.tested(measure, self.confidence) if size.one(candidate) > 0]
            return candidates[: self.chosen.show]
        alpha = self.alpha(measure, self.confidence)
        return worst(self.searches[measure.name], self.people, alpha, self.chosen.show, share=self.chosen.share)

    def tested(self, measure: Measure, confidence: float) -> list[RankedGroup]:
        """Return groups that were found in the first half, measured in the other."""
        alpha = self.alpha(measure, confidence)
        test = self._search(measure, 1)
        return [test.at(group, alpha) for group in self._candidates[measure.name] if test.large(group)]

    @functools.cached_property
    def _candidates(self) -> dict[str, list[Group]]:
        """By metric: what the first half gives to test."""
        alpha = (1 - self.confidence) / TESTED / len(self.searches)
        return {
            name: [candidate.group for candidate in worst(search, self.people, alpha, TESTED, share=self.chosen.share)]
            for name, search in self.searches.items()
        }

    @functools.cached_property
    def _maxima(self) -> dict[str, NDArray[np.float64]]:
        """By metric: draws of the largest standardised difference."""
        from fairkit_subgroups.searching.local_search import draws

        sample, seed = self.people.kept, self.searched.seed
        return {name: draws(search, sample, seed) for name, search in self.searches.items()}

    def covers(self, groups: Sequence[RankedGroup]) -> list[list[float]]:
        """Return which part of each group is in each other one."""
        return covers(self.searched.family, self.people, [group.group for group in groups])

    def check(self) -> None:
        """Refuse a table in which no group is large enough."""
        for search in self.searches.values():
            if search.groups:
                continue
            over = "rows" if search.measure.over == (1, 1, 1, 1) else "rows that the rate is over"
            raise DataError(
                f"subgroups: of {self.total.rows:,} rows no group has {self.chosen.share:.3g} of the rows and "
                f"{search.least:.0f} {over}, inside and outside, for {search.measure.name}; add rows, lower `least` or "
                "`share`, or search columns with fewer values"
            )

    def _search(self, measure: Measure, half: int) -> Search:
        tables = self.total.tables[measure.statistic(self.soft)]
        halves = self.searched.halves
        return Search(
            family=self.searched.family,
            measure=measure,
            tables=tables[half::halves],
            weighted=self.searched.weight > 0,
            soft=self.soft,
            rows=self.chosen.share * self.total.rows / halves,
            least=float(self.chosen.least),
        )


# What is searched: columns in cells, strata, and what each row adds to the tables.


MOST_STRATA = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Everything that is known before a row is scored."""

    family: Family  # the groups
    strata: tuple[ColumnCells, ...]  # the columns inside whose values groups are compared, in cells
    measures: tuple[Measure, ...]  # what is measured
    halves: int  # 2 where half of the rows is for testing, else 1
    weight: float  # the largest weight; 0 without weights
    unit: float  # what a loss of 1 is in the label's unit
    squared: bool  # whether losses are squares of differences of probabilities
    seed: int  # of the split in halves
    left: dict[str, str]  # why columns are not searched

    @property
    def layers(self) -> int:
        """How many copies of the tables there are: strata, times halves."""
        return int(np.prod([stratum.size for stratum in self.strata], dtype=np.int64)) * self.halves

    def stratum(self, layer: int) -> list[dict[str, Any]]:
        """Return the conditions that make a layer's stratum."""
        number, columns = layer // self.halves, []
        for column in reversed(self.strata):
            number, cell = divmod(number, column.size)
            columns.append(column.condition((cell, cell)))
        return columns[::-1]

    def statistics(self, *, soft: bool) -> list[str]:
        """Return the names of the statistics that are counted."""
        return list(dict.fromkeys(measure.statistic(soft) for measure in self.measures))

    def count(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Totals:
        """Count the rows of a batch that have a weight."""
        if self.weight and batch.weights is not None and not bool((batch.weights > 0).all()):
            keep = batch.weights > 0
            batch, predictions = batch.take(keep), predictions.take(keep)
        rows = next(iter(views(batch, predictions, context.scorer, context.dataset)))[1]
        columns = {column.name: batch.arrow(column.name) for column in (*self.family.columns, *self.strata)}
        codes = self.family.encode(columns)
        keys = hashes(batch.rows, self.seed)
        layer = np.zeros(len(batch), dtype=np.int64)
        for column in self.strata:
            layer = layer * column.size + column.encode(columns[column.name])
        if self.halves == 2:
            layer = 2 * layer + (keys & np.uint64(1)).astype(np.int64)
        values = self.values(rows)
        widths = {name: width_of(name, weighted=self.weight > 0) for name in values}
        sample = RowSample(keys, codes, layer, values).smallest()
        return Totals(count(self.family, codes, layer, values, widths, self.layers), len(batch), sample)

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
        column: edge
        for split in data.roles.sensitive
        for column, edge in zip(split.columns, split.edges, strict=True)
        if edge is not None
    }
    found, left = make_cells(tallies, tallies.rows, share=chosen.share, bins=chosen.bins, edges=edges)
    cells = [column for column in found if column.name in names and column.name not in chosen.within]
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
    for column in made:
        many = len(getattr(tallies.columns[column.name], "values", ())) > column.plain
        if many or column.size > MOST_STRATA:
            raise DataError(
                f"subgroups.within: column {column.name!r} of {table} has more than {MOST_STRATA} values; "
                "compare inside a column with fewer"
            )
    return made


def _unit(context: AuditContext) -> float:
    if context.scorer.task != "regression":
        return 1.0
    low, high = context.dataset.profile.label_range or (0.0, 1.0)
    return (high - low) or 1.0
