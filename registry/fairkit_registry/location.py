"""Where the registry is."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import ConfigError

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
    """Give the registry's folder: the option, else the environment, else the configuration, else a default.

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


def configured(folder: Path) -> Path | None:
    """Find ``[registry] path`` in ``fairkit.toml``, or ``[tool.fairkit.registry]`` in ``pyproject.toml``.

    The folder and those above it are looked through; the first file that has fairkit's settings decides. A
    relative path starts from the file's folder.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    for place in (folder, *folder.parents):
        for file, table in ((place / "fairkit.toml", ()), (place / "pyproject.toml", ("tool", "fairkit"))):
            settings = _settings(file, table)
            if settings is not None:
                path = settings.get("registry", {}).get("path")
                return None if path is None else place / path
    return None


def _settings(file: Path, table: tuple[str, ...]) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        content: Any = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    for key in table:
        content = content.get(key)
        if content is None:
            return None
    return dict(content)
