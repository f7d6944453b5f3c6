"""What post-processing methods share: scores of a base model by group in, one graph with a rule out."""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.mitigators import FittedModel, Mitigator, Prediction, Run, Table
from fairkit.models import ModelOptions
from fairkit.onnx.base import BaseModel
from fairkit.onnx.compose import SCORE
from fairkit.onnx.feeds import RANDOM_INPUT
from fairkit.onnx.model import OnnxModel
from fairkit.onnx.outputs import DECISION_PROBABILITY
from fairkit.onnx.rules import GroupRule, learn_keys
from fairkit.onnx.runtime import as_input
from fairkit.parameters import parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    import onnx
    from numpy.typing import NDArray

    from fairkit.mitigators import Stage
    from fairkit.models import Task
    from fairkit.onnx.rules import GroupKeys, Piece

RULE_KEY = "fairkit.rule"
"""The metadata entry that says in words and numbers what the appended rule is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """Scores with groups and outcomes: all that a rule is learned from.

    Attributes
    ----------
    scores
        The base model's probability of the favorable label, shape [n], in [0, 1].
    codes
        Each row's group, shape [n]; K for rows whose group has no rule of its own.
    names
        The K groups.
    favorable
        1 where the outcome was the favorable label, else 0, shape [n].
    weights
        Shape [n], nonnegative; None where all rows count the same.
    cells
        For each group the numbers of its cells, one per sensitive column; empty where that is not known.
    """

    scores: NDArray[np.float64]
    codes: NDArray[np.int64]
    names: tuple[str, ...]
    favorable: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    cells: tuple[tuple[int, ...] | None, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The weights, shape [n]; ones where there are none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def take(self, index: NDArray[Any]) -> Self:
        """Give the rows that a mask or an index array names."""
        return dataclasses.replace(
            self,
            scores=self.scores[index],
            codes=self.codes[index],
            favorable=self.favorable[index],
            weights=None if self.weights is None else self.weights[index],
        )

    def folds(self, count: int, rng: np.random.Generator) -> list[tuple[Self, Self]]:
        """Split the rows at random into parts that hold a share of every group and outcome.

        Returns
        -------
        list of (others, part)
            For each of `count` parts, the rows outside it and the rows in it.
        """
        order = rng.permutation(len(self))
        strata = (2 * self.codes + (self.favorable > 0))[order]
        order = order[np.argsort(strata, kind="stable")]
        part = np.empty(len(self), dtype=np.int64)
        part[order] = np.arange(len(self)) % count
        return [(self.take(part != place), self.take(part == place)) for place in range(count)]

    def rates(self, chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the weighted mean of h in each of the K groups, NaN in an empty one."""
        weights = self.row_weights
        count = len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        sums = np.bincount(self.codes, weights * chance, minlength=count)[:-1]
        means: NDArray[np.float64] = np.divide(
            sums, totals, out=np.full(len(totals), np.nan), where=totals > 0
        )
        return means

    def accuracy(self, chance: NDArray[np.float64]) -> float:
        """Give the expected accuracy E[y h + (1 - y)(1 - h)] of randomized decisions."""
        agreed = self.favorable * chance + (1.0 - self.favorable) * (1.0 - chance)
        return float(np.average(agreed, weights=self.weights))

    def effective_rows(self) -> NDArray[np.float64]:
        """Give (Σ w)² / Σ w² in each of the K groups: the rows of equal weight that would say as much."""
        weights, count = self.row_weights, len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        squares = np.bincount(self.codes, weights**2, minlength=count)[:-1]
        rows: NDArray[np.float64] = np.divide(
            totals**2, squares, out=np.zeros(len(totals)), where=squares > 0
        )
        return rows

    def margin(self) -> float:
        """Give two standard errors of a rate in the smallest group: 2 √(.25 / n), n its effective rows."""
        rows = self.effective_rows()
        return 1.0 / float(np.sqrt(rows[rows > 0].min())) if (rows > 0).any() else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a method learned.

    Attributes
    ----------
    pieces, odds
        See `fairkit.onnx.rules.GroupRule`: K + 1 rows, the last for the pooled population.
    details
        What happened, as plain JSON values.
    notes
        Sentences that the user must read.
    """

    pieces: tuple[tuple[Piece, ...], ...]
    odds: tuple[float, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostParameters:
    """Parameters of every post-processing method."""

    split: str | None = parameter(
        None, help="Which sensitive split to work on; default: all of them, crossed."
    )
    min_group: int = parameter(30, help="The least rows of a group to learn a rule from.", minimum=1)
    small_groups: Literal["error", "pooled"] = parameter(
        "error", help="What to do with a smaller group: stop, or give it the rule of the pooled population."
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
        """Give the arrays for every input of the graph besides ``u``."""
        feeds = self.base.feeds(columns)
        for column in self.rule.keys.columns:
            if column.name not in self.base.column_inputs:
                kind = "tensor(string)" if column.is_text else "tensor(float)"
                feeds[column.name] = as_input(columns[column.name], kind)
        return feeds

    def runner(self, proto: onnx.ModelProto) -> Callable[[Mapping[str, NDArray[Any]]], Mapping[str, Any]]:
        """Give a function from raw columns to the outputs of the graph, with draws of 0."""
        loaded = OnnxModel.load(proto)
        wanted = [SCORE, DECISION_PROBABILITY]

        def run(columns: Mapping[str, NDArray[Any]]) -> Mapping[str, Any]:
            feeds = self.feeds(columns)
            rows = len(next(iter(feeds.values())))
            return loaded.run(feeds | {RANDOM_INPUT: np.zeros((rows, 1), dtype=np.float32)}, wanted)

        return run

    def to_onnx(self) -> onnx.ModelProto:
        """Give the base model's graph with the rule appended."""
        proto = self.base.with_rule(self.rule)
        kept = [entry for entry in proto.metadata_props if entry.key != RULE_KEY]
        del proto.metadata_props[:]
        proto.metadata_props.extend(kept)
        text = json.dumps(self.rule.to_dict(), sort_keys=True, ensure_ascii=False, allow_nan=False)
        proto.metadata_props.add(key=RULE_KEY, value=text)
        return proto


class PostProcessor(Mitigator):
    """A method that puts a rule on the scores of a model that is not trained again.

    A subclass gives `solve`; scores, groups, outcomes come to it as arrays, and everything about files is
    done here. Its ``Parameters`` derive from `PostParameters`.
    """

    stage: ClassVar[Stage] = "post"
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)
    Parameters = PostParameters  # type: ignore[assignment]

    @abstractmethod
    def solve(self, rows: ScoredRows, validation: ScoredRows | None, run: Run) -> Solution:
        """Learn the rule.

        Parameters
        ----------
        rows
            To learn from; every group has at least `min_group` rows.
        validation
            To choose by; None: split some off where needed.
        run
            Seed and progress.
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
            raise ParameterError(f"{self.name} repairs a model: name its file with --model")
        if table.task != "binary":
            raise DataError(f"{table.name}: {self.name} works on binary outcomes; name the favorable label")
        self.learner(run)
        base = BaseModel(model, table, self.model_options())
        held = None if validation is None else (base.scores(validation.columns), validation)
        rule, solution = self.learn(base.scores(table.columns), table, run, held)
        return RuleModel(
            base=base,
            rule=rule,
            details={"base_model": model.sha256, "rule": rule.to_dict(), **solution.details},
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
        held = None if validation is None else _scored(validation[0], keys, validation[1])
        solution = self.solve(_scored(scores, keys, table), held, run)
        rule = GroupRule(keys=keys, pieces=solution.pieces, odds=solution.odds)
        return rule, dataclasses.replace(solution, notes=(*notes, *solution.notes))

    def model_options(self) -> ModelOptions:
        """Give what the parameters say about the base model's outputs."""
        chosen = self.parameters
        return ModelOptions(
            task="binary",
            score_output=chosen.score_output,
            score_kind=chosen.score_kind,
            favorable_class=chosen.favorable_class,
        )

    def _keys(self, table: Table) -> tuple[GroupKeys, tuple[str, ...]]:
        """Refuse groups that are too small for a rule, or leave them to the pooled one."""
        groups = table.only_groups(self.parameters.split)
        keys, sizes, least = learn_keys(table.columns, groups), groups.sizes(), self.parameters.min_group
        small = [
            f"{name} ({size} rows)" for name, size in zip(groups.names, sizes, strict=True) if size < least
        ]
        if not small:
            return keys, ()
        if self.parameters.small_groups == "error":
            raise DataError(
                f"{table.name}: {_listed(small)}: fewer than min_group={least} rows to learn a rule from; "
                "merge groups, add rows, lower --set min_group=N, or give them the rule of the pooled "
                "population with --set small_groups=pooled"
            )
        if (sizes >= least).sum() < 2:
            raise DataError(f"{table.name}: fewer than two groups have min_group={least} rows; lower it")
        told = f"These groups are too small and get the pooled rule: {_listed(small)}."
        return keys.keep((sizes >= least).tolist()), (told,)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _scored(scores: NDArray[np.float64], keys: GroupKeys, table: Table) -> ScoredRows:
    return ScoredRows(
        scores=scores,
        codes=keys.codes(table.columns),
        names=keys.names,
        favorable=table.target,
        weights=table.weights,
        cells=keys.cells,
    )
