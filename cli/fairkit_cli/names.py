"""A model on the command line: a file, or a name in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError

if TYPE_CHECKING:
    from fairkit_cli.config import Config


def refuse_remote(text: str) -> None:
    """Refuse the address of an OCI registry: its usual tools carry archives there and back."""
    if text.startswith(("oci:/", "oci+http:/")):
        raise FairkitError(
            f"{text} is in an OCI registry, which is not read: `skopeo copy docker://HOST/REPOSITORY:TAG "
            "oci-archive:FILE.tar` brings it here, and `fairkit registry import FILE.tar --key PUB` takes it in"
        )


def model_file(model: str, config: Config) -> Path:
    """Find the file behind a path or a registry name such as ``credit@production``; a path that exists wins."""
    from fairkit_registry.jsonio import is_reference

    refuse_remote(model)
    path = Path(model)
    if path.exists() or not is_reference(model):
        return path
    from fairkit_registry.errors import RegistryError
    from fairkit_registry.store.registry import resolve

    try:
        return resolve(model, config.registry_folder(), witnesses=config.witnesses())
    except RegistryError:
        if path.suffix and "@" not in model:
            return path  # a file's name, mistyped
        raise
