"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

from fairkit_cli.lazy import group_of

_COMMANDS = {
    "add": "fairkit_cli.registry.versions:add",
    "list": "fairkit_cli.registry.versions:list_models",
    "show": "fairkit_cli.registry.versions:show",
    "alias": "fairkit_cli.registry.aliases:alias",
    "promote": "fairkit_cli.registry.aliases:promote",
    "demote": "fairkit_cli.registry.aliases:demote",
    "revoke": "fairkit_cli.registry.versions:revoke",
    "verify": "fairkit_cli.registry.aliases:verify",
    "export": "fairkit_cli.registry.versions:export",
    "import": "fairkit_cli.registry.versions:import_archive",
    "check": "fairkit_cli.registry.versions:check",
}


app = group_of(_COMMANDS, "Versions of ONNX models with their certificates.")
