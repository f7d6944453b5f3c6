"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from fairkit_cli.registry import aliases as registry_aliases
from fairkit_cli.registry import care as registry_care
from fairkit_cli.registry import remote as registry_remote
from fairkit_cli.registry import versions as registry_versions
from fairkit_cli.registry.common import with_witness
from fairkit_cli.timings import with_timings

app = typer.Typer(no_args_is_help=True, help="Versions of ONNX models with their certificates.")

_COMMANDS: dict[str, Callable[..., Any]] = {
    "add": registry_versions.add,
    "list": registry_versions.list_models,
    "show": registry_versions.show,
    "log": registry_versions.log,
    "diff": registry_versions.diff,
    "alias": registry_aliases.alias,
    "promote": registry_aliases.promote,
    "verify": registry_aliases.verify,
    "revocations": registry_care.revocations,
    "export": registry_care.export,
    "import": registry_care.import_archive,
    "push": registry_remote.push,
    "pull": registry_remote.pull,
    "attach": registry_remote.attach,
    "check": registry_care.check,
    "gc": registry_care.gc,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(with_witness(with_timings(_command)))
