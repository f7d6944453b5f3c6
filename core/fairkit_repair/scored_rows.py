"""Scores with groups and outcomes: all that a post-processing rule is learned from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.capabilities import Capability
from fairkit.errors import ParameterError, PolicyError
from fairkit.models.scorer import bound
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.auditing.prepare import LoadedAuditors
    from fairkit.data.dataset import Dataset
    from fairkit.data.table import Table
    from fairkit.engines.base import Engine
    from fairkit.mitigators import Mitigator
    from fairkit.models.scorer import Model
    from fairkit.objective import Objective
    from fairkit.progress import Progress
    from fairkit.results.policy import Comparison
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule
    from fairkit.settings import ModelOptions


@dataclass(frozen=True, slots=True)
class RowBound:
    """A rule on a rate over the rows: kept where Σ refused + a (accepted - refused) ≤ 0 for decisions a."""

    refused: NDArray[np.float64]  # what a refused row adds, weights included, shape [n]
    accepted: NDArray[np.float64]  # what an accepted row adds, shape [n]

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return type(self)(self.refused[index], self.accepted[index])


def row_bounds(table: Table, objective: Objective, margin: float) -> tuple[RowBound, ...]:
    """Return the policy's rules on rates over the rows of a table, one for each group that has to keep it."""
    bounds: list[RowBound] = []
    outcome, weights = (table.target > 0).astype(np.int64), table.row_weights()
    for rule in objective.bounds:
        counted, over = np.array(rule.counted, float), np.array(rule.over, float)
        # counted / over ≤ L, as counted - L over ≤ 0
        cells = (counted - rule.tightened(margin) * over) * (1.0 if rule.upper else -1.0)
        split = None if rule.split is None else table.groups[rule.split]
        members = [np.ones(len(table))] if split is None else np.eye(len(split.names))[split.codes].T
        for member in members:
            mass = weights * member
            mass = mass / max(mass.sum(), 1e-12)
            bounds.append(RowBound(mass * cells[2 * outcome], mass * cells[2 * outcome + 1]))
    return tuple(bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """Scores with groups and outcomes: all that a rule is learned from.

    `scores`: the base model's probability of the favorable label, shape [n], in [0, 1]; `codes`: each row's group,
    shape [n]; K for rows whose group has no rule of its own; `names`: the K groups; `favorable`: 1 where the outcome
    was the favorable label, else 0, shape [n]; `weights`: shape [n], nonnegative; None where all rows count the same;
    `cells`: for each group the numbers of its cells, one per sensitive column; empty where that is not known; `gain`:
    what accepting each row brings, shape [n]; None: 1 where the outcome is favorable, else -1; `rate`: the share of all
    rows to accept; None where any may be; `bounds`: rules on rates.
    """

    scores: NDArray[np.float64]
    codes: NDArray[np.int64]
    names: tuple[str, ...]
    favorable: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    cells: tuple[tuple[int, ...] | None, ...] = ()
    gain: NDArray[np.float64] | None = None
    rate: float | None = None
    bounds: tuple[RowBound, ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The weights, shape [n]; ones where there are none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @property
    def gains(self) -> NDArray[np.float64]:
        """What accepting each row brings, shape [n]."""
        return 2.0 * self.favorable - 1.0 if self.gain is None else self.gain

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return dataclasses.replace(
            self,
            gain=None if self.gain is None else self.gain[index],
            bounds=tuple(bound.take(index) for bound in self.bounds),
            scores=self.scores[index],
            codes=self.codes[index],
            favorable=self.favorable[index],
            weights=None if self.weights is None else self.weights[index],
        )

    def folds(self, count: int, rng: np.random.Generator) -> list[tuple[Self, Self]]:
        """Split the rows at random into parts that hold a share of every group and outcome.

        Returns for each of `count` parts, the rows outside it and the rows in it.
        """
        part = even_folds(2 * self.codes + (self.favorable > 0), count, rng)
        return [(self.take(part != index), self.take(part == index)) for index in range(count)]

    def rates(self, chance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted mean of h in each of the K groups, NaN in an empty one."""
        weights = self.row_weights
        count = len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        sums = np.bincount(self.codes, weights * chance, minlength=count)[:-1]
        means: NDArray[np.float64] = np.divide(sums, totals, out=np.full(len(totals), np.nan), where=totals > 0)
        return means

    def accuracy(self, chance: NDArray[np.float64]) -> float:
        """Return the expected accuracy E[y h + (1 - y)(1 - h)] of randomized decisions."""
        agreed = self.favorable * chance + (1.0 - self.favorable) * (1.0 - chance)
        return float(np.average(agreed, weights=self.weights))

    def effective_rows(self) -> NDArray[np.float64]:
        """Return (Σ w)² / Σ w² in each of the K groups: the rows of equal weight that would say as much."""
        weights, count = self.row_weights, len(self.names) + 1
        totals = np.bincount(self.codes, weights, minlength=count)[:-1]
        squares = np.bincount(self.codes, weights**2, minlength=count)[:-1]
        return np.divide(totals**2, squares, out=np.zeros(len(totals)), where=squares > 0)

    def margin(self) -> float:
        """Return two standard errors of a rate in the smallest group: 2 √(.25 / n), n its effective rows."""
        rows = self.effective_rows()
        return 1.0 / float(np.sqrt(rows[rows > 0].min())) if (rows > 0).any() else 1.0


def even_folds(strata: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Number the rows' folds at random, shape [n]: each holds its share of every stratum."""
    order = rng.permutation(len(strata))
    fold = np.empty(len(strata), dtype=np.int64)
    fold[order[np.argsort(strata[order], kind="stable")]] = np.arange(len(strata)) % count
    return fold


# What a search under a policy tried, and why it picked what it picked.


Status = Literal["picked", "tried", "left out"]
_NONE = Capability(constraints=("none",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the test rows can show."""

    chance: float
    rows: int  # the test rows that there are
    needed: int | None = None
    small: tuple[str, ...] = ()  # groups with too few test rows for any verdict


_ASKED = ("sure", "budget", "blind", "deterministic", "objective", "performance")
"""What a search was asked for, as its record has it."""
_UNKNOWN = Power(chance=0.0, rows=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One method with its parameters, measured on calibration rows that its model did not see."""

    method: str  # `unconstrained` is the learner, or the given model, as it is
    parameters: Mapping[str, Any]  # what the method was given
    randomized: bool
    reads_group: bool
    accuracy: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None  # the predicted chance that the audit of the test rows passes, in [0, 1]
    chances: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None
    change: tuple[float, float, float] | None = None
    seconds: float = 0.0  # what measuring it took
    status: Status = "tried"  # what became of it
    reason: str = ""  # why it was left out
    mitigator: Any = None  # the method as an object
    capability: Capability = _NONE  # in which of its ways it is used
    family: str = ""  # what it has in common with trials that differ in their dial
    fixed: frozenset[str] = frozenset()  # the parameters that the user gave

    @classmethod
    def of(
        cls,
        mitigator: Mitigator,
        parameters: Mapping[str, Any],
        capability: Capability,
        family: str,
        fixed: frozenset[str] = frozenset(),
    ) -> Self:
        """Make one that is not measured yet."""
        return cls(
            method=mitigator.name, parameters=parameters, randomized=capability.randomized,
            reads_group=capability.reads_group, mitigator=mitigator, capability=capability, family=family, fixed=fixed,
        )  # fmt: skip

    def left_out(self, why: str, seconds: float = 0.0) -> Self:
        """Return the same, not measured."""
        return dataclasses.replace(self, status="left out", reason=why, seconds=seconds)

    @property
    def as_good(self) -> bool:
        """Whether its accuracy is not significantly below that of the first alternative (see `change`)."""
        return self.change is not None and self.change[2] >= 0

    @property
    def disparity(self) -> float:
        """The largest of its numbers between groups; infinite where it has none."""
        return max((abs(value) for name, value in self.values.items() if ":" in name), default=float("inf"))

    @property
    def name(self) -> str:
        """The method with its parameters."""
        told = ", ".join(f"{key} = {_text(value)}" for key, value in self.parameters.items())
        return f"{self.method} ({told})" if told else self.method

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        objects = ("mitigator", "capability", "family", "fixed")
        return record_of(self, without=objects) | {"seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A search for the most accurate model that will surely pass a policy."""

    rules: tuple[Rule, ...]  # the policy
    sure: float  # what was asked for: see `fairkit_repair.repairing.run.repair`
    budget: float  # the minutes that the search may take
    seed: int = 0  # for every random draw
    blind: bool = False  # as asked for: see `fairkit_repair.repairing.run.repair`
    deterministic: bool | None = False
    unconstrained: bool = True
    learner: str = "lightgbm"  # what trains where a method does not say
    named: bool = False  # whether methods were named
    power: Power = _UNKNOWN  # what the test rows can show
    alternatives: tuple[Trial, ...] = ()  # everything that was considered, in the order in which it was
    picked: int = 0  # the place of the pick
    calibration_rows: int = 0  # how many rows the predictions are made from
    seconds: float = 0.0  # what the search took, without the look at the test rows
    looks: int = 1
    test_sha256: str = ""  # the digest of the test rows
    look: str = ""
    looks_doubt: str | None = None
    performance: str = "accuracy"  # what `Trial.accuracy` is: accuracy, in regression r2_score, of rankings ndcg
    optimism: float | None = None
    given: bool = False  # whether the first alternative is a model that was given
    objective: str = "accuracy"  # what is kept or made best, as it is typed

    def __post_init__(self) -> None:
        if not self.rules:
            raise PolicyError("a search needs a policy: give at least one rule")
        if not 0 < self.sure < 1:
            raise ParameterError(f"`sure` is a chance above 0 and below 1, not {self.sure}")
        if not self.budget > 0:
            raise ParameterError(f"`budget` is a number of minutes above 0, not {self.budget}")

    @property
    def choice(self) -> Trial:
        """The picked one."""
        return self.alternatives[self.picked]

    @property
    def measured(self) -> tuple[Trial, ...]:
        """The alternatives whose chance was predicted: those that were searched."""
        return tuple(alternative for alternative in self.alternatives if alternative.chance is not None)

    @property
    def as_good(self) -> tuple[Trial, ...]:
        """The alternatives that are as accurate as the first one within noise, the least disparity first.

        Those that were left out after they were measured count too: a reader asks what could have been.
        """
        return tuple(sorted((trial for trial in self.measured if trial.as_good), key=lambda trial: trial.disparity))

    @property
    def needs_chance(self) -> bool:
        """Whether decisions are drawn by chance because nothing else reaches the chance of passing."""
        return self.deterministic is None and self.choice.randomized

    @property
    def reached(self) -> bool:
        """Whether the pick has the chance that was asked for."""
        return (self.choice.chance or 0.0) >= self.sure

    def told(self) -> str:
        """Return a sentence about the pick and its chance."""
        choice = self.choice
        sure = (
            f"asked: {self.sure:g}"
            if self.reached
            else f"LESS than the {self.sure:g} that was asked for; nothing that was tried has more"
        )
        return (
            f"Picked {choice.name} among {len(self.measured)} alternatives: predicted {self.performance} "
            f"{choice.accuracy:.4f}, predicted chance of passing {choice.chance:.2f} ({sure})."
            + (
                " It draws some decisions BY CHANCE: no deterministic alternative that was tried is as sure."
                if self.needs_chance
                else ""
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.summary() | {"alternatives": [alternative.to_dict() for alternative in self.alternatives]}

    def summary(self) -> dict[str, Any]:
        """Return the search's record for the file's metadata, from where certificates take it."""
        return {
            "policy": [rule.to_dict() for rule in self.rules],
            **{name: getattr(self, name) for name in _ASKED},
            "searched": len(self.measured),
            "considered": len(self.alternatives),
            "as_good": len(self.as_good) if any(trial.change is not None for trial in self.measured) else None,
            "least_disparity": None if not self.as_good else _short(self.as_good[0]),
            "picked": self.picked,
            "chance": self.choice.chance,
            "reached": self.reached,
            "power": {"chance": self.power.chance, "test_rows": self.power.rows, "needed_rows": self.power.needed},
            "calibration_rows": self.calibration_rows,
            "given_model": self.given,
            **{name: getattr(self, name) for name in ("optimism", "looks", "look", "looks_doubt", "test_sha256")},
        }


def _short(one: Trial) -> dict[str, Any]:
    return {"name": one.name, "accuracy": one.accuracy, "values": dict(one.values)}


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


# Several models in one pass over the rows: each is audited, and each is compared with the first.


def audit_beside(
    engine: Engine,
    models: Sequence[Model],
    data: Dataset,
    loaded: LoadedAuditors,
    options: Sequence[ModelOptions],
    progress: Progress,
    *,
    compared: Dataset | None = None,
) -> tuple[list[Report], Comparison]:
    """Audit models and compare them with the first; every row is scored once by each."""
    from fairkit_comparing.run import comparison, paired_up

    data.learn(engine.total)
    scorers = [bound(model, data, each) for model, each in zip(models, options, strict=True)]
    audits = [loaded.about(scorer, data, engine, progress, index=index) for index, scorer in enumerate(scorers)]
    readers = [reader for audit in audits for reader in audit.readers]
    pairing, used = paired_up(scorers, data)
    engine.check(*plugins.needs_of([*loaded.used, *used]))
    apart = compared is not None and compared is not data
    totals = score_once(engine, data, scorers, readers if apart else [*readers, pairing], progress)
    left = iter(totals)
    reports = [audit.report([next(left) for _ in audit.readers]) for audit in audits]
    if not apart:
        return reports, comparison(pairing, next(left), loaded.settings.confidence)
    assert compared is not None  # noqa: S101 -- apart
    compared.learn(engine.total)
    ranked = [bound(model, compared, each) for model, each in zip(models, options, strict=True)]
    pairing, _ = paired_up(ranked, compared)
    (total,) = score_once(engine, compared, ranked, [pairing], progress)
    return reports, comparison(pairing, total, loaded.settings.confidence)
