"""The one place that exports: a model in memory becomes ONNX with its settings, checked row by row."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fairkit.data.arrow_types import as_arrow, texts_as_arrow
from fairkit.data.loading import load_data
from fairkit.data.roles import list_columns
from fairkit.errors import ModelError
from fairkit.fitted import FittedModel, Prediction, Runner, RunsItself
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit.support.timings import phase
from fairkit_onnx.file import open_session
from fairkit_onnx.read.feeds import RANDOM_INPUT, built
from fairkit_onnx.read.graph import METADATA_KEY
from fairkit_onnx.write.compose import COMPOSED, ScoreHead, compose
from fairkit_onnx.write.estimators import add_estimator, score_estimator
from fairkit_onnx.write.graph import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.settings import ModelOptions
    from fairkit_onnx.file import OnnxModel
    from fairkit_onnx.write.encode import Encoding
    from fairkit_onnx.write.rules import GroupRule


PARITY = 1e-5
"""The largest difference between the file and the model in memory that is accepted (regression: relative)."""
PARITY_ROWS = 8_192
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
    entries = [(entry.key, entry.value) for entry in proto.metadata_props if entry.key != METADATA_KEY]
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=False, allow_nan=False)
    del proto.metadata_props[:]
    for key, value in [*entries, (METADATA_KEY, text)]:
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
    runner = model.runner(proto) if isinstance(model, RunsItself) else None
    if runner is not None:
        return runner
    session = open_session(proto)
    return lambda columns: run_columns(session, columns)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# Running a graph of raw columns under plain onnxruntime.


def run_columns(
    session: Any, columns: Mapping[str, NDArray[Any]], *, u: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Run a graph whose inputs are raw columns of shape [rows, 1], or list columns of shape [rows, k]."""
    rows = len(next(iter(columns.values())))
    feeds: dict[str, NDArray[Any]] = {}
    lists = list_columns(list(columns))
    for entry in session.get_inputs():
        if entry.name == "u" and "u" not in columns:
            feeds["u"] = np.zeros((rows, 1), np.float32) if u is None else as_input(u, entry.type)
        elif entry.name in lists and entry.name not in columns:
            cells = [as_input(columns[index], entry.type) for index in lists[entry.name]]
            feeds[entry.name] = np.concatenate(cells, axis=1)
        else:
            feeds[entry.name] = as_input(columns[entry.name], entry.type)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def as_input(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return a raw column as the tensor that an input of this type takes, shape [n, 1]."""
    from fairkit_onnx.write.encode import as_float32

    if kind == "tensor(string)":
        texts = ["" if value is None or value != value else str(value) for value in values.tolist()]  # noqa: PLR0124
        return np.array(texts, dtype=object).reshape(-1, 1)
    if kind == "tensor(double)":
        return values.astype(np.float64).reshape(-1, 1)
    if kind == "tensor(int64)":
        return values.astype(np.int64).reshape(-1, 1)
    return as_float32(values, "input").reshape(-1, 1)


# The base model of a repair: any graph with a score, bound to the rows that the repair learns from.


_SAMPLE = 4_096
_ELEMENTS = {
    "tensor(float)": 1, "tensor(int32)": 6, "tensor(int64)": 7, "tensor(string)": 8, "tensor(bool)": 9,
    "tensor(float16)": 10, "tensor(double)": 11,
}  # fmt: skip
"""onnxruntime's names of types, as ONNX numbers them."""
_BATCH = 65_536


class BaseModel:
    """A model whose decisions are repaired: it gives scores, and a graph that a rule can be appended to."""

    def __init__(self, model: OnnxModel, table: Table, options: ModelOptions) -> None:
        self.model = model
        try:
            from fairkit_onnx.read.scorer import bind

            self._scorer = bind(model, _sample(table), options.over(model.said), only_scores=True)
        except ModelError as error:
            raise ModelError(_as_parameters(str(error))) from error
        self.head = self._head(options.task == "regression")
        self.notes = tuple(map(_as_parameters, self._scorer.info.notes))

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that the model reads."""
        return self._scorer.columns

    @property
    def column_inputs(self) -> dict[str, str]:
        """For each raw column with an input of its own, that input."""
        return {feed.columns[0]: feed.input.name for feed in self._scorer.feeds if len(feed.columns) == 1}

    def scores(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the probability of the favorable label, shape [n], rounded to float32 as in the graph."""
        return self.answers(columns)[0]

    def answers(self, columns: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return scores, and the model's own decisions (1: favorable; NaN without), each of shape [n], in one pass."""
        rows = len(columns[self.columns[0]])
        scores, decisions = np.empty(rows), np.full(rows, np.nan)
        for start in range(0, rows, _BATCH):
            part = slice(start, start + _BATCH)
            prediction = self._scorer.predict({name: columns[name][part] for name in self.columns})
            score = prediction.decision if self.head.kind == "label" else prediction.score
            if score is None:
                raise ModelError(f"{self.model.name} gives no score")
            scores[part] = score.astype(np.float32)
            if prediction.decision is not None:
                decisions[part] = prediction.decision
        return scores, decisions

    def decisions(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the model's own decisions, shape [n]: 1 where they are favorable."""
        return self.answers(columns)[1]

    def with_rule(self, rule: GroupRule) -> onnx.ModelProto:
        """Append a rule to the model's graph; see `fairkit_onnx.write.compose.compose`.

        The base's own outputs are left out: whoever went on reading them would serve decisions that the rule
        has not repaired.
        """
        return self.extended(lambda proto: compose(proto, self.head, rule, inputs=self.column_inputs))

    def extended(self, extend: Callable[[onnx.ModelProto], onnx.ModelProto]) -> onnx.ModelProto:
        """Return a copy of the model's graph, extended by a function, with the outputs of a repaired model only."""
        proto = type(self.model.proto)()
        proto.CopyFrom(self.model.proto)
        self._load_tensors(proto)
        self._state_types(proto)
        self._state_shapes(proto)
        composed = extend(proto)
        if batch := self.model.batch:
            for entry in composed.graph.input:
                entry.type.tensor_type.shape.dim[0].dim_value = batch
        outputs = [entry for entry in composed.graph.output if entry.name in COMPOSED]
        del composed.graph.output[:]
        composed.graph.output.extend(outputs)
        return composed

    def feeds(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays for the model's own inputs."""
        return built(self._scorer.feeds, columns)

    def _head(self, graded: bool) -> ScoreHead:
        reading, name = self._scorer.reading, self.model.name
        if graded and reading.score is not None:
            return ScoreHead(output=reading.score.name, width=reading.score.width, kind="value")
        if reading.chance is not None and all(entry.name != RANDOM_INPUT for entry in self.model.inputs):
            # a deterministic model of ours: its decisions make way for the rule's
            return ScoreHead(output="score", place=int(not reading.turned))
        if reading.chance is not None:
            raise ModelError(f"{name} decides by a randomized rule already; repair the model that this rule was put on")
        if reading.score is None:
            assert reading.label is not None  # noqa: S101 -- a reading has scores or labels
            return ScoreHead(output=reading.label.name, kind="label", positive=reading.positive)
        return ScoreHead(
            output=reading.score.name,
            width=reading.score.width,
            place=int(not reading.turned) if reading.score.width == 1 else reading.place or 0,
            kind="scale" if reading.scale else cast("Literal['probability', 'logit', 'percent']", reading.kind),
            scale=reading.scale,
        )

    def _load_tensors(self, proto: onnx.ModelProto) -> None:
        """Bring tensors in from the files beside the model: the repaired model is one file."""
        if self.model.external and self.model.folder is not None:
            import onnx

            onnx.load_external_data_for_model(proto, str(self.model.folder))

    def _state_types(self, proto: onnx.ModelProto) -> None:
        """State the types of outputs that have none: onnxruntime infers them, ONNX's rules want them."""
        kinds = dict(self.model.outputs)
        for output in proto.graph.output:
            if output.type.WhichOneof("value") is None and kinds[output.name] in _ELEMENTS:
                output.type.tensor_type.elem_type = _ELEMENTS[kinds[output.name]]
                output.type.tensor_type.shape.dim.add()

    def _state_shapes(self, proto: onnx.ModelProto) -> None:
        """State how many columns a matrix takes, and that there are as many output rows as input rows.

        Converters leave the first open at times, and write 1 for the second where it is free, which makes
        onnxruntime warn at every call.
        """
        widths = {feed.input.name: len(feed.columns) for feed in self._scorer.feeds}
        free = False
        for entry in proto.graph.input:
            dims = entry.type.tensor_type.shape.dim
            if entry.name in widths and len(dims) == 2 and not dims[1].dim_value:
                dims[1].dim_value = widths[entry.name]
            free = free or (len(dims) > 0 and not dims[0].dim_value)
        for output in proto.graph.output:
            dims = output.type.tensor_type.shape.dim
            if free and output.type.HasField("tensor_type") and len(dims) and dims[0].dim_value:
                dims[0].Clear()


def _sample(table: Table) -> Any:
    """Return rows that tell how the model is read."""
    if table.task == "ranking" and table.roles.favorable is None:
        return load_data(dict(table.columns), features=table.features, name=table.name)
    return _label_sample(table)


def _label_sample(table: Table) -> Any:
    """Make a dataset of the first rows, as an audit sees them first, and some rows of a label that they lack."""
    import pyarrow as pa

    places = np.arange(min(_SAMPLE, len(table)))
    for value in (0.0, 1.0):
        if not (table.target[places] == value).any():
            places = np.concatenate([places, np.flatnonzero(table.target == value)[:_SAMPLE]])
    sample = table.take(places)
    label = _free_name(table.roles.label or "label", sample.columns)
    classes = table.classes or (0, 1)
    cells = [classes[-1] if value else classes[0] for value in sample.target.tolist()]
    columns = dict(sample.columns) | {label: np.array(cells, dtype=object if isinstance(cells[0], str) else None)}
    arrow = {n: as_arrow(v) if v.dtype.kind in "biuf" else texts_as_arrow(v) for n, v in columns.items()}
    return load_data(pa.table(arrow), label=label, favorable=classes[-1], features=table.features, name=table.name)


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _as_parameters(text: str) -> str:
    """Name the fields of an audit as the parameters that they are of a method."""
    return re.sub(r"(`(?:score_output|score_kind|favorable_class)(?:=[^`]*)?`)", r"the parameter \1", text)
