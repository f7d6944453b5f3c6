"""What technical documentation asks of an audit: data, performance, groups, limits, mitigation, evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fairkit.packs import Cell, Column, PackTable
from fairkit_laws.impact import Context, NotAnsweredError

if TYPE_CHECKING:
    from fairkit.results.findings import Finding

_VALUE = (Column("value", "number"), Column("from", "number"), Column("to", "number"))


def _ends(pair: tuple[float, float] | None) -> tuple[Cell, Cell]:
    return (None, None) if pair is None else pair


def _listed(title: str, pairs: list[tuple[str, Cell]]) -> PackTable:
    return PackTable(title=title, columns=(Column("what"), Column("stated")), rows=tuple(pairs))


def performance(context: Context) -> list[PackTable]:
    """Return the metrics over all rows."""
    rows = tuple(
        (finding.metric, finding.value, *_ends(finding.interval))
        for finding in context.report.findings
        if finding.sensitive is None
        and finding.value is not None
        and "class" not in finding.parameters
        and not finding.within
    )
    if not rows:
        raise NotAnsweredError("nothing was measured over all rows")
    level = f"{context.report.confidence:.0%} intervals"
    return [PackTable(title=f"Over all rows, {level}", columns=(Column("metric"), *_VALUE), rows=rows)]


_OF_GROUPS = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy", "mean_absolute_error")


def groups(context: Context) -> list[PackTable]:
    """Return the metrics in each group."""
    rows = [
        (sensitive, group.group, group.rows, metric, group.value, *_ends(group.interval))
        for sensitive in context.report.data.groups
        for metric in _OF_GROUPS
        if (finding := context.between(f"{metric}_difference", sensitive)) is not None
        for group in finding.groups
    ]
    if not rows:
        raise NotAnsweredError("nothing was measured in groups")
    columns = (Column("column"), Column("group"), Column("people", "count"), Column("metric"), *_VALUE)
    return [PackTable(title="In each group", columns=columns, rows=tuple(rows))]


def _between(title: str, findings: Iterable[Finding], otherwise: str) -> list[PackTable]:
    rows = tuple((f.metric, f.place, f.value, *_ends(f.interval)) for f in findings if f.value is not None)
    if not rows:
        raise NotAnsweredError(otherwise)
    return [PackTable(title=title, columns=(Column("metric"), Column("between groups of"), *_VALUE), rows=rows)]


def disparities(context: Context) -> list[PackTable]:
    """Return every difference and ratio between groups under the field's own names."""
    named = ("demographic_parity", "equal_opportunity", "equalized_odds", "statistical_parity")
    findings = (f for f in context.report.findings if f.sensitive is not None and f.metric.startswith(named))
    return _between("Disparities", (f for f in findings if "class" not in f.parameters), "no disparities were measured")


def policy(context: Context) -> list[PackTable]:
    """Return the limits that were set, and what became of each."""
    rules = context.report.policy
    if not rules:
        raise NotAnsweredError("no limit was set: `fairkit certify --max METRIC:COLUMN=X` sets one")
    rows = tuple(
        (
            rule.metric, rule.place or "all rows", "at most" if rule.rule.upper else "at least",
            rule.limit, rule.verdict, rule.reason,
        )
        for rule in rules
    )  # fmt: skip
    columns = (
        Column("metric"), Column("on"), Column("limit"), Column("number", "number"), Column("verdict"),
        Column("reason"),
    )  # fmt: skip
    return [PackTable(title="Limits", columns=columns, rows=rows)]


def data_sheet(context: Context) -> list[PackTable]:
    """Return the table's identity, its columns, and the sizes of its groups."""
    data = context.report.data
    entries: list[tuple[str, Cell]] = [
        ("name", data.name), ("SHA-256 of the content", data.sha256), ("rows used", data.rows),
        ("rows left out", data.dropped_rows), ("rows without an outcome", data.unlabelled_rows),
        ("outcome", data.label), ("favorable outcome", data.favorable),
    ]  # fmt: skip
    if data.period:
        entries.append(("period", f"{data.period['from']} to {data.period['to']}, by {data.period['column']}"))
    sizes = tuple((name, group, rows) for name, each in data.groups.items() for group, rows in each.items())
    sizes += tuple((name, "(unknown)", rows) for name, rows in data.missing.items())
    tables = [
        _listed("The table", entries),
        PackTable(title="Groups", columns=(Column("column"), Column("group"), Column("people", "count")), rows=sizes),
    ]
    if data.columns:
        rows = tuple((str(column["name"]), str(column["type"]), int(column["missing"])) for column in data.columns)
        columns = (Column("column"), Column("type"), Column("missing cells", "count"))
        more = (f"{data.more_columns:,} more columns.",) if data.more_columns else ()
        tables.append(PackTable(title="Columns", columns=columns, rows=rows, notes=more))
    return tables


def table_itself(context: Context) -> list[PackTable]:
    """Return what `fairkit data` measures of the table, before any model: representation, outcomes, missing values."""
    lacks = "the table itself was not looked at: `fairkit certify --auditor group --auditor data` does"
    return _between("The table, before any model", (f for f in context.report.findings if f.auditor == "data"), lacks)


def mitigation(context: Context) -> list[PackTable]:
    """Return which method made the model, as its file says."""
    record = context.certificate.get("mitigation")
    if not isinstance(record, Mapping):
        raise NotAnsweredError("the model's file names no mitigation; if there was none, say why none was needed")
    base = record.get("base")
    pairs: list[tuple[str, Cell]] = [("method", str(record.get("plugin")))]
    pairs += [(f"parameter {key}", _text(value)) for key, value in dict(record.get("parameters") or {}).items()]
    pairs.append(("model before", str(base.get("sha256")) if isinstance(base, Mapping) else "none: trained anew"))
    return [_listed("What made the model", pairs)]


def alternatives(context: Context) -> list[PackTable]:
    """Return the search for less discriminatory alternatives: its statements, and what the model's file says."""
    tables = [
        _listed(
            "What a search shows", [(name, said) for name, _, said in (note.partition(": ") for note in finding.notes)]
        )
        for finding in context.report.findings
        if finding.metric == "alternatives_reduction"
    ]
    told = context.certificate.get("mitigation")
    search = told.get("search") if isinstance(told, Mapping) else None
    if not isinstance(search, Mapping):
        if tables:
            return tables
        raise NotAnsweredError(
            "no search is recorded: `fairkit alternatives MODEL` says with an error what was found and what is "
            "excluded, and the auditor `alternatives` certifies it; `fairkit mitigate` with a policy says what it tried"
        )
    pairs: list[tuple[str, Cell]] = [
        ("alternatives considered", _text(search.get("considered"))),
        ("alternatives measured on rows that training did not see", _text(search.get("searched"))),
        *_as_good(search),
        ("predicted chance that the chosen one passes", _text(search.get("chance"))),
        ("chance that was asked for", _text(search.get("sure"))),
        ("looks at the test rows", _text(search.get("looks"))),
        ("limits", "; ".join(_text(rule) for rule in search.get("policy") or ())),
    ]
    return [*tables, _listed("Search for less discriminatory alternatives", pairs)]


def _as_good(search: Mapping[str, object]) -> list[tuple[str, Cell]]:
    """Return how many alternatives were as accurate within noise, and which of them has the least disparity."""
    if search.get("as_good") is None:
        return [("as accurate as the model without mitigation, within noise", "not recorded by this version")]
    entries: list[tuple[str, Cell]] = [
        ("as accurate as the model without mitigation, within noise (paired 95 % interval)", _text(search["as_good"]))
    ]
    least = search.get("least_disparity")
    if isinstance(least, Mapping):
        values = least.get("values")
        numbers = values.items() if isinstance(values, Mapping) else ()
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers)
        entries.append(("of these, the least disparity", f"{least.get('name')}: {shown}"))
    return entries


def evidence(context: Context) -> list[PackTable]:
    """Return the table of identifiers of the evidence: digests, keys, time, software."""
    stated, report = context.certificate, context.report
    made = report.environment
    if not stated:
        raise NotAnsweredError("the audit is not signed: make a certificate with `fairkit certify`")
    software = ", ".join(f"{plugin['name']} {plugin['version']}" for plugin in report.environment.get("plugins", ()))
    pairs: list[tuple[str, Cell]] = [
        ("SHA-256 of the certificate", str(stated["sha256"])),
        ("audited (as the signer says)", str(stated["audited_at"])),
        ("signed by the keys", ", ".join(stated["keyids"])), ("model", report.model.name),
        ("SHA-256 of the model", report.model.sha256 or "no model file was seen"),
        ("SHA-256 of the table", report.data.sha256),
        ("software", f"fairkit {made.get('fairkit')}, Python {made.get('python')}; {software}"),
    ]  # fmt: skip
    return [_listed("Evidence", pairs)]


def settings(context: Context) -> list[PackTable]:
    """Return the settings that repeat the audit."""
    stated = context.certificate.get("settings")
    if not isinstance(stated, Mapping):
        raise NotAnsweredError("the audit is not signed: make a certificate with `fairkit certify`")
    pairs: list[tuple[str, Cell]] = []
    for key, value in stated.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        pairs += [
            (f"{key} {name}".strip(), _text(setting)) for name, setting in inner if setting not in (None, [], {}, "")
        ]
    return [_listed("Settings", pairs)]


def monitoring(context: Context) -> list[PackTable]:
    """Return the tables of a watch of the model since the audit: rules, decisions, alarms."""
    watch = context.watch
    if watch is None:
        raise NotAnsweredError(
            "no watch of the model is named: `fairkit report CERT --pack NAME --watch FOLDER` reads one"
        )
    rules = []
    for rule in watch["rules"]:
        side = "max" if "max" in rule else "min"
        reference = rule["reference"]
        rules.append(
            (
                rule["metric"], rule["sensitive"] or "all decisions", "at most" if side == "max" else "at least",
                rule[side], None if reference is None else reference["value"], rule["value"],
                *_ends(rule["interval"]), rule["verdict"], rule["reason"],
            )
        )  # fmt: skip
    columns = (
        Column("metric"), Column("groups of"), Column("limit"), Column("number", "number"),
        Column("in the certificate", "number"), *_VALUE, Column("verdict"), Column("reason"),
    )  # fmt: skip
    promise = f"All intervals hold at every look, {watch['confidence']:.0%} for all {watch['streams']} rules together."
    counts: list[tuple[str, Cell]] = [
        ("decisions", watch["rows"]), ("first day", watch["since"]), ("newest day", watch["until"]),
        ("day of this look", watch["today"]), ("days with decisions", watch["days"]),
        ("days without data", ", ".join(watch["missing_days"]) or "none"), ("outcomes awaited", watch["open"]),
        ("broken lately", "; ".join(f"{rule}, since about {day}" for rule, day in watch["lately"].items()) or "none"),
        *((what, count) for what, count in watch["odd"].items()),
    ]  # fmt: skip
    alarms = tuple((alarm["day"], alarm["level"], alarm["text"]) for alarm in watch["alarms"])
    tables = [
        PackTable(title="Rules, of all decisions since", columns=columns, rows=tuple(rules), notes=(promise,)),
        _listed("Decisions", counts),
        PackTable(
            title="Alarms", columns=(Column("day"), Column("level"), Column("evidence")), rows=alarms,
            notes=() if alarms else ("No alarm was raised.",),
        ),
    ]  # fmt: skip
    return [replace(table, origin="watched") for table in tables]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
