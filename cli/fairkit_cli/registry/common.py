"""What the registry's commands share: options, opening."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairkit_registry.evidence.keys import PublicKey
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
    from fairkit.config import load_config
    from fairkit_registry.store.location import locate

    config = load_config()
    path = config.registry.get("path")
    return locate(option, configured=None if path is None else config.file(path))


def open_registry(option: Path | None, *, before: Callable[[], None] | None = None) -> Registry:
    """Open the registry. With `before` it is made where there is none, after a look at what will be added."""
    from fairkit_registry.store.registry import INDEX_FILE, Registry

    path = registry_path(option)
    if before is not None and not (path / INDEX_FILE).exists():
        before()  # what it refuses leaves no empty registry behind
        say(f"new registry: {path}")
    return Registry(path, create=before is not None)


def load_keys(paths: list[Path] | None) -> list[PublicKey]:
    """Read the public keys that the user named."""
    from fairkit_registry.evidence.keys import load_public

    return [load_public(path) for path in paths or ()]
