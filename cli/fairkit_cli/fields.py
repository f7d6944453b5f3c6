"""The command's words for what core names: an option for a field, ``--set`` for the parameter of a plugin."""

from __future__ import annotations

import re
import shlex

from fairkit.settings import declared

OPTIONS = {each.name: each.option for each in declared()} | {
    "about": "--about",
    "accept_status": "--accept-status",
    "anyway": "--anyway",
    "assume": "--assume",
    "base": "--base",
    "batch": "--batch",
    "blind": "--blind",
    "budget": "--budget",
    "day": "--day",
    "cluster": "--cluster",
    "counts_from": "--counts-from",
    "deterministic": "--deterministic",
    "domains": "--allow-domain",
    "drop": "--drop",
    "endpoint_timeout": "--endpoint-timeout",
    "engine": "--engine",
    "favorable": "--favorable",
    "favorable_decision": "--predictions decision=COL,favorable=V",
    "features": "--features",
    "groups": "--groups",
    "holdout": "--holdout",
    "horizon": "--horizon",
    "id": "--id",
    "jobs": "--jobs",
    "join": "--join",
    "label": "--label",
    "label_error": "--label-error",
    "learner": "--learner",
    "max": "--max",
    "memory": "--memory",
    "methods": "--methods",
    "missing": "--missing",
    "model": "--model",
    "model_name": "--model-name",
    "model_version": "--model-version",
    "no_outcomes": "--no-outcomes",
    "on": "--on",
    "pack": "--pack",
    "plugin": "--plugin",
    "predictions": "--predictions",
    "query": "--query",
    "reference": "--reference",
    "repeats": "--repeats",
    "rows": "--rows",
    "scheduler": "--scheduler",
    "search": "--search",
    "sensitive": "--sensitive",
    "sensitive_probability": "--sensitive-probability",
    "state": "--state",
    "sure": "--sure",
    "sweeps": "--plugin",
    "test": "--test",
    "timeout": "--timeout",
    "vary": "--vary",
    "within": "--within",
}
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
