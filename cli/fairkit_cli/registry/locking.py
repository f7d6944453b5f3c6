"""`fairkit registry lock`: a policy lock goes into the log, before the model does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import KeysOption, RegistryOption, load_keys, open_registry, refusing
from fairkit_cli.terminal.output import print_as


def lock(
    name: Annotated[str, typer.Argument(help="The model's name; it need not have a version yet.")],
    file: Annotated[Path, typer.Argument(metavar="LOCK", help="The lock, from `fairkit policy lock`.")],
    key: KeysOption = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Register a policy lock for a model that is still to come; the log shows that it was first.

    An alias with --pre-registered asks for it. Of several locks the newest before the model counts.
    """
    from fairkit_registry.evidence.locks import read_file

    raw, trusted = read_file(file), load_keys(key)
    with refusing(), open_registry(registry, before=lambda: None) as store:
        terms = store.lock(name, raw, trusted)
        event = next(one for one in store.log(name) if one.action == "lock")
    print_as(
        output_format,
        terms.to_dict() | {"event": event.to_dict()},
        f"{name}: policy lock {terms.statement_sha256[:12]} about {terms.name}, {terms.rows:,} rows, registered as "
        f"event {event.seq} at {event.at[:19]}",
    )
