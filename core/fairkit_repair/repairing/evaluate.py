"""Measure a candidate on rows that its model did not see, and train the picked one on all of them."""

from __future__ import annotations

import dataclasses
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit import plugins
from fairkit.auditing.prepare import LoadedAuditors
from fairkit.auditors import AuditContext
from fairkit.capabilities import constraint_of
from fairkit.errors import FairkitError
from fairkit.metrics import ODDS
from fairkit.mitigators import TrainsTogether
from fairkit.models.scorer import Predictions
from fairkit.results.policy import judge
from fairkit.settings import AuditSettings
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.learned import check_task, run_of, sensitive_inputs
from fairkit_repair.postprocess import MARGINS, CommonThreshold, PostProcessor, with_threshold
from fairkit_repair.repairing.candidates import PlainLearner
from fairkit_repair.repairing.chance import REFITTED, WANTED, ChancePrediction, Forecast, out_of_folds, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import FittedModel, Run
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.progress import Progress
    from fairkit.results.findings import Finding
    from fairkit.results.rules import Rule
    from fairkit_repair.repairing.chance import Planned

    Array = NDArray[np.float64]


_HALF = 0.5
RESTLESS = 8.0
"""Standard errors between the accuracy by halves of the rows and by all from which a rule is not the same one."""


class OutOfTimeError(KeyboardInterrupt):
    """The budget ended during a fit: methods let it pass as they let Ctrl-C pass."""


@dataclass(slots=True)
class Clock:
    """The budget: when it ends, and what a training takes."""

    ends: float
    training: float | None = None  # None: not known yet

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.ends - time.monotonic()

    def watched(self, progress: Progress) -> Progress:
        """Return a progress that raises `OutOfTimeError` when the budget has ended."""

        def report(doing: str, done: int, total: int, **values: float) -> None:
            progress(doing, done, total, **values)
            if self.left() < 0:
                raise OutOfTimeError

        return report


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What candidates are measured with."""

    table: Table  # the training rows, with the groups of the policy only
    fold: NDArray[np.int64]  # the fold of each row, for what trains; shape [n]
    half: NDArray[np.int64]  # the half of each row, for rules on scores; shape [n]
    base: OnnxModel  # the model without mitigation, trained on all rows, or the given one
    fitted: FittedModel | None  # the same in memory; None where it was given
    scores: Array  # of models that did not see the row (of the given model); see `fairkit_repair.repairing.chance.said`
    decisions: Array
    run: Run  # seed, threads, learner; its progress raises `OutOfTimeError` when the budget ends
    clock: Clock  # when that is
    optimism: float | None = None
    known: dict[str, Array] = field(default_factory=dict)
    bases: dict[int, OnnxModel] = field(default_factory=dict)
    unseen: dict[str, Array] = field(default_factory=dict)  # of trained models that a threshold is set on: the scores

    def measure(self, method: Mitigator, family: Sequence[Mitigator] = ()) -> Array:
        """Return out-of-fold answers for every row (see `fairkit_repair.repairing.chance.said`)."""
        if not self.is_known(method):
            with self._blamed(method):
                together = [method, *(one for one in family if one is not method)]
                answers = self._measure(method, together)
                self.known.update(zip(map(_key, together), answers, strict=False))
        return self.known[_key(method)]

    def reads_group(self, method: Mitigator) -> str:
        """Return the sensitive columns that a method's models read since they are made of the given one; else ""."""
        return ", ".join(sensitive_inputs(self.base, self.table)) if self.rests_on_given(method) else ""

    def training(self) -> float:
        """Return the seconds that the learner's training on all rows takes, from one on half of them."""
        if self.clock.training is None:
            learner, rows = PlainLearner().learner(self.run), np.flatnonzero(self.half == 0)
            with suppress(FairkitError):  # the first training imports a library
                fit_learner(learner, self.table.take(rows[::16]), self.run)
            begun = time.monotonic()
            fit_learner(learner, self.table.take(rows), self.run)
            self.clock.training = 2 * (time.monotonic() - begun)
        return self.clock.training

    def rests_on_given(self, method: Mitigator) -> bool:
        """Return whether a method's numbers come from a given model's scores, and not from models trained here."""
        plain = isinstance(method, PlainLearner) and not method.parameters.settings
        return self.fitted is None and (plain or method.stage == "post")

    def is_known(self, method: Mitigator) -> bool:
        """Return whether a method was measured already."""
        return _key(method) in self.known

    def _measure(self, method: Mitigator, family: Sequence[Mitigator]) -> list[Array]:
        if isinstance(method, PlainLearner) and not method.parameters.settings:
            return [self.decisions]
        run = run_of(method, self.run)

        def by_rule(part: Table, held: Table, inside: NDArray[np.bool_]) -> list[Array]:
            rule, _ = method.learn(self.scores[~inside], part, run)  # type: ignore[attr-defined]
            codes = rule.keys.codes(held.columns)
            return [rule.probability(rule.adjust(self.scores[inside], codes), codes)]

        def on_its_own_base(part: Table, held: Table, inside: NDArray[np.bool_]) -> list[Array]:
            number = int(self.fold[inside][0])
            if number not in self.bases:
                plain = fit_learner(PlainLearner().learner(self.run), part, self.run)
                self.bases[number] = OnnxModel(export_bytes(plain, part), "base")
            return [method.fit(part, run, model=self.bases[number]).predict(held.columns).score]

        def repaired(part: Table, held: Table, _: NDArray[np.bool_]) -> list[Array]:
            # on the base's scores of rows that it was trained on
            prediction = method.fit(part, run, model=self.base).predict(held.columns)
            return [prediction.score if prediction.decision_probability is None else prediction.decision_probability]

        together = family if len(family) > 1 and isinstance(method, TrainsTogether) else [method]
        at_half = np.ones(len(together), dtype=bool)

        def trained(part: Table, held: Table, _: NDArray[np.bool_]) -> list[Array]:
            several = len(together) > 1 and isinstance(method, TrainsTogether)
            models = method.fit_together(together, part, run) if several else [method.fit(part, run)]  # type: ignore[attr-defined]
            predictions = [model.predict(held.columns) for model in models]
            if self.table.task != "binary":
                return [prediction.score for prediction in predictions]
            answers = [said(prediction, "binary") for prediction in predictions]
            for index, (one, decided) in enumerate(zip(predictions, answers, strict=True)):
                at_half[index] &= bool(np.array_equal(decided, one.score >= _HALF))
            return [
                np.stack([prediction.score, decided], axis=1)
                for prediction, decided in zip(predictions, answers, strict=True)
            ]

        if isinstance(method, PostProcessor):
            return out_of_folds(narrow(self.table), self.half, by_rule)
        if method.stage != "post":
            whole = out_of_folds(self.table, self.fold, trained)
            if self.table.task != "binary":
                return whole
            return [
                self._with_threshold(method, answers, deterministic=bool(plain))
                for method, answers, plain in zip(together, whole, at_half, strict=True)
            ]
        if self.fitted is not None and self.table.task == "ranking":
            return out_of_folds(self.table, self.fold, on_its_own_base)
        return out_of_folds(self.table, self.half, repaired)

    def _with_threshold(self, method: Mitigator, answers: Array, *, deterministic: bool) -> Array:
        """Set one threshold for the objective on a trained model's scores, learned on the other half of the rows.

        A model that decides by more than its score's half keeps its decisions; whether they keep the rate is measured.
        """
        scores, decided = answers.T
        if self.run.objective.is_plain or not deterministic:
            return np.asarray(decided)
        self.unseen[_key(method)] = scores
        return halves(scores, self.table, self.half, self.run)

    def fit(self, method: Mitigator, run: Run) -> FittedModel | None:
        """Train on all rows; rules learn from the out-of-fold scores. None: the given model as it is."""
        if isinstance(method, PlainLearner) and not method.parameters.settings:
            return self.fitted
        run = run_of(method, run)
        with self._blamed(method):
            if isinstance(method, PostProcessor):
                return method.fit_scores(self.scores, self.table, run, self.base)
            fitted = method.fit(self.table, run, model=self.base if method.stage == "post" else None)
            unseen = self.unseen.get(_key(method))
            return fitted if unseen is None else with_threshold(fitted, self.table, self.run, unseen)

    def restless(self, method: Mitigator, chance: Array) -> str:
        """Say where a rule that is learned from all rows decides quite otherwise than those of the halves; else ""."""
        if not isinstance(method, PostProcessor):
            return ""
        table = self.table
        rule, _ = method.learn(self.scores, table, run_of(method, self.run))
        codes = rule.keys.codes(table.columns)
        whole = rule.probability(rule.adjust(self.scores, codes), codes)
        half, full = (
            float(np.average(np.where(table.target > 0, h, 1 - h), weights=table.weights)) for h in (chance, whole)
        )
        weights = table.row_weights()
        error = np.sqrt(0.25 * (weights**2).sum()) / weights.sum()
        if abs(half - full) <= RESTLESS * error:
            return ""
        return f"its rule depends on which rows it is learned from: accuracy {half:.3f} by halves, {full:.3f} by all"

    def _blamed(self, method: Mitigator) -> Any:
        check_task(method, self.table)
        method.learner(run_of(method, self.run))
        return plugins.blame(plugins.owner_of(method.name), f"the method {method.name!r} was tried")


def halves(scores: Array, table: Table, half: NDArray[np.int64], run: Run) -> Array:
    """Return decisions by one threshold for everybody, set on the other half of the rows."""
    decided = np.empty(len(scores))
    rule = CommonThreshold.with_values({"margin": MARGINS[1] if run.objective.bounds else 0.0})
    for side in (0, 1):
        inside = half == side
        cut, _ = rule.learn(scores[~inside], table.take(~inside), run)
        decided[inside] = cut.probability(scores[inside], np.zeros(int(inside.sum()), dtype=np.int64))
    return decided


def _key(method: Mitigator) -> str:
    return f"{method.name} {method.parameters}"


def narrow(table: Table) -> Table:
    """Return the table with the columns of its groups only: rules on scores read no other."""
    read = {column for split in table.roles.sensitive for column in split.columns}
    columns = {name: values for name, values in table.columns.items() if name in read}
    return dataclasses.replace(table, columns=columns or table.columns)


def without_sensitive(table: Table) -> Table:
    """Return the table without sensitive columns among its features; a given model's stay in its roles."""
    hidden = {column for split in table.roles.sensitive for column in split.columns}
    features = tuple(name for name in table.features if name not in hidden)
    roles = dataclasses.replace(table.roles, features=table.features)
    return dataclasses.replace(table, features=features, roles=roles)


# The chance that predictions pass a policy where no formula of rates does: audits of rows that are drawn again.


_FIRST = 24
"""Where none of so many passes, no more are drawn."""
PERFORMANCE = {"multiclass": "accuracy", "regression": "r2_score", "ranking": "ndcg"}
"""The number that the pick is the best by."""
_OF_BOTH = ("equalized_odds", "gap_max", "gap_rms", "class_gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByAudits(Forecast):
    """Predicts the verdict on planned rows from predictions of the calibration rows."""

    few, draws, many = 60, 120, 300  # a chance of .95 has a standard error of .03, .02, .013
    table: Table  # the calibration rows, as methods are given them
    batch: Batch  # the same, as auditors are given them
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
        wanted = [metric for metric in loaded.metrics if metric.name == performance or _is_of(metric, rules)]
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
            scored=distances or any("score" in rule.needs for rule in ruled),
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
    ) -> ChancePrediction:
        """Predict the verdict from values or scores, shape [n], or probabilities of the classes, shape [n, K]."""
        findings = self._findings(np.arange(len(self.table)), said, None, self.whole)
        passed = drawn = 0
        for index in range(draws or self.draws):
            if index == _FIRST and passed == 0:
                break
            rows, queries = self._draw(rng, fixed_rates=fixed_rates)
            found = self._findings(rows, said, queries, self.context)
            passed += judge(self.rules, found, confidence=self.confidence)[1] == "pass"
            drawn += 1
        values = {}
        for rule in self.rules:
            numbers = [finding for finding in findings if finding.metric == rule.metric and finding.value is not None]
            numbers = [number for number in numbers if rule.sensitive in (None, number.sensitive)]
            for name in dict.fromkeys(number.sensitive for number in numbers):
                mine = [float(number.value or 0.0) for number in numbers if number.sensitive == name]
                label = rule.metric if name is None else f"{rule.metric}:{name}"
                values[label] = max(mine) if rule.upper else min(mine)
        return ChancePrediction(
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
        drawn = said[rows]
        predictions = Predictions(score=drawn)
        if self.table.task == "multiclass":
            predictions = Predictions(probabilities=drawn if self.scored else None, predicted=drawn.argmax(axis=1))
        return list(self.auditor.findings(self.auditor.measure(batch, predictions, context), context))

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
            rows_here = np.flatnonzero(self.table.target == value)
            mixed[rows_here] = said[rng.permutation(rows_here)]
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
            float(finding.value)
            for finding in findings
            if finding.metric == PERFORMANCE[task] and finding.sensitive is None and finding.value is not None
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
