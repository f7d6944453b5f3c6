"""The auditor: answers to the same question about the same texts under names of several groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditing.needs import no_bounds
from fairkit.auditors import AuditContext, Auditor
from fairkit.charts import Cell, ChartTable, EvidenceChart
from fairkit.errors import ParameterError
from fairkit.metrics import Headline
from fairkit.results.policy import Change, outcome_of
from fairkit_correspondence.answers import RECORDED, AnswerRows, Parameters, answers_of, columns_of
from fairkit_correspondence.findings import DIFFERENCE, MEASURES, Statement

if TYPE_CHECKING:
    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit.results.findings import Finding
    from fairkit_correspondence.answers import Answers


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
        from fairkit_correspondence.requests import is_ours

        roles, columns = context.dataset.roles, context.dataset.columns
        if not roles.sensitive:
            raise ParameterError("correspondence compares groups: name the column of the names' group as sensitive")
        columns_needed = columns_of(self.parameters, columns, context.dataset.name)
        if is_ours(columns):
            return list(columns)
        recorded = [column for column in (*RECORDED, "prompt_tokens") if column in columns]
        return [*columns_needed.values(), *recorded, *self.parameters.adjust]

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> AnswerRows:
        """Keep the rows: the interval needs every document whole."""
        import pyarrow as pa

        names = list(dict.fromkeys(self.columns(context)))
        arrow = pa.RecordBatch.from_arrays([batch.arrow(name) for name in names], names=names)
        values = np.asarray(predictions.score, dtype=np.float64)
        return AnswerRows(((int(batch.rows[0]) if len(batch) else -1, dict(batch.groups), values, arrow),))

    def findings(self, total: AnswerRows, context: AuditContext) -> list[Finding]:
        """Return the differences with their intervals, for every sensitive column."""
        from fairkit_correspondence.findings import findings

        found = [finding for statement in self._statements(total, context) for finding in findings(statement)]
        return [no_bounds(finding, context.dataset) for finding in found]

    def table_changes(
        self, totals: Sequence[Sequence[AnswerRows]], contexts: Sequence[Sequence[AuditContext]]
    ) -> list[Change]:
        """Return how much the differences of two models differ (see `fairkit.auditors.ComparesTables`)."""
        before = self._statements(totals[0][0], contexts[0][0])
        after = self._statements(totals[1][-1], contexts[1][-1])
        return [change for pair in zip(before, after, strict=True) for change in changes(*pair)]

    def _statements(self, total: AnswerRows, context: AuditContext) -> Iterator[Statement]:

        table, groups, y = total.joined()
        for split in context.dataset.roles.sensitive:
            names = context.dataset.group_names(split.name)
            answers = answers_of(table, groups[split.name], names, y, self.parameters, context)
            yield Statement(answers, split.name, self.parameters, context, table)


# How evidence is shown: a forest plot of pairs and contexts, refusals, changed documents, drift.


class ForestChart(EvidenceChart):
    """Every pair of groups, averaged over the contexts and in each of them, with its own interval."""

    name = "correspondence_pairs"
    title = "Difference by pair of groups and context"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each pair and context."""
        rows = [(name, row["value"], row["low"], row["high"]) for name, row in by_name(value).items()]
        return ChartTable(columns=("groups, context", "difference", "low", "high"), rows=rows)

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return points with their intervals around zero."""
        y = {"field": "what", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
        x = {"type": "quantitative", "title": "difference of mean answers"}
        ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
        point = {"type": "point", "filled": True, "size": 60}
        return {
            "data": {"values": [{"what": name, **row} for name, row in by_name(value).items()]},
            "width": 220 if narrow else 420,
            "layer": [
                {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"x": {"datum": 0, **x}}},
                {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
                {"mark": point, "encoding": {"x": {**x, "field": "value"}, "y": y}},
            ],
        }

    @classmethod
    def example(cls) -> Any:
        """Return one pair."""
        name = "a - b, all contexts"
        return {f"{name}: value": 0.04, f"{name}: low": 0.01, f"{name}: high": 0.07}


class RefusalChart(EvidenceChart):
    """What became of the questions, by group."""

    name = "refusals"
    title = "Answered, refused, unreadable, cut off"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each group."""
        rows = by_name(value)
        kinds = list(next(iter(rows.values()), {}))
        counts: list[list[Cell]] = [[name, *(int(row[k]) for k in kinds)] for name, row in rows.items()]
        return ChartTable(columns=("group", *kinds), rows=counts)

    @classmethod
    def example(cls) -> Any:
        """Return two groups."""
        counts = {"answered": 90, "refused": 6, "unreadable": 3, "cut off": 1}
        return {f"{group}: {kind}": count for group in ("a", "b") for kind, count in counts.items()}


class ChangedChart(EvidenceChart):
    """The documents on which two groups' answers differ most; documents are named by digest."""

    name = "changed_answers"
    title = "Documents whose answers differ most"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each document."""
        rows: list[list[Cell]] = [
            [pair["document"], pair["context"], " - ".join(pair["groups"]), *map(float, pair["answers"])]
            for pair in value
        ]
        return ChartTable(columns=("document", "context", "groups", "first", "second"), rows=rows)

    @classmethod
    def example(cls) -> Any:
        """Return one document."""
        return [{"document": "3f2a", "context": "all", "groups": ["a", "b"], "answers": [1.0, 0.0]}]


class DriftChart(EvidenceChart):
    """Late answers minus early ones, of the same documents."""

    name = "drift"
    title = "Late answers minus early ones"

    def table(self, value: Any) -> ChartTable:
        """Return one row."""
        cells = ("shift", "low", "high", "level")
        row = (*(float(value[cell]) for cell in cells), "yes" if value["found"] else "no")
        return ChartTable(columns=(*cells, "found"), rows=[row])

    @classmethod
    def example(cls) -> Any:
        """Return no drift."""
        return {"shift": 0.001, "low": -0.02, "high": 0.022, "level": 0.01, "found": False}


def by_name(value: Any) -> dict[str, dict[str, float]]:
    """Return numbers under ``name: key`` by name and key; certificates keep plain numbers by name, and no tables."""
    rows: dict[str, dict[str, float]] = {}
    for text, number in dict(value).items():
        name, _, key = text.rpartition(": ")
        rows.setdefault(name, {})[key] = float(number)
    return rows


# Two models, or two versions of one, that answered the same plan: how much their differences differ.


def changes(before: Statement, after: Statement) -> Iterator[Change]:
    """Yield the change of each pair's difference, averaged over contexts; the intervals of all pairs hold together.

    The largest one is that of the column as a whole; the others are those of their first group against the second.
    """
    earlier, later = (_shared(before, after), _shared(after, before))
    joined = replace(after, answers=_difference(earlier, later))
    doubts = {audit.context.dataset.name: audit.doubt for audit in (before, after, joined) if audit.doubt}
    said = "; ".join(f"{table}: {doubt}" for table, doubt in doubts.items())
    for rank, change in enumerate(sorted(joined.averaged, key=lambda one: -abs(one.value))):
        pair = change.first, change.second
        ends = joined.pair_limits(change, joined.context.confidence, len(joined.pairs))
        low, high = (2 * end for end in ends)
        first, second = (joined.answers.groups[group] for group in pair)
        yield Change(
            metric=DIFFERENCE,
            sensitive=joined.sensitive,
            group=first if rank else None,
            reference=second,
            parameters={"pair": f"{first} - {second}"} | ({"inconclusive": said} if said else {}),
            before=earlier.compare(pair).value,
            after=later.compare(pair).value,
            interval=(low, high),
            better="none",
            outcome="undecided" if said else outcome_of(low, high, "none"),
        )


def _shared(statement: Statement, other: Statement) -> Statement:
    """Return a statement about the documents that the other model has answered, too: the plan may go on for either."""
    answers = statement.answers
    documents = set((other if "plan" in statement.recorded else statement).answers.documents)
    shared = np.array([document in documents for document in answers.documents])
    return replace(statement, answers=answers.take(shared[answers.document]))


def _difference(before: Statement, after: Statement) -> Answers:
    """Return (1 + y' - y) / 2 of every document, context and name, between its bounds."""
    answers, others = after.answers, before.answers
    (where, (low, high)), (place, (base_low, base_high)) = (
        one.means(np.ones(len(one.low), dtype=bool), one.low, one.high) for one in (answers, others)
    )
    different = {
        "plans": before.recorded.get("plan") != after.recorded.get("plan"),
        "documents": answers.documents != others.documents or not answers.documents,
        "groups": answers.groups != others.groups,
        "names": answers.names != others.names,
        "contexts": answers.contexts != others.contexts or not all(map(np.array_equal, where, place)),
    }
    for what, differs in different.items():
        if differs:
            labels = (before.context.dataset.name, after.context.dataset.name)
            raise ParameterError(
                f"{' and '.join(labels)} have different {what}: models are compared on answers to one plan; ask the "
                "other model with the same plan (two reports, as JSON, are compared as independent ones)"
            )
    document, context, name = where
    group = np.array([answers.groups.index(group) for _, group in answers.names])
    nothing = np.zeros(len(name))
    return replace(
        answers, document=document, context=context, name=name, group=group[name],
        low=(1 + low - base_high) / 2, high=(1 + high - base_low) / 2, open=nothing,
        outcome=nothing.astype(np.int64), block=nothing.astype(np.int64), order=None, tokens=None,
        look=min(answers.look, others.look),
    )  # fmt: skip
