"""From rows to a file: fit, export with provenance, check the file beside the model, and serialise."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.data.table import Table
from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import TrainsTogether
from fairkit.parameters.declare import parameters_to_dict
from fairkit.progress import no_progress
from fairkit.support.timings import phase
from fairkit_onnx.model import OnnxModel
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.common_threshold import aimed
from fairkit_repair.mitigation.leaks import check_leak
from fairkit_repair.mitigation.split import split_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.fitted import FittedModel, Run
    from fairkit.mitigators import Mitigator
    from fairkit_onnx.sandbox.limits import Limits

_HALF = 0.5
BEFORE, AFTER = "before", "after"
"""What reports call the models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A fitted model, and what it is measured with."""

    fitted: FittedModel  # the model, its file, and the file of the model before
    model: OnnxModel  # the model, its file, and the file of the model before
    baseline: OnnxModel  # the model, its file, and the file of the model before
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
