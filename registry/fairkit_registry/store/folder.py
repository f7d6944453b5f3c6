"""The folder of a registry: its index is compared with its log, and its log with what is remembered outside of it."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit.support.files import write_atomic
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry.blobs import BlobStore, Staged, chunks
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.evidence.certificate import check_subject, read_file
from fairkit_registry.store import index, tables
from fairkit_registry.store.index import Index
from fairkit_registry.store.tables import UNREADABLE, Replayed, differences, replayed, unreadable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence


@contextmanager
def staging_in(blobs: BlobStore) -> Iterator[Staging]:
    """Collect files under temporary names; what was not kept at the end is removed."""
    staging = Staging(blobs)
    try:
        yield staging
    finally:
        for staged in staging.all:
            staged.discard()


class Staging:
    """Remembers what it staged, so that whatever is not kept is removed."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.all: list[Staged] = []

    def file(self, path: Path) -> Staged:
        """Copy a file."""
        try:
            handle = path.open("rb")
        except OSError as error:
            raise RegistryError(f"cannot read {path}: {error.strerror or error}") from None
        with handle:
            return self.take(self.blobs.stage(chunks(handle)))

    def certificate(self, path: Path, model: str) -> Staged:
        """Copy a certificate, if it is one and is about the model."""
        raw = read_file(path)
        check_subject(raw, model, where=str(path))
        return self.take(self.blobs.stage([raw]))

    def take(self, staged: Staged) -> Staged:
        """Remember a staged file, so that it is removed if it is not kept."""
        self.all.append(staged)
        return staged


INDEX_FILE = "index.sqlite"
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a row that somebody has changed may end with."""


class RegistryFolder:
    """Index, files and remembered heads of an open registry; the parameters are those of `Registry`."""

    def __init__(
        self, path: Path, witnesses: Sequence[str | Path], *, create: bool, timeout: float, trusting: bool
    ) -> None:
        self.path = path
        self.blobs = BlobStore(self.path / "blobs")
        self.heads = Heads(self.path, witnesses)
        self.notes: list[str] = []
        file = self.path / INDEX_FILE
        new = create and not file.is_file()
        if new:
            self._make(file)
        # before the index is read: it may go on meanwhile, and never goes back
        remembered = [] if trusting else self.heads.read(new=new)
        self.index = Index(file, timeout=timeout)
        try:
            if not trusting:
                self._compare(remembered)
        except BaseException:
            self.index.close()
            raise
        self.index.committed = self.remember

    def _make(self, file: Path) -> None:
        """Make the index of a new registry."""
        if self.path.is_dir() and any(entry.name != "blobs" for entry in self.path.iterdir()):
            raise RegistryError(f"{self.path} is a folder with other files in it; name a new or empty folder")
        index.check_not_lost(file)
        index.create(file, self.blobs.temporary)
        if any(path.exists() for path in self.heads.own):
            self.notes.append(
                f"a registry was in {self.path} before and is gone; this is a new one, which knows nothing of it"
            )
            self.heads.forget()

    def _compare(self, remembered: Sequence[Head]) -> None:
        """Refuse a log that does not continue what is remembered; remember one that does."""
        for text in self.index.foreign_schema():
            raise TamperedError(f"the index of {self.path} was changed from outside: {text}. Restore it from a backup")
        with self.index.read() as connection:
            digests = tables.digests(connection)
        for head in remembered:
            head.check(digests, self.path)
        if not self.heads.complete or any(head.events < len(digests) for head in remembered):
            self._keep(Head(events=len(digests), digest=[tables.GENESIS, *digests][-1]))

    def remember(self, *, force: bool = False) -> None:
        """Write the newest event to where it is remembered; with `force` also where a later one was remembered."""
        with self.index.read() as connection:
            number, digest = tables.newest(connection)
        self._keep(Head(events=number, digest=digest), force=force)

    def _keep(self, head: Head, *, force: bool = False) -> None:
        problem = self.heads.remember(head, force=force)
        if problem is not None:
            self.notes.append(f"the newest event of {self.path} cannot be remembered outside of it: {problem}")

    def confirm(self, connection: sqlite3.Connection, name: str | None = None) -> Replayed:
        """Compare the rows about a model (or all) with the log, and return what the log says."""
        try:
            state = replayed(tables.of_model(connection, name))
            problems = list(differences(connection, state, name))
        except UNREADABLE as error:
            problems = [unreadable(error)]
        for text in problems:
            raise TamperedError(
                f"the index of {self.path} was changed from outside: {text}. `fairkit registry check` lists all "
                "damage; restore index.sqlite from a backup"
            )
        return state

    @contextmanager
    def read(self, name: str | None = None) -> Iterator[sqlite3.Connection]:
        """Run a block in one read transaction, after the rows about a model (or all) are confirmed in it."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            yield connection

    @contextmanager
    def write(self, name: str | None = None) -> Iterator[sqlite3.Connection]:
        """Run a block in one write transaction, after the rows about a model (or all) are confirmed in it."""
        with self.index.write() as connection:
            self.confirm(connection, name)
            yield connection

    def close(self, error: BaseException | None) -> None:
        """Close the index; where an error may come from a changed row, raise a RegistryError with the damage."""
        try:
            if isinstance(error, _MISREAD) and not isinstance(error, FairkitError):
                problems = self.index.damage()
                if problems:  # else it is a bug of ours
                    raise RegistryError(f"{problems[0]}; restore the registry from a backup or from exports") from error
        finally:
            self.index.close()


# The newest event that was seen of a registry, kept outside its folder: who can write to the folder cannot go back.


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
        self.witnesses = tuple(Path(path) for path in witnesses)
        for witness in self.witnesses:
            if str(witness).startswith(("http:", "https:")):
                raise RegistryError(f"the witness {witness} is an address, which is not read: name a file")
            if witness.resolve().is_relative_to(folder.resolve()):
                raise RegistryError(f"the witness {witness} lies in the registry that it is a witness of")

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
