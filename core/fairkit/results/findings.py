"""Findings and the report: what an audit measured, as frozen values that go to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import DataError, did_you_mean
from fairkit.results.plots import ReportPlots
from fairkit.results.rendering import Saved, Shown
from fairkit.results.tables import Tabular, arrow_table, ends, pandas_frame, place

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fairkit.report/1"

Better = Literal["lower", "higher", "none"]
Interval = tuple[float, float]
VerdictName = Literal["pass", "fail", "inconclusive"]


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity: a number that is not finite is absent."""
    return None if value is None or not math.isfinite(value) else float(value)


def _interval(pair: Interval | None) -> list[float | None] | None:
    return None if pair is None else [_number(pair[0]), _number(pair[1])]


def _read_interval(pair: list[float | None] | None) -> Interval | None:
    if pair is None:
        return None
    low, high = pair
    return (-math.inf if low is None else float(low), math.inf if high is None else float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """One group's part of a finding.

    `value` is None where the metric is not defined for the group (for instance a true positive rate
    without positives); `rows` counts the rows that the group has in the audited data. `denominator` is the number of
    rows that a rate is over (positives, for a true positive rate), or the effective number under weights; None for
    other metrics.
    """

    group: str
    rows: int
    value: float | None
    interval: Interval | None = None
    denominator: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of interfaces: group, rows, value, interval."""
        return {
            "group": self.group,
            "rows": self.rows,
            "value": _number(self.value),
            "interval": _interval(self.interval),
        } | ({} if self.denominator is None else {"denominator": _number(self.denominator)})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            group=record["group"],
            rows=record["rows"],
            value=record["value"],
            interval=_read_interval(record.get("interval")),
            denominator=record.get("denominator"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumValue:
    """One stratum's part of a finding that is pooled over strata.

    `value` is the number between the two groups that the finding is about, with the sign of their order there: negative
    where the stratum says the opposite. `few` marks strata with too few rows of a group to be read by themselves; they
    count in the pooled number all the same.
    """

    stratum: str
    rows: int
    value: float | None
    interval: Interval | None = None
    few: bool = False
    groups: tuple[GroupValue, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "stratum": self.stratum,
            "rows": self.rows,
            "value": _number(self.value),
            "interval": _interval(self.interval),
            "few": self.few,
            "groups": [{"group": g.group, "rows": g.rows, "value": _number(g.value)} for g in self.groups],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            stratum=record["stratum"],
            rows=record["rows"],
            value=record["value"],
            interval=_read_interval(record.get("interval")),
            few=record.get("few", False),
            groups=tuple(GroupValue.from_dict(group) for group in record.get("groups", ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Shown):
    """One measured number with its interval, parameters and evidence.

    Attributes
    ----------
    auditor, metric, sensitive
        Who measured what, between the groups of which sensitive column (None: over all rows).
    value
        The number, or None where it is not defined; the notes say why.
    interval
        Two-sided, at `confidence`; None where there is none, and the notes say why.
    better
        Which direction is better for the people concerned: ``lower``, ``higher`` or ``none``.
    groups
        The value in each group.
    parameters
        What the auditor was told, and what it chose.
    evidence
        What a person can look at: pairs of rows, bounds, multipliers. Plain JSON values.
    notes
        Sentences that a reader must know to use the number.
    inconclusive
        Why no verdict may be made from this finding (a group is too small, say); None where one may.
    reference
        The group that the others are compared with; None for disparities between all groups.
    within
        The columns whose strata the groups are compared in; empty where they are compared as a whole.
    strata
        The number in each stratum.
    missing
        The metric of the rows without a group, which are in no comparison; None where there are no such rows.
    interval_at
        The interval as a function of the confidence in (0, 1), for adjustments for multiplicity. Not serialised.
    upper_at
        The same for `evidence["upper_confidence_bound"]`, the one-sided bound that a maximum is judged by.
    """

    auditor: str
    metric: str
    value: float | None
    sensitive: str | None = None
    interval: Interval | None = None
    confidence: float = 0.95
    better: Better = "none"
    groups: tuple[GroupValue, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    inconclusive: str | None = None
    reference: str | None = None
    within: tuple[str, ...] = ()
    strata: tuple[StratumValue, ...] = ()
    missing: GroupValue | None = None
    interval_at: Callable[[float], Interval | None] | None = field(default=None, compare=False, repr=False)
    upper_at: Callable[[float], float | None] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return the number and its interval on one line."""
        place = f" of {self.place}" if self.sensitive else ""
        place += f" ({self.parameters['class']})" if "class" in self.parameters else ""
        value = "not defined" if self.value is None else f"{self.value:.4g}"
        ends = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        return f"{self.metric}{place}: {value}{ends}"

    def __repr__(self) -> str:
        """Return a line; `to_dict` gives everything."""
        return f"<Finding {self}>"

    def _repr_height(self) -> str:
        return f"{min(16 + 3 * (len(self.groups) + len(self.strata) + len(self.notes)), 42):.0f}em"

    @property
    def place(self) -> str | None:
        """Between which groups, in words: ``sex``, ``sex against male``, ``sex | department``; None over all rows."""
        if self.sensitive is None:
            return None
        against = "" if self.reference is None else f" against {self.reference}"
        inside = f" | {'+'.join(self.within)}" if self.within else ""
        return f"{self.sensitive}{against}{inside}"

    @property
    def plain(self) -> bool:
        """Whether it compares all groups with each other, and as a whole."""
        return self.reference is None and not self.within

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this number from every other one of a report, in any version of it: a tuple that can be hashed."""
        told = tuple(sorted((name, _fixed(value)) for name, value in self.parameters.items()))
        return (self.auditor, self.metric, self.sensitive, self.reference, self.within, told)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report schema."""
        return {
            "auditor": self.auditor,
            "metric": self.metric,
            "sensitive": self.sensitive,
            "value": _number(self.value),
            "interval": _interval(self.interval),
            "confidence": self.confidence,
            "better": self.better,
            "groups": [group.to_dict() for group in self.groups],
            "parameters": dict(self.parameters),
            "evidence": dict(self.evidence),
            "notes": list(self.notes),
            "inconclusive": self.inconclusive,
            **({} if self.reference is None else {"reference": self.reference}),
            **({"within": list(self.within)} if self.within else {}),
            **({"strata": [stratum.to_dict() for stratum in self.strata]} if self.strata else {}),
            **({} if self.missing is None else {"missing": self.missing.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            auditor=record["auditor"],
            metric=record["metric"],
            sensitive=record["sensitive"],
            value=record["value"],
            interval=_read_interval(record["interval"]),
            confidence=record["confidence"],
            better=record["better"],
            groups=tuple(GroupValue.from_dict(group) for group in record["groups"]),
            parameters=record["parameters"],
            evidence=record["evidence"],
            notes=tuple(record["notes"]),
            inconclusive=record.get("inconclusive"),
            reference=record.get("reference"),
            within=tuple(record.get("within", ())),
            strata=tuple(StratumValue.from_dict(stratum) for stratum in record.get("strata", ())),
            missing=None if record.get("missing") is None else GroupValue.from_dict(record["missing"]),
        )


def _fixed(value: Any) -> Any:
    """Return a JSON value as one that can be hashed."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, _fixed(one)) for key, one in value.items()))
    return tuple(map(_fixed, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class MoreRows:
    """How many more rows would decide an inconclusive rule, with the old rows kept.

    Attributes
    ----------
    rows
        Rounded up to two digits; None where even 100,000 are not enough.
    group
        Whose rows; None: of all groups, in their present shares.
    value
        What the number is taken to be in truth: what was found.
    power
        The chance of a decision with these rows.
    """

    rows: int | None
    group: str | None
    value: float
    power: float

    @property
    def sentence(self) -> str:
        """Return the advice as a sentence without its full stop."""
        if self.rows is None:
            return f"Even 100,000 more rows would hardly decide it: {self.value:.4g} is too near the limit"
        whose = f"of group {self.group}" if self.group is not None else "in the present shares of the groups"
        return (
            f"About {self.rows:,} more rows {whose} would decide it "
            f"(with {self.power:.0%} chance, if the true value is {self.value:.4g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rows": self.rows, "group": self.group, "value": _number(self.value), "power": self.power}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """A policy rule and what became of it.

    Exactly one of `maximum` and `minimum` is set. `reason` is a sentence with the numbers that decided. `more_rows`
    says how many more rows would decide an inconclusive rule; `support` and `within` are those of the rule.
    """

    metric: str
    sensitive: str | None
    maximum: float | None
    minimum: float | None
    verdict: VerdictName
    reason: str
    more_rows: MoreRows | None = None
    support: int | None = None
    within: tuple[str, ...] = ()

    @property
    def place(self) -> str | None:
        """Between which groups, in the words of `Finding.place`."""
        return self.sensitive if not self.within else f"{self.sensitive} | {'+'.join(self.within)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: metric, sensitive, max or min, verdict, reason, and more_rows where there is advice."""
        limit = {"max": self.maximum} if self.maximum is not None else {"min": self.minimum}
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            **limit,
            "verdict": self.verdict,
            "reason": self.reason,
            **({} if self.support is None else {"support": self.support}),
            **({"within": list(self.within)} if self.within else {}),
            **({} if self.more_rows is None else {"more_rows": self.more_rows.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            metric=record["metric"],
            sensitive=record["sensitive"],
            maximum=record.get("max"),
            minimum=record.get("min"),
            verdict=record["verdict"],
            reason=record.get("reason", ""),
            support=record.get("support"),
            within=tuple(record.get("within", ())),
            more_rows=None if record.get("more_rows") is None else MoreRows(**record["more_rows"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The audited model: its name, the SHA-256 of its bytes (None for an object in memory), its task.

    `outputs` says which of its outputs were audited: ``score`` and ``decision`` are names (or None), and
    ``threshold`` is there where scores of at least that much are the decisions. `endpoint` is there where a server
    answered: ``url``, ``model``, ``version``, ``platform``, and the digest of the model's metadata. `predictions` says
    which columns of the table were audited where there was no model; it is empty where there was one.
    """

    name: str
    sha256: str | None
    task: str
    notes: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    predictions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unseen(self) -> bool:
        """Whether no model file was seen: a table's predictions were audited, or a server's answers."""
        return bool(self.predictions or self.endpoint)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        record = {"name": self.name, "sha256": self.sha256, "task": self.task, "notes": list(self.notes)}
        told = {"outputs": self.outputs, "endpoint": self.endpoint, "columns": self.predictions}
        return record | {key: dict(value) for key, value in told.items() if value}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            name=record["name"],
            sha256=record["sha256"],
            task=record["task"],
            notes=tuple(record.get("notes", ())),
            outputs=dict(record.get("outputs", {})),
            endpoint=dict(record.get("endpoint", {})),
            predictions=dict(record.get("columns", {})),
        )


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
    dropped_rows: int
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

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "rows": self.rows,
            "dropped_rows": self.dropped_rows,
            "groups": {name: dict(sizes) for name, sizes in self.groups.items()},
            "notes": list(self.notes),
            **({"missing": dict(self.missing)} if self.missing else {}),
            **({} if self.weights is None else {"weights": self.weights}),
            **({"joined": dict(self.joined)} if self.joined else {}),
            **({} if self.label is None else {"label": self.label}),
            **({} if self.favorable is None else {"favorable": self.favorable}),
            **({"columns": [dict(column) for column in self.columns]} if self.columns else {}),
            **({"more_columns": self.more_columns} if self.more_columns else {}),
            **({"period": dict(self.period)} if self.period else {}),
            **({"clusters": dict(self.clusters)} if self.clusters else {}),
            **({"source": dict(self.source)} if self.source else {}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            name=record["name"],
            sha256=record["sha256"],
            rows=record["rows"],
            dropped_rows=record["dropped_rows"],
            groups=record["groups"],
            notes=tuple(record.get("notes", ())),
            missing=record.get("missing", {}),
            weights=record.get("weights"),
            clusters=dict(record.get("clusters", {})),
            joined=record.get("joined", {}),
            label=record.get("label"),
            favorable=record.get("favorable"),
            columns=tuple(record.get("columns", ())),
            more_columns=record.get("more_columns", 0),
            period=record.get("period", {}),
            source=record.get("source", {}),
        )


def _whole(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.within]


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
        """Return a line for the model, the data and the verdict, and one for each finding."""
        return "\n".join([self._head, *map(str, self.findings)])

    def __repr__(self) -> str:
        """Return a line."""
        return f"<Report of {len(self.findings)} findings, {self._head}>"

    @property
    def _head(self) -> str:
        verdict = f": {self.verdict}" if self.verdict else ""
        return f"{self.model.name} ({self.model.task}) on {self.data.name}, {self.data.rows:,} rows{verdict}"

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
            finding
            for finding in self.findings
            if finding.metric == metric and auditor in (None, finding.auditor)
        ]
        inside = tuple(within.split("+")) if isinstance(within, str) else tuple(within)
        named = [f for f in named if f.within == inside] if any(inside) else _whole(named)
        named = (
            [f for f in named if f.reference == reference] if reference is not None else _unreferred(named)
        )
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

    @property
    def plot(self) -> ReportPlots:
        """Altair charts that people can change: ``report.plot.disparities()``, ``.groups("sex")``, ``.roc("sex")``."""
        return ReportPlots(self)

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
            **_subject(self.model),
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
            model=_read_subject(record),
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


def _subject(model: ModelInfo) -> dict[str, Any]:
    """Return what was audited: the model, or, where none was seen, the predictions in the table."""
    if model.predictions:
        return {"model": None, "predictions": model.to_dict()}
    return {"model": model.to_dict()}


def _read_subject(record: Mapping[str, Any]) -> ModelInfo:
    """Read what `_subject` wrote: a model has no columns, predictions and endpoints have no digest."""
    if record["model"] is None:
        return replace(ModelInfo.from_dict(record["predictions"]), sha256=None)
    model = replace(ModelInfo.from_dict(record["model"]), predictions={})
    return replace(model, sha256=None) if model.endpoint else model
