"""Predictions that are columns of the table: no model is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_arrow, as_numbers, codes_of
from fairkit.data.roles import PredictionRoles, require_columns, same_value, value_text
from fairkit.data.task import choose_task
from fairkit.errors import ModelError, ParameterError
from fairkit.models.column_names import favorable_values
from fairkit.models.python import FIRST_ROWS, ranks_higher
from fairkit.models.scorer import OWN, Columns, Cut, Predictions, Scale, told_scale
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit.support.timings import phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit.results.report import ModelInfo
    from fairkit.settings import ModelOptions

    Array = NDArray[np.float64]

UNSEEN = "No model was seen: the predictions are columns of the table."


class PredictedColumns:
    """Predictions that are columns of the table: a log of decisions, COMPAS's scores, a vendor's scores.

    Parameters
    ----------
    decision
        Column with binary decisions: 0 and 1, false and true, no and yes, or values of the label. Where 1 is not
        clearly the favorable decision (the label's favorable value is 0, say), `favorable` must say which one is.
    score
        Column with the probability of the favorable label (binary) or the predicted number (regression).
    decision_probability
        Column with the chance of the favorable decision, for randomized decisions.
    predicted_class
        Column with the predicted class.
    prediction
        Column with the predicted number: a regression.
    answer
        Column with answers in [0, 1] about paired texts, missing where nothing was answered (auditor `correspondence`).
    class_probabilities
        By class, the column with its probability; without `predicted_class` the most probable class is predicted.
    threshold
        Makes decisions from scores where there is no decision column, in the column's own unit; by default 0.5. A score
        of the unfavorable outcome decides favorably up to it: ``pd <= 0.2``.
    favorable
        The favorable value of the decision column.

    Raises
    ------
    ParameterError
        No column is named, or two that do not go together.
    """

    def __init__(
        self,
        decision: str | None = None,
        score: str | None = None,
        *,
        decision_probability: str | None = None,
        predicted_class: str | None = None,
        prediction: str | None = None,
        answer: str | None = None,
        class_probabilities: Mapping[str, str] | None = None,
        threshold: float | None = None,
        favorable: Any = None,
    ) -> None:
        self.roles = PredictionRoles(
            decision=decision,
            score=score,
            probability=decision_probability,
            predicted_class=predicted_class,
            prediction=prediction,
            answer=answer,
            favorable=favorable,
            class_probabilities=dict(class_probabilities or {}),
        )
        self.threshold = threshold

    @classmethod
    def of(cls, roles: PredictionRoles) -> PredictedColumns:
        """Return the predictions that a table's roles name."""
        made = cls.__new__(cls)
        made.roles, made.threshold = roles, None
        return made

    @property
    def noted(self) -> tuple[str, ...]:
        """The columns whose distinct values the first pass must find."""
        return self.roles.noted

    def bind(self, dataset: Dataset, options: ModelOptions) -> Scorer:
        """Check the columns and tell the task.

        Raises
        ------
        FairkitError
            A column is missing or holds what it cannot hold, an option means nothing here, or it cannot be told
            which decision is favorable.
        """
        require_columns(self.roles.columns, dataset.columns, role="prediction", table=dataset.name)
        dataset.note(self.noted)
        dataset.learn()
        task = _task(self.roles, dataset, options.task)
        cut = self._cut(options, task)
        form = _form(self.roles, dataset, task, cut, options)
        return _ColumnScorer(self.roles, dataset, task, form)

    def _cut(self, options: ModelOptions, task: Task) -> Cut | None:
        """Return the comparison where scores decide; refuse options that would be ignored."""
        options.refuse(
            ["score_output", "decision_output", "favorable_class", "classes", "rename"],
            "predictions are read from columns of the table",
        )
        decides = task == "binary" and self.roles.score is not None
        decides = decides and not (self.roles.decision or self.roles.probability or self.roles.predicted_class)
        if not decides:
            source = "the decisions are a column of the table" if task == "binary" else f"this is a {task} task"
            options.refuse(["threshold"], source)
            if self.threshold is not None:
                raise ParameterError(f"threshold={self.threshold} means nothing here: {source}; leave it out")
        if self.roles.score is None or task != "binary":
            options.refuse(["score_kind"], "there is no column of binary scores")
        if options.score_kind == "label":
            raise ParameterError("a column of scores holds probability, percent, logit or value, not labels")
        if options.threshold is not None and self.threshold not in (None, options.threshold):
            raise ParameterError("two thresholds are given, and they differ; give one")
        chosen = self.threshold if options.threshold is None else options.threshold
        return Cut(score=str(self.roles.score), threshold=chosen) if decides else None


def _task(roles: PredictionRoles, dataset: Dataset, wished: Task | None) -> Task:
    """Tell the task by the kind of predictions and the label."""
    labels = dataset.profile.label_values
    if roles.answer is not None:
        natural: Task = "answers"
    elif roles.prediction is not None:
        natural = "regression"
    elif roles.predicted_class is not None or roles.class_probabilities:
        said = dataset.profile.values.get(str(roles.predicted_class)) or {}
        is_subset = set(map(value_text, said)) <= set(map(value_text, labels))
        two = len(labels) == 2 and dataset.roles.favorable is not None and is_subset
        natural = "binary" if two and wished != "multiclass" else "multiclass"
    elif roles.decision is not None or roles.probability is not None:
        natural = "binary"
    elif dataset.roles.label is None:
        natural = "regression" if wished == "regression" else "binary"
    else:
        natural = choose_task(dataset, wished, 1)
        if natural == "multiclass":
            raise ModelError(
                f"a score says nothing about the {len(labels)} values of {dataset.roles.label!r}: say which one is the "
                "favorable label (`favorable` and task binary), or name predicted classes"
            )
    if wished not in (None, natural):
        shown = ", ".join(f"{key}={value}" for key, value in roles.to_dict().items())
        raise ParameterError(f"task={wished!r}, but the predictions ({shown}) are those of a {natural} task")
    return choose_task(dataset, natural)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """What a column of scores holds."""

    kind: str = "probability"  # ``probability``, ``percent``, ``logit`` or ``value``
    scale: Scale | None = None  # how scores on a scale of their own are mapped to (0, 1)
    turned: bool = False  # whether low scores are favorable
    cut: Cut | None = None  # the comparison by which they decide; None where another column does
    notes: tuple[str, ...] = ()


def _form(roles: PredictionRoles, dataset: Dataset, task: Task, cut: Cut | None, options: ModelOptions) -> _Form:
    """Find what the column of scores holds and which way it points, from the first rows where nothing is said."""
    if task != "binary" or roles.score is None:
        return _Form()
    decided = roles.decision or roles.probability
    batch = dataset.read([roles.score, *([decided] if decided else [])], FIRST_ROWS)
    numbers = _numbers(batch.column(roles.score), roles.score)
    low, high = float(numbers.min()), float(numbers.max())
    kind = options.score_kind or ("probability" if low >= 0 and high <= 1 else "value")
    if decided is not None and _agrees(roles, dataset, numbers, batch.column(decided)):
        turned, notes = False, list[str]()
    else:
        turned, notes = _points_down(roles, dataset, numbers, batch.favorable, kind)
    cut = None if cut is None else replace(cut, kind=kind, turned=turned)
    if kind != "value":
        if cut is not None:
            cut.check()
        return _Form(kind=kind, turned=turned, cut=cut, notes=tuple(notes))
    if cut is not None and cut.threshold is None:
        beyond = f"leaves [0, 1] (it reaches {low:.4g} and {high:.4g}), so it"
        raise ModelError(
            f"the column {roles.score!r} {beyond if low < 0 or high > 1 else 'is a score of its own scale: it'} is not "
            "a probability and has no usual threshold: give the `threshold` in the score's own unit, or say what it is "
            "with `score_kind`: probability, logit or percent"
        )
    note = told_scale(roles.score, low, high, turned=turned)
    return _Form(kind=kind, scale=Scale.of(numbers), turned=turned, cut=cut, notes=(note, *notes))


def _agrees(roles: PredictionRoles, dataset: Dataset, numbers: Array, decided: NDArray[Any]) -> bool:
    """Return whether scores are surely higher where the decisions beside them are favorable: then none is turned."""
    if roles.decision is None:
        favorable = _numbers(decided, str(roles.probability)) > 0.5
    else:
        values, _ = favorable_values(dataset, roles.decision, roles.favorable)
        favorable = np.array([values.get(value, False) for value in decided.tolist()])
    return ranks_higher(numbers, favorable) is True


def _points_down(
    roles: PredictionRoles, dataset: Dataset, numbers: Array, is_favorable: NDArray[np.bool_] | None, kind: str
) -> tuple[bool, list[str]]:
    """Return whether low scores are favorable: as the user says, else as the labels say where that is in question."""
    said, values = roles.favorable, dataset.profile.label_values
    if said is not None and roles.decision is None:
        low = value_text(said).lower() in ("0", "low", "false")
        if not low and value_text(said).lower() not in ("1", "high", "true"):
            raise ParameterError(
                f"favorable={value_text(said)} beside a score says which end of it is good for the person: write "
                f"score={roles.score},favorable=0 where low scores are good (a probability of default), favorable=1 "
                "where high ones are"
            )
        return low, []
    higher = None if is_favorable is None else ranks_higher(numbers, is_favorable)
    first = len(values) == 2 and dataset.roles.label is not None and same_value(values[0], dataset.roles.favorable)
    if higher is False and (first or kind == "value"):
        return True, [
            f"The column {roles.score!r} is lower for rows with the favorable label and is read as a score of the "
            f"other one (score={roles.score},favorable=1 leaves it as it is)."
        ]
    return False, []


class _ColumnScorer:
    """`PredictedColumns` bound to a dataset."""

    recorded = True
    """Nobody can be asked about other rows."""

    def __init__(self, roles: PredictionRoles, dataset: Dataset, task: Task, form: _Form) -> None:
        from fairkit.results.report import ModelInfo

        self.roles, self.task, self.columns = roles, task, roles.columns
        self.told = roles.favorable is not None
        self._form, cut = form, form.cut
        notes = [UNSEEN, *form.notes]
        self.favorable: Mapping[Any, bool] = {}
        self.classes: tuple[Any, ...] = ()
        decided = roles.decision or (roles.predicted_class if task == "binary" else None)
        if decided is not None:
            self.favorable, note = favorable_values(dataset, decided, roles.favorable)
            notes += note
        if task == "multiclass":
            self.classes = _classes(roles, dataset)
        if task == "binary" and roles.class_probabilities:
            raise ModelError("this is a binary task: name the probability of the favorable label as the score")
        if cut is not None:
            notes.append(f"Decisions are made from scores: favorable where {cut.rule}.")
        outputs: dict[str, Any] = {
            "score": roles.score or roles.prediction or roles.answer,
            "decision": roles.decision or roles.probability or roles.predicted_class,
        } | ({} if cut is None else cut.record)
        good = [value_text(value) for value, favorable in self.favorable.items() if favorable]
        outputs |= {"favorable": good[0]} if good else {}
        outputs |= OWN if form.scale is not None else {}
        outputs |= {"turned": True} if form.turned else {}
        self.info: ModelInfo = ModelInfo(
            name="columns " + " and ".join(roles.columns),
            sha256=None,
            task=task,
            notes=tuple(notes),
            outputs=outputs,
            predictions=roles.to_dict(),
        )

    @phase("score")
    def predict(self, columns: Columns) -> Predictions:
        """Read the predictions off the columns."""
        roles = self.roles
        if self.task == "answers":
            return Predictions(score=_answers(columns[str(roles.answer)], str(roles.answer)))
        if self.task == "regression":
            name = str(roles.prediction or roles.score)
            return Predictions(score=_numbers(columns[name], name))
        if self.task == "multiclass":
            return self._multiclass(columns)
        score = None if roles.score is None else self._scores(columns[roles.score], roles.score)
        if roles.probability is not None:
            chance = _numbers(columns[roles.probability], roles.probability)
            return Predictions(score=score, decision=_within(chance, roles.probability, "a chance"))
        if self._form.cut is not None:
            return Predictions(score=score, decision=self._decided(self._form.cut, columns[str(roles.score)]))
        decided = str(roles.decision or roles.predicted_class)
        return Predictions(score=score, decision=self._decisions(columns[decided], decided))

    def _scores(self, values: NDArray[Any], column: str) -> Array:
        numbers, form = _numbers(values, column), self._form
        if form.scale is not None:
            scores = form.scale.squash(numbers)
        elif form.kind == "logit":
            scores = np.asarray(0.5 * (1 + np.tanh(0.5 * numbers)))
        else:
            scores = numbers / 100 if form.kind == "percent" else numbers
            scores = _within(
                scores, column, "a probability (say what it is with `score_kind`: logit, percent or value)"
            )
        return 1 - scores if form.turned else scores

    def _decided(self, cut: Cut, values: NDArray[Any]) -> Array:
        """Return 1 where a row is decided favorably; in single precision where the column is."""
        numbers = values.astype(np.float64, copy=False)
        if cut.kind == "logit":
            return cut.holds(0.5 * (1 + np.tanh(0.5 * numbers))).astype(float)
        return cut.holds(numbers, single=values.dtype == np.float32).astype(float)

    def _decisions(self, values: NDArray[Any], column: str) -> Array:
        if values.dtype.kind == "O":  # Python's own dictionary is as fast as Arrow's, and needs no copy
            favorable = (self.favorable.get(value, np.nan) for value in values.tolist())
            decided = np.fromiter(favorable, dtype=np.float64, count=len(values))
        else:
            codes = codes_of(as_arrow(values))
            known = [self.favorable.get(value, np.nan) for value in codes.cells]
            decided = codes.mapped(np.array(known, dtype=np.float64))
        unknown = np.isnan(decided)
        if unknown.any():
            raise ModelError(
                f"the column {column!r} holds {values[unknown].tolist()[0]!r}, which it did not hold when it was "
                "first read; was the table changed in between?"
            )
        return decided

    def _multiclass(self, columns: Columns) -> Predictions:
        roles = self.roles
        texts = [value_text(value) for value in self.classes]
        chances = predicted = None
        if roles.class_probabilities:
            named = [roles.class_probabilities[text] for text in texts]
            each = [_within(_numbers(columns[name], name), name, "a probability") for name in named]
            chances = np.column_stack(each)
            _check_sums(chances, named)
            predicted = chances.argmax(axis=1).astype(np.int64)
        if roles.predicted_class is not None:
            places = {text: index for index, text in enumerate(texts)}
            cells = columns[roles.predicted_class]
            codes = {value: places[value_text(value)] for value in set(cells.tolist())}
            predicted = np.array([codes[value] for value in cells.tolist()], dtype=np.int64)
        return Predictions(probabilities=chances, predicted=predicted)


def _classes(roles: PredictionRoles, dataset: Dataset) -> tuple[Any, ...]:
    """Return the classes: the label's values, then those that are predicted only."""
    classes: dict[str, Any] = {value_text(value): value for value in dataset.profile.label_values}
    text = any(isinstance(value, str) for value in classes.values())
    if roles.predicted_class is not None:
        column = roles.predicted_class
        values = dataset.profile.values[column]
        if values is None:
            raise ModelError(f"the column {column!r} has too many values for classes; does it hold numbers?")
        if None in values:
            raise ModelError(f"{values[None]:,} rows have no value in the column {column!r}; leave these rows out")
        if classes and not set(map(value_text, values)) & set(classes):
            raise ModelError(
                f"no class in the column {column!r} ({', '.join(sorted(map(value_text, values))[:6])}) is a value "
                f"of the label {dataset.roles.label!r} ({', '.join(list(classes)[:6])}); write both with the same names"
            )
        for value in sorted(values, key=value_text):
            classes.setdefault(value_text(value), value_text(value) if text else value)
    for label in roles.class_probabilities:
        classes.setdefault(label, label)
    absent = [name for name in classes if roles.class_probabilities and name not in roles.class_probabilities]
    if absent:
        raise ModelError(f"`predictions` has no probability of the class {absent[0]!r}: name a column for every class")
    if len(classes) < 2:
        raise ModelError(f"there is one class only, {next(iter(classes))!r}; a comparison needs two")
    return tuple(classes.values())


def _numbers(values: NDArray[Any], column: str) -> Array:
    cells = as_numbers(values)
    if cells is None:
        raise ModelError(f"the column {column!r} holds text; scores are numbers")
    numbers = cells.astype(np.float64, copy=False)
    finite = np.isfinite(numbers)
    if not finite.all():
        bad = int((~finite).sum())
        raise ModelError(
            f"the column {column!r} is missing or infinite in {bad:,} of {len(numbers):,} rows of a batch; leave these "
            "rows out"
        )
    return numbers


def _answers(values: NDArray[Any], column: str) -> Array:
    """Return numbers in [0, 1], NaN where nothing was answered."""
    cells = as_numbers(values)
    if cells is None:
        raise ModelError(f"the column {column!r} holds text; answers are numbers in [0, 1]")
    numbers = cells.astype(np.float64)
    finite = numbers[~np.isnan(numbers)]
    if len(finite):
        _within(finite, column, "an answer (bring a score to [0, 1] by its range)")
    return numbers


def _within(numbers: Array, column: str, what: str) -> Array:
    low, high = numbers.min(), numbers.max()
    if low < 0 or high > 1:
        raise ModelError(
            f"the column {column!r} leaves [0, 1] (it reaches {low:.4g} and {high:.4g}), so it is not {what}: bring "
            "it to [0, 1], or turn it into decisions, first"
        )
    return numbers


def _check_sums(chances: Array, columns: list[str]) -> None:
    off = np.abs(chances.sum(axis=1) - 1) > 1e-3
    if off.any():
        raise ModelError(
            f"the class probabilities in {', '.join(columns)} do not add to 1 on {int(off.sum()):,} of {len(off):,} "
            "rows of a batch"
        )
