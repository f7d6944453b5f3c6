"""The newest event that was seen of a registry, kept outside its folder: who can write to the folder cannot go back."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.support.files import write_atomic
from fairkit_registry.errors import RegistryError, TamperedError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = "fairkit.registry-head/1"
LARGEST = 64 * 1024
"""Bytes of the largest file that is read as a head."""


class UnreadableError(RegistryError):
    """A file that is there and cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How many events a registry had, the digest of the newest of them, and who remembers it."""

    events: int
    digest: str
    source: str = ""

    def check(self, digests: Sequence[str], folder: Path) -> None:
        """Refuse a log that does not continue this head."""
        if self.events <= len(digests) and (not self.events or digests[self.events - 1] == self.digest):
            return
        what = (
            f"its log has {len(digests)} events, and had {self.events} before: the index is an older one, or was cut"
            if self.events > len(digests)
            else f"its event {self.events} is not the one that it was: the log was rewritten, or it is another registry"
        )
        raise TamperedError(
            f"the registry {folder} is not the one that {self.source} remembers: {what}. Restore the newest "
            "index.sqlite from a backup. If you have restored an older one on purpose, `fairkit registry check "
            "--accept` takes the present state as the newest; nothing was changed"
        )

    def to_bytes(self, folder: Path | None = None) -> bytes:
        """Return the file's content."""
        record = {"schema": SCHEMA, "events": self.events, "head": self.digest}
        where = {} if folder is None else {"registry": str(folder)}
        return json.dumps(record | where, indent=2).encode() + b"\n"


def parse(raw: bytes, source: str) -> Head:
    """Read a head."""
    try:
        record = json.loads(raw.decode("utf-8"))
        events, digest = record["events"], record["head"]
        if record["schema"] != SCHEMA or type(events) is not int or events < 0 or not isinstance(digest, str):
            raise ValueError(SCHEMA)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegistryError(
            f"{source} holds no registry head ({SCHEMA}); `fairkit registry check --accept` writes it after a check"
        ) from None
    return Head(events=events, digest=digest, source=source)


def own_files(folder: Path) -> tuple[Path, ...]:
    """Return where this user's head of a registry is kept: in the user's state folder, by the registry's path.

    There are two where the path leads over a link: a link that is turned to another folder does not begin anew, and
    neither does another link to the same folder.
    """
    import platformdirs

    state = Path(platformdirs.user_state_path("fairkit")) / "registries"
    paths = dict.fromkeys((os.path.abspath(folder), str(folder.resolve())))  # noqa: PTH100 -- it follows no link
    names = (hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:32] for path in paths)
    return tuple(state / f"{name}.json" for name in names)


class Heads:
    """Where a registry's newest event is remembered: this user's own file, and witnesses."""

    def __init__(self, folder: Path, witnesses: Sequence[str | Path] = ()) -> None:
        self.folder = folder
        self.own = own_files(folder)
        self.complete = False
        self.witnesses = tuple(Path(one) for one in witnesses)
        for one in self.witnesses:
            if str(one).startswith(("http:", "https:")):
                raise RegistryError(f"the witness {one} is an address, which is not read: name a file")
            if one.resolve().is_relative_to(folder.resolve()):
                raise RegistryError(f"the witness {one} lies in the registry that it is a witness of")

    def read(self, *, new: bool = False) -> list[Head]:
        """Return the remembered heads. Read before the database: it may go on meanwhile, never back."""
        heads = []
        self.complete = True
        for path in self.own:
            try:
                content = _content(path)
            except UnreadableError:  # a user without a home, say
                content = None
            if content is None:
                self.complete = False
            else:
                heads.append(parse(content, str(path)))
        for path in self.witnesses:
            raw = _content(path)
            if raw is not None:
                heads.append(parse(raw, str(path)))
            elif not new:
                raise RegistryError(
                    f"the witness {path} does not exist. If this registry has none yet, `fairkit registry check "
                    "--accept` writes it after a check; if it had one, somebody took it away"
                )
        return heads

    def remember(self, head: Head, *, force: bool = False) -> str | None:
        """Write a head that is newer than what is remembered; with `force` any."""
        problem = None
        for path in (*self.own, *self.witnesses):
            try:
                if _replaceable(path, head, force=force):
                    if path in self.own:
                        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    write_atomic(path, head.to_bytes(self.folder.resolve()))
            except Exception as error:  # the change is made: nothing here may make it look as if it were not
                problem = str(error) if path in self.own else problem
        return problem

    def forget(self) -> None:
        """Remove this user's own file, for a registry that is made anew where there was one."""
        for path in self.own:
            path.unlink(missing_ok=True)


def _replaceable(path: Path, head: Head, *, force: bool) -> bool:
    """Tell whether a head may be written: over an older one, or with `force` any."""
    raw = _content(path)
    if raw is None:
        return True
    try:
        return force or parse(raw, str(path)).events < head.events
    except RegistryError:
        return force


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as handle:
            raw = handle.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > LARGEST:
        raise RegistryError(f"{path} is too large to be a registry head")
    return raw
