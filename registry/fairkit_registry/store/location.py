"""Where the registry is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_registry.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "FAIRKIT_REGISTRY"
DEFAULT = "fairkit-registry"


def locate(
    option: str | Path | None = None,
    *,
    configured: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return the registry's folder: the option, else the environment, else the configuration, else a default."""
    for choice in (option, environment.get(VARIABLE), configured):
        if choice:
            return Path(choice)
    return Path(DEFAULT)


def witnesses(named: str | Sequence[str] | None, *, folder: Path | None = None) -> tuple[str, ...]:
    """Return the witnesses that a configuration names: paths start from the file's folder, addresses stay."""
    listed = [named] if isinstance(named, str) else list(named or ())
    if not all(isinstance(one, str) for one in listed):
        raise RegistryError("[registry] witness in fairkit.toml is a path or an address, or a list of them")
    return tuple(one if "://" in one or folder is None else str(folder / one) for one in listed)
