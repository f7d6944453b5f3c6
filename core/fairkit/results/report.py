"""The report: findings, the policy's verdict, and what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import DataError, did_you_mean
from fairkit.results.findings import Finding, VerdictName
from fairkit.results.rendering import Saved, plotted
from fairkit.results.rules import RuleResult
from fairkit.results.subjects import DataInfo, ModelInfo, read_subject, subject_record
from fairkit.results.tables import Tabular, arrow_table, ends, pandas_frame, place
from fairkit.support.faces import imported

if TYPE_CHECKING:
    import pandas as pd


SCHEMA = "fairkit.report/1"


def _unreferred(findings: list[Finding]) -> list[Finding]:
    """Return the findings between all groups, where there are such; some metrics have a reference always."""
    return [finding for finding in findings if finding.reference is None] or findings


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
        """Return the answer, a line for the model and the data, and one for each finding."""
        return "\n".join([*self._answers, self._head, *map(str, self.findings)])

    def __repr__(self) -> str:
        """Return a line: the answer, the model and the data."""
        return " ".join([*self._answers[:1], f"{self._head}; {len(self.findings)} findings"])

    @property
    def _head(self) -> str:
        label, good = self.data.label, self.data.favorable
        favorable = "" if good is None else f"; favorable: {label} = {good}" if label else f"; favorable: {good}"
        return f"{self.model.name} ({self.model.task}) on {self.data.name}, {self.data.rows:,} rows{favorable}"

    @property
    def _answers(self) -> list[str]:
        """What became of each limit, in people; without limits the largest disparity."""
        found = imported("fairkit.reading:answers")(self)
        if found or self.verdict:
            return [f"{str(one.verdict or self.verdict).upper()}: {one}" for one in found] or [
                str(self.verdict).upper()
            ]
        largest = next((one for one in imported("fairkit.reading:disparities")(self) if one.value is not None), None)
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
        named = [f for f in named if f.reference == reference] if reference is not None else _unreferred(named)
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
            {"auditor": one.auditor}
            | place(one)
            | {"value": one.value}
            | ends(one.interval)
            | {"confidence": one.confidence, "better": one.better, "inconclusive": one.inconclusive}
            for one in self.findings
        ]

    def group_records(self) -> list[dict[str, Any]]:
        """Return a line for each group of each finding: its rows, the number and its interval."""
        return [
            {"auditor": one.auditor}
            | place(one)
            | {"group": group.group, "rows": group.rows, "value": group.value}
            | ends(group.interval)
            for one in self.findings
            for group in one.groups
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
                each = {one.group: _decided(one.value, one.rows) for one in between.groups}
                groups[sensitive] = {name: told for name, told in each.items() if told is not None}
        return counted | {"groups": groups}

    def with_policy(
        self, results: tuple[RuleResult, ...], verdict: VerdictName | None, adjustment: str | None
    ) -> Report:
        """Return the same report with a policy applied to it."""
        return replace(self, policy=results, verdict=verdict, adjustment=adjustment)

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
        """Read what `to_dict` wrote. Validate JSON from outside with `fairkit.results.schema` first.

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
