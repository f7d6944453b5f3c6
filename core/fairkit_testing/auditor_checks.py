"""Checks on auditors: partial results merge, findings are whole, nothing is changed or left behind."""

from __future__ import annotations

import functools
import json
import math
import operator
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.auditing import needs
from fairkit.auditors import AuditContext, Auditor
from fairkit.data.dataset import BATCH_ROWS, Dataset
from fairkit.data.sources import open_with
from fairkit.engines.local import Here
from fairkit.errors import DataError, FairkitError, ModelError, ParameterError
from fairkit.parameters import parse_parameters
from fairkit.promotions import Promotion, PromotionCheck, Remark
from fairkit.results.findings import Finding
from fairkit.settings import ModelOptions
from fairkit.sources import Address
from fairkit_testing.samples import (
    COLUMNS,
    CONDITIONS,
    NUMBERS,
    Task,
    nothing_left_behind,
    only_fairkit_errors,
    require,
    sample_data,
    sample_model,
    unchanged,
)

if TYPE_CHECKING:
    from fairkit.data.arrow_types import Batch
    from fairkit.data.source import Source
    from fairkit.models.scorer import ModelSource, Predictions
    from fairkit.signers import Signer
    from fairkit.sources import DataSource


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

    @functools.cached_property
    def metrics(self) -> Any:
        """Every metric of `group`, as audits give them to an auditor."""
        from fairkit import plugins

        return plugins.load("group").metrics

    def context(self, data: Dataset, task: Task) -> AuditContext:
        """Bind the sample model to a dataset: the linear one, or where the auditor cannot read it that of trees.

        Of several classes the highest is favorable where the auditor needs one.
        """
        from fairkit.models.columns import PredictedColumns
        from fairkit.models.scorer import NoPredictions
        from fairkit_onnx.file import OnnxModel

        if task == "multiclass" and self._one_class:
            data = data.with_roles(replace(data.roles, favorable="high"))
        if task == "answers":
            scorer = PredictedColumns(answer="good").bind(data, ModelOptions())
        elif task == "table":
            scorer = NoPredictions().bind(data, ModelOptions())
        else:
            content = sample_model(task, trees=task in self._by_trees)
            scorer = OnnxModel(content, "sample model").bind(data, ModelOptions(task=task))
        return AuditContext(dataset=data, scorer=scorer, metrics=self.metrics, seed=1)

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
        findings = _found(self.make(), self.context(data, task))
        return {
            (
                finding.key,
                finding.value,
                finding.interval,
                tuple((g.group, g.value, g.interval) for g in finding.groups),
            )
            for finding in findings
        }

    def run(self, task: Task, *, rows: int = BATCH_ROWS, backwards: bool = False) -> list[Finding]:
        """Audit in batches of some size, added up in order or backwards."""
        return _found(self.make(), self.context(sample_data(task), task), rows=rows, backwards=backwards)


def check_auditor_findings(audited: Audited) -> None:
    """There are findings; each number lies in its interval, or the notes say why it has none; JSON keeps them."""
    for task, findings in audited.found.items():
        require(
            isinstance(findings, tuple) and all(isinstance(finding, Finding) for finding in findings),
            f"{task}: findings gives {type(findings).__name__} of other things than fairkit.Finding",
        )
        require(findings, f"{task}: there is no finding; if there is nothing to say, say so in a finding's notes")
        for finding in findings:
            _check_finding(audited, task, finding)


def _check_finding(audited: Audited, task: Task, finding: Finding) -> None:
    where = f"{task}: the finding {finding.metric!r}"
    require(finding.auditor == audited.cls.name, f"{where} says auditor={finding.auditor!r}; give self.name")
    names = audited.cls.measures(audited.metrics)
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
    for task, findings in audited.found.items():
        _same(findings, audited.run(task, rows=97), f"{task}: batches of 97 rows differ from one batch")
        _same(
            findings,
            audited.run(task, rows=97, backwards=True),
            f"{task}: batches added up backwards differ from one batch",
        )


def check_auditor_deterministic(audited: Audited) -> None:
    """Two runs with one seed give equal findings: every draw comes from context.rng."""
    for task, findings in audited.found.items():
        again = audited.run(task)
        require(
            [finding.to_dict() for finding in findings] == [finding.to_dict() for finding in again],
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
                needs.check_conditions([auditor], data)
            except ParameterError as error:
                require(
                    repr(auditor.name) in str(error), f"{condition}: the refusal does not name the auditor: {error}"
                )
            else:
                require(condition not in needs.conditions_of(data), f"{condition}: neither declared nor refused")
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
    arrays = {f"predictions.{name}": getattr(said, name) for name in names}
    arrays |= {f"batch.groups[{name!r}]": codes for name, codes in batch.groups.items()}
    arrays |= {f"batch.{name}": getattr(batch, name) for name in ("rows", "label", "favorable", "weights")}
    numbers = ("good",) if said.score is not None and batch.label is None else NUMBERS  # answers stand alone
    arrays |= {f"batch.column({name!r})": batch.column(name) for name in numbers}
    return {name: values for name, values in arrays.items() if values is not None}


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


AUDITOR_CHECKS = (
    check_auditor_findings,
    check_auditor_merges,
    check_auditor_deterministic,
    check_auditor_inputs_unchanged,
    check_auditor_errors,
    check_auditor_conditions,
    check_auditor_leaves_nothing,
)


# Checks on sources of data: the same table twice, plain options, messages in place of what libraries raise.


SECRET = "Open-Sesame-9"  # noqa: S105 -- a word that no message may show
_ROWS = 1_000


def check_source_reads(cls: type[DataSource]) -> None:
    """The example is a table: it can be read again and again, and opened anew it is the same table."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        address = cls.example(Path(folder))
        if address is None:
            return
        source = open_with(cls, address)
        first, again = _content(source), _content(source)
        require(first, "the example has no rows; an example shows what is read")
        require(first == again, "the second reading of the opened table gives other rows")
        require(_content(open_with(cls, address)) == first, "opened anew, the example gives other rows")


def check_source_origin(cls: type[DataSource]) -> None:
    """What reports say about the example is JSON, names the address and not what follows its question mark."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        address = cls.example(Path(folder))
        if address is None:
            return
        source = open_with(cls, address)
        json.dumps(dict(source.origin), allow_nan=False)
        for key, expected in (("kind", cls.name), ("address", Address.parse(address).text)):
            require(
                source.origin.get(key) == expected, f"origin[{key!r}] is {source.origin.get(key)!r}, not {expected!r}"
            )
        require(source.name and "?" not in source.name, f"the table's name is {source.name!r}; keep it short")


def check_source_absent(cls: type[DataSource]) -> None:
    """A table that is not there is one DataError, which shows no password."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        if cls.example(Path(folder)) is None:
            return
        try:
            _content(open_with(cls, f"{cls.schemes[0]}:{Path(folder) / 'not' / 'there'}"))
        except FairkitError as error:
            require(isinstance(error, DataError), f"it raises {type(error).__name__}; raise fairkit.DataError")
            require("\n" not in str(error), "the message for a table that is not there has several lines")
        else:
            require(False, "a table that is not there was read; raise fairkit.DataError")


def check_source_secrets(cls: type[DataSource]) -> None:
    """An address with a user and a password, or with an option that the source does not have, is refused unshown."""
    scheme = cls.schemes[0]
    for address in (f"{scheme}://me:{SECRET}@host/name", f"{scheme}://host/name?x-{SECRET}=1"):
        try:
            open_with(cls, address)
        except FairkitError as error:
            require(SECRET not in str(error), f"the message shows what stood in the address: {error}")
        else:
            require(False, "an address with a password or an unknown option was opened")
    for option, meaning in cls.options.items():
        require(option == option.lower() and option.isidentifier(), f"the option {option!r} is no lower-case word")
        require(len(meaning) > 5, f"say what the option {option!r} means")


def _content(source: Source) -> list[object]:
    return [batch.to_pylist() for batch in source.batches(source.columns, _ROWS)]


SOURCE_CHECKS = (check_source_reads, check_source_origin, check_source_absent, check_source_secrets)


# Checks on promotion checks: they give remarks, the same each time, and leave the model's file alone.


def check_promotion_remarks(cls: type[PromotionCheck]) -> None:
    """`check` gives remarks with a text, also where there is no report and no holder."""
    for promotion in _promotions():
        for remark in cls().check(promotion):
            require(isinstance(remark, Remark), f"check gives {remark!r}; yield fairkit.Remark(text=...)")
            require(len(remark.text) > 5, "a remark has no text: say what is wrong and how to fix it")


def check_promotion_deterministic(cls: type[PromotionCheck]) -> None:
    """The same promotion gets the same remarks."""
    for promotion in _promotions():
        require(
            list(cls().check(promotion)) == list(cls().check(promotion)),
            "the same promotion gets other remarks the second time",
        )


def check_promotion_leaves_the_file(cls: type[PromotionCheck]) -> None:
    """The model's file is only read."""
    for promotion in _promotions():
        before = promotion.model_path.read_bytes()
        list(cls().check(promotion))
        require(promotion.model_path.read_bytes() == before, "the model's file was changed")


def _promotions() -> Iterator[Promotion]:
    """Return a promotion without evidence, one with a report, and one that replaces a holder."""
    import fairkit
    from fairkit_onnx.read.graph import digest

    content = sample_model("binary")
    report = fairkit.audit(content, sample_data("binary", rows=200))
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        for alias, evidence in (("staging", None), ("production", report)):
            yield Promotion(
                name="credit",
                version=2,
                alias=alias,
                model_path=path,
                model_sha256=digest(content),
                report=evidence,
                keyids=("a", "b") if evidence else (),
                holder=1 if evidence else None,
                holder_report=evidence,
            )


PROMOTION_CHECKS = (check_promotion_remarks, check_promotion_deterministic, check_promotion_leaves_the_file)


# Checks on sources of models: a name that can stand in a certificate, and messages in place of what Python raises.


def check_model_source_name(cls: type[ModelSource]) -> None:
    """`name` is of small letters, digits and hyphens: it is a key in certificates."""
    fits = re.fullmatch(r"[a-z][a-z0-9-]*", cls.name) is not None
    require(fits, f"name is {cls.name!r}; it is of small letters, digits and hyphens")


def check_model_source_refuses_an_empty_record(cls: type[ModelSource]) -> None:
    """`open` refuses a record without what it needs with a message: a derived class of `fairkit.FairkitError`."""
    try:
        cls.open({})
    except FairkitError:
        return
    except Exception as error:
        require(False, f"open raises {type(error).__name__} for an empty record; raise a fairkit.ModelError")
    require(False, "open takes an empty record; refuse it with a message that says what is needed")


MODEL_SOURCE_CHECKS = (check_model_source_name, check_model_source_refuses_an_empty_record)


# Checks on signers: a bad address is refused in words, and no passphrase is needed to say so.


def check_signer_refuses_a_bad_address(cls: type[Signer]) -> None:
    """`open` raises a FairkitError with a sentence where the address names no key."""
    for address in (f"{cls.name}:", f"{cls.name}:there-is-no-such-key?nor=this"):
        try:
            cls.open(address, passphrase=lambda what: "")
        except FairkitError as error:
            require(len(str(error)) > 10, "the error of a bad address has no text: say what is wrong and how to fix it")
        else:
            require(False, f"open takes the address {address!r}; raise a FairkitError where there is no such key")


SIGNER_CHECKS = (check_signer_refuses_a_bad_address,)
