"""Distributional individual fairness: how differently does a model treat similar people?"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.auditing.needs import NO_GROUPS
from fairkit.errors import ParameterError
from fairkit.metrics import Term
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass
from fairkit_individual.certificate import CertificateAuditor, Prepared
from fairkit_individual.gradients import gradients_of, people_of
from fairkit_individual.tables import CLIP, Rewards, class_losses, label_codes, outputs, regression_pair
from fairkit_similarity.metric import Geometry, directions_parameter, strength_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.task import Task
    from fairkit.results.findings import Finding
    from fairkit_individual.tables import AuditedRows, Difference, Loss, Output, Table
    from fairkit_similarity.outside import Outside, Spread
    from fairkit_similarity.transport import Solution


# The `dif` certificate when people may be anywhere: the sample's answer, and what a gradient search finds beyond.


ASKED = 5_000
"""So many rows are asked by default: each is searched for anew."""

FITTED = 50_000
"""The fair metric is matched with the model's features on at most so many rows, besides those that are asked."""

NOTES = (
    "People may be replaced by anybody in the metric's encoded columns (also between categories), within the data's "
    "range in the sensitive directions; a gradient search looks for the worst. The number is the value of a plan that "
    "it found, or the exact one over the people of this data where that is larger (evidence: gradient, restricted): a "
    "lower bound of the supremum, under this fair metric.",
    "The interval covers which people were drawn, with the replacements that were found held fixed. The upper "
    "confidence bound is that of what the search finds, not of the supremum.",
)


class OutsideSearch:
    """A model over the fair metric's columns, for the rows that are asked."""

    def __init__(self, prepared: Prepared, context: AuditContext, output: Output, difference: Difference) -> None:
        import torch

        from fairkit_similarity.ascent import Frame
        from fairkit_similarity.networks import ModuleNetwork

        if not context.engine.here:
            raise ParameterError(
                "dif: method=gradient runs in one process; run this auditor without workers, or use method=sample"
            )
        queries = prepared.problem.asked
        places = np.arange(len(prepared.rows))
        if len(places) > FITTED:
            draw = context.rng("dif features").choice(len(places), FITTED, replace=False)
            places = np.union1d(draw, queries)
        rows = prepared.rows.take(places)
        gradients = gradients_of(context, rows, output, difference)
        people = people_of(prepared.metric, rows, gradients)
        shift, forward = torch.from_numpy(people.shift), torch.from_numpy(people.to_features)
        self.network = ModuleNetwork(lambda x: gradients.outputs(x @ forward + shift))
        self.x = torch.from_numpy(np.ascontiguousarray(people.x[np.searchsorted(places, queries)]))
        self.frame = Frame.of(Geometry.learn(people.x, people.matrix), self.x)
        self.numbers = prepared.rows.take(queries).numbers

    def search(self, solution: Solution) -> Outside:
        """Search around every asked row; the sample's two answers are candidates too."""
        from fairkit_similarity.outside import search_outside

        problem = solution.problem
        lines = (solution.bracket.low, solution.bracket.high)
        gain, cost = (np.stack([getattr(line, name)[problem.query] for line in lines]) for name in ("reward", "cost"))
        return search_outside(
            self.network,
            self.x,
            self.frame,
            solution.epsilon,
            weights=problem.mass,
            start=(gain, cost),
            steps=20,
            rounds=6,
            tolerance=0.01,
        )

    def finding(self, restricted: Finding, solution: Solution, context: AuditContext) -> Finding:
        """Return the larger of both values, with an interval for it."""
        outside = self.search(solution)
        weights = solution.problem.mass
        sure = outside_spread(outside, weights, solution.epsilon, context.rng("dif outside halves"))
        exact = float(restricted.value or 0.0)
        sure = dataclasses.replace(sure, gap=max(outside.choice.value, exact))
        interval = sure.interval(context.confidence)
        multiplier = outside.choice.multiplier
        beyond = outside.choice.place >= outside.given
        evidence = dict(restricted.evidence) | {
            "restricted": exact,
            "gradient": outside.choice.value,
            "multiplier": multiplier if math.isfinite(multiplier) else None,
            "candidates": len(outside.gain),
            "moved_outside_share": float(weights @ beyond),
            "standard_error": sure.error if interval is not None else None,
            "upper_confidence_bound": sure.upper_bound(context.confidence),
            "outside": self._largest(outside, beyond),
        }
        kept_notes = [note for note in restricted.notes if not note.startswith(("Replacements are", "The interval"))]
        return dataclasses.replace(
            restricted,
            value=sure.gap,
            interval=interval,
            evidence=evidence,
            notes=(*NOTES, *kept_notes),
            interval_at=sure.interval,
            upper_at=sure.upper_bound,
        )

    def _largest(self, found: Outside, beyond: NDArray[np.bool_]) -> list[dict[str, Any]]:
        """The five largest differences that only the search found."""
        columns = np.arange(len(beyond))
        gain, cost = found.gain[found.choice.place, columns], found.cost[found.choice.place, columns]
        places = np.flatnonzero(beyond)
        top = places[np.argsort(-gain[places], kind="stable")][:5]
        return [
            {"row": int(self.numbers[position]), "distance": float(cost[position]), "difference": float(gain[position])}
            for position in top.tolist()
        ]


def outside_spread(outside: Outside, weights: NDArray[np.float64], epsilon: float, rng: np.random.Generator) -> Spread:
    """Measure how sure the value is; see `fairkit_similarity.outside.spread`."""
    from fairkit_similarity.outside import FEWEST, Spread, best_plan

    rows = 1.0 / float(weights @ weights)
    value = outside.choice.value
    if rows < FEWEST:
        nothing = {"error": math.nan, "bound_error": math.nan, "bound_skew": math.nan}
        return Spread(gap=value, bound=value, rows=rows, **nothing)
    halves = np.array_split(rng.permutation(len(weights)), 2)
    means, errors, thirds = [], [], []
    for chooser, judged in (halves, halves[::-1]):
        shares = weights[chooser] / weights[chooser].sum()
        at = best_plan(outside.gain[:, chooser], outside.cost[:, chooser], shares, epsilon).multiplier
        if math.isfinite(at):
            most = (outside.gain[:, judged] - at * outside.cost[:, judged]).max(axis=0)
        else:
            at = 0.0
            most = np.where(outside.cost[:, judged] == 0.0, outside.gain[:, judged], -np.inf).max(axis=0)
        mean, error, third = _mean(most, weights[judged])
        means.append(mean + at * epsilon)
        errors.append(error)
        thirds.append(third)
    bound_error = math.hypot(*errors) / 2.0
    return Spread(
        gap=value,
        error=_mean(outside.choice.contributions, weights)[1],
        bound=float(np.mean(means)),
        bound_error=bound_error,
        bound_skew=sum(thirds) / 8.0 / bound_error**3 if bound_error > 0.0 else 0.0,
        rows=rows,
    )


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float, float]:
    """Weighted mean, its standard error, and its third central moment."""
    share = weights / weights.sum()
    mean = float(share @ values)
    scale = max(1.0 - float(share @ share), 1e-12)
    error = math.sqrt(float(share**2 @ (values - mean) ** 2) / scale)
    return mean, error, float(share**3 @ (values - mean) ** 3)


# The parameters of every auditor over similar people.


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportParameters:
    """What every auditor over similar people takes."""

    epsilon: tuple[float, ...] = parameter(
        (0.1,), help="How far people may move, mean squared fair distance; several give the curve.", minimum=0
    )
    fair_metric: str = parameter(
        "subspace",
        help="The distance between people: subspace, euclidean, or the file of a saved fair metric.",
        former={"metric": 1},
    )
    strength: float = strength_parameter()
    directions: tuple[str, ...] | None = directions_parameter()
    penalty: Literal["mean", "summed"] = parameter(
        "mean",
        help="What strength weighs against: the mean loss; summed is the subspace of certificates that do not "
        "name a strength, always .1 against the summed loss.",
    )
    columns: tuple[str, ...] = parameter((), help="The metric's columns; by default those the model reads.")
    queries: int | None = parameter(
        None, help="How many sampled rows to ask; by default all up to 50,000, else 25,000.", minimum=1
    )
    support: int | None = parameter(
        None, help="How many people may be replacements: a random sample of that size; by default all.", minimum=30
    )
    pairs: int = parameter(5, help="How many pairs of people to show.", minimum=0)
    save_metric: str | None = parameter(None, help="A file to save the fair metric to.")


class DifAuditor(CertificateAuditor):
    """Finds the largest mean difference of outputs between every person and similar people.

    The metric `dif` is

        R(ε) = max over Π with marginal P_X and mean squared fair distance at most ε of E_Π d_Y(h(X), h(X'))

    (SenSeI eq. 2.2) with d_Y the mean squared difference of the outputs. Logits are those of all K classes, of mean 0,
    as in the training of `sensei`; for two classes d_Y is a quarter of the squared difference of log-odds
    (`fairkit_similarity.networks`). It is solved exactly on the rows of the data; with ``method=gradient`` a search in
    the model's features looks outside of them too, and the larger value is reported. It needs no label. It is 0 for a
    constant model, and never negative; its unit is that of the output, squared.
    """

    name: ClassVar[str] = "dif"
    summary: ClassVar[str] = "How differently the model treats similar people, labels aside (exact)."
    terms: ClassVar[Mapping[str, Term]] = {
        "dif": Term("unequal treatment of like people", "How much scores differ between people who are alike.")
    }
    citation: ClassVar[str] = "Yurochkin & Sun (2021), SenSeI: sensitive set invariance, ICLR"
    metric_name = "dif"
    uses: ClassVar[frozenset[str]] = frozenset({"weights"})
    unaffected_by: ClassVar[frozenset[str]] = NO_GROUPS - {"missing_groups"}
    _outside: OutsideSearch | None = None

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(TransportParameters):
        """What can be set with --set dif.KEY=VALUE."""

        output: Literal["logit", "probability", "score"] | None = parameter(
            None, help="What is compared; by default logit, and score in regression."
        )
        method: Literal["sample", "gradient"] = parameter(
            "sample", help="Search among the rows; gradient: outside of them too, for networks (torch, ONNX)."
        )

        difference: Literal["mean", "single"] = parameter(
            "mean",
            help="How logits differ: the mean squared difference over the logits of all classes, as in sensei; single: "
            "for certificates that name none, of two classes the log-odds, 4 times as much.",
        )

    def _output(self, task: Task) -> Output:
        default: Output = "score" if task == "regression" else "logit"
        chosen: Output | None = self.parameters.output
        return chosen or default

    def rewards(self, rows: AuditedRows, task: Task, classes: Sequence[Any]) -> Rewards:
        """The outputs of every row, compared with its own."""
        values, note = outputs(rows, task, self._output(task), difference=self.parameters.difference)
        return Rewards(kind="squared", values=values, notes=() if note is None else (note,))

    def _asked(self, rows: Table, context: AuditContext) -> NDArray[np.int64] | None:
        """With a gradient fewer rows are asked by default."""
        if self.parameters.method != "gradient" or self.parameters.queries is not None or len(rows) <= ASKED:
            return super()._asked(rows, context)
        return np.sort(context.rng("dif queries").choice(len(rows), ASKED, replace=False))

    def _prepare(self, rows: Table, context: AuditContext) -> Prepared:
        """Open the model, too, where its gradient is needed."""
        self._outside = None
        prepared = super()._prepare(rows, context)
        if self.parameters.method == "gradient":
            context.progress("dif: opening the model", 0, 0)
            self._outside = OutsideSearch(
                prepared, context, self._output(context.scorer.task), self.parameters.difference
            )
        return prepared

    def _finding(self, solution: Solution, prepared: Prepared, context: AuditContext) -> Finding:
        finding = super()._finding(solution, prepared, context)
        if self._outside is None:
            return finding
        context.progress("dif: searching outside the sample", 0, 0)
        return self._outside.finding(finding, solution, context)

    def _has_trend(self) -> bool:
        """With a gradient replacements need not be people of the data."""
        return bool(self.parameters.method == "sample")

    def _told(self, context: AuditContext) -> dict[str, Any]:
        output = self._output(context.scorer.task)
        evidence = {"output": output, "method": self.parameters.method}
        if output == "logit" and self.parameters.difference != "single":
            evidence["difference"] = self.parameters.difference
        return evidence

    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        return (
            "Replacements are people of this data: the number is a lower bound of the supremum over all possible "
            "people, under this fair metric.",
            "The interval covers which people were drawn, with the possible replacements held fixed.",
            "Policies look at the one-sided upper confidence bound.",
        )


# The performance gap: how much worse can a model do when people are replaced by similar ones?


class RestrictedDroAuditor(CertificateAuditor):
    """Finds the largest mean loss when every person may be replaced by similar people of the same label.

    The metric `performance_gap` is L(ε) less the mean loss, where

        L(ε) = max over Π ≥ 0 with Πᵀ1 = 1/n and mean squared fair distance at most ε of Σ_ij ℓ(f(x_i), y_j) Π_ij

    (BuDRO eq. 2.5-2.8), solved exactly on the rows of the data. It is 0 for a model that treats all people
    alike whom the budget ε can exchange, and never negative; its unit is that of the loss.
    """

    name: ClassVar[str] = "restricted-dro"
    summary: ClassVar[str] = "How much worse the model does when people are replaced by similar ones (exact)."
    terms: ClassVar[Mapping[str, Term]] = {
        "performance_gap": Term(
            "loss of the worst like-for-like change",
            "How much worse the model does when each person may be replaced by one who is alike in all that matters.",
        )
    }
    citation: ClassVar[str] = "Vargo, Zhang, Yurochkin & Sun (2021), Individually fair gradient boosting, ICLR"
    metric_name = "performance_gap"
    uses: ClassVar[frozenset[str]] = frozenset({"weights"})
    unaffected_by: ClassVar[frozenset[str]] = frozenset({"strata", "reference", "group_probabilities"})

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(TransportParameters):
        """What can be set with --set restricted-dro.KEY=VALUE."""

        loss: Literal["logistic", "zero_one", "squared", "absolute"] | None = parameter(
            None, help="The loss; by default logistic, and squared in regression."
        )

    def _loss(self, task: Task) -> Loss:
        default: Loss = "squared" if task == "regression" else "logistic"
        chosen: Loss | None = self.parameters.loss
        return chosen or default

    def rewards(self, rows: AuditedRows, task: Task, classes: Sequence[Any]) -> Rewards:
        """The losses of every row under each label."""
        loss = self._loss(task)
        if task == "regression":
            predicted, true = regression_pair(rows, loss)
            return Rewards(kind="squared" if loss == "squared" else "absolute", values=predicted, target=true)
        notes = (f"Probabilities are clipped at {CLIP:g} in the logistic loss.",) if loss == "logistic" else ()
        return Rewards(
            kind="losses", values=class_losses(rows, task, loss), label=label_codes(rows, task, classes), notes=notes
        )

    def _told(self, context: AuditContext) -> dict[str, Any]:
        return {"loss": self._loss(context.scorer.task)}

    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        return (
            "The gap is under this fair metric and on this data: people are exchanged with people of the data only, "
            "so a model may treat similar people differently where the data has none.",
            "The interval covers which people were drawn, with the possible replacements held fixed; the error of "
            "having a finite set of replacements (it falls like n^(-1/2d)) is not in it.",
            "Policies look at the one-sided upper confidence bound.",
        )
