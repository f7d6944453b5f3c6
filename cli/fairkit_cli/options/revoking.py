"""Options about revocation lists."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from fairkit.errors import ParameterError
from fairkit_cli.options.declare import option

RevocationLists = Annotated[
    list[Path] | None,
    option(
        "--revocations",
        "FILE",
        "Revocation list, or a folder of them (repeatable); it is remembered for every later command.",
        show_default=False,
    ),
]
Revokers = Annotated[
    list[Path] | None,
    option(
        "--revoker",
        "PUB",
        "Public key whose revocation lists count against every signature (repeatable).",
        show_default=False,
    ),
]
MaxAge = Annotated[
    str | None,
    option(
        "--max-age",
        "TIME",
        "Ask for evidence of this age at most, as 12h or 7d: for those who have seen nothing before.",
    ),
]


def read_age(text: str) -> timedelta:
    """Read a time such as 12h or 7d."""
    match = re.fullmatch(r"([0-9]{1,6})([hd])", text)
    if match is None or not int(match[1]):
        raise ParameterError(f"{text!r} is no time: write hours or days, as 12h or 7d")
    return timedelta(hours=int(match[1]) * (24 if match[2] == "d" else 1))
