"""The settings of an audit, each declared once: options, configuration file, certificates and pins read them here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

from fairkit.data.task import Task
from fairkit.errors import ParameterError, did_you_mean
from fairkit.results.rules import ADJUSTMENTS, Adjustment, Rule
from fairkit.support.lazy_dataclass import dataclass, field

ScoreKind = Literal["probability", "percent", "logit", "label", "value"]
Copies = Literal["independent"]
Kind = Literal["text", "number", "integer", "names", "columns"]
"""What a setting takes in the configuration file."""

DEFAULT_AUDITORS = ("group",)
"""What an audit runs where nothing else is named."""


class Setting(NamedTuple):
    """How people give a setting."""

    name: str  # the field, and the keyword from Python
    # Where it stands in the configuration file, and under which name an alias pins it: ``audit.adjust``
    table: str
    key: str
    kind: Kind  # what it takes there
    # What is typed, and a whole sentence: what it does, its unit, its default
    option: str
    metavar: str
    help: str
    panel: str | None  # the part of the command's help: ``Model``, ``Policy``, or None
    rare: bool  # whether it has no option: ``--set TABLE.KEY=VALUE`` gives it


def setting(
    default: Any,
    kind: Kind,
    metavar: str,
    help: str,
    *,
    option: str | None = None,
    key: str | None = None,
    table: str = "audit",
    panel: str | None = None,
    rare: bool = False,
) -> Any:
    """Declare a field that people give as an option or in the configuration file; by default both have its name."""
    declared = {"kind": kind, "metavar": metavar, "help": help, "option": option, "key": key}
    return field(default=default, metadata={"setting": declared | {"table": table, "panel": panel, "rare": rare}})


def _of_model(kind: Kind, metavar: str, help: str, **more: Any) -> Any:
    how: dict[str, Any] = {"table": "model", "panel": "Model", "rare": True} | more
    return setting(None, kind, metavar, help, **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the user says about a model where guessing is not enough; None stands for a guess.

    Attributes
    ----------
    task
        ``binary``, ``multiclass``, ``regression`` or ``ranking``.
    score_output
        The name of the model's output that holds scores.
    decision_output
        The name of the model's output that holds decisions: the one that is served.
    score_kind
        What that output holds: ``probability``, ``percent`` (0 to 100), ``logit``, ``label``, or ``value``: a number on
        a scale of its own, such as points.
    favorable_class
        Which column of the scores, from 0, belongs to the favorable label.
    threshold
        In the score's own unit: decisions are favorable from it on, or up to it where the score is of the unfavorable
        outcome; of probabilities of classes it is the favorable label's; by default the model's own label output, or
        0.5 where it has none.
    classes
        The label's values in the order of the model's classes, where the model names its classes otherwise.
    rename
        By column of the table, the name that the model has for it.
    """

    task: Task | None = _of_model(
        "text",
        "NAME",
        "The task: binary, multiclass, regression or ranking. Default: told by the model and the label.",
        table="audit",
        rare=False,
    )
    score_output: str | None = _of_model(
        "text", "NAME", "The model's output that holds the scores. Default: found by its type and values."
    )
    decision_output: str | None = _of_model("text", "NAME", "The output that holds the decisions that are served.")
    score_kind: ScoreKind | None = _of_model(
        "text",
        "KIND",
        "What the scores are: probability, percent, logit, label, or value (a scale of their own). Default: found from "
        "the values.",
    )
    favorable_class: int | None = _of_model(
        "integer", "K", "Which column of the scores belongs to the favorable label, counted from 0."
    )
    threshold: float | None = _of_model(
        "number",
        "P",
        "The threshold in the score's own unit: favorable from it on, or up to it where the score is of the "
        "unfavorable outcome (a probability of default). Default: 0.5.",
        rare=False,
    )
    classes: tuple[str, ...] | None = _of_model(
        "names", "A,B,...", "The label's values in the order of the model's classes, class 0 first."
    )
    rename: Mapping[str, str] | None = _of_model(
        "columns", "COL=NAME", "The model's name for a column of the data; repeatable."
    )

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))  # a list where it comes from JSON
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ParameterError(f"threshold={self.threshold} is not a number that scores can reach")
        if self.threshold is not None and self.decision_output is not None:
            raise ParameterError(
                f"decisions come from the output {self.decision_output!r} or from scores of at least "
                f"{self.threshold}, not from both; leave out decision_output or threshold"
            )
        for name, allowed in (("task", Task), ("score_kind", ScoreKind)):
            value, choices = getattr(self, name), get_args(allowed)
            if value is not None and value not in choices:
                raise ParameterError(f"{name}={value!r} is not understood; it is one of {', '.join(choices)}")

    def over(self, others: ModelOptions) -> ModelOptions:
        """Return these options, and those of `others` where nothing is said here."""
        named = [each.name for each in dataclasses.fields(self) if getattr(self, each.name) is not None]
        return dataclasses.replace(others, **{name: getattr(self, name) for name in named})

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Refuse options that mean nothing for a model: none is silently ignored.

        Raises
        ------
        ParameterError
            One of them was given.
        """
        stated = [name for name in names if getattr(self, name) is not None]
        if stated:
            raise ParameterError(f"{stated[0]}={getattr(self, stated[0])!r} means nothing here: {why}; leave it out")


def at_threshold(options: ModelOptions | None, threshold: float | None) -> ModelOptions | None:
    """Return the options with a threshold that was given beside them."""
    return options if threshold is None else dataclasses.replace(options or ModelOptions(), threshold=threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Everything besides model and data that decides what an audit finds.

    Attributes
    ----------
    auditors
        Names of the auditors, in order.
    parameters
        Their parameters, by auditor.
    policy, adjustment
        Rules, and the adjustment for their number: None, ``holm``, ``bonferroni`` or ``benjamini-hochberg``.
    confidence
        Of every interval, in (0, 1).
    seed
        For every random draw, 0 or more.
    copies
        ``independent`` where rows that look like copies are different people; None: no verdict depends on them.
    options
        What cannot be guessed about the model.
    """

    auditors: tuple[str, ...] = setting(
        DEFAULT_AUDITORS, "names", "NAME", "An auditor to run; repeatable. Default: group.", option="--auditor"
    )
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: tuple[Rule, ...] = ()
    adjustment: Adjustment | None = setting(
        None,
        "text",
        "NAME",
        "Adjust the rules for their number: holm (bounds wrong fails), bonferroni (any wrong verdict) or "
        "benjamini-hochberg (the share of wrong verdicts). Default: none.",
        option="--adjust",
        key="adjust",
        panel="Policy",
        rare=True,
    )
    confidence: float = setting(
        0.95, "number", "C", "The confidence of every interval, between 0 and 1. Default: 0.95."
    )
    seed: int = setting(0, "integer", "N", "The seed of every random draw. Default: 0.")
    copies: Copies | None = setting(
        None,
        "text",
        "independent",
        "Take rows that look like copies of others for different people. Default: no verdict may depend on them.",
        rare=True,
    )
    options: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ParameterError(f"confidence={self.confidence} is not between 0 and 1; 0.95 is usual")
        if self.seed < 0:
            raise ParameterError(f"seed={self.seed} is negative; seeds are 0 or more")
        if self.copies not in (None, *get_args(Copies)):
            raise ParameterError(f"copies={self.copies!r} is not understood; it is independent")
        if self.adjustment not in (None, *ADJUSTMENTS):
            raise ParameterError(
                f"the adjustment {self.adjustment!r} is not known; it is {', '.join(ADJUSTMENTS[:-1])} or "
                f"{ADJUSTMENTS[-1]}"
            )

    @classmethod
    def of(cls, named: Mapping[str, Any], settings: Self | None = None) -> Self:
        """Return settings with some of them replaced by name; None in `named` leaves a setting as it is.

        Raises
        ------
        ParameterError
            A name or a value is not one of a setting.
        """
        names = [each.name for each in dataclasses.fields(cls)]
        for name in named:
            if name not in names:
                raise ParameterError(f"an audit has no setting {name!r}. {did_you_mean(name, names, what='settings')}")
        stated = {name: value for name, value in named.items() if value is not None}
        for name in ("auditors", "policy"):
            if name in stated:
                stated[name] = tuple(stated[name])
        return dataclasses.replace(settings or cls(), **stated)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as it stands in a certificate; ``model`` are the options that are not None."""
        options = dataclasses.asdict(self.options)
        return {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(AuditSettings)
            if each.name != "options" and (each.name != "copies" or self.copies is not None)
        } | {
            "auditors": list(self.auditors),
            "parameters": {name: dict(values) for name, values in self.parameters.items()},
            "policy": [rule.to_dict() for rule in self.policy],
            "model": {key: value for key, value in options.items() if value is not None},
        }

    @staticmethod
    def arguments_of(record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments from what `to_dict` wrote."""
        return {
            **{key: value for key, value in record.items() if key != "model"},
            "auditors": tuple(record["auditors"]),
            "policy": tuple(map(Rule.from_dict, record["policy"])),
            "options": ModelOptions(**record["model"]),
        }


def declared() -> Iterator[Setting]:
    """Iterate over the settings that people give as options, in the order of the command's help."""
    for cls in (ModelOptions, AuditSettings):
        for each in dataclasses.fields(cls):
            if "setting" in each.metadata:
                how = dict(each.metadata["setting"])
                how["key"] = how["key"] or each.name
                how["option"] = how["option"] or f"--{each.name.replace('_', '-')}"
                if how["rare"]:
                    how["option"] = f"--set {how['table']}.{how['key']}"
                yield Setting(name=each.name, **how)
