"""The one place that exports: a model in memory becomes ONNX with its settings, checked row by row."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.fitted import FittedModel, Prediction, Runner, RunsItself
from fairkit.support.timings import phase
from fairkit_onnx.read.safety import METADATA_KEY
from fairkit_onnx.session import open_session
from fairkit_onnx.write.estimators import add_estimator, score_estimator
from fairkit_onnx.write.graph import GraphBuilder
from fairkit_onnx.write.runtime import run_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit_onnx.write.encode import Encoding

PARITY = 1e-5
"""The largest difference between the file and the model in memory that is accepted (regression: relative)."""
PARITY_ROWS = 50_000
"""On at most about so many rows, evenly spread, the file is compared: on more it took as long as the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularModel(FittedModel):
    """An encoder and an estimator behind it.

    Attributes
    ----------
    encoder
        From raw columns to a matrix.
    estimator
        See `fairkit_onnx.write.estimators.score_estimator`.
    task
        What its numbers mean.
    threshold
        Binary: the probability from which the decision is favorable.
    """

    encoder: Encoding
    estimator: Any
    task: Task = "binary"
    threshold: float = 0.5
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""
        score = score_estimator(self.estimator, self.encoder.transform(columns), self.task)
        decided = (score >= self.threshold).astype(np.float64) if self.task == "binary" else None
        return Prediction(score=score, decision_probability=decided)

    def to_onnx(self) -> onnx.ModelProto:
        """Return one graph over the raw columns."""
        graph = GraphBuilder()
        matrix = self.encoder.add_to(graph)
        scores = add_estimator(graph, matrix, self.estimator, self.task, width=len(self.encoder.names))
        add_outputs(graph, scores, self.task, threshold=self.threshold)
        return graph.build()


def add_outputs(
    graph: GraphBuilder, scores: str, task: Task, *, threshold: float = 0.5, decided: str | None = None
) -> None:
    """Declare the outputs of a deterministic model.

    Binary: ``score``, ``decision_probability`` (0 or 1) and ``decision``, each [rows, 1]; a decision is favorable from
    the threshold on, or where `decided` is true. Regression: ``score``. Multiclass: ``probabilities`` [rows, k].
    """
    if task == "multiclass":
        graph.output("probabilities", scores, width=None)
        return
    graph.output("score", scores)
    if task == "binary":
        decided = decided or graph.node("GreaterOrEqual", [scores, threshold])
        graph.output("decision_probability", graph.node("Cast", [decided], to=1))
        graph.output("decision", graph.node("Cast", [decided], to=7), "int64")


@phase("export")
def export(model: FittedModel, table: Table, metadata: Mapping[str, Any] | None = None) -> onnx.ModelProto:
    """Export a model with its data settings, and check the file against the model on the given rows.

    Parameters
    ----------
    model
        What a mitigator or learner gave.
    table
        The training rows: their roles go into the metadata, and the parity check runs on them, on `PARITY_ROWS` evenly
        spread ones where they are many.
    metadata
        More entries for the JSON under the metadata key ``fairkit``, such as the mitigation.

    Returns
    -------
    onnx.ModelProto
        Without custom operators.

    Raises
    ------
    ModelError
        The file and the model in memory differ by more than `PARITY` on some row.
    """
    proto = model.to_onnx()
    embed_settings(proto, settings_of(table) | dict(metadata or {}))
    check_parity(proto, model, table.columns)
    return proto


def export_bytes(model: FittedModel, table: Table, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of the file that `export` makes: the same model gives the same bytes."""
    return serialised(export(model, table, metadata))


@phase("export")
def serialised(proto: onnx.ModelProto) -> bytes:
    """Return a model's bytes, the same for the same model."""
    return bytes(proto.SerializeToString(deterministic=True))


def settings_of(table: Table) -> dict[str, Any]:
    """Return the data settings that a model carries: label, favorable, sensitive, features, task, classes."""
    roles = table.roles
    return {
        "schema": "fairkit.model/1",
        "label": roles.label,
        "favorable": _plain(roles.favorable),
        "sensitive": [split.text for split in roles.sensitive],
        "features": list(table.features),
        "task": table.task,
        "classes": [_plain(value) for value in table.classes],
    } | ({} if roles.query is None else {"query": roles.query})


def embed_settings(proto: onnx.ModelProto, settings: Mapping[str, Any]) -> None:
    """Write settings into the metadata entry ``fairkit``, in place of what was there."""
    kept = [(entry.key, entry.value) for entry in proto.metadata_props if entry.key != METADATA_KEY]
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False, allow_nan=False)
    del proto.metadata_props[:]
    for key, value in [*kept, (METADATA_KEY, text)]:
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value


def check_parity(
    proto: onnx.ModelProto, model: FittedModel, columns: Mapping[str, NDArray[Any]], *, tolerance: float = PARITY
) -> float:
    """Run the file beside the model and return the largest difference of their scores, on at most `PARITY_ROWS` rows.

    Decision probabilities are compared too, except on rows whose score is within the tolerance of a threshold, where
    float32 may fall on either side: there may be one such row in a thousand.
    """
    run = runner_of(model, proto)
    every = len(next(iter(columns.values())))
    part = {name: values[:: max(1, -(-every // PARITY_ROWS))] for name, values in columns.items()}
    expected, got = model.predict(part), run(part)
    score = got.get("score", got.get("probabilities"))
    if score is None:
        raise ModelError(f"the exported graph has no output 'score' or 'probabilities': it has {sorted(got)}")
    decides = expected.decision_probability is not None
    scale = 1.0 if decides else max(1.0, float(np.abs(expected.score).max()))
    worst = float((np.abs(score.reshape(expected.score.shape) - expected.score) / scale).max())
    flips, rows = 0, len(expected.score)
    if expected.decision_probability is not None and "decision_probability" in got:
        gap = np.abs(got["decision_probability"].reshape(-1) - expected.decision_probability)
        flips = int((gap > tolerance).sum())
    if worst > tolerance or not np.isfinite(worst):
        raise ModelError(
            f"the exported file differs from the model in memory by up to {worst:.2g} on the training rows "
            f"(allowed: {tolerance:g}); nothing was written. Please report this with the model's type"
        )
    if flips > max(1, rows // 1000):
        raise ModelError(f"the exported file decides {flips} of {rows:,} training rows otherwise than the model")
    return worst


def runner_of(model: FittedModel, proto: onnx.ModelProto) -> Runner:
    """Return an exported graph's runner on raw columns: the model's own, else one column for each input."""
    own = model.runner(proto) if isinstance(model, RunsItself) else None
    if own is not None:
        return own
    session = open_session(proto)
    return lambda columns: run_columns(session, columns)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
