"""What the registry's commands share: options, opening."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli.names import refuse_remote
from fairkit_cli.terminal.output import FAILED, echo, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.exchange.importing import Imported
    from fairkit_registry.store.registry import Registry

RegistryOption = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        help="The registry's folder; else FAIRKIT_REGISTRY, else [registry] path, else ./fairkit-registry.",
    ),
]
KeysOption = Annotated[
    list[Path] | None, typer.Option("--key", help="Public key to trust (repeatable).", show_default=False)
]


def registry_path(option: Path | None) -> Path:
    """Return the registry's folder from the option, the environment or the configuration."""
    from fairkit_cli.config import load_config

    return load_config().registry_folder(option)


def open_registry(option: Path | None, *, before: Callable[[], None] | None = None, trusting: bool = False) -> Registry:
    """Open the registry. With `before` it is made where there is none, after a look at what will be added.

    `trusting` opens one that is older than what is remembered of it, or was changed, for a check that says so.
    """
    from fairkit_cli.config import load_config
    from fairkit_registry.store.folder import INDEX_FILE
    from fairkit_registry.store.registry import Registry

    refuse_remote(str(registry_path(option)))
    path = registry_path(option)
    if before is not None and not (path / INDEX_FILE).exists():
        before()  # what it refuses leaves no empty registry behind
        say(f"new registry: {path}")
    found = Registry(path, create=before is not None, witnesses=load_config().witnesses(), trusting=trusting)
    for note in found.notes:
        say(note)
    return found


@contextmanager
def refusing() -> Iterator[None]:
    """End the command with code 1, and say why, where evidence does not hold."""
    from fairkit_registry.errors import VerificationError

    try:
        yield
    except VerificationError as error:
        echo(f"refused: {error}")
        raise typer.Exit(FAILED) from None


def arrival_line(arrived: Imported, *, keyed: bool) -> str:
    """Say what became of a version that came from elsewhere, and whether a key vouches for it."""
    here = "" if arrived.version is None else arrived.version.reference
    state = "" if arrived.new else "  (already here)"
    vouched = "signed by a trusted key" if keyed else "signatures not checked (no --key)"
    return f"{arrived.origin} -> {here}{state}  {vouched if arrived.certificates else 'no certificate'}"


def load_keys(paths: Sequence[Path] | None) -> list[PublicKey]:
    """Read the public keys that the user named."""
    from fairkit_registry.evidence.keys import load_public

    return [load_public(path) for path in paths or ()]
