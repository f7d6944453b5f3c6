"""An ONNX file as a model that can be audited: loaded without running code, fed from raw columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError, did_you_mean
from fairkit.findings import ModelInfo
from fairkit.models import Columns, ModelOptions, Predictions, Scorer, Task, check_scores, choose_task
from fairkit.onnx import outputs as reading
from fairkit.onnx import safety
from fairkit.onnx.feeds import RANDOM_INPUT, Feed, GraphInput, absent, match_inputs
from fairkit.roles import same_value, value_text

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data import Dataset

_FIRST_ROWS = 4_096
_RANDOMIZED = "A randomized model: its decision probabilities are audited, exactly, not draws from them."


class OnnxModel:
    """An ONNX model: digest, inputs, outputs, embedded audit settings. Made by `OnnxModel.load`.

    Nothing in the file is executed besides the graph's standard operators, and no path outside the
    model's own folder is read.
    """

    def __init__(
        self, content: bytes, name: str, folder: Path | None = None, threads: int | None = None
    ) -> None:
        self.name = name
        self.content = content
        self.folder = folder
        self.proto: onnx.ModelProto = safety.parse(content, name)
        self.external = safety.external_files(self.proto, name, folder)
        self.sha256 = safety.digest(content)
        self.settings = safety.embedded_settings(self.proto)
        self._threads = threads
        self._session: Any = None

    @classmethod
    def load(cls, model: str | Path | bytes | onnx.ModelProto, *, threads: int | None = None) -> OnnxModel:
        """Load a model from a path, bytes or a proto.

        Parameters
        ----------
        model
            Where it is.
        threads
            How many threads onnxruntime may use; by default all cores.

        Raises
        ------
        ModelError
            No such file; not an ONNX model; data outside its folder; an operator that onnxruntime lacks.
        """
        if isinstance(model, str | Path):
            path = Path(model)
            if path.is_dir():
                raise ModelError(f"{str(path)!r} is a folder; give the .onnx file in it")
            loaded = cls(safety.read_bytes(path), path.name, path.parent, threads)
        else:
            content = model if isinstance(model, bytes) else model.SerializeToString()
            loaded = cls(content, "model in memory", None, threads)
        loaded.session  # noqa: B018 -- a model that cannot be run is refused here
        return loaded

    @property
    def session(self) -> Any:
        """The onnxruntime session."""
        if self._session is None:
            self._session = _start_session(self.content, self.name, self.folder, self.external, self._threads)
        return self._session

    @property
    def inputs(self) -> list[GraphInput]:
        """The graph's inputs."""
        return [GraphInput(i.name, i.type, _shape(i.shape)) for i in self.session.get_inputs()]

    @property
    def output_names(self) -> list[str]:
        """The graph's outputs."""
        return [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the graph on arrays; a fixed batch size is met by cutting and padding.

        Raises
        ------
        ModelError
            The graph fails on these rows.
        """
        names = list(self.output_names if outputs is None else outputs)
        fixed = self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else None
        rows = len(next(iter(feeds.values())))
        if fixed is None or fixed == rows:
            return dict(zip(names, self._run(names, feeds), strict=True))
        parts = [self._run(names, _cut(feeds, start, fixed)) for start in range(0, rows, fixed)]
        columns = zip(*parts, strict=True)
        return {name: _join(values, rows) for name, values in zip(names, columns, strict=True)}

    def _run(self, names: list[str], feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        try:
            values: list[Any] = self.session.run(names, dict(feeds))
        except Exception as error:
            raise ModelError(f"{self.name} fails on the data: {_first_line(error)}") from error
        return values

    def bind(self, dataset: Dataset, options: ModelOptions | None = None) -> Scorer:
        """Match inputs with columns, find the favorable score column, and say what was guessed.

        Raises
        ------
        DataError
            The model's inputs are not in the data.
        ModelError
            The outputs cannot be interpreted; the message names the option that helps.
        """
        return bind(self, dataset, options or ModelOptions())


def bind(model: OnnxModel, dataset: Dataset, options: ModelOptions) -> Scorer:
    """Do what `OnnxModel.bind` says."""
    plain = [graph_input for graph_input in model.inputs if graph_input.name != RANDOM_INPUT]
    features, given = _features(model, dataset)
    feeds, notes = match_inputs(plain, dataset.columns, features, given=given, table=dataset.name)
    columns = tuple(dict.fromkeys(column for feed in feeds for column in feed.columns))
    runner = _Runner(model, feeds)
    batch = next(dataset.batches(columns, rows=_FIRST_ROWS))
    first = runner.raw(batch.columns(columns))
    notes += _missing_text(feeds, batch.columns(columns))
    found = [
        described
        for output in model.session.get_outputs()
        if (described := reading.describe(output.name, output.type, first[output.name])) is not None
    ]
    settled, task, classes, told = _settle(model, found, first, dataset, options, batch.favorable)
    info = ModelInfo(name=model.name, sha256=model.sha256, task=task, notes=tuple(notes + told))
    return OnnxScorer(runner, settled, info, columns, classes)


class OnnxScorer:
    """An ONNX model bound to a dataset (see `fairkit.models.Scorer`)."""

    def __init__(
        self,
        runner: _Runner,
        settled: reading.Reading | None,
        info: ModelInfo,
        columns: tuple[str, ...],
        classes: tuple[Any, ...],
    ) -> None:
        self.info = info
        self.task: Task = info.task  # type: ignore[assignment]
        self.columns = columns
        self.classes = classes
        self.model = runner.model
        self._runner = runner
        self._reading = settled

    @property
    def reading(self) -> reading.Reading | None:
        """How the outputs are read; None for a randomized model."""
        return self._reading

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The graph's inputs, without ``u``, and the columns that fill them."""
        return tuple(self._runner.feeds)

    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns."""
        if self._reading is None:
            return self._randomized(self._runner.raw(columns, ["score", reading.DECISION_PROBABILITY]))
        return self._reading.read(self._runner.raw(columns, self._reading.wanted))

    def _randomized(self, values: Mapping[str, Any]) -> Predictions:
        score, chance = (
            np.asarray(values[n], float).reshape(-1) for n in ("score", reading.DECISION_PROBABILITY)
        )
        for name, array in (("scores", score), ("decision probabilities", chance)):
            check_scores(array, name)
        if chance.min() < -1e-6 or chance.max() > 1 + 1e-6:
            raise ModelError(f"{self.info.name}: decision_probability leaves [0, 1]")
        usable = score.min() >= -1e-6 and score.max() <= 1 + 1e-6
        return Predictions(score=np.clip(score, 0, 1) if usable else None, decision=np.clip(chance, 0, 1))


class _Runner:
    """The graph with its feeds."""

    def __init__(self, model: OnnxModel, feeds: Sequence[Feed]) -> None:
        self.model = model
        self.feeds = feeds
        self._random = next((i for i in model.inputs if i.name == RANDOM_INPUT), None)

    def raw(self, columns: Columns, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        rows = len(next(iter(columns.values())))
        arrays = {feed.input.name: feed.build(columns) for feed in self.feeds}
        if self._random is not None:
            shape = (rows, 1) if len(self._random.shape) > 1 else (rows,)
            arrays[RANDOM_INPUT] = np.zeros(shape, dtype=self._random.dtype)
        return self.model.run(arrays, outputs)


def _features(model: OnnxModel, dataset: Dataset) -> tuple[tuple[str, ...], bool]:
    """The features in order: the user's, else the model's own, else all columns without another role."""
    embedded = model.settings.get("features")
    if dataset.roles.features is None and embedded and set(embedded) <= set(dataset.columns):
        return tuple(embedded), True
    return dataset.features, dataset.roles.features is not None


def _missing_text(feeds: Sequence[Feed], columns: Columns) -> list[str]:
    texts = [feed.columns[0] for feed in feeds if feed.input.kind == "tensor(string)"]
    gaps = [name for name in texts if columns[name].dtype.kind == "O" and absent(columns[name]).any()]
    return [f"Missing text in {', '.join(gaps)} is given to the model as empty text."] if gaps else []


def _settle(
    model: OnnxModel,
    found: Sequence[reading.GraphOutput],
    first: Mapping[str, Any],
    dataset: Dataset,
    options: ModelOptions,
    favorable: NDArray[np.bool_] | None,
) -> tuple[reading.Reading | None, Task, tuple[Any, ...], list[str]]:
    """Decide what the outputs mean from the first batch."""
    names = {output.name for output in found}
    if {"score", reading.DECISION_PROBABILITY} <= names:
        chance = np.asarray(first[reading.DECISION_PROBABILITY])
        told = [_RANDOMIZED] if bool(((chance > 0) & (chance < 1)).any()) else []
        return None, choose_task(dataset, options, 2), (), told
    score = reading.choose_score_output(found, options)
    label = next((output for output in found if output.shape == "label"), None)
    if score is None and label is None:
        raise ModelError(f"{model.name} has no output that a prediction could be read from: {sorted(first)}")
    task = choose_task(dataset, options, None if score is None else score.width)
    values = None if score is None else reading.as_matrix(score, first[score.name])
    if values is not None:
        check_scores(values, "scores")
    kind, told_kind = ("label", None) if values is None else reading.guess_kind(values, task, options)
    told = [] if told_kind is None else [told_kind]
    classes = _model_classes(model, score, label, first)
    settled = reading.Reading(task=task, score=score, label=label, kind=kind, threshold=options.threshold)
    if task == "regression":
        return _regression(settled, model), task, (), told
    if task == "multiclass":
        settled, order, more = _multiclass(settled, classes, dataset)
        return settled, task, order, told + more
    marked = None if label is None or score is not None else _marked(label, first, classes[-1])
    settled, more = _binary(settled, classes, dataset, options, values, marked, favorable)
    return settled, task, (), told + more


def _replace(settled: reading.Reading, **changes: Any) -> reading.Reading:
    from dataclasses import replace

    return replace(settled, **changes)


def _model_classes(
    model: OnnxModel,
    score: reading.GraphOutput | None,
    label: reading.GraphOutput | None,
    first: Mapping[str, Any],
) -> list[Any]:
    """The model's class labels: from a ZipMap, from the graph's classifier, from its labels, else 0..K-1."""
    if score is not None and score.shape == "map":
        return list(first[score.name][0])
    named = safety.class_labels(model.proto)
    width = None if score is None else score.width
    if named and width in (None, 1, len(named)):
        return named
    if width is not None and width > 1:
        return list(range(width))
    if label is not None:
        values = np.unique(reading.as_matrix(label, first[label.name]).astype(str)).tolist()
        kind = np.asarray(first[label.name]).dtype.kind
        return (
            [int(v) for v in values]
            if kind in "iu"
            else [v == "True" for v in values]
            if kind == "b"
            else values
        )
    return [0, 1]


def _regression(settled: reading.Reading, model: OnnxModel) -> reading.Reading:
    if settled.score is None and settled.label is None:
        raise ModelError(f"{model.name} gives no number to audit")
    if settled.score is not None and settled.score.width != 1:
        raise ModelError(
            f"{model.name} gives {settled.score.width} numbers a row, but the label is a regression target; "
            "name the output with --score-output, or the task with --task"
        )
    return settled


def _binary(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    values: NDArray[np.float64] | None,
    labels: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[reading.Reading, list[str]]:
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    if values is None or values.ndim == 1:
        return _single(
            settled, classes, dataset, options, values if values is not None else labels, is_favorable
        )
    if options.favorable_class is not None:
        place, told = options.favorable_class, []
        if not 0 <= place < values.shape[1]:
            raise ModelError(
                f"favorable_class={place}, but the model scores {values.shape[1]} classes, from 0"
            )
    else:
        found, sentence = reading.favorable_column(classes, label_values, favorable, values, is_favorable)
        place, told = found, [sentence]
    return _replace(settled, place=place, positive=_label_for(settled, classes, place)), told


def _single(
    settled: reading.Reading,
    classes: list[Any],
    dataset: Dataset,
    options: ModelOptions,
    evidence: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[reading.Reading, list[str]]:
    """A bare score, logit or label: the model's labels decide, else convention and ranking."""
    favorable, label_values = dataset.roles.favorable, dataset.profile.label_values
    told: list[str] = []
    named = [i for i, value in enumerate(classes) if same_value(value, favorable)]
    theirs = {value_text(value) for value in classes} & {value_text(value) for value in label_values}
    positive = None
    if options.favorable_class is not None:
        place = options.favorable_class
    elif settled.label is not None and theirs:
        place = named[0] if named else 1
        positive = None if named else favorable  # the first rows were all given the other label
    else:
        place, told = _bare(settled, label_values, favorable, evidence, is_favorable)
    if positive is None and len(classes) > place:
        positive = classes[place]
    if settled.score is None and positive is None:
        raise ModelError(
            f"the model's labels {classes} do not tell which is the favorable label {favorable!r}; "
            "relabel the data as the model was trained, or say --favorable-class"
        )
    label = settled.label if positive is not None else None
    return _replace(settled, place=place, positive=positive, label=label), told


def _bare(
    settled: reading.Reading,
    label_values: Sequence[Any],
    favorable: Any,
    evidence: NDArray[np.float64] | None,
    is_favorable: NDArray[np.bool_] | None,
) -> tuple[int, list[str]]:
    """Tell whether a number without a name is about the favorable label.

    Training code makes the second of two labels the class 1. Where that is the favorable one there is no
    question; else which of the two ranks higher tells, and failing that class 1 of labels 0 and 1.
    """
    what = "label" if settled.score is None else "score"
    if len(label_values) != 2 or same_value(label_values[1], favorable):
        told = f"The model's {what} is read as that of the favorable label (--favorable-class 0 reverses it)."
        return 1, [told]
    higher = None
    if evidence is not None and is_favorable is not None:
        higher = reading.ranks_higher(evidence, is_favorable)
    other = value_text(label_values[1])
    if higher is None and not same_value(label_values[1], 1):
        higher = True
    if higher:
        told = f"The model's {what} is read as that of the favorable label {favorable!r}, not of {other!r}"
        return 1, [f"{told} (--favorable-class 0 reverses it)."]
    told = f"The model's {what} is read as that of {other!r} and turned to the favorable label {favorable!r}"
    return 0, [f"{told} (--favorable-class 1 leaves it as it is)."]


def _marked(label: reading.GraphOutput, first: Mapping[str, Any], value: Any) -> NDArray[np.float64] | None:
    """Which rows of the first batch the model gives the label; None where the kinds differ."""
    labels = reading.as_matrix(label, first[label.name])
    if labels.dtype.kind != "O" and isinstance(value, str):
        return None
    return reading.equals(labels, value)


def _label_for(settled: reading.Reading, classes: list[Any], place: int) -> Any:
    return None if settled.label is None else classes[place]


def _multiclass(
    settled: reading.Reading, classes: list[Any], dataset: Dataset
) -> tuple[reading.Reading, tuple[Any, ...], list[str]]:
    """Line the model's classes up with the label's values."""
    label_values = list(dataset.profile.label_values) or list(classes)
    texts = [value_text(value) for value in label_values]
    told: list[str] = []
    if {value_text(value) for value in classes} <= set(texts) or not dataset.profile.label_values:
        places = tuple(texts.index(value_text(value)) for value in classes)
    elif len(classes) == len(texts) and [value_text(c) for c in classes] == [
        str(i) for i in range(len(classes))
    ]:
        places = tuple(range(len(texts)))
        told = [f"The model's classes 0 to {len(texts) - 1} are read as {', '.join(texts)}, in this order."]
    else:
        unknown = next(value_text(value) for value in classes if value_text(value) not in texts)
        hint = did_you_mean(unknown, texts, what=f"values of {dataset.roles.label!r}")
        raise DataError(f"the model's class {unknown!r} is not among the label's values. {hint}")
    if settled.score is not None and len(places) != len(texts):
        absent = ", ".join(text for i, text in enumerate(texts) if i not in places)
        raise ModelError(
            f"the label has values that the model does not score: {absent}; leave those rows out"
        )
    index = {value_text(value): place for value, place in zip(classes, places, strict=True)}
    return _replace(settled, class_places=places, label_index=index), tuple(label_values), told


def _start_session(
    content: bytes, name: str, folder: Path | None, external: Sequence[Path], threads: int | None
) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    source: Any = content
    if external and folder is not None:
        source = str(folder / name)
    try:
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(_session_message(error, name)) from error


def _session_message(error: Exception, name: str) -> str:
    text = _first_line(error)
    if "is not a registered function/op" in text or "No Op registered" in text or "not a registered" in text:
        return (
            f"{name} uses an operator that onnxruntime does not know: {text}. "
            "Export the model with standard operators, or with an opset that the installed onnxruntime has"
        )
    return f"onnxruntime refuses {name}: {text}. Check it with onnx.checker, or export it again"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].strip() if str(error).strip() else type(error).__name__


def _shape(dims: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in dims)


def _cut(feeds: Mapping[str, NDArray[Any]], start: int, size: int) -> dict[str, NDArray[Any]]:
    """Take `size` rows from `start`, repeating the last row where there are fewer."""
    places = np.minimum(np.arange(start, start + size), len(next(iter(feeds.values()))) - 1)
    return {name: array[places] for name, array in feeds.items()}


def _join(values: Sequence[Any], rows: int) -> Any:
    if isinstance(values[0], list):
        return [row for part in values for row in part][:rows]
    return np.concatenate([np.atleast_1d(value) for value in values])[:rows]
