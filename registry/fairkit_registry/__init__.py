"""Versions of ONNX models with signed evidence about them.

The names here are loaded when they are first used, so that `import fairkit_registry` stays light.
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "AliasPolicy": "store.index",
    "ArchiveError": "errors",
    "Certificate": "evidence.certificate",
    "CertificateError": "errors",
    "KeyFileError": "errors",
    "Registry": "store.registry",
    "RegistryError": "errors",
    "VerificationError": "errors",
    "certify": "signing",
    "is_reference": "jsonio",
    "locate": "store.registry",
    "new_key_pair": "evidence.signers",
    "register": "store.registry",
    "register_pair": "store.registry",
    "resolve": "store.registry",
    "verify": "signing",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 -- each is loaded when it is first used


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
