"""The registry: versions of models, the files they consist of, and the aliases that point to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import FairkitError, did_you_mean
from fairkit.escaping import visible
from fairkit_registry import names, onnxfile
from fairkit_registry.blobs import BlobStore
from fairkit_registry.errors import RegistryError, TamperedError
from fairkit_registry.evidence.certificate import LARGEST_CERTIFICATE
from fairkit_registry.jsonio import canonical
from fairkit_registry.store import events, index, tables
from fairkit_registry.store.heads import Head, Heads
from fairkit_registry.store.index import Index
from fairkit_registry.store.records import Alias, Version, read_alias, read_version
from fairkit_registry.store.replay import UNREADABLE, Replayed, differences, replayed, unreadable
from fairkit_registry.store.staging import Staging, staging_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from fairkit_registry.names import Reference
    from fairkit_registry.policies import AliasPolicy

INDEX_FILE = "index.sqlite"
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a row that somebody has changed may end with."""


class Registry:
    """A folder with a SQLite index and a content-addressed store.

    Parameters
    ----------
    path
        The folder.
    create
        Whether to make it where there is none.
    timeout
        Seconds to wait for another process that writes.
    witnesses
        Files and https addresses that remember the newest event, besides this user's own state folder.
    trusting
        True skips the comparison with what is remembered, for a check that reports it.

    Attributes
    ----------
    notes
        Sentences about opening it that a person should read.

    Raises
    ------
    RegistryError
        There is no registry, or it cannot be opened.
    TamperedError
        Its log was cut or rewritten, or is older than what is remembered.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = False,
        timeout: float = index.BUSY_SECONDS,
        witnesses: Sequence[str | Path] = (),
        trusting: bool = False,
    ) -> None:
        self.path = Path(path)
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
            raise TamperedError(
                f"the index of {self.path} was changed from outside: {text}. Restore it from a backup"
            )
        with self.index.read() as connection:
            digests = events.digests(connection)
        for head in remembered:
            head.check(digests, self.path)
        if not self.heads.complete or any(head.events < len(digests) for head in remembered):
            self._keep(digests)

    def remember(self, *, force: bool = False) -> None:
        """Write the newest event to where it is remembered; with `force` also where a later one was remembered."""
        with self.index.read() as connection:
            row = connection.execute("SELECT seq, digest FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        head = Head(events=0, digest=events.GENESIS) if row is None else Head(events=row[0], digest=row[1])
        self._noted(self.heads.remember(head, force=force))

    def _keep(self, digests: Sequence[str]) -> None:
        head = Head(events=len(digests), digest=digests[-1] if digests else events.GENESIS)
        self._noted(self.heads.remember(head))

    def _noted(self, problem: str | None) -> None:
        if problem is not None:
            self.notes.append(
                f"the newest event of {self.path} cannot be remembered outside of it: {problem}"
            )

    def confirm(self, connection: sqlite3.Connection, name: str | None = None) -> Replayed:
        """Compare the rows about a model (or all) with the log, and return what the log says.

        Raises
        ------
        TamperedError
            A row was changed, added or removed without an event.
        """
        try:
            state = replayed(events.of_model(connection, name))
            found = list(differences(connection, state, name))
        except UNREADABLE as error:
            found = [unreadable(error)]
        for text in found:
            raise TamperedError(
                f"the index of {self.path} was changed from outside: {text}. `fairkit registry check` lists all "
                "damage; restore index.sqlite from a backup"
            )
        return state

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(value, _MISREAD) and not isinstance(value, FairkitError):
                problems = self.index.damage()
                if problems:  # else it is a bug of ours
                    raise RegistryError(
                        f"{problems[0]}; restore the registry from a backup or from exports"
                    ) from value
        finally:
            self.index.close()

    # ---- reading

    def models(self) -> list[dict[str, Any]]:
        """Return each model's name, number of versions, newest version and aliases."""
        with self.index.read() as connection:
            self.confirm(connection)
            rows = connection.execute(
                "SELECT name, count(*) AS versions, max(version) AS newest FROM versions GROUP BY name "
                "ORDER BY name"
            ).fetchall()
            aliases = tables.find_aliases(connection, None)
        return [
            {
                "name": row["name"],
                "versions": row["versions"],
                "newest": row["newest"],
                "aliases": {a.alias: a.version for a in aliases if a.name == row["name"]},
            }
            for row in rows
        ]

    def versions(self, name: str, *, limit: int | None = None) -> list[Version]:
        """Return a model's versions, the newest first.

        Raises
        ------
        RegistryError
            There is no such model.
        """
        with self.index.read() as connection:
            self.confirm(connection, names.check_name(name))
            rows = connection.execute(
                tables.VERSION_ROWS + "WHERE v.name = ? ORDER BY v.version DESC LIMIT ?",
                (names.check_name(name), -1 if limit is None else limit),
            ).fetchall()
            if not rows:
                tables.refuse_unknown(connection, name)
            lowest = rows[-1]["version"]
            owned: dict[int, list[str]] = {}
            for row in connection.execute(
                "SELECT version, digest FROM certificates WHERE name = ? AND version >= ? ORDER BY "
                "added_at, digest",
                (name, lowest),
            ):
                owned.setdefault(row["version"], []).append(row["digest"])
        return [read_version(row, tuple(owned.get(row["version"], ()))) for row in rows]

    def version(self, reference: str | Reference) -> Version:
        """Return the version that ``credit@3``, ``credit@production`` or ``credit`` (the newest) means.

        Raises
        ------
        RegistryError
            There is no such model, version or alias, or the alias points to nothing yet.
        """
        wanted = names.parse(reference) if isinstance(reference, str) else reference
        with self.index.read() as connection:
            self.confirm(connection, wanted.name)
            number = wanted.version
            if wanted.alias is not None:
                number = tables.holder(connection, wanted)
            return tables.find_version(connection, wanted.name, number)

    def aliases(self, name: str | None = None) -> list[Alias]:
        """Return the aliases of a model, or of all models."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            return tables.find_aliases(connection, name)

    def alias(self, name: str, alias: str) -> Alias | None:
        """Return one alias; None where it was not made."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            row = connection.execute(
                "SELECT * FROM aliases WHERE name = ? AND alias = ?", (name, alias)
            ).fetchone()
        return None if row is None else read_alias(row)

    def log(self, name: str | None = None, *, limit: int | None = None) -> list[events.Event]:
        """Return the events of a model (or all), the newest first."""
        with self.index.read() as connection:
            if (
                name is not None
                and not connection.execute("SELECT 1 FROM events WHERE name = ? LIMIT 1", (name,)).fetchone()
            ):
                tables.refuse_unknown(connection, name)
            return events.read(connection, name, limit=limit)

    def certificates(self, *, model: str | None = None) -> tuple[str, ...]:
        """Return the digest of every certificate, of all models or of the versions with this file, in any order."""
        with self.index.read() as connection:
            self.confirm(connection)
            rows = connection.execute(
                "SELECT DISTINCT c.digest FROM certificates c JOIN versions v ON v.name = c.name AND "
                "v.version = c.version WHERE ? IS NULL OR v.model = ? ORDER BY c.digest",
                (model, model),
            )
            return tuple(row["digest"] for row in rows)

    def model_path(self, version: Version) -> Path:
        """Return the path of a version's ONNX file, after hashing the file again.

        Raises
        ------
        RegistryError
            The file is missing or was changed.
        """
        return self.blobs.intact(version.model)

    def certificate(self, digest: str) -> bytes:
        """Return a certificate file's bytes, after hashing them again.

        Raises
        ------
        RegistryError
            The file is missing or was changed.
        """
        return self.blobs.read(digest, limit=LARGEST_CERTIFICATE)

    # ---- writing

    def add(
        self,
        name: str,
        file: str | Path,
        *,
        certificates: Sequence[str | Path] = (),
        parent: str | None = None,
        tags: Sequence[str] = (),
        notes: str = "",
    ) -> Version:
        """Add an ONNX file as the next version of a model.

        Parameters
        ----------
        name
            The model's name.
        file
            The ONNX file; it is copied, and never run.
        certificates
            Certificate files about this very file. Whether to believe them is decided at promotion.
        parent
            The version that this one was made from (``credit@1``).
        tags, notes
            What to remember about it.

        Returns
        -------
        Version
            The new version; when this returns it is on the disk.

        Raises
        ------
        RegistryError
            The name is none, the file is no self-contained ONNX model, the parent is unknown, or the
            registry cannot be written. Nothing has changed then.
        CertificateError
            A certificate cannot be read or is about another model.
        """
        names.check_name(name)
        names.check_text([notes, *tags])
        file = Path(file)
        with self.staging() as staged:
            model = staged.file(file)
            onnxfile.check_file(model.path, shown=file)
            owned = [staged.certificate(Path(path), model.digest) for path in certificates]
            with self.index.write() as connection:
                self.confirm(connection, name)
                origin = (
                    None
                    if parent is None
                    else tables.find_version(connection, *tables.pinned(connection, parent))
                )
                return tables.insert_version(
                    connection,
                    self.blobs,
                    name,
                    model,
                    owned,
                    filename=visible(file.name),
                    parent=None if origin is None else (origin.name, origin.version),
                    tags=tags,
                    notes=notes,
                )

    def attach(self, reference: str, certificates: Sequence[str | Path]) -> Version:
        """Attach certificates to a version that exists.

        Raises
        ------
        RegistryError
            There is no such version, or the registry cannot be written.
        CertificateError
            A certificate cannot be read or is about another model.
        """
        version = self.version(reference)
        at = events.now()
        with self.staging() as staged:
            owned = [staged.certificate(Path(path), version.model) for path in certificates]
            with self.index.write() as connection:
                self.confirm(connection, version.name)
                known = tables.find_version(connection, version.name, version.version).certificates
                for certificate in owned:
                    if certificate.digest not in known:
                        tables.attach(connection, self.blobs, version, certificate, at)
                return tables.find_version(connection, version.name, version.version)

    def set_alias(self, name: str, alias: str, policy: AliasPolicy) -> Alias:
        """Make an alias, or give it another policy; what it points to stays.

        Raises
        ------
        RegistryError
            There is no such model, or the alias is none.
        """
        names.check_alias(alias)
        at = events.now()
        with self.index.write() as connection:
            self.confirm(connection, name)
            if not connection.execute("SELECT 1 FROM versions WHERE name = ? LIMIT 1", (name,)).fetchone():
                tables.refuse_unknown(connection, name)
            connection.execute(
                "INSERT INTO aliases (name, alias, policy, changed_at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (name, alias) DO UPDATE SET policy = excluded.policy, changed_at = "
                "excluded.changed_at",
                (name, alias, canonical(policy.to_dict()).decode("utf-8"), at),
            )
            events.append(connection, "alias", name, {"alias": alias, "policy": policy.to_dict()}, at=at)
            row = connection.execute(
                "SELECT * FROM aliases WHERE name = ? AND alias = ?", (name, alias)
            ).fetchone()
        return read_alias(row)

    def remove_alias(self, name: str, alias: str) -> None:
        """Take an alias away, with its policy; the versions stay.

        Raises
        ------
        RegistryError
            There is no such alias.
        """
        with self.index.write() as connection:
            self.confirm(connection, name)
            held = {one.alias for one in tables.find_aliases(connection, name)}
            if alias not in held:
                tables.find_version(connection, name, None)
                hint = did_you_mean(alias, held, what=f"aliases of {name}")
                raise RegistryError(f"{name} has no alias {alias!r}. {hint}")
            connection.execute("DELETE FROM aliases WHERE name = ? AND alias = ?", (name, alias))
            events.append(connection, "remove-alias", name, {"alias": alias}, at=events.now())

    def point(
        self, connection: sqlite3.Connection, version: Version, alias: Alias, certificate: str | None
    ) -> None:
        """Point an alias to a version, inside a write transaction; `promotion` decides whether."""
        at = events.now()
        connection.execute(
            "UPDATE aliases SET version = ?, certificate = ?, changed_at = ? WHERE name = ? AND alias = ?",
            (version.version, certificate, at, alias.name, alias.alias),
        )
        body = {
            "alias": alias.alias,
            "version": version.version,
            "previous": alias.version,
            "certificate": certificate,
            "model": version.model,
        }
        events.append(connection, "promote", version.name, body, at=at)

    def staging(self) -> AbstractContextManager[Staging]:
        """Collect files for the store; what was not kept at the end is removed."""
        return staging_in(self.blobs)
