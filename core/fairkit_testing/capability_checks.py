"""Checks on what a method says that it can do about a policy: a search under a policy relies on it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fairkit.capabilities import metrics_of
from fairkit.data.table import Table
from fairkit.errors import FairkitError
from fairkit.fitted import Run
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.write.export import export_bytes
from fairkit_testing.mitigator_checks import PROMISE_ROWS, Trained, unseen_columns
from fairkit_testing.require import ContractError, require
from fairkit_testing.samples import Task, sample_data

if TYPE_CHECKING:
    from fairkit.capabilities import Capability
    from fairkit.results.findings import Finding

ROWS, FEW_ROWS = 1_000, 300
CHEAP = 2.5
LIMIT = 0.05


def check_mitigator_capability_parameters(trained: Trained) -> None:
    """Each capability's settings, and each step of its dial, are parameters of the method in their range."""
    for capability in trained.cls.capabilities:
        for settings in capability.tries(LIMIT):
            try:
                trained.cls.with_values({**trained.settings, **settings})
            except FairkitError as error:
                raise ContractError(f"a capability names the parameters {settings}: {error}") from error


def check_mitigator_capabilities(trained: Trained) -> None:
    """What the method says it can meet does not grow; what it says of group and chance is true of its files.

    Of a method that takes many trainings, only the first capability is tried.
    """
    cheap = [one for one in trained.cls.capabilities if one.trainings <= CHEAP]
    for capability in cheap or trained.cls.capabilities[:1]:
        method = Trained(trained.cls, {**trained.settings, **capability.tries(LIMIT)[0]})
        for task in method.tasks[:1]:
            _check(method, capability, task)


def _check(method: Trained, capability: Capability, task: Task) -> None:
    """Train the strictest model for a column that is no feature, and look at its file and at new rows."""
    about = f"{task}: a model for {' and '.join(capability.constraints)} {dict(capability.settings) or ''}"
    table = _table("sex", task, ROWS if capability.trainings <= CHEAP else FEW_ROWS)
    fitted, base = method.fit(table), method.base(task)
    chance = fitted.predict(unseen_columns(task)).decision_probability
    drawn = chance is not None and bool(((chance > 0) & (chance < 1)).any())
    require(capability.randomized or not drawn, f"{about} draws decisions, but its randomized is False")
    content = export_bytes(fitted, table)
    if not capability.reads_group:
        hidden, file = ("sex", content) if base is None else ("race", _for_race(method, task))
        require(hidden not in _inputs(file), f"{about} reads {hidden!r} to decide, but its reads_group is False")
    drawn = chance is None and RANDOM_INPUT in _inputs(content)
    require(capability.randomized or not drawn, f"{about} draws its output, but its randomized is False")
    run = Run(seed=7, threads=1)
    plain = base.content if base else export_bytes(method.make().baseline(table, run), table)
    before, after = (_disparities(file, capability, task) for file in (plain, content))
    for metric, old in before.items():
        new = after.get(metric)
        if new is None or new.interval is None or old.value is None:
            continue
        low, high = new.interval
        require(
            high >= old.value if old.better == "higher" else low <= old.value,
            f"{about}: {metric} is {new.value:.4g} [{low:.4g}, {high:.4g}] on new rows, significantly worse than "
            f"{old.value:.4g} without the method",
        )


def _table(column: str, task: Task, rows: int = ROWS) -> Table:
    """Return sample rows with a sensitive column that is no feature."""
    table = Table.from_dataset(sample_data(task, rows=rows, sensitive=(column,)))
    features = tuple(name for name in table.features if name != column)
    return dataclasses.replace(table, features=features)


def _for_race(method: Trained, task: Task) -> bytes:
    """Repair the sample model, which reads ``sex`` and not ``race``, for the latter."""
    table = _table("race", task)
    return export_bytes(method.fit(table), table)


def _inputs(content: bytes) -> set[str]:
    from fairkit_onnx.model import OnnxModel

    return {entry.name for entry in OnnxModel(content, "the file").inputs}


def _disparities(content: bytes, capability: Capability, task: Task) -> dict[str, Finding]:
    """Return the constrained disparities of an audit by groups."""
    import fairkit
    from fairkit.settings import ModelOptions

    fresh = sample_data(task, rows=PROMISE_ROWS, seed=1, sensitive=("sex",))
    report = fairkit.audit(content, fresh, options=ModelOptions(task=task))
    wanted = {metric for name in capability.constraints for metric in metrics_of(name)}
    return {
        finding.metric: finding
        for finding in report.findings
        if finding.metric in wanted and finding.sensitive == "sex" and finding.better != "none"
    }


CHECKS = (check_mitigator_capability_parameters, check_mitigator_capabilities)
