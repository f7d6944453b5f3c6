"""What both auditors share: collect rows, make the metric, solve for each ε, write the findings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import MissingExtraError, ParameterError
from fairkit.findings import Finding
from fairkit_individual.choice import make_metric, metric_columns, metric_name, sensitive_columns
from fairkit_individual.collect import Collected, Rows, collect
from fairkit_individual.evidence import pairs, shared_columns
from fairkit_individual.rewards import shown_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data import Batch
    from fairkit.individual.metric import FairMetric
    from fairkit.individual.transport import Solution, Support, Transport
    from fairkit.models import Predictions

ALL_QUERIES = 250_000
"""Up to so many rows are all asked."""

SAMPLED_QUERIES = 50_000
"""So many are asked of larger tables; all rows stay in the support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The rows of an audit, its metric, and the transport problem."""

    rows: Rows
    metric: FairMetric
    problem: Transport
    notes: tuple[str, ...]


class CertificateAuditor(Auditor):
    """Collects all rows, then solves one transport problem for each ε."""

    metric_name: str

    def columns(self, context: AuditContext) -> Sequence[str]:
        """The metric's columns, and those that pairs are shown with."""
        self._check_epsilon()
        wanted = metric_columns(self.parameters.metric, self.parameters.columns, context)
        return shared_columns(wanted, context.scorer.columns, sensitive_columns(context))

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Collected:
        """Keep the batch."""
        return collect(batch, predictions, self.columns(context))

    def findings(self, total: Collected, context: AuditContext) -> list[Finding]:
        """Solve, one finding for each ε in the order given."""
        prepared = self._prepare(total.rows(), context)
        epsilons = list(self.parameters.epsilon)
        found: dict[int, Finding] = {}
        eta: float | None = None
        for done, place in enumerate(np.argsort(epsilons, kind="stable")[::-1].tolist()):
            context.progress(f"{self.name}: solving (the first run compiles)", done, len(epsilons))
            solution = prepared.problem.solve(epsilons[place], eta=eta, tolerance=1e-8)
            eta = solution.eta
            found[place] = self._finding(solution, prepared, context)
        context.progress(f"{self.name}: solved", len(epsilons), len(epsilons))
        return [found[place] for place in range(len(epsilons))]

    @abstractmethod
    def _problem(
        self, support: Support, rows: Rows, queries: dict[str, Any], context: AuditContext
    ) -> tuple[Transport, tuple[str, ...]]:
        """Put the rewards on the support; give also notes."""

    @abstractmethod
    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        """What the number does not say."""

    @abstractmethod
    def _told(self, context: AuditContext) -> dict[str, Any]:
        """The parameters that a report names."""

    def _check_epsilon(self) -> None:
        for value in self.parameters.epsilon:
            if not (np.isfinite(value) and value >= 0.0):
                raise ParameterError(
                    f"{self.name}: epsilon must be a finite squared distance, 0 or larger, not {value}"
                )
        if not self.parameters.epsilon:
            raise ParameterError(
                f"{self.name}: give at least one epsilon, as in --set {self.name}.epsilon=0.1"
            )

    def _prepare(self, rows: Rows, context: AuditContext) -> Prepared:
        try:
            from fairkit.individual.transport import Support
        except ImportError as error:
            raise MissingExtraError("numba", "individual") from error
        context.progress(f"{self.name}: making the fair metric", 0, 0)
        metric = make_metric(self.parameters.metric, self.parameters.columns, rows, context)
        if self.parameters.save_metric:
            metric.save(self.parameters.save_metric)
        support = Support(metric.transform(rows.columns))
        asked, weights = self._asked(rows, context)
        problem, notes = self._problem(support, rows, {"rows": asked, "weights": weights}, context)
        return Prepared(rows=rows, metric=metric, problem=problem, notes=notes)

    def _asked(
        self, rows: Rows, context: AuditContext
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.float64] | None]:
        """The query rows and their weights; all where they are few enough."""
        wished = self.parameters.queries
        if wished is None:
            wished = len(rows) if len(rows) <= ALL_QUERIES else SAMPLED_QUERIES
        weights = rows.get("weights")
        if wished >= len(rows):
            return None, weights
        asked = np.sort(context.rng(f"{self.name} queries").choice(len(rows), wished, replace=False))
        return asked, None if weights is None else weights[asked]

    def _finding(self, solution: Solution, prepared: Prepared, context: AuditContext) -> Finding:
        from fairkit.individual.interval import FEWEST, spread
        from fairkit.individual.plan import transport_plan

        problem, rows, metric = prepared.problem, prepared.rows, prepared.metric
        sure = spread(solution, context.rng(f"{self.name} halves"))
        plan = transport_plan(solution)
        baseline = float(problem.mass @ problem.own)
        own = np.full(len(rows), np.nan)
        own[problem.asked] = problem.own
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
            "pairs": pairs(plan, rows, self.parameters.pairs, own, shown_scores(rows, context.scorer.task)),
        }
        asked = len(problem.asked)
        sampled = (
            ()
            if asked == len(rows)
            else (
                f"{asked:,} sampled rows were asked, against all {len(rows):,} rows; the interval covers the sampling.",
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
                "metric": metric_name(self.parameters.metric),
                "metric_sha256": metric.sha256,
                "columns": list(metric.columns),
                "queries": asked,
            },
            evidence=evidence,
            notes=(*self._notes(context), *prepared.notes, *sampled, *(() if few is None else (few + ".",))),
            inconclusive=few,
            interval_at=sure.interval,
        )
