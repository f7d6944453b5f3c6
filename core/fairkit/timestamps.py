"""The interface of time-stamping authorities: who proves, to others, when a signature was there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self


class TimestampAuthority(ABC):
    """An authority (RFC 3161) that more than a plain request over HTTP is needed for: a login, a device, a queue.

    ``--timestamp NAME:...`` opens the authority of that name, from the plugin of that name. No plugin takes part when a
    timestamp is checked: that needs its bytes and the authority's root. A complete plugin, in ``vault_time.py``, whose
    distribution declares the entry point ``[project.entry-points.fairkit] vault-time = "vault_time"``::

        import fairkit
        from fairkit.timestamps import TimestampAuthority

        class VaultTime(TimestampAuthority):
            \"\"\"Asks our vault for the time.\"\"\"

            name = "vault-time"

            def __init__(self, service):
                self.service = service

            @classmethod
            def open(cls, address):
                try:
                    import our_vault
                except ModuleNotFoundError:
                    raise fairkit.ParameterError("vault-time: needs our_vault; run pip install our-vault") from None
                return cls(our_vault.login(address.removeprefix("vault-time:")))

            def ask(self, signature):
                from rfc3161_client import TimestampRequestBuilder

                return self.service.stamp(TimestampRequestBuilder().data(signature).build().as_bytes())

        @fairkit.hookimpl
        def fairkit_timestamp_authorities():
            return [VaultTime]

    Attributes
    ----------
    name
        What stands before the colon in ``--timestamp``; the plugin has the same name.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Self:
        """Return the authority of an address, once for a command.

        Parameters
        ----------
        address
            What follows ``--timestamp``, whole, with the name and the colon. Take no secret from it: other users see
            command lines.

        Raises
        ------
        FairkitError
            There is no such authority, or it cannot be asked; the message says how to fix it.
        """

    @abstractmethod
    def ask(self, signature: bytes) -> bytes:
        """Return the authority's answer about some bytes: a TimeStampResp of RFC 3161 in DER, over their SHA-256.

        The authority's certificate is in it (``certReq``). fairkit refuses any other answer before it writes anything.
        """
