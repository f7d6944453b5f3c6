"""From rows to a file: fit, export with provenance, check the file beside the model, and serialise."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.data.table import Table
from fairkit.errors import DataError, ParameterError
from fairkit.metrics import field_names
from fairkit.mitigators import TrainsTogether
from fairkit.parameters import parameters_to_dict
from fairkit.plugins import installed_metrics
from fairkit.progress import no_progress
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.mitigation.choose import split_dataset
from fairkit_repair.postprocess import aimed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.fitted import FittedModel, Prediction, Run
    from fairkit.mitigators import Mitigator
    from fairkit.results.policy import Change
    from fairkit.results.report import Report
    from fairkit_onnx.sandbox.confine import Limits


_HALF = 0.5
BEFORE, AFTER = "before", "after"
"""What reports call the models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A fitted model, and what it is measured with."""

    fitted: FittedModel  # in memory
    model: OnnxModel  # its file
    baseline: OnnxModel  # the file of the model before
    table: Table  # the training rows
    test: Dataset  # rows to audit on
    compared: Dataset  # those of them on which before and after are compared row by row
    notes: tuple[str, ...] = ()  # what the user must know about this


def learn_here(
    engine: Engine,
    method: Mitigator,
    data: Dataset,
    test: Dataset | None,
    holdout: float,
    task: Task | None,
    run: Run,
    base: OnnxModel | None,
) -> Learned:
    """Hold rows out and train in this process; see `fairkit_repair.mitigation.run.mitigate` for the arguments."""
    data.learn(engine.total)
    train_data, test_data = (data, test) if test is not None else split_dataset(data, holdout, run.seed)
    train_data.learn(engine.total)
    table = valued(Table.from_dataset(train_data, task), train_data, run.objective.column)
    if test is not None:
        check_leak(table, Table.from_dataset(test_data, table.task))
    with training(method, table, run):
        run = _kept(method, table, run, base)
        ((fitted, content),) = fit_files([method], table, run, base)
    return Learned(
        fitted=fitted,
        model=OnnxModel(content, AFTER, sandbox=foreign(base)),
        baseline=_baseline(method, table, run, base),
        table=table,
        test=test_data,
        compared=test_data,
    )


def valued(table: Table, data: Dataset, column: str | None) -> Table:
    """Return the table with what approving each person brings, by a column that is then no feature."""
    if column is None:
        return table
    if table.task != "binary":
        raise ParameterError(f"a column of values is for approvals, and {data.name} has a {table.task} task")
    values = data.read([column]).columns([column])[column]
    if values.dtype.kind not in "ifb" or not np.isfinite(values.astype(np.float64)).all():
        raise DataError(f"{data.name}: the column of values {column!r} holds something other than finite numbers")
    features = tuple(name for name in table.features if name != column)
    roles = dataclasses.replace(table.roles, features=features)
    return dataclasses.replace(table, value=values.astype(np.float64), features=features, roles=roles)


def renamed(base: OnnxModel, name: str) -> OnnxModel:
    """Return a given model under the name that reports call it by; one with tensors in other files keeps its own."""
    if base.external:
        return base
    same = OnnxModel(base.content, name, sandbox=base.sandbox)
    same.said = base.said
    return same


def foreign(base: OnnxModel | None) -> Limits | None:
    """Return the limits of a base model: what is repaired has its base's graph in it, and is as foreign."""
    return None if base is None else base.sandbox


@phase("train")
def _baseline(method: Mitigator, table: Table, run: Run, base: OnnxModel | None) -> OnnxModel:
    """Return the model before: the one that is repaired, or the same learner without mitigation."""
    if base is not None:
        return renamed(base, BEFORE)
    quiet = dataclasses.replace(run, progress=no_progress)
    (plain,) = aimed(lambda part: [method.baseline(part, quiet)], table, quiet)
    return OnnxModel(export_bytes(plain, table), BEFORE)


@contextmanager
def training(method: Mitigator, table: Table, run: Run) -> Iterator[None]:
    """Refuse what the method cannot use before anything is trained; what it raises is told with its name."""
    check_task(method, table)
    method.learner(run)
    with plugins.blame(plugins.owner_of(method.name), f"the method {method.name!r} trained its model"):
        yield


def fit_files(
    methods: Sequence[Mitigator], table: Table, run: Run, base: OnnxModel | None = None, *, checked: Table | None = None
) -> list[tuple[FittedModel, bytes]]:
    """Fit methods of one class, together where they are several, and write each model's file."""
    first, run = methods[0], run.on(len(table))

    def fit(part: Table) -> Sequence[FittedModel]:
        if len(methods) > 1 and isinstance(first, TrainsTogether):
            return first.fit_together(methods, part, run, validation=None, model=base)
        return [method.fit(part, run, validation=None, model=base) for method in methods]

    with phase("train"):
        models = aimed(fit, table, run)
    rows = table if checked is None else checked
    return [
        (model, export_bytes(model, rows, provenance(method, run, base, model)))
        for model, method in zip(models, methods, strict=True)
    ]


def _kept(method: Mitigator, table: Table, run: Run, base: OnnxModel | None) -> Run:
    """Return the run with the selection rate of the plain learner, where a trained model shall keep it."""
    if base is not None or table.task != "binary" or run.objective.kind not in ("rate", "cost"):
        return run
    plain = method.baseline(table, dataclasses.replace(run, progress=no_progress)).predict(table.columns)
    decided = (plain.score >= _HALF).astype(float)
    return dataclasses.replace(run, objective=run.objective.on(decided, plain.score, table.row_weights()))


def check_task(method: Mitigator, table: Table) -> None:
    """Raise ParameterError where a method is for other tasks than this table's."""
    if table.task not in method.tasks:
        raise ParameterError(
            f"{method.name} is for {' and '.join(method.tasks)} tasks, but the label "
            f"{table.roles.label!r} makes this a {table.task} task"
        )


def run_of(method: Mitigator, run: Run) -> Run:
    """Return the run for a method: the learner is the base's, and goes to methods that take one."""
    return run if method.learners else dataclasses.replace(run, learner=None)


def provenance(
    method: Mitigator, run: Run, base: OnnxModel | None, fitted: FittedModel | None = None
) -> dict[str, Any]:
    """Return the file's record of how it was made."""
    from importlib.metadata import version

    learner = method.learner(run) if method.learners else None
    return {
        "mitigation": {
            "plugin": method.name,
            "parameters": parameters_to_dict(method.parameters),
            "learner": learner,
            "seed": run.seed,
            "base_model": None if base is None else base.sha256,
            "fairkit": version("fairkit"),
            "objective": run.objective.told(),
            "decides_by": list((getattr(fitted, "details", {}).get("rule") or {}).get("columns", ())),
        }
    }


# What no mitigation may hide: a model that treats all people alike, or that is worse than no model.


_SAME = 1e-9
_MOST_ROWS = 2_000
_EVEN = 0.5

ALARM = "The model is "
"""How every sentence of this module begins."""
CONSTANT = (
    "The model is constant: it decides all people alike, so that every disparity is 0 and nothing is learned. Allow a "
    "larger difference, choose another method, or add rows."
)


def treats_all_alike(fitted: FittedModel, table: Table, after: Report) -> bool:
    """Return whether a model gives all people the same decision, class or value."""
    if table.columns:
        step = max(1, len(table) // _MOST_ROWS)
        return is_constant(fitted.predict({name: values[::step] for name, values in table.columns.items()})) and (
            step == 1 or is_constant(fitted.predict(table.columns))
        )
    rate = _overall(after, "selection_rate")
    return rate is not None and rate[0] in (0.0, 1.0)


def is_constant(prediction: Prediction) -> bool:
    """Return whether all rows get the same chance of a decision, the same likeliest class, or the same value."""
    values = prediction.score if prediction.decision_probability is None else prediction.decision_probability
    if values.ndim == 2:
        values = values.argmax(axis=1).astype(np.float64)
    return bool(values.size) and float(np.ptp(values)) <= _SAME


def below_majority(table: Table, after: Report) -> tuple[str, ...]:
    """Say where the accuracy on the test rows is significantly below the share of the most frequent outcome."""
    accuracy = _overall(after, "accuracy")
    if table.task in ("regression", "ranking") or accuracy is None or accuracy[1] is None:
        return ()
    share = float(np.bincount(table.target.astype(np.int64), table.weights).max() / table.row_weights().sum())
    if accuracy[1][1] >= share:
        return ()
    auc = _overall(after, "roc_auc")
    ranks = "" if auc is None or auc[0] <= _EVEN else f"; AUC is {auc[0]:.2f}, so the scores do rank people"
    return (
        f"At its threshold the model's accuracy on the test rows is {accuracy[0]:.3g} "
        f"[{accuracy[1][0]:.3g}, {accuracy[1][1]:.3g}], below that of deciding alike for all ({share:.3g}){ranks}.",
    )


def gives_up(table: Table, before: Report, after: Report) -> tuple[str, ...]:
    """Say where a model keeps less than half of what the one before tells of the outcomes.

    That is the balanced accuracy above one half, on the test rows, where the model before is surely above it.
    """
    first, last = (_overall(report, "balanced_accuracy") for report in (before, after))
    if table.task != "binary" or first is None or last is None or first[1] is None or first[1][0] <= _EVEN:
        return ()
    if last[0] - _EVEN >= _HALF * (first[0] - _EVEN):
        return ()
    return (
        f"The model is not much better than chance: its balanced accuracy on the test rows is {last[0]:.3g}, and that "
        f"of the model before is {first[0]:.3g}. It keeps what it promises by treating nearly everybody alike: allow a "
        "larger difference, or choose another method.",
    )


def is_useless(table: Table, after: Report) -> bool:
    """Return whether no model would serve as well as this one.

    It is so where `below_majority` says something and the balanced accuracy is not significantly above one half: a
    model that weighs the outcomes evenly may have an accuracy below the most frequent outcome's share, and be of use.
    """
    balanced = _overall(after, "balanced_accuracy")
    if table.task != "binary" or not below_majority(table, after) or balanced is None:
        return False
    return balanced[1] is not None and balanced[1][0] <= _EVEN


def _overall(after: Report, metric: str) -> tuple[float, tuple[float, float] | None] | None:
    over_all = (each for each in after.findings if each.metric == metric and each.sensitive is None)
    for each in over_all:
        if each.auditor == "group" and each.value is not None:
            return each.value, each.interval
    return None


# What a user must see first after a mitigation: who is decided by chance, what the file reads, what got worse.


def is_randomized(fitted: FittedModel, model: OnnxModel) -> bool:
    """Return whether some decisions are drawn by chance.

    A rule on scores says so itself: its file has the input `u` also where all of its thresholds are sharp.
    """
    rule = fitted.details.get("rule")
    if isinstance(rule, Mapping) and "groups" in rule:
        pieces = [piece for group in rule["groups"] for piece in group["pieces"]]
        return any(piece["width"] > 0 or piece["weight"] not in (0, 1) for piece in pieces)
    return any(entry.name == RANDOM_INPUT for entry in model.inputs)


def sensitive_inputs(model: OnnxModel, table: Table) -> tuple[str, ...]:
    """Return the sensitive columns that the file reads; an input that is no column holds all features."""
    columns = dict.fromkeys(column for split in table.roles.sensitive for column in split.columns)
    inputs = {entry.name for entry in model.inputs}
    whole = bool(inputs - {*table.columns, RANDOM_INPUT})
    read = inputs | ({*(table.roles.features or table.features)} if whole else set())
    return tuple(column for column in columns if column in read)


def worsened(changes: Sequence[Change]) -> list[Change]:
    """Return the disparities that got significantly worse, the largest increase first, none under two names."""
    worse = [each for each in changes if each.outcome == "worse" and each.sensitive is not None and each.group is None]
    names = {(change.metric, change.sensitive) for change in worse}
    fields = field_names(installed_metrics()[0])
    changes_kept = [change for change in worse if (fields.get(change.metric), change.sensitive) not in names]
    return sorted(changes_kept, key=lambda change: -abs(change.difference or 0.0))


def decisions_told(randomized: bool, reads: Sequence[str]) -> str:
    """Say how the file decides."""
    chance = (
        "RANDOMIZED: some decisions are drawn by chance. Give the input u a fresh number in [0, 1) for each person; "
        "the same person can be decided differently another time."
        if randomized
        else "Deterministic: the same person is always decided alike."
    )
    group = (
        f"GROUP-SPECIFIC: it reads {', '.join(reads)} to decide, which the law may forbid (ECOA, disparate treatment); "
        "a blind search does not."
        if reads
        else "It reads no sensitive column."
    )
    return f"{chance} {group}"


def record(randomized: bool, reads: Sequence[str], changes: Sequence[Change]) -> dict[str, Any]:
    """Return this as plain JSON values."""
    return {
        "decisions": {"randomized": randomized, "reads": list(reads)},
        "worsened": [change.to_dict() for change in worsened(changes)],
    }


# Test rows that are training rows, or each other's copies: no verdict on them says anything.


_MORE = 0.25


def check_leak(train: Table, test: Table) -> None:
    """Refuse test rows that are training rows, and test rows that are there several times.

    Rows are compared by their features, groups and outcome. People who are alike are not the same row: what counts is
    how many more test rows have a copy among the training rows than training rows have among each other.
    """
    if len(test) == 0 or len(train) == 0:
        return
    seen, test_rows = Counter(_rows(train)), list(_rows(test))
    usual = _repeated(seen) / len(train)
    most = usual + _MORE * (1 - usual)
    _check_copies(test_rows, len(train), most)
    copies = sum(row in seen for row in test_rows)
    if copies / len(test) > most:
        raise DataError(
            f"{copies:,} of the {len(test):,} test rows are also training rows, where chance would give about "
            f"{usual * len(test):,.0f}: a verdict on rows that a model has seen says nothing. Give other rows in "
            "`test`, or leave it out and some of the rows are held out"
        )


def _check_copies(held: Sequence[tuple[object, ...]], size: int, most: float) -> None:
    """Refuse test rows of which more are there several times than of as many training rows."""
    some = held
    if len(held) > size:  # among more rows more people are alike
        some = [held[index] for index in np.random.default_rng(0).choice(len(held), size, replace=False)]
    copies = _repeated(Counter(some))
    if copies / len(some) > most:
        raise DataError(
            f"{copies:,} of {len(some):,} test rows are copies of others among them, which is far more than among "
            "training rows: an interval takes every row for another person. Give each person once in `test`, with a "
            "weight where some count more"
        )


def _repeated(rows: Counter[tuple[object, ...]]) -> int:
    return sum(count for count in rows.values() if count > 1)


def _rows(table: Table) -> Iterator[tuple[object, ...]]:
    columns = [values.tolist() for values in table.columns.values()]
    # NaN is not equal to itself
    return (
        tuple(None if cell != cell else cell for cell in row)  # noqa: PLR0124 - NaN
        for row in zip(*columns, table.target.tolist(), strict=True)
    )
