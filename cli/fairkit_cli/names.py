"""A model on the command line: a file, or a name in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit_cli.config import Config


def model_file(model: str, config: Config) -> Path:
    """Find the file behind a path, or behind a registry name such as ``credit@production``.

    A path that exists wins. Raises what the registry raises for a name that it does not hold.
    """
    from fairkit_registry.names import is_reference

    path = Path(model)
    if path.exists() or not is_reference(model):
        return path
    from fairkit_registry.store.location import locate, witnesses
    from fairkit_registry.store.lookup import resolve

    folder = config.registry.get("path")
    return resolve(
        model,
        locate(configured=config.file(folder) if folder else None),
        witnesses=witnesses(config.registry.get("witness"), folder=config.path and config.path.parent),
    )
