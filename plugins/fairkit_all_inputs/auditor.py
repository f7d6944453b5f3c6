"""The auditor: one pass over the rows for the domain and some people, then the questions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from fairkit.auditing.conditions import NO_GROUPS
from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import ParameterError, did_you_mean
from fairkit.metrics import Headline, Term
from fairkit_all_inputs.domains import People
from fairkit_all_inputs.parameters import Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.batch import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding


class AllInputsAuditor(Auditor):
    """Asks of every input of a domain, not only of the people in the data, what a change of some columns can do.

    For a sum of trees f (or a linear model), two values s and s' of the columns that change, and every x
    that the other columns may hold:

        flip:           is there an x with f(x, s) >= θ > f(x, s')?
        score change:   max over x, s, s' of f(x, s) - f(x, s')

    and the same for the probability; besides, the share of people whose own decision flips. Each answer is
    an interval that holds the truth: its ends meet where it is decided. The lower end is an input that the model itself
    was run on; the upper end is a list of boxes that cover the domain, with a bound of each.
    """

    name: ClassVar[str] = "all-inputs"
    asks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"weights"})
    unaffected_by: ClassVar[frozenset[str]] = NO_GROUPS
    summary: ClassVar[str] = "Whether any input at all changes its answer with a column: a witness, or a proof."
    terms: ClassVar[Mapping[str, Term]] = {
        "all_inputs_flip": Term(
            "a decision that depends on the group",
            "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
        ),
        "all_inputs_score_change": Term(
            "largest change of the raw score",
            "The most that the sum behind the score can change, for any input, when these columns alone change.",
        ),
        "all_inputs_probability_change": Term(
            "largest change of the probability",
            "The most that the predicted probability can change, for any input, when these columns alone change.",
        ),
        "all_inputs_flippable": Term(
            "people whose decision could depend on the group",
            "The share of people whose own decision flips when these columns alone change.",
        ),
    }
    citation: ClassVar[str] = (
        "Chen et al. (2019), Robustness verification of tree-based models, NeurIPS; Devos, Meert & Davis (2021), "
        "Versatile verification of tree ensembles, ICML"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "regression"})
    headlines: ClassVar[Mapping[str, Headline]] = {
        "all_inputs_flip": Headline(disparity=False),
        "all_inputs_score_change": Headline(disparity=False),
    }
    Parameters = Parameters

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the columns that change."""
        return self._changing(context)

    def begin(self, context: AuditContext) -> None:
        """Look at the model before the rows are read: a graph that is not understood is refused at once."""
        from fairkit_all_inputs.findings import not_plain, opened

        self._began = time.monotonic()
        self._changing(context)
        reads = any(column in context.scorer.columns for column in self._changing(context))
        if reads and not_plain(context.scorer) is None:
            opened(context)

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> People:
        """Keep the columns' ranges and some people."""
        changing = self._changing(context)
        names = list(dict.fromkeys([*context.scorer.columns, *changing]))
        read = [column for column in changing if column in context.scorer.columns]
        return People.of(batch, names, self.parameters.people, context.seed, read)

    def findings(self, total: People, context: AuditContext) -> list[Finding]:
        """Answer the questions."""
        from fairkit_all_inputs.findings import findings

        return findings(self.parameters, self._changing(context), total.in_order(), context, self._began)

    def _changing(self, context: AuditContext) -> list[str]:
        """The columns that change: as asked, else the sensitive ones that the model reads."""
        columns = list(self.parameters.columns)
        for column in columns:
            if column not in context.dataset.columns:
                hint = did_you_mean(column, context.dataset.columns, what="columns")
                raise ParameterError(f"all-inputs: the data has no column {column!r}. {hint}")
        if columns:
            return list(dict.fromkeys(columns))
        splits = context.dataset.roles.sensitive
        reads = set(context.scorer.columns)
        candidates = [column for split in splits for column in split.columns if column in reads]
        candidates = candidates[:1] if candidates else [split.columns[0] for split in splits][:1]
        if not candidates:
            raise ParameterError(
                "all-inputs: nothing was said to change; name columns with the parameter `all-inputs.columns=COLUMN`"
            )
        return candidates
