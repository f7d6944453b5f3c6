"""How often test rows were looked at: a record by the rows' digest, which no other name of the output resets.

Each search that looks at test rows leaves a line in the user's state folder. What cannot be read or written does not
set the count back: it is then said to be at least so much. A search that is repeated exactly is the same look.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairkit_onnx.read.safety import embedded_settings, parse, read_bytes


class Looks(NamedTuple):
    """The number of a look at test rows, this one included, and why it may be larger; None where it is known here."""

    number: int
    doubt: str | None = None


def identity_of(search: Mapping[str, Any], method: Mapping[str, Any], seed: int, data: str) -> str:
    """Return a search's identity, as a digest: equal for searches that equal inputs make."""
    told = {name: value for name, value in search.items() if not name.startswith("look")}
    text = json.dumps([told, method, seed, data], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def record_look(test: str, identity: str, output: str | Path | None) -> Looks:
    """Write a look down, and return its number."""
    here, doubts = _journal(test, identity)
    there, more = _of_file(test, identity, output)
    return Looks(max(here, there), "; ".join([*doubts, *more]) or None)


def journal_of(test: str) -> Path:
    """Return the file that holds a line for each look at test rows of a digest."""
    import platformdirs

    return Path(platformdirs.user_state_dir("fairkit", appauthor=False)) / "looks" / f"{test}.txt"


def _journal(test: str, identity: str) -> tuple[int, list[str]]:
    path = journal_of(test)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            # a torn or foreign line is a look, too
            identities = list(dict.fromkeys(line for line in file.read().splitlines() if line))
            if identity.encode() in identities:
                return identities.index(identity.encode()) + 1, []
            file.write(f"{identity}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return 1, [f"the record of earlier looks, {path}, cannot be read or written ({error.strerror or error})"]
    return len(identities) + 1, []


def _of_file(test: str, identity: str, output: str | Path | None) -> tuple[int, list[str]]:
    """Return the number of this look after those that the file at the output's place tells of."""
    if output is None or not Path(output).exists():
        return 1, []
    try:
        settings = embedded_settings(parse(read_bytes(Path(output)), str(output)))
        search = settings.get("mitigation", {}).get("search", {})
        if search.get("test_sha256") != test:
            return 1, []
        number = int(search["looks"])
    except Exception:
        return 1, [f"{output} is there already and cannot be read, so that looks it tells of are not counted"]
    return number + (search.get("look") != identity), []
