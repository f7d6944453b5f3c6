"""Names of the registry where other commands expect a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_registry.blobs import hash_file
from fairkit_registry.errors import RegistryError
from fairkit_registry.store.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.store.records import Version

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
    """Return the witnesses that a configuration names: paths start from the file's folder."""
    listed = [named] if isinstance(named, str) else list(named or ())
    if not all(isinstance(one, str) for one in listed):
        raise RegistryError("[registry] witness in fairkit.toml is a path, or a list of them")
    return tuple(one if "://" in one or folder is None else str(folder / one) for one in listed)


def resolve(name: str, registry_path: str | Path, *, witnesses: Sequence[str | Path] = ()) -> Path:
    """Return the ONNX file that a name of a registry means, after hashing it again."""
    with Registry(registry_path, witnesses=witnesses) as registry:
        return registry.model_path(registry.version(name))


def register(
    name: str,
    file: str | Path,
    registry_path: str | Path,
    *,
    base: str | Path | None = None,
    certificates: Sequence[str | Path] = (),
    tags: Sequence[str] = (),
    notes: str = "",
) -> Version:
    """Add a file that was just made, with the version that it was made from as its parent."""
    with Registry(registry_path, create=True) as registry:
        parent = None if base is None else _parent(registry, name, base)
        return registry.add(name, file, certificates=certificates, parent=parent, tags=tags, notes=notes)


def register_pair(
    name: str,
    before: str | Path,
    after: str | Path,
    registry_path: str | Path,
    *,
    method: str,
    witnesses: Sequence[str | Path] = (),
) -> tuple[Version, Version]:
    """Add a mitigated file with the model that it was made from as its parent."""
    with Registry(registry_path, create=True, witnesses=witnesses) as registry:
        known = _parent(registry, name, before)
        if known is not None and known.startswith(f"{name}@"):
            base = registry.version(known)
        else:
            base = registry.add(name, before, tags=("before",), notes=f"before {method}")
        made = registry.add(name, after, parent=base.reference, tags=("mitigated",), notes=f"mitigated with {method}")
    return base, made


def _parent(registry: Registry, name: str, base: str | Path) -> str | None:
    if not os.path.lexists(base):
        return str(base)
    with registry.folder.index.read() as connection:
        row = connection.execute(
            "SELECT name, version FROM versions WHERE model = ? ORDER BY name <> ?, version DESC LIMIT 1",
            (hash_file(Path(base)), name),
        ).fetchone()
    return None if row is None else f"{row['name']}@{row['version']}"
