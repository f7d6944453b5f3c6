"""The performance gap: how much worse can a model do when people are replaced by similar ones?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fairkit.metrics import Term
from fairkit.parameters.declare import parameter
from fairkit_individual.certificate import CertificateAuditor
from fairkit_individual.parameters import TransportParameters
from fairkit_individual.rewards import CLIP, Rewards, class_losses, label_codes, regression_pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.auditors import AuditContext
    from fairkit.data.task import Task
    from fairkit_individual.collect import AuditedRows
    from fairkit_individual.rewards import Loss


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
