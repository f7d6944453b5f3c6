"""Which of a graph's outputs are audited: those that the user names, else those that the file itself declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, did_you_mean
from fairkit_onnx.read import outputs as reading
from fairkit_onnx.read.members import MIXTURE_KEY
from fairkit_onnx.read.outputs import DECISION, DECISION_PROBABILITY, SCORE, GraphOutput

if TYPE_CHECKING:
    import onnx

    from fairkit.settings import ModelOptions
    from fairkit_onnx.read.graph import Graph


RULE_KEY = "fairkit.rule"
"""The metadata entry that says in words and numbers what rule a repair appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The outputs that an audit reads."""

    score: GraphOutput | None  # scores; None where there are none
    label: GraphOutput | None  # decisions, or classes; None where decisions are made from scores
    chance: GraphOutput | None = None


def is_ours(proto: onnx.ModelProto) -> bool:
    """Tell whether the file has fairkit's own metadata, without which no model counts as randomized."""
    from fairkit_onnx.read.safety import embedded_settings

    return bool(embedded_settings(proto)) or any(entry.key == MIXTURE_KEY for entry in proto.metadata_props)


def has_rule(proto: onnx.ModelProto) -> bool:
    """Tell whether a repaired file decides by a rule of its own on the scores of the model before."""
    return any(entry.key == RULE_KEY for entry in proto.metadata_props)


def own_rule(model: Graph, options: ModelOptions) -> tuple[ModelOptions, list[str]]:
    """Let a repaired file keep its rule: at a threshold its scores would decide as the model before does."""
    if options.threshold is None or options.score_output is not None or not has_rule(model.proto):
        return options, []
    told = f"The repaired file decides by its own rule; the threshold {options.threshold:g} is not applied to it"
    return replace(options, threshold=None), [f"{told} (`score_output=score` decides by it)."]


def choose_served(
    model: Graph, outputs: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions
) -> Served:
    """Find the outputs to audit."""
    by_name = {output.name: output for output in outputs}
    chance = by_name.get(DECISION_PROBABILITY) if is_ours(model.proto) and SCORE in by_name else None
    if options.decision_output not in (None, DECISION, DECISION_PROBABILITY):
        chance = None
    if chance is None:
        outputs = _with_flag(outputs, first, options)
        label = _label(outputs, first, options)
        rest = [output for output in outputs if label is None or output.name != label.name]
        score = reading.choose_score_output(outputs if options.score_output else rest, options)
        return Served(score=score, label=label)
    score = by_name[SCORE] if options.score_output is None else reading.choose_score_output(outputs, options)
    ours = score is by_name[SCORE] and options.score_kind is None
    if ours and not reading.are_chances(np.asarray(first[SCORE], dtype=np.float64)):
        score = None  # no probabilities: metrics of scores have nothing to say about them
    if options.threshold is not None:
        return Served(score=score, label=None)
    label = by_name.get(DECISION)
    drawn = np.asarray(first[DECISION_PROBABILITY], dtype=np.float64)
    if label is None and bool(((drawn > 0) & (drawn < 1)).any()):
        raise ModelError(
            f"{model.name} has chances of a favorable decision strictly between 0 and 1, but no output "
            f"{DECISION!r} that draws by them; export it again"
        )
    return Served(score=score, label=label, chance=chance)


def _with_flag(outputs: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions) -> list[GraphOutput]:
    """Take a column of numbers 0 and 1 beside one column of scores for the decision that it is.

    Only where nothing else could be the decision, and the user names no output.
    """
    columns = [output for output in outputs if output.shape == "column"]
    flags = [output for output in columns if is_flag(first[output.name])]
    named = options.decision_output or options.score_output
    if named or len(columns) != len(outputs) or len(flags) != 1 or len(columns) != 2:
        return list(outputs)
    return [replace(output, shape="label") if output is flags[0] else output for output in outputs]


def _label(found: Sequence[GraphOutput], first: Mapping[str, Any], options: ModelOptions) -> GraphOutput | None:
    if options.decision_output is None:
        return next((output for output in found if output.shape == "label"), None)
    by_name = {output.name: output for output in found}
    name = options.decision_output
    if name not in by_name:
        hint = did_you_mean(name, by_name, what="outputs")
        raise ModelError(f"the model has no output {name!r} that could hold decisions. {hint}")
    chosen = by_name[name]
    if chosen.shape == "label":
        return chosen
    if chosen.shape != "column" or not is_flag(first[name]):
        raise ModelError(
            f"the output {name!r} holds scores, not decisions; audit decisions made from it with "
            f"`score_output={name}` with `threshold=0.5`"
        )
    return replace(chosen, shape="label")


def is_flag(values: Any) -> bool:
    """Tell whether numbers are zeros and ones only, so that they can be decisions."""
    numbers = np.asarray(values)
    return bool(np.isin(numbers, (0, 1)).all())
