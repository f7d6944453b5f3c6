"""The base model of a repair: any graph with a score, bound to the rows that the repair learns from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fairkit.data.loading import load_data
from fairkit.errors import ModelError
from fairkit_onnx.read.feeds import RANDOM_INPUT, built
from fairkit_onnx.write.compose import COMPOSED, ScoreHead, compose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.settings import ModelOptions
    from fairkit_onnx.model import OnnxModel
    from fairkit_onnx.write.rules import GroupRule

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
        rows = len(columns[self.columns[0]])
        scores = np.empty(rows, dtype=np.float64)
        for start in range(0, rows, _BATCH):
            part = {name: columns[name][start : start + _BATCH] for name in self.columns}
            scores[start : start + _BATCH] = self._scores_of(part)
        return scores

    def _scores_of(self, part: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        found = self._scorer.predict(part)
        score = found.decision if self.head.kind == "label" else found.score
        if score is None:
            raise ModelError(f"{self.model.name} gives no score")
        return score.astype(np.float32)

    def decisions(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the model's own decisions, shape [n]: 1 where they are favorable."""
        found = self._scorer.predict({name: columns[name] for name in self.columns}).decision
        assert found is not None  # noqa: S101 -- asked for of binary models
        return found

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
        kept = [entry for entry in composed.graph.output if entry.name in COMPOSED]
        del composed.graph.output[:]
        composed.graph.output.extend(kept)
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
    places = np.arange(min(_SAMPLE, len(table)))
    for value in (0.0, 1.0):
        if not (table.target[places] == value).any():
            places = np.concatenate([places, np.flatnonzero(table.target == value)[:_SAMPLE]])
    sample = table.take(places)
    label = _free_name(table.roles.label or "label", sample.columns)
    classes = table.classes or (0, 1)
    cells = [classes[-1] if value else classes[0] for value in sample.target.tolist()]
    columns = dict(sample.columns) | {label: np.array(cells, dtype=object if isinstance(cells[0], str) else None)}
    return load_data(columns, label=label, favorable=classes[-1], features=table.features, name=table.name)


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _as_parameters(text: str) -> str:
    """Name the fields of an audit as the parameters that they are of a method."""
    return re.sub(r"(`(?:score_output|score_kind|favorable_class)(?:=[^`]*)?`)", r"the parameter \1", text)
