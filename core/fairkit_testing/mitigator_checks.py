"""Checks on mitigators: repeatable, exported as they are, faithful to their promises, clean when stopped."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.table import Table
from fairkit.errors import FairkitError
from fairkit.fitted import FittedModel, Run
from fairkit.learners import INSTALLED
from fairkit_onnx.write import export
from fairkit_onnx.write.export import TabularModel, export_bytes, runner_of
from fairkit_repair.learners import encoder_for, fit_estimator
from fairkit_testing.samples import (
    COLUMNS,
    ContractError,
    Task,
    nothing_left_behind,
    only_fairkit_errors,
    require,
    sample_data,
    sample_model,
    unchanged,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.learners import Learner
    from fairkit.mitigators import Mitigator


_TASKS: tuple[Task, ...] = ("binary", "regression", "multiclass", "ranking")
PROMISE_ROWS = 4_000
"""So many rows show whether a promise is kept."""


class Trained:
    """A mitigator with its settings, and the models that it trains on the sample data; each is trained once."""

    def __init__(self, mitigator: type[Mitigator], settings: Mapping[str, Any]) -> None:
        self.cls = mitigator
        self.settings = dict(settings)
        self._fitted: dict[Task, FittedModel] = {}
        self._exported: dict[Task, bytes] = {}

    @property
    def tasks(self) -> list[Task]:
        """The tasks that it is for."""
        return [task for task in _TASKS if task in self.cls.tasks]

    def make(self) -> Mitigator:
        """Make the method."""
        return self.cls.with_values(self.settings)

    @staticmethod
    def table(task: Task) -> Table:
        """The sample rows of a task, with one sensitive column; drawn anew, since a method may change them."""
        return Table.from_dataset(sample_data(task, sensitive=("sex",)))

    def base(self, task: Task) -> Any:
        """The base model of a method that repairs one; else None."""
        return sample_base(task) if self.cls.stage == "post" else None

    def fit(self, table: Table, *, run: Run | None = None) -> FittedModel:
        """Train on some table."""
        return self.make().fit(table, run or Run(seed=7, threads=1), model=self.base(table.task))

    def fitted(self, task: Task) -> FittedModel:
        """Train on the sample rows."""
        if task not in self._fitted:
            self._fitted[task] = self.fit(self.table(task))
        return self._fitted[task]

    def exported(self, task: Task) -> bytes:
        """Export that model, with the parity check on its training rows."""
        if task not in self._exported:
            self._exported[task] = export_bytes(self.fitted(task), self.table(task))
        return self._exported[task]


@functools.cache
def sample_base(task: Task) -> Any:
    """The sample model, as a base model to repair."""
    from fairkit_onnx.file import OnnxModel

    return OnnxModel(sample_model(task), "sample model")


def check_mitigator_onnx_equals_memory(trained: Trained) -> None:
    """The file and the model in memory agree: on the training rows, on new ones, and one row at a time."""
    import onnx

    for task in trained.tasks:
        content = trained.exported(task)
        proto, model = onnx.load_model_from_string(content), trained.fitted(task)
        domains = {entry.domain for entry in proto.opset_import} - {"", "ai.onnx", "ai.onnx.ml"}
        require(not domains, f"{task}: the file needs operators of {sorted(domains)}; plain ONNX runs anywhere")
        fresh = unseen_columns(task)
        try:
            export.check_parity(proto, model, fresh, tolerance=1e-4)
        except Exception as error:
            raise ContractError(
                f"{task}: on rows that training did not see (other values of text columns, higher and lower "
                f"numbers) the file differs from the model in memory: {error}"
            ) from error
        run = runner_of(model, proto)
        together = _scores(run, fresh)
        alone = np.concatenate([_scores(run, _rows(fresh, i, i + 1)) for i in range(20)])
        require(
            np.allclose(together[:20], alone, rtol=1e-4, atol=1e-5),
            f"{task}: rows are scored otherwise in a batch than alone",
        )


def check_mitigator_deterministic(trained: Trained) -> None:
    """Training again with the same seed gives the same file, to the last bit."""
    for task in trained.tasks:
        again = export_bytes(trained.fit(trained.table(task)), trained.table(task))
        require(
            again == trained.exported(task),
            f"{task}: two trainings with one seed give different files; draw only from run.rng(), and pass "
            "run.seed to libraries",
        )


def check_mitigator_inputs_unchanged(trained: Trained) -> None:
    """The table that a method is given stays as it is."""
    for task in trained.tasks:
        table = Table.from_dataset(sample_data(task, rows=400, sensitive=("sex",)))
        with unchanged(functools.partial(_arrays, table), f"{task}: "):
            trained.fit(table)


def check_mitigator_details(trained: Trained) -> None:
    """Details are plain JSON values and notes are sentences: both go into reports."""
    for task in trained.tasks:
        model = trained.fitted(task)
        try:
            json.dumps(dict(model.details), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ContractError(f"{task}: details do not go into JSON: {error}") from error
        require(
            all(isinstance(note, str) and note.strip() for note in model.notes),
            f"{task}: notes are not sentences: {model.notes!r}",
        )


def check_mitigator_learners(trained: Trained) -> None:
    """Every learner that the method names can be trained and exported; others are refused with a FairkitError."""
    for task in trained.tasks[:1]:
        table = trained.table(task).take(np.arange(300))
        with only_fairkit_errors("an unknown learner was asked for", required=True):
            trained.make().learner(Run(learner="no-such-learner"))
        for learner in (name for name in trained.cls.learners if name != INSTALLED):
            with only_fairkit_errors(f"{task}: the learner {learner!r} was asked for"):
                export_bytes(trained.fit(table, run=Run(learner=learner, threads=1)), table)


def check_mitigator_errors(trained: Trained) -> None:
    """Tables that a method cannot use are refused with a FairkitError that says why."""
    for task in trained.tasks:
        table = trained.table(task)
        constant = np.full(len(table), table.target[0])
        for what, bad_table in {
            "no sensitive column": replace(table, groups={}),
            "one outcome only": replace(table, target=constant),
            "two rows": table.take(np.arange(2)),
        }.items():
            with only_fairkit_errors(f"{task}: a table with {what} was given"):
                trained.fit(bad_table)


def check_mitigator_promises(trained: Trained) -> None:
    """What the method promises is kept on new rows, where the model without it breaks it; see `promises`."""
    rules = tuple(trained.make().promises())
    if not rules:
        return
    task = trained.tasks[0]
    table = Table.from_dataset(sample_data(task, rows=PROMISE_ROWS, sensitive=("sex",)))
    fresh = sample_data(task, rows=PROMISE_ROWS, seed=1, sensitive=("sex",))
    method, run = trained.make(), Run(seed=7, threads=1)
    base = trained.base(task)
    plain = base.content if base else export_bytes(method.baseline(table, run), table)
    fair = export_bytes(trained.fit(table), table)
    for rule in rules:
        before, after = (_verdict(content, fresh, rule, task) for content in (plain, fair))
        require(before[0] == "fail", f"the sample data is no test of {rule}: without the method it holds already")
        require(after[0] != "fail", f"{rule} is promised, but on new rows {after[1]}")


def check_mitigator_interrupt(trained: Trained) -> None:
    """Ctrl-C during training comes out as KeyboardInterrupt, at the next report of progress, and leaves no file."""
    for task in trained.tasks[:1]:
        table = trained.table(task)
        reported = []

        def stop(doing: str, done: int, total: int, **values: float) -> None:
            reported.append(done)  # noqa: B023 - called within this turn of the loop
            raise KeyboardInterrupt

        with nothing_left_behind(f"{task}: a training that Ctrl-C ended"):
            came_out = _interrupted(lambda: trained.fit(table, run=Run(seed=7, threads=1, progress=stop)))  # noqa: B023
            require(came_out or not reported, f"{task}: KeyboardInterrupt was swallowed; let it pass")
            if not reported:
                columns = _Stopping(table.columns)
                came_out = _interrupted(lambda: trained.fit(replace(table, columns=columns)))  # noqa: B023
                require(came_out or not columns.asked, f"{task}: KeyboardInterrupt was swallowed; let it pass")
        require(
            export_bytes(trained.fit(table), table) == trained.exported(task),
            f"{task}: after an interrupted training the next one differs; keep no state between trainings",
        )


def unseen_columns(task: Task) -> dict[str, NDArray[Any]]:
    """Return 200 rows that training did not see, some with text values and numbers beyond those of training."""
    data: Dataset = sample_data(task, rows=200, seed=99, sensitive=("sex",))
    batch = data.read(COLUMNS)
    columns = {name: np.array(batch.column(name)) for name in COLUMNS}
    columns["job"][::11] = "pilot"
    columns["race"][::13] = "D"
    columns["hours"][::7] += 60.0
    columns["age"][::9] = 99
    return columns


class _Stopping(dict[str, Any]):
    """Columns that raise KeyboardInterrupt when one is asked for."""

    asked = False

    def __getitem__(self, name: str) -> Any:
        self.asked = True
        raise KeyboardInterrupt


def _interrupted(training: Callable[[], Any]) -> bool:
    try:
        training()
    except KeyboardInterrupt:
        return True
    return False


def _verdict(content: bytes, data: Dataset, rule: Any, task: Task) -> tuple[str | None, str]:
    import fairkit
    from fairkit.settings import ModelOptions

    auditors, settings = ["group"], {}
    if rule.metric == "consistency":
        columns = "+".join(column for split in data.roles.sensitive for column in split.columns)
        auditors, settings = ["consistency"], {"consistency": {"sensitive": [columns]}}
    report = fairkit.audit(
        content, data, auditors=auditors, parameters=settings, policy=[rule], options=ModelOptions(task=task)
    )
    return report.verdict, "; ".join(result.reason for result in report.policy)


def _scores(run: Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]], columns: Mapping[str, NDArray[Any]]) -> Any:
    got = run(columns)
    return np.asarray(got.get("score", got.get("probabilities")))


def _rows(columns: Mapping[str, NDArray[Any]], start: int, stop: int) -> dict[str, NDArray[Any]]:
    return {name: values[start:stop] for name, values in columns.items()}


def _arrays(table: Table) -> dict[str, NDArray[Any]]:
    arrays = {f"columns[{name!r}]": values for name, values in table.columns.items()}
    arrays |= {f"groups[{name!r}].codes": groups.codes for name, groups in table.groups.items()}
    return arrays | {"target": table.target}


MITIGATOR_CHECKS = (
    check_mitigator_onnx_equals_memory,
    check_mitigator_deterministic,
    check_mitigator_inputs_unchanged,
    check_mitigator_details,
    check_mitigator_learners,
    check_mitigator_errors,
    check_mitigator_promises,
    check_mitigator_interrupt,
)


# Checks on learners: they train on every task, count weights, repeat themselves, and export what they are.


class Taught:
    """A learner, and the models that it trains on the sample data; each is trained once."""

    def __init__(self, learner: type[Learner]) -> None:
        self.cls = learner
        self._models: dict[Task, TabularModel] = {}

    def table(self, task: Task) -> Table:
        """The sample rows."""
        return Table.from_dataset(sample_data(task))

    def model(self, task: Task) -> TabularModel:
        """The model of the sample rows."""
        if task not in self._models:
            self._models[task] = self.train(self.table(task))
        return self._models[task]

    def train(self, table: Table, weights: NDArray[np.float64] | None = None) -> TabularModel:
        """Train on rows as methods do."""
        encoder = encoder_for(self.cls.name, table)
        estimator = fit_estimator(
            self.cls.name,
            encoder.transform(table.columns),
            table.target,
            weights=weights,
            task=table.task,
            run=Run(seed=7, threads=1),
            categorical=encoder.categorical,
        )
        return TabularModel(encoder=encoder, estimator=estimator, task=table.task)


def check_learner_scores(taught: Taught) -> None:
    """Scores are finite, probabilities lie in [0, 1] and add up to 1, and the model knows more than the mean."""
    for task in taught.cls.tasks:
        table = taught.table(task)
        score = taught.model(task).predict(table.columns).score
        shape = (len(table), len(table.classes)) if task == "multiclass" else (len(table),)
        require(score.shape == shape, f"{task}: scores have the shape {score.shape}, not {shape}")
        require(np.isfinite(score).all(), f"{task}: scores are not finite")
        if task == "regression":
            better = np.mean((score - table.target) ** 2) < table.target.var()
        else:
            require(score.min() >= 0 and score.max() <= 1, f"{task}: scores leave [0, 1]; they are probabilities")
            chosen = score.argmax(axis=1) if task == "multiclass" else score >= 0.5
            better = np.mean(chosen == table.target) > np.bincount(table.target.astype(int)).max() / len(table)
        if task == "multiclass":
            require(np.allclose(score.sum(axis=1), 1, atol=1e-5), f"{task}: probabilities do not add up to 1")
        require(better, f"{task}: on its training rows the model is no better than a constant")


def check_learner_onnx_equals_memory(taught: Taught) -> None:
    """The file and the model in memory agree, on the training rows and on new ones, with standard operators."""
    import onnx

    for task in taught.cls.tasks:
        model, table = taught.model(task), taught.table(task)
        try:
            proto = onnx.load_model_from_string(export_bytes(model, table))
            export.check_parity(proto, model, unseen_columns(task), tolerance=1e-4)
        except FairkitError as error:
            raise ContractError(f"{task}: {error}") from error
        domains = {entry.domain for entry in proto.opset_import} - {"", "ai.onnx", "ai.onnx.ml"}
        require(not domains, f"{task}: the file needs operators of {sorted(domains)}; plain ONNX runs anywhere")


def check_learner_deterministic(taught: Taught) -> None:
    """Training again with the same seed gives the same file, to the last bit."""
    for task in taught.cls.tasks:
        table = taught.table(task)
        require(
            export_bytes(taught.train(table), table) == export_bytes(taught.model(task), table),
            f"{task}: two trainings with one seed give different files; pass rows.run.seed to the library",
        )


def check_learner_weights(taught: Taught) -> None:
    """Weights count: the model leans to the rows that weigh more."""
    for task in taught.cls.tasks:
        table = taught.table(task)
        middle = np.median(table.target)
        high = table.target > middle if task == "regression" else table.target == table.target.max()
        weights = np.where(high, 1.0, 0.02)
        plain, tilted = (
            model.predict(table.columns).score for model in (taught.model(task), taught.train(table, weights))
        )
        mean, moved = (
            float((score[:, int(table.target.max())] if task == "multiclass" else score).mean())
            for score in (plain, tilted)
        )
        require(
            moved > mean,
            f"{task}: rows of large targets got fifty times the weight of the others, and the mean score went from "
            f"{mean:.3g} to {moved:.3g}; pass rows.weights to the library",
        )


LEARNER_CHECKS = (
    check_learner_scores,
    check_learner_onnx_equals_memory,
    check_learner_deterministic,
    check_learner_weights,
)
