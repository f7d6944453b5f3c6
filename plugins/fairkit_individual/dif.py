"""Distributional individual fairness: how differently does a model treat similar people?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fairkit.errors import ParameterError
from fairkit.parameters import parameter
from fairkit_individual.certificate import CertificateAuditor
from fairkit_individual.rewards import outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditors import AuditContext
    from fairkit.individual.transport import Support, Transport
    from fairkit_individual.collect import Rows
    from fairkit_individual.rewards import Output


class DifAuditor(CertificateAuditor):
    """Finds the largest mean difference of outputs between every person and similar people.

    The metric `dif` is

        R(ε) = max over Π with marginal P_X and mean squared fair distance at most ε of E_Π d_Y(h(X), h(X'))

    (SenSeI eq. 2.2) with d_Y the mean squared difference of the outputs, solved exactly on the rows of the
    data. It needs no label. It is 0 for a constant model, and never negative; its unit is that of the output, squared.
    """

    name: ClassVar[str] = "dif"
    summary: ClassVar[str] = "How differently the model treats similar people, labels aside (exact)."
    citation: ClassVar[str] = "Yurochkin & Sun (2021), SenSeI: sensitive set invariance, ICLR"
    metric_name = "dif"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set dif.KEY=VALUE."""

        epsilon: tuple[float, ...] = parameter(
            (0.1,),
            help="How far people may move, mean squared fair distance; several give the curve.",
            minimum=0,
        )
        output: Literal["logit", "probability", "score"] | None = parameter(
            None, help="What is compared; by default logit, and score in regression."
        )
        method: Literal["sample", "gradient"] = parameter(
            "sample", help="Search among the rows; gradient (outside of them) needs a torch model."
        )
        metric: str = parameter("subspace", help="subspace, euclidean, or the file of a saved fair metric.")
        columns: tuple[str, ...] = parameter(
            (), help="The metric's columns; by default those the model reads."
        )
        queries: int | None = parameter(
            None, help="How many sampled rows to ask; by default all up to 250,000, else 50,000.", minimum=1
        )
        pairs: int = parameter(5, help="How many pairs of people to show.", minimum=0)
        save_metric: str | None = parameter(None, help="A file to save the fair metric to.")

    def columns(self, context: AuditContext) -> Sequence[str]:
        """The metric's columns, and those that pairs are shown with."""
        if self.parameters.method == "gradient":
            raise ParameterError(
                "dif: method=gradient climbs a torch model's gradient, which an ONNX file does not have; "
                "use method=sample"
            )
        return super().columns(context)

    def _output(self, context: AuditContext) -> Output:
        default: Output = "score" if context.scorer.task == "regression" else "logit"
        chosen: Output | None = self.parameters.output
        return chosen or default

    def _problem(
        self, support: Support, rows: Rows, queries: dict[str, Any], context: AuditContext
    ) -> tuple[Transport, tuple[str, ...]]:
        values, note = outputs(rows, context.scorer.task, self._output(context))
        return support.outputs(values, **queries), () if note is None else (note,)

    def _told(self, context: AuditContext) -> dict[str, Any]:
        return {"output": self._output(context), "method": self.parameters.method}

    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        return (
            "Replacements are people of this data: the number is a lower bound of the supremum over all possible "
            "people, under this fair metric.",
            "The interval covers which people were drawn, with the possible replacements held fixed.",
            "Policies look at the one-sided upper confidence bound.",
        )
