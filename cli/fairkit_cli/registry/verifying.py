"""`fairkit registry verify`: does the evidence of a version hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import KeysOption, RegistryOption, load_keys, open_registry
from fairkit_cli.terminal.output import print_as


def verify(
    reference: Annotated[str, typer.Argument(help="A version, NAME@ALIAS, or an exported archive (a file).")],
    key: KeysOption = None,
    *,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check a version's file and certificates against keys that you trust.

    Without --key the keys count that the model's aliases trust. NAME@ALIAS is also held against the
    alias's policy again.
    """
    from fairkit_cli.names import refuse_remote
    from fairkit_cli.registry import verify as registry_verify

    refuse_remote(reference)
    if Path(reference).is_file():
        outcome = registry_verify.archive(Path(reference), load_keys(key))
    else:
        with open_registry(registry) as store:
            outcome = registry_verify.version(store, reference, load_keys(key))
    print_as(output_format, outcome.to_dict(), *outcome.lines())
    raise typer.Exit(outcome.code)
