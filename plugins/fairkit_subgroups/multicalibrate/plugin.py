"""The method: score the rows, put columns and score in cells, learn corrections, write one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.capabilities import Capability
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import FittedModel, Prediction
from fairkit.mitigators import Mitigator
from fairkit.parameters.declare import parameter
from fairkit.results.conditions import in_words
from fairkit.settings import ModelOptions
from fairkit_onnx.write.correct import Corrections, correct
from fairkit_onnx.write.runtime import as_input

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit.mitigators import Stage
    from fairkit_onnx.model import OnnxModel
    from fairkit_onnx.write.base import BaseModel
    from fairkit_subgroups.multicalibrate.cells import FamilyCells
    from fairkit_subgroups.multicalibrate.learning import Learned, LearningRows

STOP_SHARE = 1 / 3
"""Without validation rows, this share of the rows says when to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set KEY=VALUE."""

    columns: tuple[str, ...] = parameter(
        (), help="Which features and sensitive columns describe groups; default: all of them."
    )
    depth: int = parameter(3, help="The most conditions of a group.", minimum=1, maximum=3)
    share: float = parameter(0.01, help="The least share of the rows that a group has.", minimum=0.001, maximum=0.5)
    bins: int = parameter(8, help="The most cells that numbers, and the score, are put in.", minimum=2, maximum=50)
    rounds: int = parameter(200, help="The most corrections.", minimum=1, maximum=5000)
    rate: float = parameter(0.3, help="The part of each step that is made.", above=0, maximum=1)
    shrinkage: float = parameter(
        20.0, help="How careful small groups are corrected: added to the variance of their outcomes.", minimum=0
    )
    threshold: float = parameter(
        0.5, help="The decision is favorable from this corrected score on.", minimum=0, maximum=1
    )
    score_output: str | None = parameter(None, help="The model's output that holds the scores.")
    score_kind: Literal["probability", "logit"] | None = parameter(
        None, help="What the scores are; a score outside [0, 1] must be declared."
    )
    favorable_class: int | None = parameter(
        None, help="Which column of the scores, from 0, is the favorable label's.", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedModel(FittedModel):
    """A base model with corrections of groups on top; nothing is decided by chance."""

    base: BaseModel
    rule: Corrections
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""
        base = self.base.scores(columns)
        score = self.rule.apply(base, self.rule.codes(columns, base))
        decided = score.astype(np.float32) >= np.float32(self.rule.threshold)
        return Prediction(score=score, decision_probability=decided.astype(np.float64))

    def to_onnx(self) -> onnx.ModelProto:
        """Return the base model's graph with the corrections appended."""
        base = self.base
        return base.extended(lambda proto: correct(proto, base.head, self.rule, inputs=base.column_inputs))

    def runner(self, proto: onnx.ModelProto) -> Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]:
        """Return a function from raw columns to the outputs of the graph."""
        from fairkit_onnx.model import OnnxModel
        from fairkit_onnx.read.outputs import DECISION_PROBABILITY, SCORE

        loaded = OnnxModel.load(proto, sandbox=self.base.model.sandbox)

        def run(columns: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
            feeds = self.base.feeds(columns)
            for column in self.rule.columns:
                if column.name not in self.base.column_inputs:
                    kind = "tensor(string)" if column.is_text else "tensor(float)"
                    feeds[column.name] = as_input(columns[column.name], kind)
            return loaded.run(feeds, [SCORE, DECISION_PROBABILITY])

        return run

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Search the same columns on the held-out rows, before and after."""
        return {
            "subgroups": {
                "columns": [column.name for column in self.rule.columns],
                "metrics": ["calibration_residual"],
                **{name: self.details[name] for name in ("depth", "share", "bins")},
            }
        }


class Multicalibrate(Mitigator):
    """Corrects the scores of groups until none of a few conditions, and of a range of the score, is off on average.

    Gradient boosting of the log loss whose learners are groups: each step finds, exactly among all conjunctions of at
    most `depth` conditions on the columns and on the base score, the one whose Newton step gains most, and makes a part
    of it (MCBoost, Hébert-Johnson et al. 2018; MCGrad boosts trees on features and score). Other rows say when to stop,
    and whether the model is changed at all. The file reads the named columns, also the sensitive ones among them.
    """

    name: ClassVar[str] = "multicalibrate"
    stage: ClassVar[Stage] = "post"
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    citation: ClassVar[str] = (
        "Hébert-Johnson, Kim, Reingold & Rothblum (2018), Multicalibration, ICML; Tax et al. (2025), MCGrad"
    )
    Parameters = Parameters  # type: ignore[assignment]
    capabilities: ClassVar[tuple[Capability, ...]] = (
        Capability(constraints=("calibration_in_the_large", "ecce"), reads_group=True, trainings=1),
    )

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> CorrectedModel:
        """Learn corrections of a model."""
        if model is None:
            raise ParameterError(f"{self.name} repairs a model: name its file with `model`")
        if table.task != "binary":
            raise DataError(f"{table.name}: {self.name} works on binary outcomes; name the favorable label")
        self.learner(run)
        from fairkit_onnx.write.base import BaseModel
        from fairkit_subgroups.multicalibrate.cells import learn_cells

        chosen = self.parameters
        base = BaseModel(model, table, self.model_options())
        scores = base.scores(table.columns)
        cells, left = learn_cells(
            table.columns, self._columns(table), scores, share=chosen.share, bins=chosen.bins, depth=chosen.depth
        )
        if not cells.columns:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left.items())
            raise DataError(f"{table.name}: no column can describe a group ({reasons}); name others in `columns`")
        cells.family.check_size(3, 1)
        learned = self._learn(cells, table, scores, validation, base, run)
        rule = Corrections(
            columns=cells.columns, edges=cells.edges, corrections=learned.corrections, threshold=chosen.threshold
        )
        return CorrectedModel(
            base=base, rule=rule, details=self._details(cells, learned, model), notes=_notes(base, learned, left)
        )

    def model_options(self) -> ModelOptions:
        """Return the options for the base model's outputs, from the method's parameters."""
        chosen = self.parameters
        return ModelOptions(
            task="binary",
            score_output=chosen.score_output,
            score_kind=chosen.score_kind,
            favorable_class=chosen.favorable_class,
        )

    def _columns(self, table: Table) -> list[str]:
        named = self.parameters.columns
        for name in named:
            if name not in table.columns:
                raise DataError(
                    f"{table.name} has no column {name!r} among its features and sensitive columns, which `columns` "
                    "names; make it a sensitive column to describe groups by it"
                )
        sensitive = [column for split in table.roles.sensitive for column in split.columns]
        found = named or [name for name in (*table.features, *sensitive) if name in table.columns]
        if not found:
            raise ParameterError("there is no column to describe groups by: name some in `columns`")
        return list(dict.fromkeys(found))

    def _learn(
        self,
        cells: FamilyCells,
        table: Table,
        scores: NDArray[np.float64],
        validation: Table | None,
        base: BaseModel,
        run: Run,
    ) -> Learned:
        from fairkit_subgroups.multicalibrate.learning import learn

        whole = _part(cells, table, scores)
        if validation is None:
            away = run.rng().random(len(scores)) < STOP_SHARE
            fit, stop = _some(whole, ~away), _some(whole, away)
        else:
            fit, stop = whole, _part(cells, validation, base.scores(validation.columns))
        chosen = self.parameters
        return learn(
            cells,
            fit,
            stop,
            rounds=chosen.rounds,
            rate=chosen.rate,
            shrinkage=chosen.shrinkage,
            share=chosen.share,
            progress=run.progress,
        )

    def _details(self, cells: FamilyCells, learned: Learned, model: OnnxModel) -> dict[str, Any]:
        chosen, family = self.parameters, cells.family
        corrections = []
        for group, one in zip(learned.groups, learned.corrections, strict=True):
            told = family.conditions(*group)
            corrections.append({"group": in_words(told), "conditions": told, "amount": one.amount})
        return {
            "base_model": model.sha256,
            "depth": chosen.depth,
            "share": chosen.share,
            "bins": chosen.bins,
            "corrections": corrections,
            "validation_losses": list(learned.losses),
            "validation_gain": learned.gain,
            "validation_gain_error": learned.error,
        }


def _part(cells: FamilyCells, table: Table, scores: NDArray[np.float64]) -> LearningRows:
    from fairkit_subgroups.multicalibrate.learning import LearningRows

    rule = Corrections(columns=cells.columns, edges=cells.edges, corrections=())
    numbers = rule.codes(table.columns, scores)
    if not cells.edges:
        numbers = numbers[: len(cells.family.columns)]
    return LearningRows(cells.of(numbers), scores, table.target.astype(np.float64), table.row_weights())


def _some(part: LearningRows, keep: NDArray[np.bool_]) -> LearningRows:
    from fairkit_subgroups.multicalibrate.learning import LearningRows

    codes = np.ascontiguousarray(part.codes[:, keep])
    return LearningRows(codes, part.base[keep], part.outcome[keep], part.weights[keep])


def _notes(base: BaseModel, learned: Learned, left: Mapping[str, str]) -> tuple[str, ...]:
    notes: Sequence[str] = [f"Not used to describe groups: {name}: {reason}." for name, reason in left.items()]
    if learned.corrections:
        told = f"{len(learned.corrections)} corrections; on rows that they were not learned from the log loss falls by "
        told += f"{learned.gain:.2g} (standard error {learned.error:.1g})."
    else:
        told = "The scores stay as they are: no correction surely lowers the log loss of rows it was not learned from."
    return (*base.notes, told, *notes)
