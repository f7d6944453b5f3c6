"""An ONNX model bound to a dataset: columns in, predictions out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.lists import shortened
from fairkit.errors import DataError, ModelError
from fairkit.models.classes import of_two_classes
from fairkit.models.renamed import encoded
from fairkit.models.scorer import Columns, NotFiniteError, Predictions, check_scores
from fairkit.results.subjects import ModelInfo
from fairkit.support.timings import phase
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.alone import Lone
from fairkit_onnx.read.contradictions import Witness
from fairkit_onnx.read.feeds import RANDOM_INPUT, Feed, GraphInput, absent, match_inputs
from fairkit_onnx.read.members import MEMBER_SCORES
from fairkit_onnx.read.offsets import offset_that_tells_groups
from fairkit_onnx.read.order import guessed_order
from fairkit_onnx.read.overflow import explained
from fairkit_onnx.read.rounding import Rounding, rounding_of
from fairkit_onnx.read.runner import Runner
from fairkit_onnx.read.served import is_ours
from fairkit_onnx.read.settle import settle
from fairkit_onnx.read.sums import largest_row
from fairkit_onnx.read.triggers import constant_inputs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
    from fairkit.settings import ModelOptions
    from fairkit_onnx.read.deciding import LabelRounding, LabelTrials
    from fairkit_onnx.read.graph import Graph

_FIRST_ROWS = 4_096
RARE, RARE_ROWS = 0.001, 1_000
"""A label output that gives the favorable value to a smaller share of at least so many rows is doubted."""
_MIXTURE = "A randomized model: all its members are audited with their weights, exactly, not draws from them."


def bind(model: Graph, dataset: Dataset, options: ModelOptions, *, only_scores: bool = False) -> OnnxScorer:
    """Do what `OnnxModel.bind` says; `only_scores`: nobody will use the model's decisions, whatever they say."""
    options = of_two_classes(options, dataset)
    runner, notes = runner_of(model, dataset, options)
    notes += [model.remark] if model.remark else []
    columns = runner.columns
    batch = next(dataset.batches(columns, rows=_FIRST_ROWS))
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
        raise explained(error, model.proto, cells) from error
    if runner.shares is not None:
        remarks = [*remarks, _MIXTURE]
    read = {*settled.wanted, *runner.extra}
    if settled.chance is not None:
        read.add(reading.SCORE)  # not read where it holds no probabilities
    others = [] if only_scores else [output for output in outputs if output.name not in read]
    witness = Witness(model.name, settled, others, runner.ours)
    scorer = OnnxScorer(runner, settled, ModelInfo(name=model.name, sha256=model.sha256, task=settled.task), classes)
    scorer.told = options.favorable_class is not None or options.classes is not None
    understood = scorer.understand(first)
    serving: dict[str, Any] = {"inputs": _never_fed(model.proto, arrays)}
    if serving["inputs"]:
        remarks.append(
            "Inputs with a default in the file, which were not fed: "
            + shortened(list(serving["inputs"]), most=4)
            + ". Whoever serves the model may feed them."
        )
    if not only_scores:
        remarks += witness.examine(model, first, understood, runner.drawn(first, settled), options)
        remarks += _unread(first, outputs)
        scorer.witness = witness
        unread = [name for name in first if name not in {output.name for output in outputs}]
        serving["outputs"] = witness.unaudited | dict.fromkeys(unread, "it is no column of a table")
        shared = offset_that_tells_groups(settled, first, batch.groups)
        for output, doubt in ((settled.label, _rare(settled, understood)), (settled.score, shared)):
            if output is not None and doubt is not None and output.name not in serving["outputs"]:
                remarks.append(doubt)
                serving["outputs"][output.name] = doubt
    scorer.lone = Lone(runner, scorer.wanted, scorer.understand)
    more, apart = scorer.lone.examine(arrays, understood, batch.rows)
    remarks += more
    if not only_scores and not runner.ours:
        scorer.rounding = rounding_of(runner, settled, arrays, understood, scorer.understand, scorer.wanted)
        if scorer.rounding is not None:
            serving["rounding"] = scorer.rounding.to_dict()
    remarks += constant_inputs(runner, cells, dataset, scorer.understand, scorer.wanted)
    guessed = [feed for feed in runner.feeds if feed.guessed]
    scorer.warnings = tuple(guessed_order(guessed, cells, understood, batch.favorable))
    scorer.info = replace(
        scorer.info,
        notes=tuple(notes + remarks),
        outputs=settled.served,
        serving={key: value for key, value in serving.items() if value} | {"rows": apart.to_dict()},
    )
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
    return Runner(model, feeds, ours=ours), notes


def _encoded(inputs: Sequence[GraphInput], features: Sequence[str], dataset: Dataset) -> str:
    """Say that the inputs look like the features after a one-hot encoding, where they do."""
    widths = [one.width for one in inputs if one.width is not None]
    if len(inputs) != 1 or not widths or widths[0] == len(features):
        return ""
    batch = next(dataset.batches(features, rows=_FIRST_ROWS))
    cells = {name: batch.column(name) for name in features}
    levels = {n: len(set(values.tolist()) - {None}) for n, values in cells.items() if values.dtype.kind == "O"}
    return encoded(widths[0], features, levels)


def _unread(first: Mapping[str, Any], found: Sequence[reading.GraphOutput]) -> list[str]:
    """Name the outputs of which nothing was understood."""
    known = {output.name for output in found}
    left = [repr(name) for name in first if name not in known]
    return [f"Outputs that are no column of a table are not audited: {', '.join(left)}."] if left else []


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
    return (
        f"The output {settled.label.name!r} gives the favorable value {settled.positive!r} on {taken} of the first "
        f"{rows:,} rows only. Is it the value that is served as the favorable decision?"
    )


class OnnxScorer:
    """An ONNX model bound to a dataset (see `fairkit.models.scorer.Scorer`)."""

    def __init__(self, runner: Runner, settled: reading.Reading, info: ModelInfo, classes: tuple[Any, ...]) -> None:
        self.info = info
        self.task: Task = settled.task
        self.columns = runner.columns
        self.classes = classes
        self.model = runner.model
        self.shares = runner.shares
        self.witness: Witness | None = None
        self.lone: Lone | None = None
        self.rounding: Rounding | LabelRounding | LabelTrials | None = None
        self.told = False
        self.warnings: tuple[str, ...] = ()
        self.ours = runner.ours
        """Whether the file is fairkit's own: its decisions need not follow one threshold of the score."""
        self.reading = settled
        """How the outputs are read."""
        self._runner = runner

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The graph's inputs, without ``u``, and the columns that fill them."""
        return tuple(self._runner.feeds)

    @property
    def wanted(self) -> list[str]:
        """The outputs that the graph must compute: those that are read, and those that are compared with them."""
        others = [] if self.witness is None else [output.name for output in self.witness.others]
        return list(dict.fromkeys([*self.reading.wanted, *self._runner.extra, *others]))

    @phase("score")
    def predict(self, columns: Columns) -> Predictions:
        """Score rows given as raw columns."""
        arrays = self._runner.arrays(columns)
        values = self.model.run(arrays, self.wanted)
        self.reading.check_rows(values, len(next(iter(columns.values()))), self.info.name)
        try:
            predictions = self.understand(values)
        except NotFiniteError as error:
            raise explained(error, self.model.proto, columns) from error
        drawn = self._runner.drawn(values, self.reading)
        if self.witness is not None:
            self.witness.check(values, predictions, drawn)
        if self.lone is not None:
            self.lone.spot(arrays, predictions)
        if self.rounding is None:
            return predictions
        near = self.rounding.undetermined(predictions, arrays)
        return replace(predictions, undetermined=near, largest=largest_row(arrays))

    def served(self, largest: Mapping[str, NDArray[np.float64]] | None) -> ModelInfo:
        """Return the model with what is known of it after the rows were scored, by the largest numbers among them."""
        if self.rounding is None or largest is None:
            return self.info
        rounding = self.rounding.over(largest).to_dict()
        return replace(self.info, serving={**self.info.serving, "rounding": rounding})

    @phase("score")
    def nearby(
        self, findings: Sequence[Finding], dataset: Dataset, metrics: Sequence[type[Metric]], confidence: float
    ) -> list[Finding]:
        """Add to findings what they are on rows next to the audited ones; see `fairkit_onnx.nearby`."""
        from fairkit_onnx.nearby import with_nearby

        return with_nearby(findings, self, dataset, metrics, confidence)

    def understand(self, values: Mapping[str, Any]) -> Predictions:
        """Read predictions off the graph's outputs."""
        found = self.reading.read(values)
        return found if self.shares is None else self._with_members(found, values[MEMBER_SCORES])

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


def _missing_text(feeds: Sequence[Feed], columns: Columns) -> list[str]:
    texts = [feed.columns[0] for feed in feeds if feed.input.kind == "tensor(string)"]
    gaps = [name for name in texts if columns[name].dtype.kind == "O" and absent(columns[name]).any()]
    return [f"Missing text in {', '.join(gaps)} is given to the model as empty text."] if gaps else []
