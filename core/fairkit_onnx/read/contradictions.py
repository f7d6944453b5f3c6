"""What ends an audit, and what is only reported, where a graph's outputs say different things of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit_onnx.read.alone import rows_of
from fairkit_onnx.read.nodes import ancestors
from fairkit_onnx.read.rivals import ROUNDING, argmax_misses, compare_rival, crossed, lead

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.models.scorer import Predictions
    from fairkit.settings import ModelOptions
    from fairkit_onnx.read.graph import Graph
    from fairkit_onnx.read.outputs import GraphOutput, Reading
    from fairkit_onnx.read.rivals import Rival


TIED = 0.1
"""With a larger share of rows on which several classes have the largest score, scores say nothing about the label."""


@dataclass(slots=True)
class Witness:
    """Compares a graph's outputs with those that are audited, on the first rows and on every batch after them."""

    name: str  # the model, and how the audited outputs are read
    settled: Reading  # the model, and how the audited outputs are read
    others: list[GraphOutput]
    ours: bool  # whether the decision is one of fairkit's own rules, which need not follow one threshold of the score
    unaudited: dict[str, str] = field(default_factory=dict)
    _bounds: list[float] = field(default_factory=lambda: [-np.inf, np.inf])
    _follows: bool = True

    def examine(
        self,
        model: Graph,
        values: Mapping[str, Any],
        predictions: Predictions,
        drawn: NDArray[np.float64] | None,
        options: ModelOptions,
    ) -> list[str]:
        """Compare on the first rows."""
        notes = self._score_and_label(model, values, predictions, options)
        rivals, silent = [], []
        for output in self.others:
            rival = compare_rival(output, values[output.name], self.settled, predictions, drawn)
            if rival.rows is None:
                silent.append(output.name)
                self.unaudited[output.name] = _why(output, values[output.name])
            elif not rival.rows:
                rivals.append(output)
            elif _named(rival, options, self.settled):
                notes.append(self._overruled(rival, rows_of(predictions)))
                self.unaudited[output.name] = f"it says otherwise on {rival.rows:,} of {rows_of(predictions):,} rows"
            else:
                raise self._contradiction(rival, rows_of(predictions))
        self.others = rivals
        if silent:
            shown = ", ".join(map(repr, silent))
            notes.append(f"Outputs that hold no decision or score that could be compared are not audited: {shown}.")
        return notes

    def check(self, values: Mapping[str, Any], predictions: Predictions, drawn: NDArray[np.float64] | None) -> None:
        """Compare on one more batch."""
        for output in self.others:
            rival = compare_rival(output, values[output.name], self.settled, predictions, drawn)
            if rival.rows:
                raise self._contradiction(rival, rows_of(predictions))
        if self._one_threshold(predictions):
            self._widen(predictions)
            low, high = self._bounds
            if low > high + ROUNDING:
                raise self._no_threshold(1, rows_of(predictions))

    def _one_threshold(self, found: Predictions) -> bool:
        """Whether decisions come from a label output that one threshold of the score must explain."""
        plain = self.settled.task == "binary" and self.settled.cut is None and not self.ours
        return plain and found.score is not None and self._follows

    def _widen(self, predictions: Predictions) -> None:
        assert predictions.score is not None and predictions.decision is not None  # noqa: PT018, S101 -- asked for
        taken = predictions.decision >= 0.5
        if taken.any():
            self._bounds[1] = min(self._bounds[1], float(predictions.score[taken].min()))
        if not taken.all():
            self._bounds[0] = max(self._bounds[0], float(predictions.score[~taken].max()))

    def _score_and_label(
        self, model: Graph, values: Mapping[str, Any], predictions: Predictions, options: ModelOptions
    ) -> list[str]:
        """Compare the audited decisions with the audited scores."""
        label, score = self.settled.label, self.settled.score
        if label is None or score is None:
            return []
        if self.settled.task == "multiclass":
            return self._classes(model, predictions, options)
        if self.settled.cut is not None:  # the user's threshold decides; the label is told about
            return self._unused_label(values, predictions)
        notes = self._decisions(label.name, score.name, predictions, options)
        return notes or self._flat(score.name, values[score.name], predictions)

    def _decisions(self, label: str, score: str, predictions: Predictions, options: ModelOptions) -> list[str]:
        if self.settled.task != "binary" or predictions.score is None or predictions.decision is None:
            return []
        rows = crossed(predictions.score, predictions.decision)[0] if self.settled.chance is None else 0
        if rows and not self.ours and options.decision_output is None:
            raise self._no_threshold(rows, len(predictions.score))
        if rows:
            self._follows = False  # the user has named this decision although no threshold explains it
            told = f"On {rows:,} of the first {len(predictions.score):,} rows no threshold of {score!r} explains "
            return [f"{told}the output {label!r}, which is audited as the decision."]
        return []

    def _unused_label(self, values: Mapping[str, Any], found: Predictions) -> list[str]:
        label = self.settled.label
        assert label is not None  # noqa: S101 -- asked for
        rival = compare_rival(label, values[label.name], self.settled, found, None)
        return [self._overruled(rival, rows_of(found))] if rival.rows else []

    def _classes(self, model: Graph, predictions: Predictions, options: ModelOptions) -> list[str]:
        label, score = self.settled.label, self.settled.score
        assert label is not None and score is not None  # noqa: PT018, S101 -- asked for
        if predictions.probabilities is None or predictions.predicted is None:
            return []
        rows = argmax_misses(predictions.probabilities, predictions.predicted)
        if not rows:
            return self._tied(score.name, predictions.probabilities)
        of = f"On {rows:,} of the first {len(predictions.predicted):,} rows"
        told = f"{of} the output {label.name!r} is not the class that {score.name!r} finds most probable"
        if options.decision_output is None and not _one_classifier(model, label.name, score.name):
            raise ModelError(
                f"{self.name}: {told[0].lower()}{told[1:]}; say which is served: `decision_output={label.name}`"
            )
        return [f"{told}. The output {label.name!r} is audited."]

    def _tied(self, score: str, probabilities: NDArray[np.float64]) -> list[str]:
        """Name scores as not audited whose largest number stands for several classes: they agree with any label."""
        if probabilities.shape[1] < 2:
            return []
        tied = int((lead(probabilities) <= ROUNDING).sum())
        if tied <= TIED * len(probabilities):
            return []
        share = f"{tied:,} of {len(probabilities):,} rows"
        return self._leave_out(score, f"its largest number is that of several classes on {share}")

    def _flat(self, score: str, raw: Any, found: Predictions) -> list[str]:
        """Name scores as not audited that differ from row to row, and are read as one probability for all."""
        if isinstance(raw, list) or found.score is None or np.ptp(found.score) > ROUNDING:
            return []
        numbers = np.asarray(raw)
        if numbers.dtype.kind != "f" or not np.ptp(numbers, axis=0).any():
            return []
        return self._leave_out(score, "its numbers differ from row to row, and are read as one score for all")

    def _leave_out(self, score: str, what: str) -> list[str]:
        why = f"{what}: it agrees with any label"
        self.unaudited[score] = why
        return [f"The output {score!r} is not audited: {why}."]

    def _overruled(self, rival: Rival, rows: int) -> str:
        what = "decides otherwise" if rival.decides else "gives another score"
        return f"The output {rival.name!r} {what} on {rival.rows:,} of the first {rows:,} rows and is not audited."

    def _contradiction(self, rival: Rival, rows: int) -> ModelError:
        settled = self.settled
        audited = settled.served["decision" if rival.decides else "score"] or settled.served["score"]
        named = "decision_output" if rival.decides and settled.cut is None else "score_output"
        other = "decision_output" if rival.decides else "score_output"
        what = "decide otherwise" if rival.decides else "give other scores"
        return ModelError(
            f"{self.name} contradicts itself: the outputs {audited!r} and {rival.name!r} {what} on {rival.rows:,} of "
            f"{rows:,} rows. Say which one is served: `{named}={audited}`{_and_cut(settled, named)}, or "
            f"`{other}={rival.name}`"
        )

    def _no_threshold(self, rows: int, of: int) -> ModelError:
        label, score = self.settled.label, self.settled.score
        assert label is not None and score is not None  # noqa: PT018, S101 -- asked for
        return ModelError(
            f"{self.name} contradicts itself: on at least {rows:,} of {of:,} rows the output {label.name!r} decides "
            f"otherwise than any threshold of the output {score.name!r}. Say which one is served: "
            f"`decision_output={label.name}`, or `score_output={score.name}` with `threshold=0.5`"
        )


def _why(output: GraphOutput, value: Any) -> str:
    """Say why an output could not be compared with what is audited."""
    if output.shape == "matrix":
        return f"{output.width} numbers a row could be a decision"
    if output.shape == "label":
        return f"{len(np.unique(np.asarray(value).astype(str))):,} different values could hold a decision"
    return "it holds nothing that could be compared with what is audited"


def _and_cut(settled: Reading, named: str) -> str:
    by_score = settled.by_score
    return f" with `threshold={by_score.value:g}`" if by_score is not None and named == "score_output" else ""


def _named(rival: Rival, options: ModelOptions, settled: Reading) -> bool:
    """Whether the user has said what is served in place of the rival."""
    by_score = options.score_output is not None
    if not rival.decides or settled.cut is not None:
        return by_score or options.threshold is not None
    return options.decision_output is not None


def _one_classifier(model: Graph, label: str, score: str) -> bool:
    """Whether one support vector classifier gives both, which votes for the one and fits the other."""
    graph = model.proto.graph
    voters = [
        {node.output[0] for node in ancestors(graph, [name]) if node.op_type == "SVMClassifier"}
        for name in (label, score)
    ]
    return bool(voters[0] & voters[1])
