"""Scores that are right on average in every group that a few conditions describe: corrections on top of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.capabilities import Capability
from fairkit.data.arrow_types import as_arrow, texts_as_arrow
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import FittedModel, Prediction
from fairkit.hookspecs import hookimpl
from fairkit.mitigators import Mitigator
from fairkit.parameters import parameter
from fairkit.results.findings import in_words
from fairkit.settings import ModelOptions
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.write.compose import Correction, Corrections, correct, logit
from fairkit_onnx.write.encode import as_float32
from fairkit_onnx.write.export import BaseModel, as_input
from fairkit_onnx.write.rules import GroupColumn
from fairkit_subgroups.searching.cells import ColumnCells, Family, Tallies, make_cells, tally_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import onnx
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import Run
    from fairkit.mitigators import Stage
    from fairkit.progress import Progress
    from fairkit_onnx.file import OnnxModel

    Array = NDArray[np.float64]


@hookimpl
def fairkit_mitigators() -> list[type[Mitigator]]:
    """Return the mitigator."""
    return [Multicalibrate]


# The method: score the rows, put columns and score in cells, learn corrections, write one file.


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
        from fairkit_onnx.file import OnnxModel
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
        names = named or [name for name in (*table.features, *sensitive) if name in table.columns]
        if not names:
            raise ParameterError("there is no column to describe groups by: name some in `columns`")
        return list(dict.fromkeys(names))

    def _learn(
        self,
        cells: FamilyCells,
        table: Table,
        scores: NDArray[np.float64],
        validation: Table | None,
        base: BaseModel,
        run: Run,
    ) -> Learned:

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
        for group, correction in zip(learned.groups, learned.corrections, strict=True):
            conditions = family.conditions(*group)
            corrections.append({"group": in_words(conditions), "conditions": conditions, "amount": correction.amount})
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

    rule = Corrections(columns=cells.columns, edges=cells.edges, corrections=())
    numbers = rule.codes(table.columns, scores)
    if not cells.edges:
        numbers = numbers[: len(cells.family.columns)]
    return LearningRows(cells.of(numbers), scores, table.target.astype(np.float64), table.row_weights())


def _some(part: LearningRows, keep: NDArray[np.bool_]) -> LearningRows:

    codes = np.ascontiguousarray(part.codes[:, keep])
    return LearningRows(codes, part.base[keep], part.outcome[keep], part.weights[keep])


def _notes(base: BaseModel, learned: Learned, left: Mapping[str, str]) -> tuple[str, ...]:
    notes: Sequence[str] = [f"Not used to describe groups: {name}: {reason}." for name, reason in left.items()]
    if learned.corrections:
        sentence = (
            f"{len(learned.corrections)} corrections; on rows that they were not learned from the log loss falls by "
        )
        sentence += f"{learned.gain:.2g} (standard error {learned.error:.1g})."
    else:
        sentence = (
            "The scores stay as they are: no correction surely lowers the log loss of rows it was not learned from."
        )
    return (*base.notes, sentence, *notes)


# Learning corrections: Newton steps of the log loss for one group after the other, until other rows gain no more.


PATIENCE = 15
"""So many steps without a gain on the other rows end the learning."""

SURE = 1.64
"""Standard errors by which the loss of the other rows must fall for the model to be changed at all."""


@dataclass(frozen=True, slots=True)
class LearningRows:
    """Rows to learn from, or to stop by."""

    codes: NDArray[np.uint8]
    base: Array
    outcome: Array
    weights: Array

    def losses(self, moved: Array) -> Array:
        """Return each row's log loss at a logit, shape [n]."""
        return np.asarray(np.logaddexp(0.0, moved) - self.outcome * moved)


@dataclass(frozen=True, slots=True)
class Learned:
    """The corrections, as steps of groups, and what became of the loss of the other rows."""

    corrections: tuple[Correction, ...]
    groups: tuple[tuple[int, int], ...]
    losses: tuple[float, ...]
    gain: float
    error: float


def learn(
    cells: FamilyCells,
    fit: LearningRows,
    stop: LearningRows,
    *,
    rounds: int,
    rate: float,
    shrinkage: float,
    share: float,
    progress: Progress,
) -> Learned:
    """Learn corrections."""
    from fairkit_subgroups.searching.tables import Residuals

    tables = Residuals(cells.family, fit.codes, fit.outcome, fit.weights)
    moved, stop_logits = logit(fit.base), logit(stop.base)
    tables.set(_sigmoid(moved))
    first = stop.losses(stop_logits)
    losses = [float(np.average(first, weights=stop.weights))]
    corrections: list[Correction] = []
    groups: list[tuple[int, int]] = []
    best, best_losses = 0, first
    for step in range(rounds):
        progress("correcting groups", step, rounds)
        candidate = tables.best(share * len(fit.base), shrinkage)
        if candidate is None or candidate.gain < 0.5:
            break
        amount = float(np.float32(rate * candidate.amount))
        layout = cells.family.places[candidate.table]
        conditions = tuple(cells.condition(*literal) for literal in layout.literals(candidate.number))
        corrections.append(Correction(conditions, amount))
        groups.append((candidate.table, candidate.number))
        rows = np.flatnonzero(cells.family.member(fit.codes, candidate.table, candidate.number))
        before = _sigmoid(moved[rows])
        moved[rows] += amount
        tables.move(rows, before, _sigmoid(moved[rows]))
        stop_logits[cells.family.member(stop.codes, candidate.table, candidate.number)] += amount
        now = stop.losses(stop_logits)
        losses.append(float(np.average(now, weights=stop.weights)))
        if losses[-1] < losses[best]:
            best, best_losses = step + 1, now
        if step + 1 - best >= PATIENCE:
            break
    gain, error = _gain(first - best_losses, stop.weights)
    if gain <= SURE * error:
        best = 0
    return Learned(tuple(corrections[:best]), tuple(groups[:best]), tuple(losses), gain, error)


def _gain(differences: Array, weights: Array) -> tuple[float, float]:
    mean = float(np.average(differences, weights=weights))
    square = float(np.sum((weights * (differences - mean)) ** 2))
    return mean, float(np.sqrt(square) / weights.sum())


def _sigmoid(moved: Any) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * moved) + 1))


# Raw columns in cells, numbered alike in memory and in the file that is written.


SCORE = "the model's score"
"""What the last column is called, in conditions."""


@dataclass(frozen=True, slots=True)
class FamilyCells:
    """The columns of the family: those of the table, then the base score."""

    family: Family  # of the columns and the score
    columns: tuple[GroupColumn, ...]
    edges: tuple[float, ...]  # of the score

    def of(self, numbers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Return cells, shape [d, n], of numbers: those from 1 come first, 0 is other text or missing."""
        out = []
        for cells, codes in zip(self.family.columns, numbers, strict=True):
            unknown = cells.plain if cells.other else cells.size - 1
            missing = codes == cells.plain + 1
            at = np.where(codes == 0, unknown, np.where(missing, cells.size - 1, codes - 1))
            out.append(at.astype(np.uint8))
        rows = len(out[0])
        return np.stack([*out, *[np.zeros(rows, dtype=np.uint8)] * (3 - len(out))])

    def condition(self, column: int, run: tuple[int, int]) -> tuple[int, int, int]:
        """Return a run of cells as numbers of the file: the column, the first and the last one."""
        cells, (first, last) = self.family.columns[column], run
        if cells.missing and first == last == cells.size - 1:
            return column, cells.plain + 1, cells.plain + 1
        if cells.other and last == cells.plain:  # any known value: other text has number 0
            return column, 0, cells.plain
        return column, first + 1, last + 1


def learn_cells(
    columns: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    base: NDArray[np.float64],
    *,
    share: float,
    bins: int,
    depth: int,
) -> tuple[FamilyCells, dict[str, str]]:
    """Make the cells of columns and of the base score."""
    rows = len(base)
    tallies = {name: tally_column(_arrow(columns[name], name)) for name in names}
    made, left = make_cells(Tallies(tallies, rows), rows, share=share, bins=bins, edges={})
    scored, _ = make_cells(Tallies({SCORE: tally_column(as_arrow(base))}, rows), rows, share=share, bins=bins, edges={})
    usable = [column for column in made if column.texts or column.plain > 1]
    left |= {column.name: "it has one value besides missing ones" for column in made if column not in usable}
    edges = tuple(scored[0].starts[1:]) if scored else ()
    family = Family((*usable, *scored), depth)
    return FamilyCells(family, tuple(_as_group(column) for column in usable), edges), left


def _as_group(cells: ColumnCells) -> GroupColumn:
    if cells.texts:
        return GroupColumn(name=cells.name, keys=cells.texts, missing=cells.missing)
    return GroupColumn(name=cells.name, edges=tuple(cells.starts[1:]), missing=cells.missing)


def _arrow(values: NDArray[Any], name: str) -> pa.Array:
    """Return a raw column; numbers as the file gets them, in single precision."""
    texts = values.dtype.kind in "OUS" and any(isinstance(value, str) for value in values[:1000].tolist())
    if not texts:
        return as_arrow(as_float32(values, name).astype(np.float64))
    return texts_as_arrow(np.array([value if isinstance(value, str) else None for value in values.tolist()], object))
