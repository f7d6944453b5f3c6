"""Checks on auditors: partial results merge, findings are whole, nothing is changed or left behind."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing import conditions
from fairkit.auditors import AuditContext, Auditor
from fairkit.data.dataset import BATCH_ROWS, Dataset
from fairkit.engines.local import Here
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.parameters.declare import parse_parameters
from fairkit.results.findings import Finding
from fairkit.settings import ModelOptions
from fairkit_testing.leftovers import nothing_left_behind
from fairkit_testing.require import only_fairkit_errors, require, unchanged
from fairkit_testing.samples import COLUMNS, CONDITIONS, NUMBERS, Task, sample_data, sample_model

if TYPE_CHECKING:
    from fairkit.data.batch import Batch
    from fairkit.models.scorer import Predictions

_TASKS: tuple[Task, ...] = ("binary", "regression", "multiclass", "answers", "table")


class Audited:
    """An auditor with its settings, and what it finds on the sample data."""

    def __init__(self, auditor: type[Auditor], settings: Mapping[str, Any]) -> None:
        self.cls = auditor
        self.settings = dict(settings)
        self._by_trees: set[Task] = set()
        self._one_class = False

    def make(self) -> Auditor:
        """Make the auditor."""
        return self.cls(parse_parameters(self.cls.Parameters, self.settings, owner=self.cls.name))

    @property
    def tasks(self) -> list[Task]:
        """The tasks that it is for."""
        return [task for task in _TASKS if task in self.cls.tasks]

    def context(self, data: Dataset, task: Task) -> AuditContext:
        """Bind the sample model to a dataset: the linear one, or where the auditor cannot read it that of trees.

        Of several classes the highest is favorable where the auditor needs one.
        """
        from fairkit import plugins
        from fairkit.models.columns import PredictedColumns
        from fairkit.models.no_predictions import NoPredictions
        from fairkit_onnx.model import OnnxModel

        if task == "multiclass" and self._one_class:
            data = data.with_roles(replace(data.roles, favorable="high"))
        if task == "answers":
            scorer = PredictedColumns(answer="good").bind(data, ModelOptions())
        elif task == "table":
            scorer = NoPredictions().bind(data, ModelOptions())
        else:
            content = sample_model(task, trees=task in self._by_trees)
            scorer = OnnxModel(content, "sample model").bind(data, ModelOptions(task=task))
        return AuditContext(dataset=data, scorer=scorer, metrics=plugins.load("group").metrics, seed=1)

    @functools.cached_property
    def found(self) -> dict[Task, tuple[Finding, ...]]:
        """The findings on each task's sample data."""
        findings = {}
        for task in self.tasks:
            try:
                findings[task] = tuple(self.run(task))
            except ModelError:
                self._by_trees.add(task)
                findings[task] = tuple(self.run(task))
            except ParameterError:
                if task != "multiclass" or self._one_class:
                    raise
                self._one_class = True
                findings[task] = tuple(self.run(task))
        return findings

    def numbers(self, data: Dataset, task: Task) -> set[tuple[Any, ...]]:
        """Return what is found on other data, with groups' numbers and intervals."""
        found = _found(self.make(), self.context(data, task))
        return {
            (one.key, one.value, one.interval, tuple((g.group, g.value, g.interval) for g in one.groups))
            for one in found
        }

    def run(self, task: Task, *, rows: int = BATCH_ROWS, backwards: bool = False) -> list[Finding]:
        """Audit in batches of some size, added up in order or backwards."""
        return _found(self.make(), self.context(sample_data(task), task), rows=rows, backwards=backwards)


def check_auditor_findings(audited: Audited) -> None:
    """There are findings; each number lies in its interval, or the notes say why it has none; JSON keeps them."""
    for task, findings in audited.found.items():
        require(
            isinstance(findings, tuple) and all(isinstance(one, Finding) for one in findings),
            f"{task}: findings gives {type(findings).__name__} of other things than fairkit.Finding",
        )
        require(findings, f"{task}: there is no finding; if there is nothing to say, say so in a finding's notes")
        for finding in findings:
            _check_finding(audited, task, finding)


def _check_finding(audited: Audited, task: Task, finding: Finding) -> None:
    where = f"{task}: the finding {finding.metric!r}"
    require(finding.auditor == audited.cls.name, f"{where} says auditor={finding.auditor!r}; give self.name")
    names = audited.cls.measures(audited.context(sample_data(task), task).metrics)
    require(names is None or finding.metric in names, f"{where} is not among the names that `measures` returns")
    if finding.value is None or not math.isfinite(finding.value):
        require(finding.notes or finding.inconclusive, f"{where} has no value, and no note says why")
    elif finding.interval is None:
        require(finding.notes, f"{where} has no interval, and no note says why")
    else:
        low, high = finding.interval
        slack = 1e-9 * max(1.0, abs(finding.value))
        require(
            low - slack <= finding.value <= high + slack,
            f"{where}: the value {finding.value} is outside its interval {finding.interval}",
        )
    require(0 < finding.confidence < 1, f"{where}: confidence={finding.confidence}; give context.confidence")
    for note in finding.notes:
        require(isinstance(note, str) and note.strip(), f"{where} has an empty note")
    try:
        text = json.dumps(finding.to_dict(), allow_nan=False)
    except (TypeError, ValueError) as error:
        require(False, f"{where} does not go into JSON ({error}); evidence and parameters are plain values")
    again = Finding.from_dict(json.loads(text)).to_dict()
    require(again == json.loads(text), f"{where} does not survive the way to JSON and back")


def check_auditor_merges(audited: Audited) -> None:
    """Small batches, added up in any order, return the findings of one large batch."""
    for task, found in audited.found.items():
        _same(found, audited.run(task, rows=97), f"{task}: batches of 97 rows differ from one batch")
        _same(
            found,
            audited.run(task, rows=97, backwards=True),
            f"{task}: batches added up backwards differ from one batch",
        )


def check_auditor_deterministic(audited: Audited) -> None:
    """Two runs with one seed give equal findings: every draw comes from context.rng."""
    for task, found in audited.found.items():
        again = audited.run(task)
        require(
            [one.to_dict() for one in found] == [one.to_dict() for one in again],
            f"{task}: two runs with one seed differ; draw only from context.rng(purpose)",
        )


def check_auditor_inputs_unchanged(audited: Audited) -> None:
    """The batch and the predictions stay as they are: other auditors look at them too."""
    for task in audited.found:
        auditor, context = audited.make(), audited.context(sample_data(task), task)
        for batch, said in _batches(auditor, context, BATCH_ROWS):
            with unchanged(functools.partial(_arrays, batch, said), f"{task}: "):
                auditor.measure(batch, said, context)


def check_auditor_errors(audited: Audited) -> None:
    """Data without groups, a group of one row, a model without scores: audited, or refused with a FairkitError."""
    from fairkit.data.loading import load_data

    for task in audited.found:
        plain = sample_data(task, sensitive=())
        with only_fairkit_errors(f"{task}: data without sensitive columns was audited"):
            _found(audited.make(), audited.context(plain, task))
        batch = sample_data(task, rows=40).read((*COLUMNS, "good"))
        columns = {name: batch.column(name) for name in (*COLUMNS, "good")}
        columns["sex"] = np.array(["male"] + ["female"] * 39, dtype=object)
        tiny = load_data(
            columns,
            label="good",
            favorable="yes" if task == "binary" else None,
            sensitive="sex",
            name="40 rows, one of them male",
        )
        with only_fairkit_errors(f"{task}: data with a group of one row was audited"):
            _found(audited.make(), audited.context(tiny, task))
        if task not in ("regression", "answers"):
            with only_fairkit_errors(f"{task}: a model without scores was audited (predictions.score is None)"):
                _found(audited.make(), audited.context(sample_data(task), task), scores=False)


def check_auditor_conditions(audited: Audited) -> None:
    """A condition of the data changes numbers or intervals, or does not concern them, as declared; else it is refused.

    That rows are copies is told at every interval, whatever the auditor.
    """
    task, auditor = next(iter(audited.found)), audited.make()
    both = auditor.uses & auditor.unaffected_by
    require(not both, f"`uses` and `unaffected_by` both name {', '.join(sorted(both))}; choose one")
    unknown = (auditor.uses | auditor.unaffected_by) - {*CONDITIONS}
    require(not unknown, f"`uses` and `unaffected_by` know no {', '.join(sorted(unknown))}; see fairkit.Auditor")
    before = audited.numbers(sample_data(task), task)
    for condition in CONDITIONS:
        try:
            data = sample_data(task, condition=condition)
            data.learn()
        except DataError:
            continue  # data of this task cannot have it
        if condition not in auditor.uses | auditor.unaffected_by:
            try:
                conditions.check_conditions([auditor], data)
            except ParameterError as error:
                require(
                    repr(auditor.name) in str(error), f"{condition}: the refusal does not name the auditor: {error}"
                )
            else:
                require(condition not in conditions.conditions_of(data), f"{condition}: neither declared nor refused")
            continue
        changed = audited.numbers(data, task) != before
        if condition in auditor.uses:
            require(changed, f"`uses` names {condition}, but no number and no interval changes with it")
        else:
            require(not changed, f"`unaffected_by` names {condition}, but numbers change with it")


def check_auditor_leaves_nothing(audited: Audited) -> None:
    """An audit writes no file, also when Ctrl-C ends it."""

    def interrupted(doing: str, done: int, total: int, **values: float) -> None:
        raise KeyboardInterrupt

    for task in audited.found:
        with nothing_left_behind(f"{task}: an audit"):
            audited.run(task)
        stopped = replace(audited.context(sample_data(task), task), progress=interrupted)
        # a quick auditor may report no progress, which the interrupt comes out of
        with nothing_left_behind(f"{task}: an audit that Ctrl-C ended"), suppress(KeyboardInterrupt):
            _found(audited.make(), stopped)


def _found(
    auditor: Auditor, context: AuditContext, *, rows: int = BATCH_ROWS, backwards: bool = False, scores: bool = True
) -> list[Finding]:
    pairs = _batches(auditor, context, rows)
    if not scores:
        pairs = ((batch, replace(said, score=None, probabilities=None, logits=None)) for batch, said in pairs)
    parts = [auditor.measure(batch, said, context) for batch, said in pairs]
    total = functools.reduce(operator.add, reversed(parts) if backwards else parts)
    return auditor.findings(Here((total,)) if auditor.spread else total, context)


def _batches(auditor: Auditor, context: AuditContext, rows: int) -> Iterator[tuple[Batch, Predictions]]:
    columns = list(dict.fromkeys([*context.scorer.columns, *auditor.columns(context)]))
    auditor.begin(context)
    for batch in context.dataset.batches(columns, rows, partial=True):
        yield batch, context.scorer.predict(batch.columns(context.scorer.columns))


def _arrays(batch: Batch, said: Predictions) -> dict[str, Any]:
    names = ("score", "decision", "probabilities", "predicted", "logits")
    found = {f"predictions.{name}": getattr(said, name) for name in names}
    found |= {f"batch.groups[{name!r}]": codes for name, codes in batch.groups.items()}
    found |= {f"batch.{name}": getattr(batch, name) for name in ("rows", "label", "favorable", "weights")}
    numbers = ("good",) if said.score is not None and batch.label is None else NUMBERS  # answers stand alone
    found |= {f"batch.column({name!r})": batch.column(name) for name in numbers}
    return {name: values for name, values in found.items() if values is not None}


def _same(findings: Sequence[Finding], repeated: Sequence[Finding], message: str) -> None:
    for first, second in zip(findings, repeated, strict=False):
        require((first.metric, first.sensitive) == (second.metric, second.sensitive), f"{message}: other findings")
        numbers = [
            [math.nan if number is None else number for number in (f.value, *(f.interval or (None, None)))]
            for f in (first, second)
        ]
        require(
            np.allclose(numbers[0], numbers[1], rtol=1e-6, atol=1e-9, equal_nan=True),
            f"{message}: {first.metric} on {first.sensitive} is {numbers[0]} and {numbers[1]}",
        )
    require(len(findings) == len(repeated), f"{message}: {len(findings)} and {len(repeated)} findings")


CHECKS = (
    check_auditor_findings,
    check_auditor_merges,
    check_auditor_deterministic,
    check_auditor_inputs_unchanged,
    check_auditor_errors,
    check_auditor_conditions,
    check_auditor_leaves_nothing,
)
