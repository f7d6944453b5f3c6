"""Help that can be read: the options of a large command in groups, the six that everybody needs first.

The list of commands is written without importing any: what each does stands in its module's text.
"""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import PluginError
from fairkit.settings import declared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


MANY = 20
"""Commands with more options show them in groups."""
FIRST = 6
_FIRST = ("--data", "--label", "--favorable", "--sensitive", "--max", "--key", "--output")
_GROUPS = {
    "Data": (
        "--features", "--drop", "--join", "--on", "--predictions", "--labelled", "--test", "--holdout", "--against",
        "--features-of", "--pack", "--day", "--id",
    ),
    "Model": (
        "--task", "--threshold", "--plugin", "--model", "--learner", "--certificate", "--endpoint", "--model-name",
    ),
    "Conditions": ("--reference", "--within", "--cluster", "--sensitive-probability"),
    "Policy": ("--min", "--blind", "--policy", "--lock", "--objective", "--value"),
    "Statistics": ("--auditor", "--confidence", "--seed"),
    "Running": ("--config", "--engine", "--set", "--help"),
    "Output": ("--output", "--register", "--registry", "--insecure-key", "--signed-data", "--valid-days"),
}  # fmt: skip
"""Options that are elsewhere than their declaration says, or that it leaves open."""
_PANELS = {"Engine": "Running"}
_LAST = "More"


_KINDS = {"path": "PATH", "list[Path]": "PATH", "int range": "N", "float range": "X"}


def _plain(record: tuple[str, str], kinds: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return a line of help with a word for people in place of a type's name, ``<list[str]>``."""
    names, kind = re.fullmatch(r"(.*?)(?: <(.*)>)?", record[0], re.DOTALL).groups()  # type: ignore[union-attr]
    return (f"{names} {kinds.get(kind, 'TEXT')}" if kind and kinds is not None else names), record[1]


def group_options(command: Any) -> None:
    """Let a command show its options in groups where it has many."""

    def format_options(ctx: Any, formatter: Any) -> None:
        shown = [(each, record) for each in command.get_params(ctx) if (record := each.get_help_record(ctx))]
        arguments = [_plain(record) for each, record in shown if each.param_type_name == "argument"]
        options = [(each, _plain(record, _KINDS)) for each, record in shown if each.param_type_name == "option"]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        for title, records in _sections(options) if len(options) > MANY else [("Options", [r for _, r in options])]:
            with formatter.section(title):
                formatter.write_dl(records)

    command.format_options = format_options


def _sections(options: Sequence[tuple[Any, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the groups' titles with their lines; every option is in one of them."""
    names = {name: record for each, record in options for name in each.opts}
    first = [name for name in _FIRST if name in names][:FIRST]
    groups: dict[str, list[Any]] = {title: [] for title in ("First", *_GROUPS, _LAST)}
    groups["First"] = [names[name] for name in first]
    for each, record in options:
        if not set(first) & set(each.opts):
            groups[_group_of(each)].append(record)
    yield from ((title, records) for title, records in groups.items() if records)


def _group_of(option: Any) -> str:
    named = next((title for title, names in _GROUPS.items() if set(names) & set(option.opts)), None)
    panel = getattr(option, "rich_help_panel", None)
    panel = _PANELS.get(str(panel), panel)
    return named or (panel if panel in _GROUPS else _LAST)


_WORK = {
    "Begin": ("demo", "init", "data", "plan"),
    "Look": ("audit", "why", "compare", "parity"),
    "Repair": ("mitigate", "frontier", "alternatives"),
    "Show": ("key", "certify", "verify", "report", "packs", "policy", "registry"),
    "Go on": ("watch", "ask", "plugins"),
}
"""The commands in the order of work."""


def write_commands(formatter: Any, places: Mapping[str, str], commands: Mapping[str, Any]) -> None:
    """Write the list of commands; `commands` makes one, which is needed only where its text cannot be read."""
    sentences = {name: _first(summary(target) or _imported(commands, name)) for name, target in places.items()}
    sections = _WORK if sentences.keys() >= {"audit", "init"} else {}
    grouped = {title: [name for name in names if name in sentences] for title, names in sections.items()}
    rest = [name for name in sentences if not any(name in names for names in grouped.values())]
    for title, names in (grouped | {"More" if grouped else "Commands": rest}).items():
        if names:
            with formatter.section(title):
                formatter.write_dl([(name, sentences[name]) for name in names])


def _imported(commands: Mapping[str, Any], name: str) -> str:
    """Return the help of a command that has to be imported for it; of a broken plugin, why it does not load."""
    try:
        return str(commands[name].help or "")
    except PluginError as error:
        return str(error)


def summary(place: str) -> str | None:
    """Return the help of ``module:function`` or ``module:app`` from the module's text; None where it is not there."""
    module, _, attribute = place.partition(":")
    try:
        text = _source(module).read_text("utf-8")
    except (OSError, AttributeError, TypeError, ValueError):
        return None
    match = re.search(rf'^{attribute} = [^#]*?(?:help=|, )"((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
    match = match or re.search(rf'^def {attribute}\(.*?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
    return None if match is None else cleandoc(match[1])


def _source(module: str) -> Path:
    """Return a module's file, which no package above it is imported for."""
    top, *inner = module.split(".")
    spec: Any = find_spec(top)
    path = Path(spec.submodule_search_locations[0], *inner)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _first(text: str) -> str:
    """Return the first sentence."""
    return re.split(r"(?<=[.?])\s", " ".join(text.split("\n\n", maxsplit=1)[0].split()), maxsplit=1)[0]


# The command's words for what core names: an option for a field, `--set` for the parameter of a plugin.


_NAMESAKES = (
    "accept_status", "assume", "base", "batch", "blind", "cluster", "day",
    "drop", "engine", "favorable", "features", "groups", "holdout", "horizon",
    "id", "join", "label", "learner", "max", "min", "model",
    "model_name", "on", "pack", "plugin", "predictions", "reference",
    "search", "sensitive", "sensitive_probability", "state", "test",
    "vary", "within",
)  # fmt: skip
"""Fields whose option has their name."""

_RARE = (
    {
        name: f"--set {table}.{name}"
        for table, names in {
            "data": ("counts_from", "missing", "query", "weights"),
            "endpoint": ("model_version",),
            "engine": ("scheduler",),
            "frontier": ("jobs",),
            "mitigate": ("anyway", "budget", "deterministic", "methods", "repeats", "sure"),
            "sandbox": ("memory", "timeout"),
        }.items()
        for name in names
    }
    | {
        "about": "--set about.NAME=TEXT",
        "domains": "--set sandbox.allow_domain",
        "label_error": "--set group.label_error",
    }
    | {"endpoint_timeout": "--set endpoint.timeout"}
)
"""Fields that have no option: what ``--set`` takes."""

OPTIONS = (
    {each.name: each.option for each in declared()}
    | {name: f"--{name.replace('_', '-')}" for name in _NAMESAKES}
    | _RARE
    | {"favorable_decision": "--predictions decision=COL,favorable=V", "sweeps": "--plugin"}
)
"""The option for every field that core's messages name in backticks; core has no other words for them."""

_PARAMETER = r"the parameter `([\w.+-]+)=([^`\n]*)`"
_FIELD = rf"`({'|'.join(OPTIONS)})(?:=([^`\n]*))?`"


def as_options(text: str) -> str:
    """Put what people type in place of what core names in backticks.

    `label` becomes ``--label``, `score_output=p` becomes ``--set model.score_output=p``, and the parameter
    `rho=2` becomes ``--set rho=2``. A value is quoted for the shell where it has to be: names of
    outputs come from the model.
    """
    text = re.sub(_PARAMETER, lambda match: f"--set {match[1]}={shlex.quote(match[2])}", text)
    return re.sub(_FIELD, _option, text)


def _option(found: re.Match[str]) -> str:
    option, value = OPTIONS[found[1]], found[2]
    if value is None:
        return option
    return f"{option}={shlex.quote(value)}" if option.startswith("--set ") else f"{option} {shlex.quote(value)}"
