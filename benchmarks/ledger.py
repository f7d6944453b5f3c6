"""Every metric and auditor on degenerate tables, in every output format: a number with an interval, or a sentence.

    nice python benchmarks/ledger.py                                        # all tables, all auditors, all formats
    nice python benchmarks/ledger.py --tables "one row,no rows" --tasks binary --auditors group

A cell is one auditor on one table: refused with one sentence, or a report. Of a report every finding is read. A value
must be finite and in the metric's range, and have an interval around it that is wider than nothing, or a note; no value
must have a note. Group values of the well-known metrics are computed again with plain loops over the rows: the same
number, and none where its denominator is 0. A rule may be decided only from a finding that may be. Then the report is
written in every format: no NaN, no infinity and no None in it, and every finding that it shows without an interval has
its sentence there. What breaks a rule is a violation; the exit code is 1 where there is one.
"""

# ruff: noqa: E501 -- the tables of degenerate columns are one line each

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fairkit
from fairkit.results.policy import judge
from fairkit.results.report import Report, validate_report
from fairkit.results.rules import Rule
from fairkit_cli.formats import text_of
from fairkit_onnx.file import OnnxModel
from fairkit_testing.samples import NUMBERS, sample_data, sample_model

Array = np.ndarray
Columns = dict[str, Any]
FORMATS = ("json", "table", "markdown", "junit", "html")
TASKS = ("binary", "multiclass", "regression", "ranking", "answers")
ROWS = 160


@dataclass(frozen=True)
class Table:
    """A degenerate table: columns, and roles beyond the usual ones."""

    columns: Columns
    roles: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, task: str) -> Table:
        """Return columns as they are."""
        return cls(columns)


# ---------------------------------------------------------------------------------------------------------- tables


def base(task: str, rows: int = ROWS) -> Columns:
    """Return the sample table of a task, with predictions that are columns."""
    data = sample_data(task, rows=rows)  # type: ignore[arg-type]
    names = ["sex", "race", *NUMBERS, "job", "good"]
    names += {"ranking": ["opening"], "answers": ["document", "name"]}.get(task, [])
    batch = data.read(tuple(names))
    columns = {name: np.array(batch.column(name)) for name in names}
    rng = np.random.default_rng(7)
    index = (np.nan_to_num(columns["income"], nan=33.0) - 33) / 8 + 0.5 * rng.standard_normal(rows)
    score = np.round(1 / (1 + np.exp(-index)), 4)
    columns["s"] = index if task in ("regression", "ranking") else score
    columns["d"] = (score >= 0.5).astype(float)
    columns["c"] = np.array(["low", "middle", "high"], dtype=object)[np.digitize(score, [0.3, 0.7])]
    columns["w"] = np.ones(rows)
    return columns


def women(columns: Columns) -> Array:
    return np.asarray(columns["sex"] == "female")


def good_value(task: str, *, favorable: bool) -> Any:
    names = {"binary": ("no", "yes"), "multiclass": ("low", "high"), "ranking": (0, 3)}
    return names.get(task, (0.0, 1.0))[favorable]


def changed(name: str, values: Callable[[Columns, str], Any], **roles: Any) -> Callable[[Columns, str], Table]:
    """Return a builder that puts values into one column."""

    def build(columns: Columns, task: str) -> Table:
        return Table({**columns, name: np.asarray(values(columns, task))}, roles)

    return build


def kept(rows: Callable[[Columns, str], Any]) -> Callable[[Columns, str], Table]:
    """Return a builder that keeps some rows."""

    def build(columns: Columns, task: str) -> Table:
        index = rows(columns, task)
        return Table({name: values[index] for name, values in columns.items()})

    return build


def masked(columns: Columns, name: str, where: Array, value: Any) -> Array:
    kind = object if isinstance(value, str) or value is None else float if isinstance(value, float) else None
    values = np.array(columns[name], dtype=kind)
    values[where] = value
    return values


def scored(values: Callable[[Columns, str], Any]) -> Callable[[Columns, str], Table]:
    """Return a builder that puts scores, and the decisions that follow from them."""

    def build(columns: Columns, task: str) -> Table:
        score = np.broadcast_to(np.asarray(values(columns, task), dtype=float), len(columns["s"])).copy()
        with np.errstate(invalid="ignore"):
            decision = (score >= 0.5).astype(float)
        return Table({**columns, "s": score, "d": decision})

    return build


def favorable(columns: Columns, task: str) -> Array:
    if task in ("binary", "multiclass"):
        return np.asarray(columns["good"] == good_value(task, favorable=True))
    return np.asarray(columns["good"] > np.median(columns["good"]))


def outcome_of_women(value: bool) -> Callable[[Columns, str], Table]:
    return changed("good", lambda c, t: masked(c, "good", women(c), good_value(t, favorable=value)))


def features(value: float | None) -> Callable[[Columns, str], Table]:
    def build(columns: Columns, task: str) -> Table:
        constant = {name: np.full(len(columns["sex"]), math.nan if value is None else value) for name in NUMBERS}
        return Table({**columns, **constant, "job": np.full(len(columns["sex"]), "clerk", dtype=object)})

    return build


def duplicate(columns: Columns, task: str) -> Table:
    """One row again and again, but for its group and its outcome, without which there is no audit."""
    same = {name: np.repeat(values[:1], len(values)) for name, values in columns.items()}
    return Table({**same, **{name: columns[name] for name in ("sex", "race", "good")}})


def cauchy(columns: Columns, task: str) -> Array:
    if task != "regression":
        return masked(columns, "good", np.arange(len(columns["good"])) < 1, good_value(task, favorable=True))
    return np.random.default_rng(3).standard_cauchy(len(columns["good"])) * 100


def tail(columns: Columns, weight: float) -> Array:
    return np.where(np.arange(len(columns["sex"])) == 0, weight, 1.0)


def half(columns: Columns, task: str) -> Array:
    return np.arange(len(columns["sex"])) % 2 == 0


def ids(columns: Columns) -> Array:
    return np.arange(len(columns["sex"]))


TABLES: dict[str, Callable[[Columns, str], Table]] = {
    "as it is": Table.of,
    "no rows": kept(lambda c, t: slice(0, 0)),
    "one row": kept(lambda c, t: slice(0, 1)),
    "two rows": kept(lambda c, t: slice(0, 2)),
    "five rows": kept(lambda c, t: slice(0, 5)),
    "one group": kept(lambda c, t: women(c)),
    "a group of one row": kept(lambda c, t: women(c) | (np.cumsum(~women(c)) <= 1)),
    "a group of two rows": kept(lambda c, t: women(c) | (np.cumsum(~women(c)) <= 2)),
    "every row its own group": changed("sex", lambda c, t: np.array([f"g{i}" for i in ids(c)], dtype=object)),
    "a group without outcomes": changed("good", lambda c, t: masked(c, "good", women(c), None if t in ("binary", "multiclass") else math.nan)),
    "one label": changed("good", lambda c, t: np.full(len(c["good"]), good_value(t, favorable=True))),
    "one label in a group": outcome_of_women(True),
    "the other label in a group": outcome_of_women(False),
    "one label for each group": changed("good", lambda c, t: np.where(women(c), good_value(t, favorable=False), good_value(t, favorable=True))),
    "one favorable outcome": changed("good", lambda c, t: np.where(ids(c) == 0, good_value(t, favorable=True), good_value(t, favorable=False))),
    "no outcome at all": changed("good", lambda c, t: masked(c, "good", ids(c) >= 0, None if t in ("binary", "multiclass") else math.nan)),
    "labels of all kinds": changed("good", lambda c, t: np.array([f"k{i % 40}" for i in ids(c)], dtype=object)),
    "heavy tails": changed("good", cauchy),
    "huge outcomes": changed("good", lambda c, t: c["good"] * 1e300 if t == "regression" else c["good"]),
    "constant scores": scored(lambda c, t: 0.4),
    "constant scores in a group": scored(lambda c, t: np.where(women(c), 0.4, c["s"])),
    "all scores 0": scored(lambda c, t: 0.0),
    "all scores 1": scored(lambda c, t: 1.0),
    "scores 0 and 1": scored(half),
    "two scores": scored(lambda c, t: np.where(half(c, t), 0.3, 0.7)),
    "tiny scores": scored(lambda c, t: np.where(half(c, t), 1e-300, 5e-324)),
    "perfect scores": scored(lambda c, t: c["good"] if t in ("regression", "ranking", "answers") else favorable(c, t)),
    "wrong scores": scored(lambda c, t: -c["good"] if t in ("regression", "ranking") else ~favorable(c, t)),
    "no score": scored(lambda c, t: math.nan),
    "scores missing": scored(lambda c, t: np.where(half(c, t), math.nan, c["s"])),
    "infinite scores": scored(lambda c, t: np.where(ids(c) == 3, math.inf, c["s"])),
    "nobody chosen": changed("d", lambda c, t: np.zeros(len(c["d"]))),
    "all chosen": changed("d", lambda c, t: np.ones(len(c["d"]))),
    "nobody chosen in a group": changed("d", lambda c, t: np.where(women(c), 0.0, c["d"])),
    "an unknown class": changed("c", lambda c, t: masked(c, "c", ids(c) == 5, "unheard of")),
    "one class": changed("c", lambda c, t: np.full(len(c["c"]), "low", dtype=object)),
    "all weights 0": changed("w", lambda c, t: np.zeros(len(c["w"])), weights="w"),
    "weights 0 in a group": changed("w", lambda c, t: np.where(women(c), 0.0, 1.0), weights="w"),
    "weights 0 but one": changed("w", lambda c, t: (ids(c) == 4).astype(float), weights="w"),
    "one huge weight": changed("w", lambda c, t: tail(c, 1e12), weights="w"),
    "tiny weights": changed("w", lambda c, t: np.full(len(c["w"]), 1e-200), weights="w"),
    "a negative weight": changed("w", lambda c, t: tail(c, -1.0), weights="w"),
    "a missing weight": changed("w", lambda c, t: tail(c, math.nan), weights="w"),
    "one cluster": changed("k", lambda c, t: np.full(len(c["sex"]), "a", dtype=object), cluster="k"),
    "two clusters": changed("k", lambda c, t: half(c, t).astype(int), cluster="k"),
    "clusters are groups": changed("k", lambda c, t: c["sex"], cluster="k"),
    "every row its own cluster": changed("k", lambda c, t: ids(c), cluster="k"),
    "one stratum": changed("k", lambda c, t: np.full(len(c["sex"]), "a", dtype=object), within=["k"]),
    "every row its own stratum": changed("k", lambda c, t: np.array([f"s{i}" for i in ids(c)], dtype=object), within=["k"]),
    "strata are groups": changed("k", lambda c, t: c["sex"], within=["k"]),
    "a reference of one row": lambda c, t: Table(kept(lambda c, t: women(c) | (np.cumsum(~women(c)) <= 1))(c, t).columns, {"reference": ["sex=male"]}),
    "a reference that is nobody": lambda c, t: Table(c, {"reference": ["sex=other"]}),
    "no group known": changed("sex", lambda c, t: masked(c, "sex", ids(c) >= 0, None)),
    "one group known": changed("sex", lambda c, t: masked(c, "sex", ids(c) > 0, None)),
    "groups known of the favorable only": changed("sex", lambda c, t: masked(c, "sex", ~favorable(c, t), None)),
    "all rows the same": duplicate,
    "constant columns": features(0.0),
    "empty columns": features(None),
    "infinite columns": features(math.inf),
}  # fmt: skip

# ------------------------------------------------------------------------------------------------------- auditors


@dataclass(frozen=True)
class Asked:
    """An auditor with what it needs: its parameters, its tasks and whether it runs a model."""

    parameters: Mapping[str, Any]
    tasks: tuple[str, ...]
    model: bool = False


def auditors(folder: Path) -> dict[str, Asked]:
    """Return the auditors with small settings; tables of versions of rows go into a folder."""
    versions = folder / "versions.csv"
    rows = ["of,sex,race,age,income,hours,tenure,debt,job"]
    rows += [f"{i},{sex},A,{30 + i},{25 + i},40,5,0.4,clerk" for i in range(8) for sex in ("female", "male")]
    versions.write_text("\n".join(rows) + "\n", "utf-8")
    three, two = ("binary", "multiclass", "regression"), ("binary", "regression")
    return {
        "group": Asked({}, ("binary", "multiclass", "regression", "ranking")),
        "subgroups": Asked({"least": 10, "share": 0.05}, three),
        "correspondence": Asked({}, ("answers",)),
        "why": Asked({}, two, True),
        "consistency": Asked({"sensitive": ["sex"]}, three, True),
        "counterfactuals": Asked({"rows": str(versions)}, three, True),
        "dif": Asked({"epsilon": 0.1}, three, True),
        "restricted-dro": Asked({"epsilon": 0.1}, three, True),
        "all-inputs": Asked({"columns": ["sex"], "people": 20, "boxes": 2_000}, two, True),
    }


def with_rules(report: Report, rules: Sequence[Rule]) -> Report:
    """Apply a policy to a report."""
    if not rules:
        return report
    results, verdict = judge(rules, report.findings, confidence=report.confidence)
    return dataclasses.replace(report, policy=results, verdict=verdict, adjustment=None)


def audited(name: str, asked: Asked, task: str, table: Table) -> Report | str:
    """Audit one table: the report, or the sentence of the refusal."""
    roles = {"label": "good", "sensitive": ["sex"], **table.roles}
    if task == "binary":
        roles["favorable"] = "yes"
    if task == "ranking":
        roles["query"] = "opening"
    columns = dict(table.columns)
    if task == "answers":
        for role in ("label", "cluster"):
            roles.pop(role, None)
        roles["predictions"] = {"answer": "good"}
    if not asked.model:
        roles["features"] = list(NUMBERS)
    model: Any = None
    if asked.model:
        model = OnnxModel(sample_model(task), "sample model")  # type: ignore[arg-type]
        roles["features"] = ["sex", *NUMBERS, "job"]
    elif task == "binary":
        model = fairkit.PredictedColumns("d", "s")
    elif task == "multiclass":
        model = fairkit.PredictedColumns(predicted_class="c")
    elif task == "regression":
        model = fairkit.PredictedColumns(prediction="s")
    elif task == "ranking":
        model = fairkit.PredictedColumns(score="s")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            data = fairkit.load_data(columns, name="table", **roles)
            kind = None if task == "answers" else task
            options = fairkit.ModelOptions(task=kind) if kind else fairkit.ModelOptions()
            settings = {name: dict(asked.parameters)} if asked.parameters else None
            report = fairkit.audit(model, data, auditors=[name], parameters=settings, options=options)
            named = {(f.metric, f.sensitive) for f in report.findings if f.sensitive and f.plain}
            rules = [
                Rule(metric, sensitive, min=0.8) if metric.endswith("_ratio") else Rule(metric, sensitive, max=0.2)
                for metric, sensitive in sorted(named)
            ]
            return with_rules(report, rules)
        except fairkit.FairkitError as error:
            return str(error)


# ----------------------------------------------------------------------------------------------------------- rules


def broken(report: Report, task: str, table: Table, auditor: str) -> Iterator[str]:  # noqa: PLR0912 -- one rule after another
    """Yield what a report says that it must not."""
    from fairkit import plugins

    ranges = {metric.name: metric.range for metric in plugins.load("group").metrics}
    for finding in report.findings:
        where = f"{finding.metric} of {finding.place or 'all rows'}"
        sentences = [*finding.notes, *([finding.inconclusive] if finding.inconclusive else [])]
        if any(not isinstance(text, str) or not text.strip() for text in sentences):
            yield f"{where}: an empty sentence"
        if finding.value is None:
            if not sentences:
                yield f"{where}: no value and no sentence"
            continue
        yield from _number(where, finding.value, finding.interval, bool(sentences), ranges.get(finding.metric))
        for one in finding.groups:
            if one.value is not None:
                name = f"{where}, group {one.group}"
                yield from _number(name, one.value, one.interval, bool(sentences), ranges.get(finding.metric))
        for stratum in finding.strata:
            if stratum.value is not None:
                yield from _number(f"{where}, stratum {stratum.stratum}", stratum.value, stratum.interval, True, None)
    for result in report.policy:
        if result.verdict == "inconclusive":
            if not result.reason.strip():
                yield f"rule {result.metric}: inconclusive without a reason"
            continue
        named = [
            f for f in report.findings if f.metric == result.metric and f.sensitive == result.sensitive and f.plain
        ]
        barred = [f.value is None or f.inconclusive is not None or f.interval is None for f in named]
        if any(barred) if result.verdict == "pass" else all(barred):  # of several classes one may fail
            yield f"rule {result.metric}: {result.verdict} from a finding that allows no verdict"
    if auditor == "group" and task in ("binary", "regression"):
        yield from _counted_again(report, task, table)


def _number(
    where: str, value: float, interval: tuple[float, float] | None, noted: bool, span: tuple[float, float] | None
) -> Iterator[str]:
    if not math.isfinite(value):
        yield f"{where}: the value is {value}"
        return
    if span is not None and not span[0] - 1e-9 <= value <= span[1] + 1e-9:
        yield f"{where}: {value} is outside the range {span}"
    if interval is None:
        if not noted:
            yield f"{where}: {value} without interval or sentence"
        return
    low, high = interval
    slack = 1e-9 * max(1.0, abs(value))
    if math.isnan(low) or math.isnan(high) or not low - slack <= value <= high + slack:
        yield f"{where}: {value} is outside its interval {interval}"
    elif high - low <= 1e-12 * max(abs(value), 1e-300) and not noted:
        yield f"{where}: an interval of no width at {value}, without a sentence"


def _counted_again(report: Report, task: str, table: Table) -> Iterator[str]:
    """Compare groups' values with plain loops over the rows."""
    columns = table.columns
    weights = columns["w"] if table.roles.get("weights") else np.ones(len(columns["sex"]))
    for finding in report.findings:
        base_name = finding.metric.removesuffix("_difference")
        if base_name == finding.metric or base_name not in PLAIN or not finding.plain or not finding.groups:
            continue
        if PLAIN[base_name][0] != task and PLAIN[base_name][0] != "both":
            continue
        for one in finding.groups:
            rows = [
                i
                for i in range(len(columns["sex"]))
                if columns["sex"][i] == one.group and columns["good"][i] is not None and not math.isnan(weights[i])
                and not (isinstance(columns["good"][i], float) and math.isnan(columns["good"][i]))
            ]  # fmt: skip
            y = [float(columns["good"][i] == "yes") if task == "binary" else float(columns["good"][i]) for i in rows]
            d, s, w = ([float(v[i]) for i in rows] for v in (columns["d"], columns["s"], weights))
            try:
                right: float | None = PLAIN[base_name][1](y, d, s, w)
            except ZeroDivisionError:
                right = None
            if right is not None and not math.isfinite(right):
                right = None
            got = one.value
            if (got is None) != (right is None) or (
                got is not None and right is not None and abs(got - right) > 1e-6 * max(1.0, abs(right))
            ):
                yield f"{base_name} of group {one.group} is {got}, and {right} counted again"


def _share(top: Callable[..., bool], over: Callable[..., bool]) -> Callable[..., float]:
    def rate(y: list[float], d: list[float], s: list[float], w: list[float]) -> float:
        rows = list(zip(y, d, w, strict=True))
        return sum(u for a, b, u in rows if over(a, b) and top(a, b)) / sum(u for a, b, u in rows if over(a, b))

    return rate


def _mean(function: Callable[[float, float], float]) -> Callable[..., float]:
    def mean(y: list[float], d: list[float], s: list[float], w: list[float]) -> float:
        return math.fsum(u * function(a, b) for a, b, u in zip(y, s, w, strict=True)) / math.fsum(w)

    return mean


def _area(y: list[float], d: list[float], s: list[float], w: list[float]) -> float:
    pairs = [
        (w[i] * w[j], 1.0 if s[i] > s[j] else 0.5 if s[i] == s[j] else 0.0)
        for i in range(len(y))
        for j in range(len(y))
        if y[i] == 1 and y[j] == 0
    ]
    return math.fsum(u * v for u, v in pairs) / math.fsum(u for u, _ in pairs)


def _cost(y: float, s: float) -> float:
    given = s if y == 1 else 1 - s
    return -math.log(min(max(given, 2.0**-52), 1 - 2.0**-52))


_ALL = lambda y, d: True  # noqa: E731
PLAIN: dict[str, tuple[str, Callable[..., float]]] = {
    "selection_rate": ("binary", _share(lambda y, d: d == 1, _ALL)),
    "true_positive_rate": ("binary", _share(lambda y, d: d == 1, lambda y, d: y == 1)),
    "false_negative_rate": ("binary", _share(lambda y, d: d == 0, lambda y, d: y == 1)),
    "false_positive_rate": ("binary", _share(lambda y, d: d == 1, lambda y, d: y == 0)),
    "true_negative_rate": ("binary", _share(lambda y, d: d == 0, lambda y, d: y == 0)),
    "precision": ("binary", _share(lambda y, d: y == 1, lambda y, d: d == 1)),
    "accuracy": ("binary", _share(lambda y, d: y == d, _ALL)),
    "roc_auc": ("binary", _area),
    "log_loss": ("binary", _mean(_cost)),
    "brier_score": ("binary", _mean(lambda y, s: (y - s) ** 2)),
    "calibration_in_the_large": ("binary", _mean(lambda y, s: s - y)),
    "mean_prediction": ("both", _mean(lambda y, s: s)),
    "mean_absolute_error": ("regression", _mean(lambda y, s: abs(s - y))),
    "mean_squared_error": ("regression", _mean(lambda y, s: (s - y) ** 2)),
}

# --------------------------------------------------------------------------------------------------------- formats

_HIDDEN = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def badly_written(report: Report, formats: Sequence[str]) -> Iterator[str]:
    """Yield what a format says that it must not."""
    plain = dataclasses.replace(report, policy=(), verdict=None)  # the reasons of rules repeat the sentences
    for form in formats:
        try:
            text = text_of(report if form in ("json", "junit") else plain, form, False)
        except fairkit.FairkitError as error:
            yield f"{form}: refused: {error}"
            continue
        except Exception as error:
            yield f"{form}: {type(error).__name__}: {error}"
            continue
        if form == "json":
            record = json.loads(text, parse_constant=_refuse)
            validate_report(record)
            if Report.from_dict(record).to_dict() != record:
                yield "json: it does not read back"
            continue
        shown = _TAG.sub(" ", _HIDDEN.sub(" ", text)) if form == "html" else text
        for word in ("nan", "inf", "-inf", "NaN", "None", "Infinity"):
            if re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", shown):
                yield f"{form}: the word {word!r}"
        if form in ("table", "markdown"):
            yield from _unsaid(report, form, shown)
        if form == "junit":
            yield from (f"junit: rule {rule.metric} has no reason" for rule in report.policy if not rule.reason)


def _refuse(name: str) -> float:
    raise ValueError(f"JSON holds {name}")


_LINE = re.compile(r"[\s\\*`>|-]+")


def _unsaid(report: Report, form: str, text: str) -> Iterator[str]:
    """Yield findings that a format shows with a number and without an interval, and whose sentence it leaves out."""
    flat = _LINE.sub(" ", text)
    for line in text.splitlines():
        cells = line.strip(" |").replace("\\", "").split()
        if not cells or "none" not in cells:
            continue
        named = [f for f in report.findings if f.metric == cells[0] and f.value is not None and f.interval is None]
        for finding in named:
            if not any(_LINE.sub(" ", note)[:50] in flat for note in finding.notes):
                yield f"{form}: {finding.metric} has no interval, and its sentence is not there"


# ------------------------------------------------------------------------------------------------------------- run


@dataclass
class Cell:
    """What one auditor says of one table."""

    table: str
    task: str
    auditor: str
    refused: str = ""
    numbers: int = 0
    sentences: int = 0
    violations: list[str] = field(default_factory=list)


def measure(name: str, task: str, auditor: str, asked: Asked, formats: Sequence[str]) -> Cell:
    """Audit a table, and read the report in every format."""
    cell = Cell(name, task, auditor)
    rng_free = base(task)
    table = TABLES[name](rng_free, task)
    try:
        report = audited(auditor, asked, task, table)
    except Exception as error:  # an audit ends in a report or a FairkitError, never otherwise
        cell.violations.append(f"{type(error).__name__}: {error}")
        return cell
    if isinstance(report, str):
        cell.refused = report
        if not report.strip() or "Traceback" in report:
            cell.violations.append(f"refused without a sentence: {report!r}")
        return cell
    for finding in report.findings:
        sure = finding.value is not None and finding.interval is not None and finding.inconclusive is None
        cell.numbers, cell.sentences = cell.numbers + sure, cell.sentences + (not sure)
    cell.violations += list(dict.fromkeys(broken(report, task, table, auditor)))
    cell.violations += list(dict.fromkeys(badly_written(report, formats)))
    return cell


def run(
    tables: Sequence[str] = (),
    tasks: Sequence[str] = TASKS,
    names: Sequence[str] = (),
    formats: Sequence[str] = FORMATS,
) -> Iterator[Cell]:
    """Measure all cells."""
    with tempfile.TemporaryDirectory() as folder:
        known = auditors(Path(folder))
        for task in tasks:
            for auditor in names or known:
                if task not in known[auditor].tasks:
                    continue
                for name in tables or TABLES:
                    yield measure(name, task, auditor, known[auditor], formats)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("tables", ""), ("tasks", ",".join(TASKS)), ("auditors", ""), ("formats", ",".join(FORMATS))):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    start, cells = time.process_time(), []
    chosen = [
        [one for one in getattr(options, n).split(",") if one] for n in ("tables", "tasks", "auditors", "formats")
    ]
    for cell in run(*chosen):
        cells.append(cell)
        if options.verbose and cell.refused:
            print(f"{cell.task} {cell.auditor} | {cell.table}: refused: {cell.refused}", flush=True)
        for violation in cell.violations:
            print(f"{cell.task} {cell.auditor} | {cell.table}: {violation}", flush=True)
    count = sum(len(cell.violations) for cell in cells)
    refused = sum(bool(cell.refused) for cell in cells)
    print(f"{len(cells)} cells, {refused} refused, {count} violations, {time.process_time() - start:.0f} s of CPU time")
    return int(count > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
