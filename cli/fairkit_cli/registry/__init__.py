"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairkit_cli.lazy import group_of
from fairkit_cli.registry.common import with_witness
from fairkit_cli.terminal.timings import with_timings

_COMMANDS = {
    "add": "fairkit_cli.registry.versions:add",
    "list": "fairkit_cli.registry.versions:list_models",
    "show": "fairkit_cli.registry.versions:show",
    "log": "fairkit_cli.registry.versions:log",
    "inventory": "fairkit_cli.registry.inventory:inventory",
    "diff": "fairkit_cli.registry.versions:diff",
    "alias": "fairkit_cli.registry.aliases:alias",
    "lock": "fairkit_cli.registry.locking:lock",
    "detach": "fairkit_cli.registry.detaching:detach",
    "promote": "fairkit_cli.registry.aliases:promote",
    "probation": "fairkit_cli.registry.probation:probation",
    "verify": "fairkit_cli.registry.verifying:verify",
    "revocations": "fairkit_cli.registry.care:revocations",
    "export": "fairkit_cli.registry.care:export",
    "import": "fairkit_cli.registry.arriving:import_archive",
    "site": "fairkit_cli.registry.site.command:site",
    "check": "fairkit_cli.registry.care:check",
    "gc": "fairkit_cli.registry.care:gc",
}


def _wrapped(command: Callable[..., Any]) -> Callable[..., Any]:
    return with_witness(with_timings(command))


app = group_of(_COMMANDS, _wrapped, "Versions of ONNX models with their certificates.")
