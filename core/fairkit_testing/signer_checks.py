"""Checks on signers: a bad address is refused in words, and no passphrase is needed to say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.signers import Signer


def check_signer_refuses_a_bad_address(cls: type[Signer]) -> None:
    """`open` raises a FairkitError with a sentence where the address names no key."""
    for address in (f"{cls.name}:", f"{cls.name}:there-is-no-such-key?nor=this"):
        try:
            cls.open(address, passphrase=lambda what: "")
        except FairkitError as error:
            require(len(str(error)) > 10, "the error of a bad address has no text: say what is wrong and how to fix it")
        else:
            require(False, f"open takes the address {address!r}; raise a FairkitError where there is no such key")


CHECKS = (check_signer_refuses_a_bad_address,)
