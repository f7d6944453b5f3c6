"""The auditor: the rows are collected in one pass, and divided afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from fairkit.auditing.needs import no_bounds
from fairkit.auditors import AuditContext, Auditor
from fairkit.data.roles import value_text
from fairkit.errors import ParameterError, did_you_mean
from fairkit.metrics import Headline
from fairkit_why.audit_rows import Collected, Parameters, allowed_columns, conditions_of, metrics_of, players_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding


class WhyAuditor(Auditor):
    """Divides the gap between two groups: among columns, among rates, and into what allowed columns leave.

    Among columns by Shapley values over all pairs of rows, so that there is no background to choose: with ``v(S)`` the
    mean over pairs (x of the group, z of the reference) of ``f(x_S, z_-S)`` the values add up to the difference of the
    means. They are exact for scores that are sums of trees or linear; decisions, and other models, are sampled by
    walks. Among base rate, true positive rate and false positive rate by Kitagawa's form. What is left between people
    who are alike in allowed columns is estimated doubly robustly, and refused where people have no counterpart.
    """

    name: ClassVar[str] = "why"
    uses: ClassVar[frozenset[str]] = frozenset({"weights", "clusters", "reference", "missing_groups"})
    summary: ClassVar[str] = "What carries a gap: columns, rates, and what is left between people who are alike."
    citation: ClassVar[str] = (
        "Shapley (1953); Kitagawa (1955), J. Am. Stat. Assoc. 50; Robins, Rotnitzky & Zhao (1994), J. Am. Stat. Assoc. "
        "89; Chernozhukov et al. (2018), Econometrics J. 21; Li, Morgan & Zaslavsky (2018), J. Am. Stat. Assoc. 113"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass", "regression"})
    headlines: ClassVar[Mapping[str, Headline]] = {
        name: Headline(disparity=False)
        for name in (
            "attribution", "base_rate_part", "true_positive_rate_part", "false_positive_rate_part",
            "unexplained_difference", "gap_without",
        )
    }  # fmt: skip
    Parameters = Parameters

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.headlines)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Name the model's columns, those that are allowed, and with `refit` all features."""
        features = () if getattr(context.scorer, "recorded", False) else context.scorer.columns
        named = [str(condition["column"]) for condition in conditions_of(self.parameters)]
        lacking = next((name for name in named if name not in context.dataset.columns), None)
        if lacking is not None:
            hint = did_you_mean(lacking, context.dataset.columns, what="columns")
            raise ParameterError(f"why.people: {context.dataset.name} has no column {lacking!r}. {hint}")
        return list(dict.fromkeys([*features, *allowed_columns(self.parameters, context), *named]))

    def begin(self, context: AuditContext) -> None:
        """Refuse what means nothing before any row is scored."""
        chosen = self.parameters
        context = of_class(context)
        metrics_of(chosen, context)
        if not context.dataset.roles.sensitive and not chosen.people:
            raise ParameterError("why: a gap is between groups; name a column with `sensitive`")
        if getattr(context.scorer, "recorded", False):
            if chosen.together or chosen.refit:
                raise ParameterError(
                    "why: `together` and `refit` need a model; the predictions are columns of the table"
                )
        else:
            players_of(chosen, context.scorer.columns)
        if chosen.without and not chosen.refit:
            raise ParameterError("why.without: name the table to train on with why.refit")

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> Collected:
        """Keep the rows."""
        return Collected.of(batch, predictions, self.columns(context), context, conditions_of(self.parameters))

    def findings(self, total: Collected, context: AuditContext) -> list[Finding]:
        """Divide every gap."""
        from fairkit_why.findings import findings

        found = findings(self.parameters, total, of_class(context))
        return [no_bounds(finding, context.dataset) for finding in found]


def of_class(context: AuditContext) -> AuditContext:
    """Return the context with the favorable class against all others, where there are several classes."""
    if context.scorer.task != "multiclass":
        return context
    from fairkit_why.permutation_walks import OneClass

    names = [value_text(value) for value in context.scorer.classes]
    favorable = context.dataset.roles.favorable
    if favorable is None or value_text(favorable) not in names:
        raise ParameterError(
            f"why: of several classes the gap of one is divided; name it with `favorable` ({', '.join(names)})"
        )
    return replace(context, scorer=OneClass(context.scorer, names.index(value_text(favorable))))
