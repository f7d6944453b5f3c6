"""The command's words for what core names: an option for a field, ``--set`` for the parameter of a plugin."""

from __future__ import annotations

import re
import shlex

from fairkit.settings import declared

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

_PARAMETER = re.compile(r"the parameter `([\w.+-]+)=([^`\n]*)`")
_FIELD = re.compile(rf"`({'|'.join(OPTIONS)})(?:=([^`\n]*))?`")


def as_options(text: str) -> str:
    """Put what people type in place of what core names in backticks.

    `label` becomes ``--label``, `score_output=p` becomes ``--set model.score_output=p``, and the parameter
    `rho=2` becomes ``--set rho=2``. A value is quoted for the shell where it has to be: names of
    outputs come from the model.
    """
    text = _PARAMETER.sub(lambda found: f"--set {found[1]}={shlex.quote(found[2])}", text)
    return _FIELD.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    option, value = OPTIONS[found[1]], found[2]
    if value is None:
        return option
    return f"{option}={shlex.quote(value)}" if option.startswith("--set ") else f"{option} {shlex.quote(value)}"
