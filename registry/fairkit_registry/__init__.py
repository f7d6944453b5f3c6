"""Versions of ONNX models with signed evidence about them.

The names here are loaded when they are first used, so that `import fairkit_registry` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit_registry.errors import ArchiveError, CertificateError, KeyFileError, RegistryError, VerificationError
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.signers import new_key_pair
    from fairkit_registry.names import is_reference
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.signing import certify, verify
    from fairkit_registry.store.lookup import locate, register, register_pair, resolve
    from fairkit_registry.store.registry import Registry

__all__ = [
    "AliasPolicy",
    "ArchiveError",
    "Certificate",
    "CertificateError",
    "KeyFileError",
    "Registry",
    "RegistryError",
    "VerificationError",
    "certify",
    "is_reference",
    "locate",
    "new_key_pair",
    "register",
    "register_pair",
    "resolve",
    "verify",
]

_HOMES = {
    "AliasPolicy": "policies",
    "ArchiveError": "errors",
    "Certificate": "evidence.certificate",
    "CertificateError": "errors",
    "KeyFileError": "errors",
    "Registry": "store.registry",
    "RegistryError": "errors",
    "VerificationError": "errors",
    "certify": "signing",
    "is_reference": "names",
    "locate": "store.lookup",
    "new_key_pair": "evidence.signers",
    "register": "store.lookup",
    "register_pair": "store.lookup",
    "resolve": "store.lookup",
    "verify": "signing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
