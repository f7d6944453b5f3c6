"""What both auditors share: collect rows, make the metric, solve for each ε, write the findings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass
from fairkit_individual.support import Parts, Trend, described, pairs, restricted, shared_columns
from fairkit_individual.tables import Collected, collect, table_of
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.search.starting import check_memory, start_numba

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.engines.base import Spread
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit_individual.tables import AuditedRows, Rewards, Table
    from fairkit_similarity.search.problem import Problem, Solution


TREND_ROWS = 250_000
"""On a cluster fewer replacements are looked at, too, up to so many rows."""

METRIC_ROWS = 250_000
"""A metric is learned from at most so many rows, drawn at random from more."""

_NO_INTERVAL = (
    "transported_share has no interval: it says which part of these people the worst exchange moves, and estimates "
    "nothing about a population."
)

TOLERANCE = 1e-12
"""How closely upper and lower bound meet, in units of the reward."""

ALL_QUERIES, SAMPLED_QUERIES = 50_000, 25_000
"""Up to so many rows are all asked; of larger tables so many are, and all rows stay in the support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The rows of an audit, its metric, and the transport problem."""

    rows: Table
    metric: FairMetric
    problem: Problem
    notes: tuple[str, ...]
    parts: Parts


class CertificateAuditor(Auditor):
    """Collects all rows, then solves one transport problem for each ε."""

    metric_name: str
    spread = True

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """The metric's columns, and those that pairs are shown with."""
        self._check_epsilon()
        parameters = self.parameters
        check_subspace(parameters.fair_metric, parameters.strength, parameters.penalty, parameters.directions)
        wanted = metric_columns(self.parameters.fair_metric, self.parameters.columns, context)
        return shared_columns(wanted, context.scorer.columns, sensitive_columns(context))

    def begin(self, context: AuditContext) -> None:
        """Settle the columns."""
        self._columns = list(self.columns(context))

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Collected:
        """Keep the batch."""
        return collect(batch, predictions, self._columns)

    def findings(self, total: Spread, context: AuditContext) -> list[Finding]:
        """Solve, one finding for each ε in the order given."""
        prepared = self._prepare(table_of(total, context.engine), context)
        epsilons = list(self.parameters.epsilon)
        by_index: dict[int, Finding] = {}
        eta: float | None = None
        for done, index in enumerate(np.argsort(epsilons, kind="stable")[::-1].tolist()):
            context.progress(f"{self.name}: solving (the first run compiles)", done, len(epsilons))
            solution = prepared.problem.solve(epsilons[index], eta=eta, tolerance=TOLERANCE)
            eta = solution.eta
            by_index[index] = self._finding(solution, prepared, context)
        context.progress(f"{self.name}: solved", len(epsilons), len(epsilons))
        return [by_index[position] for position in range(len(epsilons))]

    @abstractmethod
    def rewards(self, rows: AuditedRows, task: Task, classes: Sequence[Any]) -> Rewards:
        """Compute every row's reward, a function of these rows alone."""

    @abstractmethod
    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        """What the number does not say."""

    @abstractmethod
    def _told(self, context: AuditContext) -> dict[str, Any]:
        """The parameters that a report names."""

    def _subspace(self) -> dict[str, Any]:
        """Return how a subspace was learned; nothing for the former way, whose certificates say nothing."""
        parameters = self.parameters
        if parameters.fair_metric != SUBSPACE or parameters.penalty == "summed":
            return {}
        named = {} if parameters.directions is None else {"directions": list(parameters.directions)}
        return {"strength": parameters.strength, "penalty": parameters.penalty, **named}

    def _check_epsilon(self) -> None:
        for value in self.parameters.epsilon:
            if not (np.isfinite(value) and value >= 0.0):
                raise ParameterError(
                    f"{self.name}: epsilon must be a finite squared distance, 0 or larger, not {value}"
                )
        if not self.parameters.epsilon:
            raise ParameterError(
                f"{self.name}: give at least one epsilon, as in the parameter `{self.name}.epsilon=0.1`"
            )

    def _prepare(self, rows: Table, context: AuditContext) -> Prepared:

        try:
            start_numba()
        except ImportError as error:
            raise MissingExtraError("numba", "individual") from error
        context.progress(f"{self.name}: making the fair metric", 0, 0)
        metric, notes = self._metric(rows, context)
        if self.parameters.save_metric:
            metric.save(self.parameters.save_metric)
        rows = self._restrict(rows, context)
        queries = self._asked(rows, context)
        weights = None
        if context.dataset.roles.weights is not None:
            weights = rows.take(np.arange(len(rows)) if queries is None else queries).get("weights")
        rewards = partial(self.rewards, task=context.scorer.task, classes=context.scorer.classes)
        problem, problem_notes = rows.problem(metric, rewards, queries, weights)
        parts = Parts(())
        if self._has_trend() and (context.engine.here or len(rows) <= TREND_ROWS):
            context.progress(f"{self.name}: cutting the people in quarters and halves", 0, 0)
            parts = Parts.of(
                rows, metric, rewards, queries, weighted=weights is not None, rng=context.rng(f"{self.name} support")
            )
        return Prepared(rows=rows, metric=metric, problem=problem, notes=(*problem_notes, *notes), parts=parts)

    def _has_trend(self) -> bool:
        """Tell whether the number is looked at with fewer possible replacements, too."""
        return True

    def _restrict(self, rows: Table, context: AuditContext) -> Table:
        """Keep as many people as `support` asks for."""
        size = self.parameters.support
        if size is None or size == len(rows):
            return rows
        if size > len(rows):
            raise ParameterError(
                f"{self.name}: support={size:,} people are more than the {len(rows):,} rows of the data; "
                f"take at most {len(rows):,}, or more data"
            )
        return restricted(rows, size, context.rng(f"{self.name} restricted support"))

    def _metric(self, rows: Table, context: AuditContext) -> tuple[FairMetric, tuple[str, ...]]:
        """Make the metric, of a sample where there are very many rows."""
        places, notes = np.arange(min(len(rows), METRIC_ROWS)), ()
        if len(rows) > METRIC_ROWS:
            draw = context.rng(f"{self.name} metric").choice(len(rows), METRIC_ROWS, replace=False)
            places = np.sort(draw)
        if self.parameters.fair_metric not in KINDS:
            places = places[:1]
        parameters = self.parameters
        metric = make_metric(
            parameters.fair_metric,
            parameters.columns,
            rows.take(places),
            context,
            strength=parameters.strength,
            penalty=parameters.penalty,
            directions=parameters.directions,
        )
        rows.check_memory(len(metric.encoder.features))
        if len(rows) > METRIC_ROWS and self.parameters.fair_metric == SUBSPACE:
            return metric, (f"The fair metric was learned from {METRIC_ROWS:,} rows, drawn at random.",)
        return metric, notes

    def _asked(self, rows: Table, context: AuditContext) -> NDArray[np.int64] | None:
        """The rows that are asked; None for all, where they are few enough."""
        wished = self.parameters.queries or (SAMPLED_QUERIES if len(rows) > ALL_QUERIES else ALL_QUERIES)
        if wished >= len(rows):
            return None
        return np.sort(context.rng(f"{self.name} queries").choice(len(rows), wished, replace=False))

    def _finding(self, solution: Solution, prepared: Prepared, context: AuditContext) -> Finding:
        from fairkit_similarity.learn import transport_plan
        from fairkit_similarity.outside import FEWEST, spread

        problem, rows, metric = prepared.problem, prepared.rows, prepared.metric
        sure = spread(solution, context.rng(f"{self.name} halves"))
        plan = transport_plan(solution)
        baseline = float(problem.mass @ problem.own)
        interval = sure.interval(context.confidence)
        few = None
        if interval is None:
            few = f"{self.name} has {sure.rows:.0f} effective rows; below {FEWEST} there is no interval"
        evidence = {
            "baseline_loss" if self.metric_name == "performance_gap" else "baseline": baseline,
            "dual": solution.eta,
            "lower_bound": max(solution.lower_bound - baseline, 0.0),
            "upper_confidence_bound": sure.upper_bound(context.confidence),
            "standard_error": sure.error if interval is not None else None,
            "evaluations": solution.evaluations,
            "looks_per_row": solution.looks / len(problem.asked),
            "transported_share": plan.moved,
            "mean_distance": plan.cost,
            "pairs": pairs(plan, problem, rows, self.parameters.pairs, context.scorer.task),
        }
        trend = prepared.parts.trend(solution.epsilon, sure.gap, len(rows), solution.eta, TOLERANCE)
        unmeasured = self._has_trend() and context.engine is not None and len(rows) > TREND_ROWS
        evidence |= described(trend, interval, len(rows), unmeasured=unmeasured)
        about = self._about_support(trend, evidence)
        query_count = len(problem.asked)
        sampled = (
            ()
            if query_count == len(rows)
            else (
                f"{query_count:,} sampled rows were asked, against all {len(rows):,} rows; the interval covers the "
                "sampling.",
            )
        )
        return Finding(
            auditor=self.name,
            metric=self.metric_name,
            value=sure.gap,
            interval=interval,
            confidence=context.confidence,
            better="lower",
            parameters={
                "epsilon": solution.epsilon,
                **self._told(context),
                "metric": metric_name(self.parameters.fair_metric),
                **self._subspace(),
                "metric_sha256": metric.sha256,
                "columns": list(metric.columns),
                "queries": query_count,
                "support": len(rows),
            },
            evidence=evidence,
            notes=(
                *about,
                _NO_INTERVAL,
                *self._notes(context),
                *prepared.notes,
                *sampled,
                *(() if few is None else (few + ".",)),
            ),
            inconclusive=few,
            interval_at=sure.interval,
            upper_at=sure.upper_bound,
        )

    def _about_support(self, trend: Trend | None, evidence: Mapping[str, Any]) -> tuple[str, ...]:
        """Say that the number is about these people as possible replacements, and whether more would raise it."""
        size = evidence["support"]
        said = f"{self.metric_name} is about these {size:,} people as possible replacements of each other."
        if trend is None:
            unmeasured = (
                f"On a cluster with more than {TREND_ROWS:,} people its growth is not measured: no rule passes that "
                f"does not name the number of people it is meant for ({self.metric_name}@{size})."
            )
            return (said, unmeasured) if evidence.get("climbs") else (said,)
        climbs = (
            f" It still climbs beyond its interval, by about {trend.climb:.2g} for each doubling: no rule passes that "
            f"does not name the number of people it is meant for ({self.metric_name}@{size})."
        )
        return (said, trend.note(self.metric_name) + (climbs if evidence["climbs"] else ""))


# Which fair metric an audit uses: learned from the sensitive columns, Euclidean, or from a file.


SUBSPACE = "subspace"
KINDS = (SUBSPACE, "euclidean")

STRENGTH = 0.1
"""The default l2 penalty of the subspace's regressions."""


def metric_name(kind: str) -> str:
    """Return the metric's name in a report: a kind, or a file's name without its folder."""
    return kind if kind in KINDS else Path(kind).name


def sensitive_columns(context: AuditContext) -> list[str]:
    """The raw columns behind the sensitive roles, each once."""
    return list(dict.fromkeys(c for split in context.dataset.roles.sensitive for c in split.columns))


def metric_columns(kind: str, columns: Sequence[str], context: AuditContext) -> list[str]:
    """The raw columns that the metric reads."""
    if kind not in KINDS:
        return list(_load(kind, context).columns)
    for name in columns:
        if name not in context.dataset.columns:
            hint = did_you_mean(name, context.dataset.columns, what="columns")
            raise ParameterError(f"the metric's column {name!r} is not in the data. {hint}")
    if kind == "euclidean":
        if not columns:
            raise ParameterError("metric=euclidean needs the columns to compare, as in columns=age,income")
        return list(columns)
    if not sensitive_columns(context):
        raise ParameterError(
            "metric=subspace is learned from the sensitive columns, and none is named; name some with `sensitive`, "
            "or use metric=euclidean with columns=A,B, or metric=FILE"
        )
    return list(dict.fromkeys([*(columns or context.scorer.columns), *sensitive_columns(context)]))


def check_subspace(kind: str, strength: float, penalty: str, directions: Sequence[str] | None) -> None:
    """Refuse a strength or directions where they mean nothing."""
    if kind != SUBSPACE and directions is not None:
        raise ParameterError(f"directions belongs to fair_metric=subspace, not to {metric_name(kind)}; leave it out")
    if penalty == "summed" and directions is not None:
        raise ParameterError("penalty=summed always predicts all sensitive columns; leave directions out")
    if kind != SUBSPACE and (strength != STRENGTH or penalty != "mean"):
        raise ParameterError(
            f"strength and penalty belong to fair_metric=subspace, not to {metric_name(kind)}; leave them out"
        )
    if penalty == "summed" and strength != STRENGTH:
        raise ParameterError(f"penalty=summed always has the strength {STRENGTH}; leave strength out")


def make_metric(
    kind: str,
    columns: Sequence[str],
    rows: AuditedRows,
    context: AuditContext,
    *,
    strength: float = STRENGTH,
    penalty: str = "mean",
    directions: Sequence[str] | None = None,
) -> FairMetric:
    """Load or learn the metric."""
    from fairkit_similarity import learn
    from fairkit_similarity.outside import former_subspace

    if kind not in KINDS:
        metric = _load(kind, context)
        check_memory(len(rows), len(metric.encoder.features))
        return metric
    raw = rows.pick(metric_columns(kind, columns, context))
    check_memory(len(rows), len(Encoder.learn(raw).features))
    if kind == "euclidean":
        return learn.euclidean(raw)
    if penalty == "summed":
        return former_subspace(raw, sensitive_columns(context))
    return learn.subspace(raw, sensitive_columns(context), strength=strength, directions=directions)


def _load(name: str, context: AuditContext) -> FairMetric:
    if not Path(name).exists():
        raise ParameterError(
            f"the metric {name!r} is neither {' nor '.join(KINDS)} nor a file. {did_you_mean(name, KINDS)}"
        )
    metric = FairMetric.load(name)
    absent = [column for column in metric.columns if column not in context.dataset.columns]
    if absent:
        hint = did_you_mean(absent[0], context.dataset.columns, what="columns")
        raise DataError(
            f"the fair metric {name!r} was made for the column {absent[0]!r}, which the data does not have. {hint}"
        )
    return metric
