"""The chance that predictions pass a policy where no formula of rates does: audits of rows that are drawn again.

The rows that a model did not see are weighted by a Bayesian bootstrap, as many as the test has are drawn from them (of
rankings: whole queries), and the auditor `group` and `judge` make the verdict that they make of real rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.auditing.prepare import LoadedAuditors
from fairkit.auditors import AuditContext
from fairkit.capabilities import constraint_of
from fairkit.metrics import ODDS
from fairkit.models.scorer import Predictions
from fairkit.results.policy import judge
from fairkit.settings import AuditSettings
from fairkit_repair.repairing.cells import REFITTED
from fairkit_repair.repairing.chance import WANTED, Forecast, Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.results.rules import Rule
    from fairkit_repair.repairing.cells import Planned

    Array = NDArray[np.float64]

_FIRST = 24
"""Where none of so many passes, no more are drawn."""
PERFORMANCE = {"multiclass": "accuracy", "regression": "r2_score", "ranking": "ndcg"}
"""The number that the pick is the best by."""
_OF_BOTH = ("equalized_odds", "gap_max", "gap_rms", "class_gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByAudits(Forecast):
    """Predicts the verdict on planned rows from predictions of the calibration rows."""

    few, draws, many = 60, 120, 300  # a chance of .95 has a standard error of .03, .02, .013
    table: Table  # the calibration rows, as methods and as auditors are given them
    batch: Batch  # the calibration rows, as methods and as auditors are given them
    context: AuditContext
    whole: AuditContext
    auditor: Any  # what the auditor `group` is given for a verdict, the same with the performance, and the auditor
    rules: Sequence[Rule]  # the policy
    scored: bool = True  # whether a rule is on probabilities of classes; else they are not totalled
    queries: int = 0  # the test rows' queries; 0 where they are no rankings

    @classmethod
    def of(
        cls, data: Dataset, table: Table, planned: Planned, rules: Sequence[Rule], queries: int, confidence: float
    ) -> ByAudits:
        """Prepare the audits of a dataset whose rows are those of the table."""
        loaded = LoadedAuditors.of(AuditSettings(policy=tuple(rules), confidence=confidence))
        performance = PERFORMANCE[table.task]
        wanted = [one for one in loaded.metrics if one.name == performance or _is_of(one, rules)]
        distances = any(rule.metric.startswith("statistical_parity") for rule in rules)
        scorer: Any = SimpleNamespace(task=table.task, classes=table.classes, columns=(), info=None)
        whole = AuditContext(dataset=data, scorer=scorer, metrics=wanted, confidence=confidence)
        ruled = [metric for metric in wanted if _is_of(metric, rules)]
        return cls(
            table=table,
            batch=data.read(()),
            context=dataclasses.replace(whole, metrics=ruled),
            whole=whole,
            auditor=loaded.auditors[0],
            rules=rules,
            planned=planned,
            confidence=confidence,
            scored=distances or any("score" in one.needs for one in ruled),
            queries=queries,
        )

    @property
    def rows(self) -> int:
        """How many rows the test has; of rankings, queries."""
        return self.queries or int(self.planned.sizes.sum())

    def scaled(self, factor: float) -> Self:
        """Return the same for so many times the test rows."""
        return dataclasses.replace(self, planned=self.planned.scaled(factor), queries=round(self.queries * factor))

    def pilot(self, rows: NDArray[np.int64], said: Array) -> tuple[Self, Array]:
        """Return the forecast from these rows alone."""
        planned = dataclasses.replace(
            self.planned,
            atoms=self.planned.atoms[rows],
            outcome=self.planned.outcome[rows],
            weights=None if self.planned.weights is None else self.planned.weights[rows],
        )
        batch = _taken(self.batch, rows)
        return dataclasses.replace(self, table=self.table.take(rows), batch=batch, planned=planned), said

    def predict(
        self, said: Array, rng: np.random.Generator, draws: int | None = None, *, fixed_rates: bool = False
    ) -> Prediction:
        """Predict the verdict from values or scores, shape [n], or probabilities of the classes, shape [n, K]."""
        findings = self._findings(np.arange(len(self.table)), said, None, self.whole)
        passed = 0
        drawn = 0
        for place in range(draws or self.draws):
            if place == _FIRST and passed == 0:
                break
            rows, queries = self._draw(rng, fixed_rates=fixed_rates)
            found = self._findings(rows, said, queries, self.context)
            passed += judge(self.rules, found, confidence=self.confidence)[1] == "pass"
            drawn += 1
        values = {}
        for rule in self.rules:
            numbers = [one for one in findings if one.metric == rule.metric and one.value is not None]
            numbers = [one for one in numbers if rule.sensitive in (None, one.sensitive)]
            for name in dict.fromkeys(one.sensitive for one in numbers):
                mine = [float(one.value or 0.0) for one in numbers if one.sensitive == name]
                label = rule.metric if name is None else f"{rule.metric}:{name}"
                values[label] = max(mine) if rule.upper else min(mine)
        return Prediction(
            chance=passed / drawn, chances={}, values=values, accuracy=_performance(findings, self.table.task)
        )

    def _draw(
        self, rng: np.random.Generator, *, fixed_rates: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64] | None]:
        """Draw test rows from the calibration rows, and number their queries."""
        if self.table.queries is None:
            parts = [
                _some(np.flatnonzero(self.planned.atoms == atom), size, rng, fixed_rates=fixed_rates)
                for atom, size in enumerate(self.planned.sizes.tolist())
            ]
            return np.concatenate(parts), None
        order = np.argsort(self.table.queries, kind="stable")
        sizes = np.bincount(self.table.queries)
        starts = np.cumsum(sizes) - sizes
        drawn = _some(np.arange(len(sizes)), self.queries, rng, fixed_rates=fixed_rates)
        number = np.repeat(np.arange(len(drawn)), sizes[drawn])
        inner = np.arange(len(number)) - np.repeat(np.cumsum(sizes[drawn]) - sizes[drawn], sizes[drawn])
        return order[starts[drawn][number] + inner], number.astype(np.uint64)

    def _findings(
        self, rows: NDArray[np.int64], said: Array, queries: NDArray[np.uint64] | None, context: AuditContext
    ) -> list[Finding]:
        batch = _taken(self.batch, rows)
        if queries is not None:
            batch = dataclasses.replace(batch, queries=queries)
        own = said[rows]
        if self.table.task == "multiclass":
            told = Predictions(probabilities=own if self.scored else None, predicted=own.argmax(axis=1))
        else:
            told = Predictions(score=own)
        return list(self.auditor.findings(self.auditor.measure(batch, told, context), context))

    def equal(self, said: Array) -> tuple[Self, Array | None]:
        """Return predictions without any disparity under the rules.

        Of rankings: scores at random; else the predictions of others, of the same outcome where rules are on errors.
        """
        between = [
            rule
            for rule in self.rules
            if rule.metric.endswith(("_difference", "_ratio")) or rule.metric == "statistical_parity_ks"
        ]
        return dataclasses.replace(self, rules=between), self._equal(said, between) if between else None

    def _equal(self, said: Array, between: Sequence[Rule]) -> Array | None:
        rng = np.random.default_rng(17)
        constraints = {constraint_of(rule.metric) for rule in between}
        if self.table.task == "ranking":
            return rng.random(len(said)) if constraints <= {"exposure", "top_k_rate"} else None
        if constraints <= {"demographic_parity", "statistical_parity"}:
            return np.asarray(said[rng.permutation(len(said))])
        if self.table.task == "regression":
            residual = said - self.table.target
            return np.asarray(self.table.target + residual[rng.permutation(len(said))])
        mixed = said.copy()
        for value in np.unique(self.table.target):
            own = np.flatnonzero(self.table.target == value)
            mixed[own] = said[rng.permutation(own)]
        return mixed

    def splits(self) -> Iterable[str | None]:
        """Return the rules' splits; of rankings none, whose groups have no rows of their own."""
        return () if self.queries else (rule.sensitive for rule in self.rules)

    def needed(self, at: Callable[[float], float]) -> float | None:
        """Return the first power of two times the rows."""
        return next((factor * self.rows for factor in (2.0, 4.0, 8.0, 16.0, 32.0) if at(factor) >= WANTED), None)


def _is_of(metric: type[Metric], rules: Sequence[Rule]) -> bool:
    """Return whether a rule is on a metric, or on what is made of it."""
    names = [metric.name, *([metric.alias] if metric.alias else [])]
    odds = metric.name in ODDS
    return any(
        any(rule.metric.startswith(name) for name in names) or (odds and rule.metric.startswith(_OF_BOTH))
        for rule in rules
    )


def _performance(findings: Sequence[Finding], task: Task) -> float:
    return next(
        (
            float(one.value)
            for one in findings
            if one.metric == PERFORMANCE[task] and one.sensitive is None and one.value is not None
        ),
        0.0,
    )


def _some(places: NDArray[np.int64], size: int, rng: np.random.Generator, *, fixed_rates: bool) -> NDArray[np.int64]:
    """Draw so many of the places with replacement, first how much each counts."""
    if fixed_rates or not len(places):
        return rng.choice(places, size) if size and len(places) else places[:0]
    weights = rng.standard_gamma(1 / REFITTED, size=len(places))
    ends = np.cumsum(weights)
    at = np.searchsorted(ends, rng.random(size) * ends[-1], side="right")
    return np.asarray(places[np.minimum(at, len(places) - 1)])


def _taken(batch: Batch, rows: NDArray[np.int64]) -> Batch:
    """Return rows by their places, some perhaps several times; columns without a role stay behind."""

    def own(values: Any) -> Any:
        return None if values is None else values[rows]

    return dataclasses.replace(
        batch,
        rows=batch.rows[rows],
        groups={name: codes[rows] for name, codes in batch.groups.items()},
        label=own(batch.label),
        favorable=own(batch.favorable),
        weights=own(batch.weights),
        strata={name: codes[rows] for name, codes in batch.strata.items()},
        clusters=own(batch.clusters),
        probabilities={name: shares[rows] for name, shares in batch.probabilities.items()},
        queries=own(batch.queries),
    )
