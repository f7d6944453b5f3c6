"""The report: findings, the policy's verdict, and what they are about."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import DataError, did_you_mean
from fairkit.results.findings import Finding, VerdictName
from fairkit.results.rendering import Saved, Tabular, arrow_table, ends, pandas_frame, place, plotted
from fairkit.results.rules import RuleResult
from fairkit.support.files import mistakes, read_record, record_of
from fairkit.support.lazy_dataclass import dataclass, field, replace
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    import pandas as pd


SCHEMA = "fairkit.report/1"
_MOST_SHOWN, _MOST_ANSWERS = 15, 6
"""So many numbers, and so many limits, are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Tabular, Saved):
    """Everything that one audit found: the JSON of schema ``fairkit.report/1``.

    `warnings` are sentences that a reader must see before the numbers: about the table's rows, and about predictions
    that make no sense. `about` are facts that no number follows from, as its makers state them: intended_use, owner.
    """

    model: ModelInfo
    data: DataInfo
    findings: tuple[Finding, ...]
    policy: tuple[RuleResult, ...] = ()
    verdict: VerdictName | None = None
    seed: int = 0
    confidence: float = 0.95
    adjustment: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return what a screen shows: the answers, what was audited, the first numbers, and how many more there are."""
        reading = {name: imported(f"fairkit.reading:{name}")(self) for name in ("performance", "disparities")}
        others = [finding for finding in self.findings if finding.auditor != "group"]
        listed = [*reading["performance"][:3], *reading["disparities"], *others]
        shown = list({id(finding): finding for finding in listed}.values())[:_MOST_SHOWN]
        answers, more = self._answers, len(self.findings) - len(shown)
        lines = [*answers[:_MOST_ANSWERS], self._head, *map(str, shown)]
        lines += [f"{more} more: report.findings"] if more else []
        lines += [f"{len(answers) - _MOST_ANSWERS} more limits: report.policy"] if len(answers) > _MOST_ANSWERS else []
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return a line: the verdict, the model and the data."""
        return f"<Report of {self._head}: {self.verdict or 'no policy'}, {len(self.findings)} findings>"

    @property
    def _head(self) -> str:
        label, good = self.data.label, self.data.favorable
        favorable = "" if good is None else f"; favorable: {label} = {good}" if label else f"; favorable: {good}"
        return f"{self.model.name} ({self.model.task}) on {self.data.name}, {self.data.rows:,} rows{favorable}"

    @property
    def _answers(self) -> list[str]:
        """What became of each limit, in people; without limits the largest disparity."""
        answers = imported("fairkit.reading:answers")(self)
        if answers or self.verdict:
            return [f"{str(answer.verdict or self.verdict).upper()}: {answer}" for answer in answers] or [
                str(self.verdict).upper()
            ]
        largest = next(
            (finding for finding in imported("fairkit.reading:disparities")(self) if finding.value is not None), None
        )
        return (
            [] if largest is None else [f"The largest disparity: {imported('fairkit.reading:answer')(self, largest)}"]
        )

    def find(
        self,
        metric: str,
        sensitive: str | None = None,
        *,
        auditor: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        reference: str | None = None,
        within: str | Sequence[str] = (),
    ) -> Finding:
        """Look one finding up.

        Parameters
        ----------
        metric
            The metric's name.
        sensitive
            The sensitive column; None takes the only finding of that metric, or the one over all rows.
        auditor
            Needed only where two auditors report the same metric.
        parameters
            What the finding's parameters hold, such as ``{"class": "b"}`` or ``{"epsilon": 0.1}``; without
            them a finding over all classes comes before those of single classes.
        reference
            The group that the others are compared with; without it a finding between all groups comes first.
        within
            The columns of the strata, as ``"department"`` or several.

        Raises
        ------
        DataError
            No finding, or more than one, answers.
        """
        named = [
            finding for finding in self.findings if finding.metric == metric and auditor in (None, finding.auditor)
        ]
        inside = tuple(within.split("+")) if isinstance(within, str) else tuple(within)
        named = [f for f in named if f.within == (inside if any(inside) else ())]
        # some metrics have a reference always
        named = [f for f in named if f.reference == reference] or (named if reference is None else [])
        if not named:
            hint = did_you_mean(metric, {finding.metric for finding in self.findings}, what="metrics")
            raise DataError(f"the report has no finding {metric!r}. {hint}")
        if sensitive is not None or len(named) > 1:
            chosen = [finding for finding in named if finding.sensitive == sensitive]
        else:
            chosen = named
        wanted = dict(parameters or {})
        chosen = [f for f in chosen if wanted.items() <= dict(f.parameters).items()]
        if len(chosen) > 1 and "class" not in wanted:
            chosen = [f for f in chosen if "class" not in f.parameters] or chosen
        if len(chosen) != 1:
            among = ", ".join(f"{f.auditor}/{f.sensitive}/{dict(f.parameters)}" for f in named)
            raise DataError(
                f"{len(chosen)} findings answer to {metric!r} for {sensitive!r}; "
                f"there are (auditor/sensitive/parameters): {among}"
            )
        return chosen[0]

    def records(self) -> list[dict[str, Any]]:
        """Return a line for each finding: who measured what between which groups, the number and its interval."""
        return [
            {"auditor": finding.auditor}
            | place(finding)
            | {"value": finding.value}
            | ends(finding.interval)
            | {"confidence": finding.confidence, "better": finding.better, "inconclusive": finding.inconclusive}
            for finding in self.findings
        ]

    def group_records(self) -> list[dict[str, Any]]:
        """Return a line for each group of each finding: its rows, the number and its interval."""
        return [
            {"auditor": finding.auditor}
            | place(finding)
            | {"group": group.group, "rows": group.rows, "value": group.value}
            | ends(group.interval)
            for finding in self.findings
            for group in finding.groups
        ]

    def groups_frame(self) -> pd.DataFrame:
        """Return the lines of `group_records` as a pandas data frame (`to_frame` has the findings)."""
        return pandas_frame(arrow_table(self.group_records()))

    def plot(self, name: str = "disparities", sensitive: str | None = None) -> Any:
        """Return a chart of the report's page as an Altair chart, which can be changed, combined and saved.

        Parameters
        ----------
        name
            ``disparities``, ``scores``, ``roc``, ``calibration``, or an auditor's own, such as ``columns`` of `why`.
        sensitive
            The charts of this column; None: of all, below each other.

        Raises
        ------
        DataError
            The page has no such chart: a model without scores has no ROC curve.
        MissingExtraError
            Altair is not installed.
        """
        return plotted(self, name, sensitive)

    @property
    def decisions(self) -> dict[str, Any]:
        """How many people were decided how: ``{"favorable", "unfavorable", "groups": {"sex": {"female": {...}}}}``.

        The counts follow from `selection_rate`. Empty where rows have weights, decisions are drawn by chance, there are
        no decisions or more than two.
        """
        named = {
            (f.metric, f.sensitive): f
            for f in self.findings
            if f.auditor == "group" and f.plain and "class" not in f.parameters
        }
        whole = named.get(("selection_rate", None))
        counted = None if whole is None or self.data.weights else _decided(whole.value, self.data.rows)
        if counted is None:
            return {}
        groups = {}
        for sensitive in self.data.groups:
            between = named.get(("selection_rate_difference", sensitive))
            if between is not None:
                each = {group.group: _decided(group.value, group.rows) for group in between.groups}
                groups[sensitive] = {name: count for name, count in each.items() if count is not None}
        return counted | {"groups": groups}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.report/1``."""
        return {
            "schema": SCHEMA,
            **subject_record(self.model),
            "data": self.data.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "policy": [rule.to_dict() for rule in self.policy],
            "verdict": self.verdict,
            "seed": self.seed,
            "confidence": self.confidence,
            "adjustment": self.adjustment,
            "environment": dict(self.environment),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            **({"about": dict(self.about)} if self.about else {}),
            **({"decisions": told} if (told := self.decisions) else {}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote. Validate JSON from outside with `fairkit.results.report` first.

        Raises
        ------
        DataError
            The record is not of schema ``fairkit.report/1``.
        """
        if record.get("schema") != SCHEMA:
            raise DataError(f"not a {SCHEMA} record: its schema is {record.get('schema')!r}")
        return cls(
            model=read_subject(record),
            data=DataInfo.from_dict(record["data"]),
            findings=tuple(Finding.from_dict(finding) for finding in record["findings"]),
            policy=tuple(RuleResult.from_dict(rule) for rule in record["policy"]),
            verdict=record["verdict"],
            seed=record["seed"],
            confidence=record["confidence"],
            adjustment=record.get("adjustment"),
            environment=record["environment"],
            warnings=tuple(record.get("warnings", ())),
            about=record.get("about", {}),
        )


def _decided(rate: float | None, rows: int) -> dict[str, int] | None:
    """Return how many of so many rows have each decision; None where the rate is not of whole people."""
    if rate is None or abs(rate * rows - round(rate * rows)) > 1e-6:
        return None
    return {"favorable": round(rate * rows), "unfavorable": rows - round(rate * rows)}


# What a report is about: the model and the data, as far as a report says it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The audited model: its name, the SHA-256 of its bytes (None for an object in memory), its task.

    `outputs` says which of its outputs were audited: ``score`` and ``decision`` are names (or None), and
    ``threshold`` and ``rule``, the comparison with it as it runs (``pd <= 0.2``), are there where scores decide,
    ``turned`` where the score is one minus the output, and ``favorable`` says which value of a column of decisions is
    the favorable one. `endpoint` is there where a server answered: ``url``, ``model``, ``version``, ``platform``, and
    the digest of the model's metadata.
    `predictions` says which columns of the table were audited where there was no model; empty where there was one.
    `serving` has what is known of the model as it is served: ``rows`` (whether the file is plain, and its rows are
    shown to stay apart), ``probed`` (what other batches, orders, threads and no optimisation gave), ``outputs`` and
    ``inputs`` that were not audited or fed; empty in older reports.
    """

    name: str
    sha256: str | None
    task: str
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Any] = field(default_factory=dict)
    serving: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unseen(self) -> bool:
        """Whether no model file was seen: a table or its predictions were audited, or a server's answers."""
        return bool(self.predictions or self.endpoint) or self.task == "table"

    @property
    def as_served(self) -> str:
        """What is known of a file in other batches and other ways to run it; empty where nobody looked."""
        rows, probed = self.serving.get("rows", {}), self.serving.get("probed", {})
        if "rows_apart" not in rows or not probed:
            return ""
        shown = "shown" if rows["rows_apart"] else f"not shown ({rows.get('because')})"
        return (
            f"that rows of a batch stay apart is {shown}; probed: {probed['differ']:,} of the first "
            f"{probed['rows']:,} rows are decided otherwise in other batches, orders and numbers of threads, with and "
            "without graph optimisation"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        always, called = ("name", "sha256", "task", "notes"), {"predictions": "columns"}
        return {called.get(key, key): value for key, value in record_of(self).items() if key in always or value}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return read_record(cls, {**record, "predictions": record.get("columns", {})})


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInfo:
    """The audited data: its name, content digest, rows used, rows left out, and the groups' sizes.

    `missing` counts, by sensitive column, the used rows that are in no group because their value is missing. `weights`
    is the column of sample weights; None where all rows count the same. `joined` says which other table gave columns:
    name, sha256, on, columns, rows, used, matched and unmatched; empty where none did. `label` and `favorable` are the
    outcome column and its favorable value, as text. `columns` are the table's columns with type and missing cells,
    `more_columns` counts those that are not listed, and `period` says from which month to which the rows are, by which
    column; empty where no column or more than one has dates. `clusters` has the column of ids and their number
    (`column`, `count`) where rows of one id depend on each other; it is empty where rows are independent.
    `source` says where a table is that an address named: kind, address, and what tells its version; empty for a file or
    a table in memory.
    """

    name: str
    sha256: str
    rows: int
    dropped_rows: int  # without a weight
    groups: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    weights: str | None = None
    joined: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    favorable: str | None = None
    columns: tuple[Mapping[str, Any], ...] = ()
    more_columns: int = 0
    period: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    unlabelled_rows: int = 0  # of the rows used: without a label, hence only in numbers that need none

    @property
    def lacking(self) -> str:
        """What rows lack, in words that follow their number; empty where they lack nothing."""
        reasons = ((self.dropped_rows, "left out without a weight"), (self.unlabelled_rows, "of them without a label"))
        return "".join(f", {count:,} {what}" for count, what in reasons if count)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        always = ("name", "sha256", "rows", "dropped_rows", "groups", "notes")
        return {key: value for key, value in record_of(self).items() if key in always or value not in (None, 0, [], {})}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return read_record(cls, record)


def subject_record(model: ModelInfo) -> dict[str, Any]:
    """Return the audited subject: the model, or, where there was none, the table's predictions."""
    if model.predictions or model.task == "table":
        return {"model": None, "predictions": {**model.to_dict(), "columns": dict(model.predictions)}}
    return {"model": model.to_dict()}


def read_subject(record: Mapping[str, Any]) -> ModelInfo:
    """Read what `subject_record` wrote: a model has no columns, predictions and endpoints have no digest."""
    if record["model"] is None:
        return replace(ModelInfo.from_dict(record["predictions"]), sha256=None)
    model = replace(ModelInfo.from_dict(record["model"]), predictions={})
    return replace(model, sha256=None) if model.endpoint else model


# Checking JSON from outside against the schemas that fairkit publishes.


@cache
def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``fairkit.report/1``."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent.parent / "schemas" / "report-1.json").read_text("utf-8"))
    return schema


def validate_report(record: Any) -> None:
    """Check a report that came from outside."""
    for path, message in mistakes(record, report_schema()):
        where = "/".join(map(str, path)) or "its top level"
        raise DataError(f"this is not a fairkit.report/1 record: at {where}: {message[:200]}")
    _check_numbers(record)


def _check_numbers(value: Any) -> None:
    """Refuse whole numbers that no float holds, which JSON may have."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise DataError("this is not a fairkit.report/1 record: it has a number that no float holds")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _check_numbers(item)
