"""The settings of an audit, options that stand alone, and what they and the configuration file say together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit.results.rules import Rule
from fairkit.settings import DEFAULT_AUDITORS, AuditSettings, ModelOptions, Setting, declared
from fairkit.support.files import check_writable
from fairkit.support.lazy_dataclass import dataclass, fields
from fairkit_cli.options.data import (
    OUTPUT,
    POLICY,
    Rare,
    declared_option,
    formats,
    listed,
    option,
    setting_option,
    split_names,
)

if TYPE_CHECKING:
    from fairkit_cli.config import Config


AuditedModel = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL.onnx",
        help="The model file, a name in the registry, or a table of answers from `fairkit ask`; without one, "
        "--predictions or --endpoint says what.",
    ),
]
Confidence = Annotated[float | None, setting_option("confidence")]
Seed = Annotated[int | None, setting_option("seed")]
Assignments = Annotated[
    list[str] | None,
    option("--set", "KEY=VALUE", "A parameter of a plugin; repeatable. `fairkit plugins show NAME` lists them."),
]
Functions = Annotated[
    list[str] | None,
    Rare(
        "audit.metric",
        "A function of your own as a metric of every group, NAME=MODULE:FUNCTION, as in "
        "mcc=sklearn.metrics:matthews_corrcoef. It is imported, so that its code runs.",
    ),
]
TableFormat = Annotated[str, formats("table", "json")]
PageFormat = Annotated[str, formats("table", "json", "html")]
ReportFormat = Annotated[str, formats("table", "json", "junit", "html", "markdown")]
VersionFormat = Annotated[
    str,
    formats(
        "table",
        "json",
        "markdown: a model card",
        "hf-card: one for the Hugging Face Hub",
        "cyclonedx: a bill of materials",
        "html: its audit",
        exporters=True,
    ),
]


def _writable(path: Path | None) -> Path | None:
    """Refuse, before a command does its work, a file that could not be written at its end."""
    if path is not None:
        check_writable(path)
    return path


Output = Annotated[
    Path | None,
    option("--output", "FILE", "Write the result to this file instead of standard output.", OUTPUT, callback=_writable),
]
Copies = Annotated[
    list[Path] | None,
    option(
        "--save",
        "FILE",
        "Write the report to this file too, in the format that its name ends in: .html, .md, .json, .xml for JUnit "
        "(repeatable).",
        OUTPUT,
    ),
]
ConfigFile = Annotated[
    Path | None, option("--config", "FILE", "The configuration file. Default: the nearest fairkit.toml, here or above.")
]

SigningKeys = Annotated[list[str], option("--key", "FILE", "Secret key to sign with, or pkcs11:... (repeatable).")]
InsecureKey = Annotated[
    bool, typer.Option("--insecure-key", help="Sign with a key that other users of this machine can read.")
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
TaskName = Annotated[str | None, setting_option("task")]
Adjust = Annotated[
    str | None,
    option("--adjust", "NAME", next(setting.help for setting in declared() if setting.name == "adjustment"), POLICY),
]

_MORE = {"auditors": {"assignments": Assignments, "maximums": MaxRules, "minimums": MinRules}}
"""By the setting that they follow in the help, the options that are not settings by themselves."""


def _options() -> dict[str, Any]:
    options: dict[str, Any] = {}
    for each in declared():
        options[each.name] = declared_option(each)
        options |= _MORE.get(each.name, {})
    return options


def _group(name: str, about: str, only: Collection[str] | None = None) -> Any:
    """Make the class of these options, or of all."""
    options = {key: shown for key, shown in _options().items() if only is None or key in only}
    keys = {each.name: f"{each.table}.{each.key}" for each in declared() if each.name in options and not each.rare}
    body = {
        "__doc__": about,
        "__module__": __name__,
        "__annotations__": options,
        "KEYS": keys,
        **dict.fromkeys(options),
    }
    return dataclass(frozen=True, kw_only=True)(type(name, (), body))


_MODEL = {each.name for each in fields(ModelOptions)}

if TYPE_CHECKING:

    class AuditOptions:
        """The audit options of a command as they were typed; None where nothing was."""

        def __init__(self, **typed: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    class ScoringOptions(AuditOptions):
        """Those of them that say how models are read and looked at, for commands without a policy."""

    class OutputOptions(AuditOptions):
        """Those of them that say what a given model's outputs are."""

else:
    OutputOptions = _group(
        "OutputOptions", "What a given model's outputs are, for commands that repair it.", _MODEL - {"task"}
    )
    AuditOptions = _group("AuditOptions", "The audit options of a command as they were typed; None where nothing was.")
    ScoringOptions = _group(
        "ScoringOptions",
        "The options that say how models are read and looked at, for commands without a policy.",
        _MODEL - {"threshold"} | {"auditors", "assignments", "confidence"},
    )


def named_auditors(typed: AuditOptions, config: Config) -> list[str]:
    """Return the auditors that are named on the command line, else in the configuration file."""
    return listed(typed.auditors) or listed(config.audit.get("auditors"))


def audit_settings(typed: AuditOptions, config: Config) -> AuditSettings:
    """Combine options and configuration file; options win.

    An auditor whose parameters are given is run too.
    """
    typed_only = {name: getattr(typed, name, None) for more in _MORE.values() for name in more}
    parameters = {name: dict(values) for name, values in config.auditors.items()}
    for owner, key, value in _owned(typed_only["assignments"] or ()):
        parameters.setdefault(owner, {})[key] = value
    stated = {each.name: _stated(each, typed, config) for each in declared()}
    model = {name: stated.pop(name) for name in _MODEL}
    names = listed(stated["auditors"]) or [*DEFAULT_AUDITORS]
    stated["auditors"] = [*names, *(name for name in parameters if name not in names)]
    rules = rules_of(typed_only["maximums"], typed_only["minimums"])
    if rules:
        _say_replaced(rules, config)
    more = {"parameters": parameters, "policy": rules or config.policy, "options": ModelOptions(**model)}
    return AuditSettings.of(stated | more)


def rules_of(maximums: Sequence[str] | None, minimums: Sequence[str] | None) -> tuple[Rule, ...]:
    """Read the rules of --max and --min."""
    rules = [Rule.parse(text, "max") for text in maximums or ()]
    return (*rules, *(Rule.parse(text, "min") for text in minimums or ()))


def _say_replaced(rules: Sequence[Rule], config: Config) -> None:
    """Say which rules of the configuration file are weaker than the command line's, and which do not hold at all."""
    from fairkit_cli.terminal.output import say

    weaker, left = [], 0
    for rule in config.policy:
        typed = [
            replaced
            for replaced in rules
            if (replaced.metric, replaced.sensitive, replaced.side) == (rule.metric, rule.sensitive, rule.side)
        ]
        left += not typed
        weaker += [
            f"{rule.metric}{f':{rule.sensitive}' if rule.sensitive else ''} {rule.side} {rule.limit:g}"
            for rule_typed in typed
            if (rule.limit > rule_typed.limit if rule.side == "max" else rule.limit < rule_typed.limit)
        ]
    if weaker:
        say(f"{config.path}: weaker than the command line's rules, which hold instead: {', '.join(weaker)}")
    if left:
        say(f"{config.path}: rules of it that do not hold, because the command line has its own: {left}")


def _stated(setting: Setting, typed: AuditOptions, config: Config) -> Any:
    """Return a setting's value from the command line, else from the configuration file, else None."""
    value = getattr(typed, setting.name, None)
    if setting.kind == "names":
        value = split_names(value) or None
    elif setting.kind == "columns":
        value = _renamed(value) or None
    stated: Mapping[str, Any] = getattr(config, setting.table)
    return stated.get(setting.key) if value is None else value


def _renamed(texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``COL=NAME``, one in each text; a name may hold an equals sign, a column may not."""
    renamed: dict[str, str] = {}
    for text in texts or ():
        column, equals, name = text.partition("=")
        if not equals or not column or not name:
            raise ParameterError(
                f"--set model.rename={text} is not understood; write COLUMN=NAME, as in --set model.rename=income=inc"
            )
        if column in renamed:
            raise ParameterError(f"model.rename gives the column {column!r} two names; give it one")
        renamed[column] = name
    return renamed


def _owned(assignments: Sequence[str]) -> list[tuple[str, str, str]]:
    """Split ``AUDITOR.KEY=VALUE``."""
    from fairkit.parameters import split_assignment

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
