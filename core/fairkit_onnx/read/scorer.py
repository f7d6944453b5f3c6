"""An ONNX model bound to a dataset: columns in, predictions out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.roles import shortened
from fairkit.errors import DataError, ModelError
from fairkit.models.column_names import encoded
from fairkit.models.python import of_two_classes
from fairkit.models.scorer import Columns, NotFiniteError, Predictions, check_scores
from fairkit.results.report import ModelInfo
from fairkit.support.timings import phase
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.feeds import RANDOM_INPUT, Feed, GraphInput, absent, guessed_order, match_inputs
from fairkit_onnx.read.output_meaning import settle
from fairkit_onnx.read.outputs import MEMBER_SCORES, has_rule, is_ours
from fairkit_onnx.read.runner import Probe, Runner, shown_of

if TYPE_CHECKING:
    import onnx

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.settings import ModelOptions
    from fairkit_onnx.plain import Shown
    from fairkit_onnx.read.graph import Graph

_FIRST_ROWS = 4_096
_FLOAT16 = 65_504
RARE, RARE_ROWS = 0.001, 1_000
"""A label output that gives the favorable value to a smaller share of at least so many rows is doubted."""
_MIXTURE = "A randomized model: all its members are audited with their weights, exactly, not draws from them."


def bind(model: Graph, dataset: Dataset, options: ModelOptions, *, only_scores: bool = False) -> OnnxScorer:
    """Do what `OnnxModel.bind` says; `only_scores`: nobody will use the model's decisions, whatever they say."""
    options = of_two_classes(options, dataset)
    runner, notes = runner_of(model, dataset, options)
    notes += [model.remark] if model.remark else []
    columns = runner.columns
    batch = dataset.read(columns, _FIRST_ROWS)
    cells = batch.columns(columns)
    arrays = runner.arrays(cells)
    first = model.run(arrays)
    notes += _missing_text(runner.feeds, cells)
    outputs = [
        described
        for name, kind in model.outputs
        if (described := reading.describe(name, kind, first[name])) is not None
    ]
    try:
        settled, classes, remarks = settle(model, outputs, first, dataset, options, batch)
    except NotFiniteError as error:
        raise _explained(error, cells) from error
    if runner.shares is not None:
        remarks = [*remarks, _MIXTURE]
    info = ModelInfo(name=model.name, sha256=model.sha256, task=settled.task)
    scorer = OnnxScorer(runner, settled, info, classes, shown_of(model, arrays))
    scorer.told = options.favorable_class is not None or options.classes is not None
    understood = scorer.understand(first)
    guessed = [feed for feed in runner.feeds if feed.guessed]
    scorer.warnings = tuple(guessed_order(guessed, cells, understood, batch.favorable))
    serving: dict[str, Any] = {}
    if not only_scores:
        runner.drawn(first, settled)
        serving = {"outputs": _unaudited(first, scorer, understood), "inputs": _never_fed(model.proto, arrays)}
        for key, what in (("outputs", "not audited"), ("inputs", "never fed")):
            reasons = [f"{name!r} ({why})" for name, why in serving[key].items()]
            remarks += (
                [f"{key.capitalize()} of the file that were {what}: {shortened(reasons, most=4)}."] if reasons else []
            )
        regression = settled.task == "regression"
        scorer.probe = Probe(runner, scorer.wanted, scorer.understand, scorer.shown, numbers=regression)
        probed = scorer.probe.examine(arrays, understood, batch.rows)
        scorer.doubt = probed.doubt
        remarks += [*(scorer.shown.notes if model.content is not None else ()), *probed.notes]
        serving = {key: value for key, value in serving.items() if value}
        serving |= {"rows": scorer.shown.to_dict(), "probed": probed.to_dict()}
    scorer.info = replace(scorer.info, notes=tuple(notes + remarks), outputs=settled.served, serving=serving)
    return scorer


def runner_of(model: Graph, dataset: Dataset, options: ModelOptions | None = None) -> tuple[Runner, list[str]]:
    """Match the inputs with columns, and say what was guessed; ``u`` is a draw only in a file of ours."""
    ours = is_ours(model.proto)
    plain = [i for i in model.inputs if not (ours and i.name == RANDOM_INPUT)]
    features, declared = _features(model, dataset)
    try:
        feeds, notes = match_inputs(
            plain,
            dataset.columns,
            features,
            declared=declared,
            table=dataset.name,
            rename=options.rename if options else None,
        )
    except DataError as error:
        hint = _encoded(plain, features, dataset)
        if hint:
            raise DataError(f"{error}{hint}") from error
        if ours or RANDOM_INPUT not in {graph_input.name for graph_input in plain}:
            raise
        raise DataError(
            f"{error} (The input {RANDOM_INPUT!r} is a random draw only in models that fairkit exported, which say "
            "so in their metadata.)"
        ) from error
    if not ours:
        dataset.spell([name for feed in feeds if feed.input.kind == "tensor(string)" for name in feed.columns])
    return Runner(model, feeds, ours=ours), notes


def _encoded(inputs: Sequence[GraphInput], features: Sequence[str], dataset: Dataset) -> str:
    """Say that the inputs look like the features after a one-hot encoding, where they do."""
    widths = [entry.width for entry in inputs if entry.width is not None]
    if len(inputs) != 1 or not widths or widths[0] == len(features):
        return ""
    batch = dataset.read(features, _FIRST_ROWS)
    cells = {name: batch.column(name) for name in features}
    levels = {n: len(set(values.tolist()) - {None}) for n, values in cells.items() if values.dtype.kind == "O"}
    return encoded(widths[0], features, levels)


def _unaudited(first: Mapping[str, Any], scorer: OnnxScorer, predictions: Predictions) -> dict[str, str]:
    """Return the file's outputs that somebody could serve and that are not audited, with why."""
    settled = scorer.reading
    read = {*settled.audited, *scorer.extra}
    rare = _rare(settled, predictions)
    doubted = {} if rare is None or settled.label is None else {settled.label.name: rare}
    return dict.fromkeys([name for name in first if name not in read], "another output is audited") | doubted


def _never_fed(proto: onnx.ModelProto, fed: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs that have a default and that the audit did not feed, with what they hold."""
    defaults = {tensor.name: tensor for tensor in proto.graph.initializer}
    return {
        entry.name: f"its default has {math.prod(defaults[entry.name].dims):,} numbers"
        for entry in proto.graph.input
        if entry.name in defaults and entry.name not in fed
    }


def _rare(settled: reading.Reading, predictions: Predictions) -> str | None:
    """Say that a label output hardly ever gives the favorable value: another value may be the one that is served."""
    if settled.label is None or settled.cut is not None or predictions.decision is None or settled.chance is not None:
        return None
    rows, taken = len(predictions.decision), int((predictions.decision >= 0.5).sum())
    if rows < RARE_ROWS or taken >= RARE * rows:
        return None
    return f"it gives the favorable value {settled.positive!r} on {taken} of the first {rows:,} rows only: is it that?"


class OnnxScorer:
    """An ONNX model bound to a dataset (see `fairkit.models.scorer.Scorer`)."""

    def __init__(
        self, runner: Runner, settled: reading.Reading, info: ModelInfo, classes: tuple[Any, ...], shown: Shown
    ) -> None:
        self.info = info
        self.task: Task = settled.task
        self.columns = runner.columns
        self.classes = classes
        self.model = runner.model
        self.shares = runner.shares
        self.own_rule = has_rule(runner.model.proto)
        """Whether a repair's own rule decides, which need not follow the score's half."""
        self.probe: Probe | None = None
        self.doubt: str | None = None
        """Why there may be no verdict."""
        self.told = False
        self.warnings: tuple[str, ...] = ()
        self.reading = settled
        """How the outputs are read."""
        self.shown = shown
        """What is shown of the file for all batches and inputs."""
        self._runner = runner

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The graph's inputs, without ``u``, and the columns that fill them."""
        return tuple(self._runner.feeds)

    @property
    def wanted(self) -> list[str]:
        """The outputs that the graph must compute."""
        return list(dict.fromkeys([*self.reading.wanted, *self.extra]))

    @property
    def extra(self) -> tuple[str, ...]:
        """The outputs that a mixture is measured by, besides those that are read."""
        return self._runner.extra

    @phase("score")
    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns."""
        arrays = self._runner.arrays(columns)
        values = self.model.run(arrays, self.wanted)
        self.reading.check_rows(values, len(next(iter(columns.values()))), self.info.name)
        try:
            predictions = self.understand(values)
        except NotFiniteError as error:
            raise _explained(error, columns) from error
        self._runner.drawn(values, self.reading)
        if self.probe is not None:
            self.probe.spot(arrays, predictions)
        return predictions

    def understand(self, values: Mapping[str, Any]) -> Predictions:
        """Read predictions off the graph's outputs."""
        outputs = self.reading.read(values)
        return outputs if self.shares is None else self._with_members(outputs, values[MEMBER_SCORES])

    def _with_members(self, predictions: Predictions, scores: Any) -> Predictions:
        """Put all that could have been drawn in the place of one draw."""
        assert self.shares is not None  # noqa: S101 -- asked for only then
        members = np.asarray(scores, dtype=np.float64)
        check_scores(members, "members' scores")
        if members.ndim != 2 or members.shape[1] != len(self.shares):
            raise ModelError(
                f"{self.info.name} has {len(self.shares)} weights in its metadata, but {MEMBER_SCORES} "
                f"has the shape {members.shape}"
            )
        decision = predictions.decision
        if self.reading.by_score is not None:
            decision = self.reading.by_score.holds(members) @ self.shares
        if self.reading.turned:
            members = 1 - members
        return replace(predictions, score=members @ self.shares, decision=decision, members=members, shares=self.shares)


def _features(model: Graph, dataset: Dataset) -> tuple[tuple[str, ...], bool]:
    """The features in order: the user's, else the model's own, else all columns without another role."""
    embedded = model.settings.get("features")
    if dataset.roles.features is None and embedded and set(embedded) <= set(dataset.columns):
        return tuple(embedded), True
    return dataset.features, dataset.roles.features is not None


def _explained(error: ModelError, columns: Columns) -> ModelError:
    """Return the error about scores that are no numbers, with what in the columns is the likely cause."""
    numbers = {name: values for name, values in columns.items() if values.dtype.kind in "if"}
    gaps = [name for name, values in numbers.items() if np.isnan(values).any()]
    large = [name for name, values in numbers.items() if np.nanmax(np.abs(values), initial=0) > _FLOAT16]
    text = f". Columns with missing values: {shortened(gaps, most=6)}" if gaps else ""
    text += (
        f". Columns beyond what float16 holds, if the graph computes in it: {shortened(large, most=6)}" if large else ""
    )
    return ModelError(f"{error}{text}")


def _missing_text(feeds: Sequence[Feed], columns: Columns) -> list[str]:
    texts = [feed.columns[0] for feed in feeds if feed.input.kind == "tensor(string)"]
    gaps = [name for name in texts if columns[name].dtype.kind == "O" and absent(columns[name]).any()]
    return [f"Missing text in {', '.join(gaps)} is given to the model as empty text."] if gaps else []
