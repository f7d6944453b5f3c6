"""A model on the command line: a file, a name in the registry, or an address in an OCI registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit_cli.config import Config


def model_file(model: str, config: Config) -> Path:
    """Find the file behind a path, a registry name such as ``credit@production``, or ``oci://host/team/credit:3``.

    A path that exists wins. Raises what the registry raises for a name that it does not hold.
    """
    from fairkit_registry.names import is_reference

    if model.startswith(("oci://", "oci+http://")):
        return _pulled(model)
    path = Path(model)
    if path.exists() or not is_reference(model):
        return path
    from fairkit_registry.store.lookup import resolve

    return resolve(model, config.registry_folder(), witnesses=config.witnesses())


def _pulled(address: str) -> Path:
    """Return the file behind an address, kept in the user's cache by its digest and hashed again each time."""
    import platformdirs

    from fairkit_registry.exchange.fetching import fetch
    from fairkit_registry.oci.address import parse

    return fetch(parse(address), Path(platformdirs.user_cache_path("fairkit")) / "models")
