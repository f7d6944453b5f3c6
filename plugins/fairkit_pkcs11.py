"""Signing with a key in a token: a smart card, an HSM, SoftHSM, by PKCS #11."""

from __future__ import annotations

import hashlib
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import MissingExtraError, ParameterError
from fairkit.hookspecs import hookimpl
from fairkit.signers import Signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PATH = ("token", "object", "id", "serial", "slot-id")
_QUERY = ("module-path", "pin-source")
_EXAMPLE = "pkcs11:token=NAME;object=KEY?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:PIN"


class Pkcs11Signer(Signer):
    """ECDSA on P-256 with a key that never leaves its token; the address is a PKCS #11 URI (RFC 7512)."""

    name = "pkcs11"

    def __init__(self, session: Any, key: Any, public_pem: str) -> None:
        self._session, self._key, self._pem = session, key, public_pem

    @classmethod
    def open(cls, address: str, *, passphrase: Callable[[str], str]) -> Self:
        """Log in to the token and find the key."""
        attributes = parse(address)
        module = attributes.get("module-path")
        if module is None:
            raise ParameterError(f"{_shown(address)}: say which library reaches the token: {_EXAMPLE}")
        if not Path(module).is_file():
            raise ParameterError(f"{_shown(address)}: there is no library {module}; the token's driver brings it")
        try:
            import pkcs11
            from pkcs11.exceptions import PKCS11Error
        except ModuleNotFoundError:
            raise MissingExtraError("python-pkcs11", "pkcs11") from None
        pin = _pin(attributes, lambda: passphrase(f"the token {attributes.get('token', '(any)')}"))
        try:
            token = _token(pkcs11.lib(module), attributes, address)
            session = token.open(user_pin=pin)
            key = _only(session, attributes, pkcs11.ObjectClass.PRIVATE_KEY, address)
            public = _only(session, attributes, pkcs11.ObjectClass.PUBLIC_KEY, address)
            pem = _pem(key, public, address)
        except (PKCS11Error, RuntimeError) as error:
            raise ParameterError(f"{_shown(address)}: {_reason(error)}") from None
        return cls(session, key, pem)

    @property
    def public_pem(self) -> str:
        """The public half, read from the token."""
        return self._pem

    def sign(self, message: bytes) -> bytes:
        """Return ECDSA with SHA-256, in DER: the token signs the digest."""
        from pkcs11 import Mechanism
        from pkcs11.exceptions import PKCS11Error
        from pkcs11.util.ec import encode_ecdsa_signature

        try:
            raw = self._key.sign(hashlib.sha256(message).digest(), mechanism=Mechanism.ECDSA)
        except PKCS11Error as error:
            raise ParameterError(f"the token does not sign: {_reason(error)}") from None
        return bytes(encode_ecdsa_signature(raw))


def parse(address: str) -> dict[str, str]:
    """Return the attributes of a PKCS #11 URI."""
    path, _, query = address.removeprefix("pkcs11:").partition("?")
    attributes: dict[str, str] = {}
    for part, separator, names in ((path, ";", _PATH), (query, "&", _QUERY)):
        for attribute in filter(None, part.split(separator)):
            key, equals, value = attribute.partition("=")
            if key == "pin-value":
                raise ParameterError(
                    f"{_shown(address)}: a PIN on the command line is seen by other users; "
                    "use pin-source=file:PIN or the prompt"
                )
            if not equals or key not in names or key in attributes:
                raise ParameterError(f"{_shown(address)}: {key!r} is not understood there; for instance {_EXAMPLE}")
            attributes[key] = value if key == "id" else urllib.parse.unquote(value)
    if not {"object", "id"} & set(attributes):
        raise ParameterError(f"{_shown(address)}: say which key: object=LABEL or id=%01; for instance {_EXAMPLE}")
    return attributes


def _shown(address: str) -> str:
    """The address without a PIN that should not be there."""
    return address.partition("?")[0]


def _pin(given: Mapping[str, str], ask: Any) -> str:
    source = given.get("pin-source")
    if source is None:
        return str(ask())
    path = Path(source.removeprefix("file:"))
    try:
        return path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"cannot read the PIN in {path}: {getattr(error, 'strerror', None) or error}") from None


def _token(library: Any, attributes: Mapping[str, str], address: str) -> Any:
    wanted = [
        slot.get_token()
        for slot in library.get_slots(token_present=True)
        if attributes.get("slot-id") in (None, str(slot.slot_id))
    ]
    tokens = [
        token
        for token in wanted
        if attributes.get("token") in (None, token.label)
        and attributes.get("serial") in (None, token.serial.decode("ascii", "replace").strip())
    ]
    if len(tokens) != 1:
        there = ", ".join(sorted({token.label for token in wanted if token.label})) or "none"
        many = "no such token" if not tokens else f"{len(tokens)} tokens fit; add serial= or slot-id="
        raise ParameterError(f"{_shown(address)}: {many} (there are: {there})")
    return tokens[0]


def _only(session: Any, attributes: Mapping[str, str], kind: Any, address: str) -> Any:
    from pkcs11 import Attribute

    wanted: dict[Any, Any] = {Attribute.CLASS: kind}
    if "object" in attributes:
        wanted[Attribute.LABEL] = attributes["object"]
    if "id" in attributes:
        wanted[Attribute.ID] = urllib.parse.unquote_to_bytes(attributes["id"])
    keys = list(session.get_objects(wanted))
    if len(keys) != 1:
        what = "secret" if kind.name == "PRIVATE_KEY" else "public"
        raise ParameterError(
            f"{_shown(address)}: the token has {len(keys) or 'no'} {what} key{'s' if len(keys) > 1 else ''} "
            "of that name; a key needs both halves in the token, under one label or id"
        )
    return keys[0]


def _pem(key: Any, public: Any, address: str) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
    from pkcs11 import KeyType
    from pkcs11.util.ec import encode_ec_public_key

    if key.key_type != KeyType.EC or public.key_type != KeyType.EC:
        raise ParameterError(
            f"{_shown(address)}: certificates are signed with ECDSA on P-256; this key is {key.key_type.name}"
        )
    loaded = load_der_public_key(encode_ec_public_key(public))
    return loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def _reason(error: Exception) -> str:
    names = {"PinIncorrect": "the PIN is wrong", "PinLocked": "the PIN is locked", "PinLenRange": "the PIN is wrong"}
    return names.get(type(error).__name__) or " ".join(str(error).split()) or type(error).__name__


@hookimpl
def fairkit_signers() -> list[type[Signer]]:
    """Return the signer."""
    return [Pkcs11Signer]
