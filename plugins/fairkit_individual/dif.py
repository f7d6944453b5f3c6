"""Distributional individual fairness: how differently does a model treat similar people?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.auditing.conditions import NO_GROUPS
from fairkit.metrics import Term
from fairkit.parameters.declare import parameter
from fairkit_individual.certificate import CertificateAuditor, Prepared
from fairkit_individual.outside import ASKED, OutsideSearch
from fairkit_individual.parameters import TransportParameters
from fairkit_individual.rewards import Rewards, outputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit.data.task import Task
    from fairkit.results.findings import Finding
    from fairkit_individual.collect import AuditedRows
    from fairkit_individual.rewards import Output
    from fairkit_individual.tables import Table
    from fairkit_similarity.transport import Solution


class DifAuditor(CertificateAuditor):
    """Finds the largest mean difference of outputs between every person and similar people.

    The metric `dif` is

        R(ε) = max over Π with marginal P_X and mean squared fair distance at most ε of E_Π d_Y(h(X), h(X'))

    (SenSeI eq. 2.2) with d_Y the mean squared difference of the outputs. Logits are those of all K classes, of mean 0,
    as in the training of `sensei`; for two classes d_Y is a quarter of the squared difference of log-odds
    (`fairkit_similarity.outputs`). It is solved exactly on the rows of the data; with ``method=gradient`` a search in
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
        told = {"output": output, "method": self.parameters.method}
        if output == "logit" and self.parameters.difference != "single":
            told["difference"] = self.parameters.difference
        return told

    def _notes(self, context: AuditContext) -> tuple[str, ...]:
        return (
            "Replacements are people of this data: the number is a lower bound of the supremum over all possible "
            "people, under this fair metric.",
            "The interval covers which people were drawn, with the possible replacements held fixed.",
            "Policies look at the one-sided upper confidence bound.",
        )
