"""Checks on time-stamping authorities: what they cannot do they refuse in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.timestamps import TimestampAuthority


def check_authority_opens_or_says_why(cls: type[TimestampAuthority]) -> None:
    """`open` returns an authority, or raises a FairkitError with a sentence, whatever the address."""
    for address in (f"{cls.name}:", f"{cls.name}:there-is-no-such-place?nor=this", f"{cls.name}://[%zz"):
        try:
            opened = cls.open(address)
        except FairkitError as error:
            require(len(str(error)) > 10, "the error of a bad address has no text: say what is wrong and how to fix it")
        else:
            require(isinstance(opened, cls), f"open gives {opened!r}; return an instance of {cls.__name__}")


CHECKS = (check_authority_opens_or_says_why,)
