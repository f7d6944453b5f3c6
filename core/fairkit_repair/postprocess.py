"""What post-processing methods share: scores of a base model by group in, one graph with a rule out."""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.fitted import FittedModel, Prediction, Run, RunsItself
from fairkit.mitigators import Capability, Mitigator
from fairkit.parameters import parameter
from fairkit.settings import ModelOptions
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.feeds import RANDOM_INPUT
from fairkit_onnx.read.outputs import DECISION_PROBABILITY, RULE_KEY, SCORE
from fairkit_onnx.write.export import BaseModel, as_input, export_bytes
from fairkit_onnx.write.rules import GroupKeys, GroupRule, Piece, learn_keys
from fairkit_repair.scored_rows import ScoredRows, even_folds, row_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.mitigators import Stage
    from fairkit.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a method learned.

    `pieces`, `odds`: see `fairkit_onnx.write.rules.GroupRule`: K + 1 rows, the last for the pooled population;
    `details`: what happened, as plain JSON values; `notes`: sentences that the user must read.
    """

    pieces: tuple[tuple[Piece, ...], ...]
    odds: tuple[float, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostParameters:
    """Parameters of every post-processing method."""

    sensitive: str | None = parameter(
        None,
        help="The sensitive column to work on, such as sex+race; default: all of them, crossed.",
        former={"split": 1},
    )
    min_group: int = parameter(30, help="The least rows of a group to learn a rule from.", minimum=1)
    small_groups: Literal["error", "pooled"] = parameter(
        "error", help="What to do with a smaller group: stop, or give it the rule of the pooled population."
    )
    margin: float = parameter(
        0.0,
        help="With a policy on rates: how many standard errors of the test rows inside its limits the rule stays.",
        minimum=0,
    )
    score_output: str | None = parameter(None, help="The model's output that holds the scores.")
    score_kind: Literal["probability", "logit"] | None = parameter(
        None, help="What the scores are; a score outside [0, 1] must be declared."
    )
    favorable_class: int | None = parameter(
        None, help="Which column of the scores, from 0, is the favorable label's.", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleModel(FittedModel):
    """A base model with a rule on top.

    `predict` evaluates the rule in numpy on the scores of the base model; `to_onnx` appends it to the graph.
    """

    base: BaseModel
    rule: GroupRule
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""
        codes = self.rule.keys.codes(columns)
        score = self.rule.adjust(self.base.scores(columns), codes).astype(np.float32).astype(np.float64)
        chance = self.rule.probability(score, codes).astype(np.float32).astype(np.float64)
        return Prediction(score=score, decision_probability=chance)

    def feeds(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays for every input of the graph besides ``u``."""
        feeds = self.base.feeds(columns)
        for column in self.rule.keys.columns:
            if column.name not in self.base.column_inputs:
                kind = "tensor(string)" if column.is_text else "tensor(float)"
                feeds[column.name] = as_input(columns[column.name], kind)
        return feeds

    def runner(self, proto: onnx.ModelProto) -> Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]:
        """Return a function from raw columns to the outputs of the graph, with draws of 0."""
        loaded = OnnxModel.load(proto, sandbox=self.base.model.sandbox)
        wanted = [SCORE, DECISION_PROBABILITY]

        def run(columns: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
            feeds = self.feeds(columns)
            if not self.rule.is_deterministic:
                rows = len(next(iter(feeds.values())))
                feeds[RANDOM_INPUT] = np.zeros((rows, 1), dtype=np.float32)
            return loaded.run(feeds, wanted)

        return run

    def to_onnx(self) -> onnx.ModelProto:
        """Return the base model's graph with the rule appended."""
        proto = self.base.with_rule(self.rule)
        entries = [entry for entry in proto.metadata_props if entry.key != RULE_KEY]
        del proto.metadata_props[:]
        proto.metadata_props.extend(entries)
        text = json.dumps(self.rule.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False)
        proto.metadata_props.add(key=RULE_KEY, value=text)
        return proto


class PostProcessor(Mitigator):
    """A method that puts a rule on the scores of a model that is not trained again.

    A subclass gives `solve`; scores, groups, outcomes come to it as arrays, and everything about files is
    done here. Its ``Parameters`` derive from `PostParameters`, and `objectives` names what its rule can be set for.
    """

    stage: ClassVar[Stage] = "post"
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    objectives: ClassVar[tuple[str, ...]] = ("accuracy",)
    Parameters = PostParameters  # type: ignore[assignment]

    @abstractmethod
    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Learn the rule.

        `rows`: to learn from; every group has at least `min_group` rows; `validation`: to choose by; None: split some
        off where needed; `run`: seed and progress.
        """

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> RuleModel:
        """Score the rows, code the groups, solve, and wrap the rule.

        Raises
        ------
        ParameterError
            There is no base model.
        DataError
            A group has too few rows, or the task is not binary.
        ModelError
            The model gives no usable score.
        """
        if model is None:
            raise ParameterError(f"{self.name} repairs a model: name its file with `model`")
        if table.task != "binary":
            raise DataError(f"{table.name}: {self.name} works on binary outcomes; name the favorable label")
        self.learner(run)

        base = BaseModel(model, table, self.model_options())
        scored = None if validation is None else (base.scores(validation.columns), validation)
        scores, decisions = base.answers(table.columns)
        objective = run.objective.on(decisions, scores, table.row_weights())
        return self._on(base, scores, table, dataclasses.replace(run, objective=objective), scored)

    def fit_scores(self, scores: NDArray[np.float64], table: Table, run: Run, model: OnnxModel) -> RuleModel:
        """Learn the rule from given scores of the rows, such as out-of-fold ones, and put it on a model.

        `scores`: probabilities of the favorable label, shape [n], in [0, 1]; `table`, `run`: the rows, the seed and
        progress; `model`: whose scores the rule will decide by.
        """
        return self._on(BaseModel(model, table, self.model_options()), scores, table, run, None)

    def _on(
        self,
        base: BaseModel,
        scores: NDArray[np.float64],
        table: Table,
        run: Run,
        held_out: tuple[NDArray[np.float64], Table] | None,
    ) -> RuleModel:
        rule, solution = self.learn(scores, table, run, held_out)
        return RuleModel(
            base=base,
            rule=rule,
            details={"base_model": base.model.sha256, "rule": rule.to_dict(), **solution.details},
            notes=(*base.notes, *solution.notes),
        )

    def learn(
        self,
        scores: NDArray[np.float64],
        table: Table,
        run: Run,
        validation: tuple[NDArray[np.float64], Table] | None = None,
    ) -> tuple[GroupRule, Solution]:
        """Learn the rule from scores in [0, 1] of the table's rows, shape [n].

        Raises
        ------
        DataError
            A group has too few rows.
        """
        keys, notes = self._keys(table)
        rows = self._scored(scores, keys, table, run.objective)
        scored = None if validation is None else self._scored(validation[0], keys, validation[1], run.objective)
        solution = self.solve(rows, scored, run)
        rule = GroupRule(keys=keys, pieces=solution.pieces, odds=solution.odds)
        return rule, dataclasses.replace(solution, notes=(*notes, *solution.notes))

    def model_options(self) -> ModelOptions:
        """Return the options for the base model's outputs, from the parameters."""
        chosen = self.parameters
        return ModelOptions(
            task="binary",
            score_output=chosen.score_output,
            score_kind=chosen.score_kind,
            favorable_class=chosen.favorable_class,
        )

    def _scored(self, scores: NDArray[np.float64], keys: GroupKeys, table: Table, objective: Objective) -> ScoredRows:
        return ScoredRows(
            scores=scores,
            codes=keys.codes(table.columns),
            names=keys.names,
            favorable=table.target,
            weights=table.weights,
            cells=keys.cells,
            gain=objective.gains(table),
            rate=objective.rate,
            bounds=row_bounds(table, objective, self.parameters.margin),
        )

    def _keys(self, table: Table) -> tuple[GroupKeys, tuple[str, ...]]:
        """Refuse groups that are too small for a rule, or leave them to the pooled one."""
        groups = table.only_groups(self.parameters.sensitive)
        keys, sizes, least = learn_keys(table.columns, groups), groups.sizes(), self.parameters.min_group
        small = [f"{name} ({size} rows)" for name, size in zip(groups.names, sizes, strict=True) if size < least]
        if not small:
            return keys, ()
        if self.parameters.small_groups == "error":
            raise DataError(
                f"{table.name}: {_listed(small)}: fewer than min_group={least} rows to learn a rule from; "
                "merge groups, add rows, lower the parameter `min_group=N`, or give them the rule of the pooled "
                "population with the parameter `small_groups=pooled`"
            )
        if (sizes >= least).sum() < 2:
            raise DataError(f"{table.name}: fewer than two groups have min_group={least} rows; lower it")
        note = f"These groups are too small and get the pooled rule: {_listed(small)}."
        return keys.keep((sizes >= least).tolist()), (note,)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# One threshold for everybody, set for the objective: the operating point of a model, without reading a group.


MARGINS = (3.0, 4.0, 5.0)
"""Standard errors inside the limits of rules on rates: to pass with a chance of .95 takes 1.96 + 1.65 √(1 + refits)."""
_OWN = ("held_out", "audits", "attachments")  # of MeasuresItself, NamesAudits, Attaches
_BREACH, _OFF, _HALF = 1e4, 1e2, 0.5


class CommonThreshold(PostProcessor):
    """Accept everybody from one score on: the rate is kept, or the objective is best, within the rules on rates."""

    name = "common-threshold"
    objectives = ("rate", "accuracy", "balanced_accuracy", "cost", "value")
    capabilities = (Capability(constraints=("none",), trainings=0),)

    def _keys(self, table: Table) -> tuple[GroupKeys, tuple[str, ...]]:
        return GroupKeys(columns=(), names=(), cells=()), ()

    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Take the best of all cutoffs."""
        threshold = common_threshold(rows)
        rate = float(np.average(rows.scores >= threshold, weights=rows.weights))
        return Solution(pieces=((Piece(threshold=threshold),),), details={"threshold": threshold, "rate": rate})


def common_threshold(rows: ScoredRows) -> float:
    """Return the cutoff of the highest gain; a rate to keep comes before it, and rules on rates before both."""
    weights = rows.row_weights / rows.row_weights.sum()
    values, inverse = np.unique(-rows.scores, return_inverse=True)

    def summed(each: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.append(0.0, np.cumsum(np.bincount(inverse.ravel(), each, len(values))))

    gain, total = summed(weights * rows.gains), summed(weights)
    size = np.abs(rows.gains).max() or 1.0
    rank = -gain / size
    if rows.rate is not None:
        rank = rank + _OFF * np.abs(total - rows.rate)
    for bound in rows.bounds:
        rank = rank + _BREACH * np.maximum(bound.refused.sum() + summed(bound.accepted - bound.refused), 0.0)
    at, below = int(rank.argmin()), np.append(0.5 * (-values[:-1] - values[1:]), 0.0)
    return float(np.append(2.0, below)[at])


def aimed(fit: Callable[[Table], Sequence[FittedModel]], table: Table, run: Run) -> list[FittedModel]:
    """Train on all rows, and set one threshold for the run's objective on scores by models of the other half.

    A model that decides by more than its score keeps its decisions; whether they keep the rate is measured.
    """
    models = list(fit(table))
    places = [position for position, fitted in enumerate(models) if _by_half(fitted, table)]
    if table.task != "binary" or run.objective.is_plain or not places:
        return models
    half = even_folds(2 * (table.target > 0).astype(np.int64), 2, np.random.default_rng([run.seed, 2]))
    scores = np.empty((len(models), len(table)))
    for number in (0, 1):
        inside = half == number
        part = table.take(inside)
        for index, fitted in enumerate(fit(table.take(~inside))):
            scores[index, inside] = fitted.predict(part.columns).score
    for index in places:
        unseen = scores[index].astype(np.float32).astype(np.float64)
        models[index] = with_threshold(models[index], table, run, unseen)
    return models


def _by_half(fitted: FittedModel, table: Table) -> bool:
    """Return whether a model decides by its score's half."""
    if table.task != "binary" or isinstance(fitted, RunsItself):
        return False
    prediction = fitted.predict(table.columns)
    return prediction.decision_probability is None or np.array_equal(
        prediction.decision_probability, prediction.score >= _HALF
    )


def with_threshold(fitted: FittedModel, table: Table, run: Run, scores: NDArray[np.float64]) -> RuleModel:
    """Put one threshold for the run's objective on a trained model, set on scores of rows that it did not see."""
    model = OnnxModel(export_bytes(fitted, table), "trained")
    rule = CommonThreshold.with_values({"margin": MARGINS[1] if run.objective.bounds else 0.0})
    cut, solution = rule.learn(scores, table, run)
    base = BaseModel(model, table, ModelOptions(task="binary"))
    details = {**fitted.details, "threshold": solution.details, "rule": cut.to_dict()}
    return _kind(fitted)(base=base, rule=cut, details=details, notes=fitted.notes)


def _kind(trained: FittedModel) -> type[RuleModel]:
    """Return rule models that still do what only the trained model does; type checks look at the class."""
    methods = {name: staticmethod(getattr(trained, name)) for name in _OWN if hasattr(trained, name)}
    return type("AimedModel", (RuleModel,), methods) if methods else RuleModel
