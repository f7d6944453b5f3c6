"""The interface of signers: keys that no file holds, which a plugin signs certificates with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Signer(ABC):
    """A secret key that is kept elsewhere: in a token, an agent, a service.

    ``--key NAME:...`` opens the signer of that name, from the plugin of that name. A complete plugin, in a module
    ``vault.py`` whose distribution declares the entry point ``[project.entry-points.fairkit] vault = "vault"``::

        import fairkit
        from fairkit.signers import Signer

        class Vault(Signer):
            \"\"\"Signs with a key in our vault.\"\"\"

            name = "vault"

            def __init__(self, service, key):
                self.service, self.key = service, key

            @classmethod
            def open(cls, address, *, passphrase):
                key = address.removeprefix("vault:")
                try:
                    import our_vault
                except ModuleNotFoundError:
                    raise fairkit.ParameterError("vault: needs our_vault; run pip install our-vault") from None
                return cls(our_vault.login(passphrase("our vault")), key)

            @property
            def public_pem(self):
                return self.service.public_key(self.key)

            def sign(self, message):
                return self.service.sign(self.key, message)

        @fairkit.hookimpl
        def fairkit_signers():
            return [Vault]

    Attributes
    ----------
    name
        What stands before the colon in ``--key``; the plugin has the same name.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, address: str, *, passphrase: Callable[[str], str]) -> Self:
        """Return the signer of an address.

        Parameters
        ----------
        address
            What follows ``--key``, whole, with the name and the colon.
        passphrase
            Asks for a passphrase or PIN, of what its argument says; raises FairkitError where nobody answers. Never
            take one from the address: other users see command lines.

        Raises
        ------
        FairkitError
            There is no such key, or it cannot be used; the message says how to fix it.
        """

    @property
    @abstractmethod
    def public_pem(self) -> str:
        """The public half in PEM (SubjectPublicKeyInfo): ed25519 or ECDSA on P-256."""

    @abstractmethod
    def sign(self, message: bytes) -> bytes:
        """Return the signature over a message.

        ed25519: 64 bytes. P-256: ECDSA with SHA-256, in DER. fairkit checks each signature with `public_pem` before
        it writes anything.
        """
