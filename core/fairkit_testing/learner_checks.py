"""Checks on learners: they train on every task, count weights, repeat themselves, and export what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit.data.table import Table
from fairkit.errors import FairkitError
from fairkit.fitted import Run
from fairkit_onnx.write import export
from fairkit_onnx.write.export import TabularModel, export_bytes
from fairkit_repair.learners import encoder_for, fit_estimator
from fairkit_testing.mitigator_checks import unseen_columns
from fairkit_testing.require import ContractError, require
from fairkit_testing.samples import sample_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.learners import Learner
    from fairkit_testing.samples import Task


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


CHECKS = (check_learner_scores, check_learner_onnx_equals_memory, check_learner_deterministic, check_learner_weights)
