"""The registry: versions of models, the files they consist of, and the aliases that point to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import did_you_mean
from fairkit.support.escaping import visible
from fairkit_registry import names, onnxfile
from fairkit_registry.errors import RegistryError
from fairkit_registry.evidence.certificate import Certificate
from fairkit_registry.evidence.statements import PolicyLock
from fairkit_registry.store import events, index, tables
from fairkit_registry.store.folder import RegistryFolder, Staging, staging_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.names import Reference
    from fairkit_registry.store.records import Alias, AliasPolicy, Version


class Registry:
    """A folder with a SQLite index and a content-addressed store."""

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = False,
        timeout: float = index.BUSY_SECONDS,
        witnesses: Sequence[str | Path] = (),
        trusting: bool = False,
    ) -> None:
        self.folder = RegistryFolder(Path(path), witnesses, create=create, timeout=timeout, trusting=trusting)
        self.path, self.blobs, self.notes = self.folder.path, self.folder.blobs, self.folder.notes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.folder.close(value)

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
        """Add an ONNX file as the next version of a model."""
        names.check_name(name)
        names.check_text([notes, *tags])
        file = Path(file)
        with self.staging() as staged:
            model = staged.file(file)
            onnxfile.check_file(model.path, shown=file)
            owned = [staged.certificate(Path(path), model.digest) for path in certificates]
            with self.folder.write(name) as connection:
                origin = None if parent is None else tables.find_version(connection, *tables.pinned(connection, parent))
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
        """Attach certificates to a version that exists."""
        version = self.version(reference)
        at = events.now()
        with self.staging() as staged:
            owned = [staged.certificate(Path(path), version.model) for path in certificates]
            with self.folder.write(version.name) as connection:
                known = tables.find_version(connection, version.name, version.version).certificates
                for certificate in owned:
                    if certificate.digest not in known:
                        tables.attach(connection, self.blobs, version, certificate, at)
                return tables.find_version(connection, version.name, version.version)

    def revoke(self, kind: str, digest: str, reason: str) -> str:
        """Write down that a key, or a certificate (by its statement), counts no longer; every promotion heeds it.

        Nothing is taken away: the log says who revoked what, when and why.
        """
        names.check_text([reason])
        if not reason.strip():
            raise RegistryError("say why: the reason stands in the log")
        with self.folder.index.write() as connection:
            return events.append(connection, "revoke", None, {kind: digest, "reason": reason}, at=events.now())

    def revoked(self) -> dict[str, str]:
        """Return why what was revoked counts no longer, by key id and by the digest of a certificate's statement."""
        known: dict[str, str] = {}
        former: int | None = None
        with self.folder.index.read() as connection:
            for event in events.of_model(connection, None):
                if event.action != "revoke":
                    continue
                body = event.body
                former = event.seq if "list" in body else None
                if "list" not in body:
                    why = f"{body['reason']} (event {event.seq}, by {body['by']})"
                    known[body.get("key") or body["certificate"]] = why
        if former is not None:
            raise RegistryError(
                f"event {former} took in a revocation list, which fairkit no longer reads: write down what it revoked "
                "with `fairkit registry revoke KEY-OR-CERTIFICATE --reason TEXT`; the first such event settles it"
            )
        return known

    def lock(self, name: str, raw: bytes, keys: Sequence[PublicKey] = ()) -> PolicyLock:
        """Register a policy lock for a model's name, which need not have a version yet; twice the same is once."""
        names.check_name(name)
        lock = PolicyLock.verify(raw, keys) if keys else PolicyLock.read(raw)
        with self.staging() as staged, self.folder.write(name) as connection:
            known = [one for one in events.of_model(connection, name) if one.action == "lock"]
            if not known or known[-1].body["statement"] != lock.statement_sha256:
                kept = staged.take(self.blobs.stage([raw]))
                tables.keep(connection, self.blobs, kept, "lock")
                body = {"lock": kept.digest, "statement": lock.statement_sha256, "data": lock.data_sha256}
                events.append(connection, "lock", name, body, at=events.now())
        return lock

    def set_alias(self, name: str, alias: str, policy: AliasPolicy) -> Alias:
        """Make an alias, or give it another policy; what it points to stays."""
        names.check_alias(alias)
        with self.folder.write(name) as connection:
            tables.find_version(connection, name)
            return tables.set_alias(connection, name, alias, policy, events.now())

    def remove_alias(self, name: str, alias: str) -> None:
        """Take an alias away, with its policy; the versions stay."""
        with self.folder.write(name) as connection:
            known = {one.alias for one in tables.find_aliases(connection, name)}
            if alias not in known:
                tables.find_version(connection, name)
                hint = did_you_mean(alias, known, what=f"aliases of {name}")
                raise RegistryError(f"{name} has no alias {alias!r}. {hint}")
            connection.execute("DELETE FROM aliases WHERE name = ? AND alias = ?", (name, alias))
            events.append(connection, "remove-alias", name, {"alias": alias}, at=events.now())

    def point(
        self,
        action: str,
        alias: Alias,
        version: int | None,
        certificate: str | None,
        body: Mapping[str, Any],
        *,
        head: str,
    ) -> bool:
        """Point an alias to a version or to nothing, unless the log has gone on; `promotion` decides which and why."""
        at = events.now()
        with self.folder.write(alias.name) as connection:
            if events.newest(connection)[1] != head:
                return False
            connection.execute(
                "UPDATE aliases SET version = ?, certificate = ?, changed_at = ? WHERE name = ? AND alias = ?",
                (version, certificate, at, alias.name, alias.alias),
            )
            written = {"alias": alias.alias, "version": version, "certificate": certificate, **body}
            events.append(connection, action, alias.name, written, at=at)
        return True

    def staging(self) -> AbstractContextManager[Staging]:
        """Collect files for the store; what was not kept at the end is removed."""
        return staging_in(self.blobs)

    def models(self) -> list[dict[str, Any]]:
        """Return each model's name, number of versions, newest version and what each alias means."""
        with self.folder.read() as connection:
            return tables.list_models(connection, tables.find_aliases(connection))

    def versions(self, name: str, *, limit: int | None = None) -> list[Version]:
        """Return a model's versions, the newest first."""
        with self.folder.read(names.check_name(name)) as connection:
            return tables.find_versions(connection, name, limit=limit)

    def version(self, reference: str | Reference) -> Version:
        """Return the version that ``credit@3``, ``credit@production`` or ``credit`` (the newest) means."""
        wanted = names.parse(reference) if isinstance(reference, str) else reference
        with self.folder.read(wanted.name) as connection:
            number = wanted.version
            if wanted.alias is not None:
                number = tables.holder(connection, wanted)
            return tables.find_version(connection, wanted.name, number)

    def aliases(self, name: str | None = None) -> list[Alias]:
        """Return the aliases of a model, or of all models."""
        with self.folder.read(name) as connection:
            return tables.find_aliases(connection, name)

    def alias(self, name: str, alias: str) -> Alias | None:
        """Return one alias; None where it was not made."""
        with self.folder.read(name) as connection:
            return next(iter(tables.find_aliases(connection, name, alias)), None)

    def log(self, name: str | None = None, *, limit: int | None = None) -> list[events.Event]:
        """Return the events of a model (or all), the newest first."""
        with self.folder.index.read() as connection:
            if (
                name is not None
                and not connection.execute("SELECT 1 FROM events WHERE name = ? LIMIT 1", (name,)).fetchone()
            ):
                tables.refuse_unknown(connection, name)
            return events.read(connection, name, limit=limit)

    def head(self) -> str:
        """Return the digest of the newest event."""
        with self.folder.index.read() as connection:
            return events.newest(connection)[1]

    def certificates(self, *, model: str | None = None) -> tuple[str, ...]:
        """Return the digest of every certificate that versions of all models, or with this file, have or once had."""
        with self.folder.index.read() as connection:
            state = self.folder.confirm(connection)
        held = state.owned | state.detached
        found = (one for one in held if model in (None, state.versions[f"{one[0]}@{one[1]}"][0]))
        return tuple(sorted({digest for _, _, digest in found}))

    def model_path(self, version: Version) -> Path:
        """Return the path of a version's ONNX file, after hashing the file again."""
        return self.blobs.intact(version.model)

    def certificate(self, digest: str) -> bytes:
        """Return a certificate file's bytes, after hashing them again."""
        return self.blobs.read(digest, limit=Certificate.LARGEST)
