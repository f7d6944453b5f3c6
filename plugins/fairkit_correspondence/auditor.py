"""The auditor: answers to the same question about the same texts under names of several groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairkit.auditing.conditions import no_bounds
from fairkit.auditors import AuditContext, Auditor
from fairkit.errors import ParameterError
from fairkit.metrics import Headline
from fairkit_correspondence.parameters import Parameters

if TYPE_CHECKING:
    from fairkit.data.batch import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.comparisons import Change
    from fairkit.results.findings import Finding
    from fairkit_correspondence.answers import AnswerRows
    from fairkit_correspondence.findings import Statement


class CorrespondenceAuditor(Auditor):
    """Compares answers about the same documents under names of different groups.

    `correspondence_difference` is the largest difference between two groups' mean answers, with documents and names as
    samples that cross: its interval covers what names like these, on documents like these, move the served model by.
    Refused, unreadable and cut-off answers could have been anything and widen it. Fewer than 30 names a group or 30
    documents give no verdict.
    """

    name: ClassVar[str] = "correspondence"
    summary: ClassVar[str] = "Paired names: how much the answer about one text depends on the name in it."
    citation: ClassVar[str] = (
        "Bertrand & Mullainathan (2004), AER; Judd, Westfall & Kenny (2012), JPSP; Gaebler et al. (2024), "
        "arXiv:2404.03086"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"answers"})
    headlines: ClassVar[Mapping[str, Headline]] = {"correspondence_difference": Headline()}
    uses: ClassVar[frozenset[str]] = frozenset({"missing_groups"})
    unaffected_by: ClassVar[frozenset[str]] = frozenset({"missing_labels"})
    Parameters = Parameters

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        from fairkit_correspondence.findings import MEASURES

        return frozenset(MEASURES)

    @classmethod
    def advice(cls, finding: Finding, limit: float) -> str | None:
        """Say how many documents and names would decide a limit: rows are neither."""
        from fairkit_correspondence.planning import Size, Spread, advice

        variances, counts = finding.evidence.get("variances"), finding.evidence.get("counts")
        if variances is None or counts is None or finding.value is None:
            return "More documents and more names would narrow the interval"
        names = [count for key, count in counts.items() if key.startswith("names of ")]
        size = Size(
            names=min(names),
            each=max(round(counts["answers"] / counts["documents"] / len(names)), 1),
            limit=limit,
            truth=finding.value,
            confidence=finding.confidence,
            fixed=finding.parameters.get("names") == "fixed",
        )
        return advice(Spread(**variances), size)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """The columns of documents, names, contexts and outcomes; all of them where the table is of `fairkit ask`."""
        from fairkit_correspondence.answers import RECORDED, columns_of
        from fairkit_correspondence.table import is_ours

        roles, columns = context.dataset.roles, context.dataset.columns
        if not roles.sensitive:
            raise ParameterError("correspondence compares groups: name the column of the names' group as sensitive")
        needed = columns_of(self.parameters, columns, context.dataset.name)
        if is_ours(columns):
            return list(columns)
        recorded = [column for column in (*RECORDED, "prompt_tokens") if column in columns]
        return [*needed.values(), *recorded, *self.parameters.adjust]

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> AnswerRows:
        """Keep the rows: the interval needs every document whole."""
        import pyarrow as pa

        from fairkit_correspondence.answers import AnswerRows

        names = list(dict.fromkeys(self.columns(context)))
        arrow = pa.RecordBatch.from_arrays([batch.arrow(name) for name in names], names=names)
        values = np.asarray(predictions.score, dtype=np.float64)
        return AnswerRows(((int(batch.rows[0]) if len(batch) else -1, dict(batch.groups), values, arrow),))

    def findings(self, total: AnswerRows, context: AuditContext) -> list[Finding]:
        """Return the differences with their intervals, for every sensitive column."""
        from fairkit_correspondence.findings import findings

        found = [one for statement in self._statements(total, context) for one in findings(statement)]
        return [no_bounds(one, context.dataset) for one in found]

    def table_changes(
        self, totals: Sequence[Sequence[AnswerRows]], contexts: Sequence[Sequence[AuditContext]]
    ) -> list[Change]:
        """Return how much the differences of two models differ (see `fairkit.auditors.ComparesTables`)."""
        from fairkit_correspondence.comparing import changes

        before = self._statements(totals[0][0], contexts[0][0])
        after = self._statements(totals[1][-1], contexts[1][-1])
        return [one for pair in zip(before, after, strict=True) for one in changes(*pair)]

    def _statements(self, total: AnswerRows, context: AuditContext) -> Iterator[Statement]:
        from fairkit_correspondence.answers import answers_of
        from fairkit_correspondence.findings import Statement

        table, groups, y = total.joined()
        for split in context.dataset.roles.sensitive:
            names = context.dataset.group_names(split.name)
            answers = answers_of(table, groups[split.name], names, y, self.parameters, context)
            yield Statement(answers, split.name, self.parameters, context, table)
