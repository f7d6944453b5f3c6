"""The command's words for what core names: an option for a field, ``--set`` for the parameter of a plugin."""

from __future__ import annotations

import re
import shlex

from fairkit.settings import declared

_NAMESAKES = (
    "about", "accept_status", "anyway", "assume", "base", "batch", "blind", "budget", "cluster", "counts_from", "day",
    "deterministic", "drop", "endpoint_timeout", "engine", "favorable", "features", "groups", "holdout", "horizon",
    "id", "jobs", "join", "label", "label_error", "learner", "max", "memory", "methods", "missing", "model",
    "model_name", "model_version", "on", "pack", "plugin", "predictions", "query", "reference",
    "repeats", "rows", "scheduler", "search", "sensitive", "sensitive_probability", "state", "sure", "test",
    "timeout", "vary", "within",
)  # fmt: skip
"""Fields whose option has their name."""

OPTIONS = (
    {each.name: each.option for each in declared()}
    | {name: f"--{name.replace('_', '-')}" for name in _NAMESAKES}
    | {
        "domains": "--allow-domain",
        "favorable_decision": "--predictions decision=COL,favorable=V",
        "sweeps": "--plugin",
    }
)
"""The option for every field that core's messages name in backticks; core has no other words for them."""

_PARAMETER = re.compile(r"the parameter `([\w.+-]+)=([^`\n]*)`")
_FIELD = re.compile(rf"`({'|'.join(OPTIONS)})(?:=([^`\n]*))?`")


def as_options(text: str) -> str:
    """Put what people type in place of what core names in backticks.

    `label` becomes ``--label``, `score_output=p` becomes ``--score-output p``, and the parameter `rho=2` becomes
    ``--set rho=2``. A value is quoted for the shell where it has to be: names of outputs come from the model.
    """
    text = _PARAMETER.sub(lambda found: f"--set {found[1]}={shlex.quote(found[2])}", text)
    return _FIELD.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    option, value = OPTIONS[found[1]], found[2]
    return option if value is None else f"{option} {shlex.quote(value)}"
