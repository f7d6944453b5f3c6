"""The auditor: one pass over the columns for their cells, one over the scored rows, then the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.auditors import AuditContext, Auditor
from fairkit.metrics import Headline, Term
from fairkit_subgroups.parameters import DIFFERENCE, GAP, SINGLE, Parameters, chosen_columns, chosen_measures
from fairkit_subgroups.searching.measures import MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding
    from fairkit_subgroups.findings import Searched
    from fairkit_subgroups.searching.tables import Totals


class SubgroupAuditor(Auditor):
    """Searches every group that at most three conditions describe, and bounds all of them at once.

    For each group of at least a share of the rows: its rate against that of the rest, or its mean outcome against its
    mean score. Limits have exact tails (Clopper & Pearson 1934), combined as by Newcombe (1998), at α/G, with G the
    number of groups: with probability 1 - α all of them hold together, whichever group is looked at afterwards. So the
    largest lower limit names a group that is treated differently, and the largest upper limit says that no group of
    that size differs by more. `subgroup_difference` has both as its interval.
    """

    name: ClassVar[str] = "subgroups"
    summary: ClassVar[str] = "The worst-treated group of up to three conditions, with one bound for all groups."
    terms: ClassVar[Mapping[str, Term]] = {
        "worst_subgroup_gap": Term(
            "largest difference of any subgroup",
            "A bound on how far any subgroup, of all that were searched, may differ from everybody else.",
        )
    }
    citation: ClassVar[str] = (
        "Kearns, Neel, Roth & Wu (2018), Preventing fairness gerrymandering, ICML; Cherian & Candès (2024), JMLR"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass", "regression"})
    headlines: ClassVar[Mapping[str, Headline]] = {"subgroup_difference": Headline(disparity=False)}
    uses: ClassVar[frozenset[str]] = frozenset({"weights", "missing_groups"})
    Parameters = Parameters

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self._searched: Searched | None = None

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset({DIFFERENCE, GAP, SINGLE, *(f"{name}_{DIFFERENCE}" for name in MEASURES)})

    def needs_rows(self, metrics: Sequence[type[Metric]]) -> str | None:
        """Return None unless rows are drawn, or cut in halves."""
        if self.parameters.simultaneous == "exact" and self.parameters.validate == "no":
            return None
        return "the auditor 'subgroups' draws rows for simultaneous=bootstrap and validate=half"

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Every searched column, and those of the strata."""
        return [*chosen_columns(self.parameters, context)[0], *self.parameters.within]

    def begin(self, context: AuditContext) -> None:
        """Look at the columns, once, without the model: the groups are fixed before any outcome is seen."""
        from fairkit_subgroups.findings import search_for
        from fairkit_subgroups.parameters import require

        chosen = self.parameters
        require(chosen.within, context.dataset.columns, "within", context.dataset.name)
        names, named = chosen_columns(chosen, context)
        measures = chosen_measures(chosen, names, context)
        self._searched = search_for(chosen, names, named, measures, context)

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Totals:
        """Count a batch in the joint tables."""
        assert self._searched is not None  # noqa: S101 -- made by `begin`
        return self._searched.count(batch, predictions, context)

    def findings(self, total: Totals, context: AuditContext) -> list[Finding]:
        """Search."""
        from fairkit_subgroups.findings import findings

        assert self._searched is not None  # noqa: S101 -- made by `begin`
        return findings(self.name, self._searched, self.parameters, total, context)
