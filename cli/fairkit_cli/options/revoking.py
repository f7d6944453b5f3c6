"""Options about revocation lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
TimestampRoots = Annotated[
    list[Path] | None,
    option(
        "--timestamp-root",
        "PEM",
        "Root of a time-stamping authority; a timestamp by one of them is asked for (repeatable).",
        show_default=False,
    ),
]
