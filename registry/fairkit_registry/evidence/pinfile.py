"""Where the settings that an alias pins come from: a certificate, or a file like `fairkit.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import pins
from fairkit_registry.evidence.certificate import read, read_file, verify
from fairkit_registry.jsonio import StrictJsonError, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit_registry.evidence.keys import PublicKey

_LARGEST = 1 << 20
_IN_DATA = frozenset({"path", "train", "test"})
"""Keys of ``[data]`` that say where a table is, not how it is read."""


def of_certificate(path: str | Path, trusted: Sequence[PublicKey]) -> dict[str, Any]:
    """Return every setting of a certificate, by name, also those that are the default."""
    raw = read_file(path)
    found = verify(raw, trusted) if trusted else read(raw, full=True)
    return pins.named(found.settings)


def of_file(path: str | Path) -> dict[str, Any]:
    """Return the settings that a file names: TOML in the form of `fairkit.toml`, or JSON of the same form.

    Only ``[data]`` (without files), ``[model]``, ``[audit]`` and ``[audit.NAME]`` are settings of an audit.
    """
    path = Path(path)
    tables = _tables(path)
    odd = set(tables) - {"data", "model", "audit"}
    if odd:
        raise CertificateError(
            f"{path}: {', '.join(sorted(odd))} is no setting of an audit; what can be pinned stands in [data], "
            "[model], [audit] and [audit.NAME], as in fairkit.toml"
        )
    settings: dict[str, Any] = {}
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise CertificateError(f"{path}: [{table}] is a table; write its keys below that heading")
        for key, value in values.items():
            if table == "audit" and isinstance(value, dict):
                settings |= {f"audit.{key}.{inner}": one for inner, one in value.items()}
            elif not (table == "data" and key in _IN_DATA):
                settings[f"{table}.{key}"] = _listed(f"{table}.{key}", value)
    pins.check_names(settings, str(path))
    if not settings:
        raise CertificateError(f"{path} names no setting, so there is nothing to pin")
    return settings


def _listed(name: str, value: Any) -> Any:
    return [value] if name in pins.LISTS and isinstance(value, str) else value


def _tables(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        with path.open("rb") as handle:
            raw = handle.read(_LARGEST + 1)
    except OSError as error:
        raise CertificateError(f"cannot read the settings {path}: {error.strerror or error}") from None
    if len(raw) > _LARGEST:
        raise CertificateError(f"{path} is too large to be a file of settings")
    try:
        text = raw.decode("utf-8")
        tables = read_object(raw) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError, StrictJsonError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise CertificateError(f"the settings {path} are not valid {kind}: {error}") from None
    if not isinstance(tables, dict):
        raise CertificateError(f"the settings {path} are not a table of tables, as fairkit.toml is")
    return tables
