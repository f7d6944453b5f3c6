"""The settings of an audit: its options, and what they and the configuration file say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit_cli.options.data import first_known, listed, split_names
from fairkit_cli.options.declare import DATA, MODEL, OUTPUT, POLICY, option
from fairkit_cli.options.shared import Assignments, Confidence, Seed

if TYPE_CHECKING:
    from fairkit.models.scorer import ModelOptions
    from fairkit.results.policy import Adjustment
    from fairkit.results.rules import Rule
    from fairkit_cli.config import Config

TaskName = Annotated[
    str | None,
    option(
        "--task",
        "NAME",
        "The task: binary, multiclass, regression or ranking. Default: told by the model and the label.",
        MODEL,
    ),
]
ScoreOutput = Annotated[
    str | None,
    option(
        "--score-output",
        "NAME",
        "The model's output that holds the scores. Default: found by its type and values.",
        MODEL,
    ),
]
DecisionOutput = Annotated[
    str | None,
    option("--decision-output", "NAME", "The output that holds the decisions that are served.", MODEL),
]
ScoreKindName = Annotated[
    str | None,
    option(
        "--score-kind",
        "KIND",
        "What the scores are: probability, logit, label or value. Default: found from the values.",
        MODEL,
    ),
]
FavorableClass = Annotated[
    int | None,
    option(
        "--favorable-class",
        "K",
        "Which column of the scores belongs to the favorable label, counted from 0.",
        MODEL,
    ),
]
Threshold = Annotated[
    float | None,
    option(
        "--threshold",
        "P",
        "The decision threshold: favorable when the probability is at least this. Default: 0.5.",
        MODEL,
    ),
]
Classes = Annotated[
    list[str] | None,
    option(
        "--classes",
        "A,B,...",
        "The label's values in the order of the model's classes, class 0 first.",
        MODEL,
    ),
]
Rename = Annotated[
    list[str] | None,
    option("--rename", "COL=NAME", "The model's name for a column of the data; repeatable.", MODEL),
]
AuditorNames = Annotated[
    list[str] | None,
    option("--auditor", "NAME", "An auditor to run; repeatable. Default: group."),
]
MaxRules = Annotated[
    list[str] | None,
    option(
        "--max",
        "METRIC:COL=X",
        "A policy rule: the metric must be at most X. Repeatable. METRIC@N=X: for N people as replacements.",
        POLICY,
    ),
]
MinRules = Annotated[
    list[str] | None,
    option("--min", "METRIC:COL=X", "A policy rule: the metric must be at least X. Repeatable.", POLICY),
]
Adjust = Annotated[
    str | None,
    option(
        "--adjust",
        "NAME",
        "Adjust the rules for their number: holm (bounds wrong fails), bonferroni (any wrong verdict) or "
        "benjamini-hochberg (the share of wrong verdicts). Default: none.",
        POLICY,
    ),
]
LabelError = Annotated[
    list[str] | None,
    option(
        "--label-error",
        "COL=E",
        "Up to this share of a sensitive column's, or the label's, values is wrong; verdicts must hold anyway. "
        "COL=E:independent: errors do not depend on decisions.",
        DATA,
    ),
]
Simultaneous = Annotated[
    bool | None,
    typer.Option(
        "--simultaneous",
        help="Add intervals of all disparities that hold together, and mark the disparities that survive.",
        rich_help_panel=OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The audit options of a command as they were typed; None where nothing was."""

    task: TaskName = None
    score_output: ScoreOutput = None
    decision_output: DecisionOutput = None
    score_kind: ScoreKindName = None
    favorable_class: FavorableClass = None
    threshold: Threshold = None
    classes: Classes = None
    rename: Rename = None
    auditors: AuditorNames = None
    assignments: Assignments = None
    maximums: MaxRules = None
    minimums: MinRules = None
    adjust: Adjust = None
    confidence: Confidence = None
    seed: Seed = None
    label_error: LabelError = None
    simultaneous: Simultaneous = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What `fairkit.audit` is called with."""

    auditors: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]]
    policy: tuple[Rule, ...]
    adjustment: Adjustment | None
    confidence: float
    seed: int
    options: ModelOptions

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `fairkit.audit`."""
        return {name: getattr(self, name) for name in self.__slots__}


def audit_settings(typed: AuditOptions, config: Config) -> AuditSettings:
    """Combine options and configuration file; options win.

    An auditor whose parameters are given is run too.

    Raises
    ------
    FairkitError
        A rule, a parameter or an option cannot be used.
    """
    from fairkit.models.scorer import ModelOptions
    from fairkit.results.rules import Rule

    parameters = {name: dict(values) for name, values in config.auditors.items()}
    for owner, key, value in _owned(typed.assignments or ()):
        parameters.setdefault(owner, {})[key] = value
    if typed.simultaneous:
        parameters.setdefault("group", {})["simultaneous"] = True
    if typed.label_error:
        parameters.setdefault("group", {})["label_error"] = list(typed.label_error)
    names = split_names(typed.auditors) or listed(config.audit.get("auditors")) or ["group"]
    names += [name for name in parameters if name not in names]
    rules = [Rule.parse(text, "max") for text in typed.maximums or ()]
    rules += [Rule.parse(text, "min") for text in typed.minimums or ()]
    told = {
        key: getattr(typed, key)
        for key in ("score_output", "decision_output", "score_kind", "favorable_class", "threshold")
    }
    model: dict[str, Any] = {
        key: config.model.get(key) if value is None else value for key, value in told.items()
    }
    model["classes"] = split_names(typed.classes) or config.model.get("classes")
    model["rename"] = _renamed(typed.rename) or config.model.get("rename")
    model["task"] = typed.task or config.audit.get("task")
    return AuditSettings(
        auditors=tuple(names),
        parameters=parameters,
        policy=tuple(rules) or config.policy,
        adjustment=_adjustment(typed.adjust or config.audit.get("adjust")),
        confidence=first_known(typed.confidence, config.audit.get("confidence"), 0.95),
        seed=first_known(typed.seed, config.audit.get("seed"), 0),
        options=ModelOptions(**model),
    )


def _renamed(texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``COL=NAME``, one in each text; a name may hold an equals sign, a column may not."""
    found: dict[str, str] = {}
    for text in texts or ():
        column, equals, name = text.partition("=")
        if not equals or not column or not name:
            raise ParameterError(
                f"--rename {text!r} is not understood; write COLUMN=NAME, as in --rename income=inc"
            )
        if column in found:
            raise ParameterError(f"--rename gives the column {column!r} two names; give it one")
        found[column] = name
    return found


def _adjustment(name: Any) -> Adjustment | None:
    from fairkit.results.policy import ADJUSTMENTS

    if name not in (None, *ADJUSTMENTS):
        raise ParameterError(
            f"the adjustment {name!r} is not known; it is {', '.join(ADJUSTMENTS[:-1])} or {ADJUSTMENTS[-1]}"
        )
    adjustment: Adjustment | None = name
    return adjustment


def _owned(assignments: Sequence[str]) -> list[tuple[str, str, str]]:
    """Split ``AUDITOR.KEY=VALUE``."""
    from fairkit.parameters.declare import split_assignment

    parts = []
    for text in assignments:
        name, value = split_assignment(text)
        owner, dot, key = name.partition(".")
        if not dot:
            raise ParameterError(
                f"--set {text!r} does not say whose parameter it is; write AUDITOR.KEY=VALUE, "
                "as in --set restricted-dro.epsilon=0.1"
            )
        parts.append((owner, key, value))
    return parts
