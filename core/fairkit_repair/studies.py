"""What a search under a policy tried, and why it picked what it picked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.capabilities import Capability
from fairkit.errors import ParameterError, PolicyError
from fairkit.support.records import record_of

if TYPE_CHECKING:
    from fairkit.mitigators import Mitigator
    from fairkit.results.rules import Rule

Status = Literal["picked", "tried", "left out"]
_NONE = Capability(constraints=("none",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the test rows can show."""

    chance: float
    rows: int  # the test rows that there are
    needed: int | None = None
    small: tuple[str, ...] = ()  # groups with too few test rows for any verdict


_UNKNOWN = Power(chance=0.0, rows=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One method with its parameters, measured on calibration rows that its model did not see."""

    method: str  # what was tried; `unconstrained` is the learner, or the given model, as it is
    parameters: Mapping[str, Any]  # what was tried; `unconstrained` is the learner, or the given model, as it is
    randomized: bool
    reads_group: bool
    accuracy: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None  # the predicted chance that the audit of the test rows passes, in [0, 1]
    chances: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None
    change: tuple[float, float, float] | None = None
    seconds: float = 0.0  # what measuring it took
    status: Status = "tried"  # what became of it, and why it was left out
    reason: str = ""  # what became of it, and why it was left out
    mitigator: Any = None  # the method as an object, and in which of its ways it is used
    capability: Capability = _NONE  # the method as an object, and in which of its ways it is used
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
    budget: float  # the minutes that the search may take; for every random draw
    seed: int = 0  # the minutes that the search may take; for every random draw
    blind: bool = False  # what was asked for: see `fairkit_repair.repairing.run.repair`
    deterministic: bool | None = False  # what was asked for: see `fairkit_repair.repairing.run.repair`
    unconstrained: bool = True  # what was asked for: see `fairkit_repair.repairing.run.repair`
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
        return tuple(one for one in self.alternatives if one.chance is not None)

    @property
    def as_good(self) -> tuple[Trial, ...]:
        """The alternatives that are as accurate as the first one within noise, the least disparity first.

        Those that were left out after they were measured count too: a reader asks what could have been.
        """
        return tuple(sorted((one for one in self.measured if one.as_good), key=lambda one: one.disparity))

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
        return self.summary() | {"alternatives": [one.to_dict() for one in self.alternatives]}

    def summary(self) -> dict[str, Any]:
        """Return the search's record for the file's metadata, from where certificates take it."""
        return {
            "policy": [rule.to_dict() for rule in self.rules],
            "sure": self.sure,
            "budget": self.budget,
            "blind": self.blind,
            "deterministic": self.deterministic,
            "objective": self.objective,
            "performance": self.performance,
            "searched": len(self.measured),
            "considered": len(self.alternatives),
            "as_good": len(self.as_good) if any(one.change is not None for one in self.measured) else None,
            "least_disparity": None if not self.as_good else _short(self.as_good[0]),
            "picked": self.picked,
            "chance": self.choice.chance,
            "reached": self.reached,
            "power": {"chance": self.power.chance, "test_rows": self.power.rows, "needed_rows": self.power.needed},
            "calibration_rows": self.calibration_rows,
            "given_model": self.given,
            "optimism": self.optimism,
            "looks": self.looks,
            "look": self.look,
            "looks_doubt": self.looks_doubt,
            "test_sha256": self.test_sha256,
        }


def _short(one: Trial) -> dict[str, Any]:
    return {"name": one.name, "accuracy": one.accuracy, "values": dict(one.values)}


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "+".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
