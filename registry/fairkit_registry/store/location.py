"""Where the registry is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "FAIRKIT_REGISTRY"
DEFAULT = "fairkit-registry"


def locate(
    option: str | Path | None = None,
    *,
    configured: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return the registry's folder: the option, else the environment, else the configuration, else a default.

    Parameters
    ----------
    option
        What the user said with ``--registry``.
    configured
        ``[registry] path`` of the configuration, relative paths already taken from the file's folder.
    environment
        Where ``FAIRKIT_REGISTRY`` may stand; an empty value counts as none.

    Returns
    -------
    Path
        By default ``fairkit-registry`` in the working folder. It need not exist.
    """
    for choice in (option, environment.get(VARIABLE), configured):
        if choice:
            return Path(choice)
    return Path(DEFAULT)
