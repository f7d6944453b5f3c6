"""The registry: versions of models, the files they consist of, and the aliases that point to them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.errors import did_you_mean
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry import blobs, jsonio
from fairkit_registry.blobs import hash_file
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.certificate import Certificate, check_subject
from fairkit_registry.evidence.signed import PolicyLock
from fairkit_registry.store import index, tables
from fairkit_registry.store.folder import RegistryFolder, Staging, staging_in
from fairkit_registry.store.tables import UNREADABLE, differences, replayed, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from fairkit_registry.evidence.signers import PublicKey
    from fairkit_registry.jsonio import Reference
    from fairkit_registry.store.index import Alias, AliasPolicy, Version


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
        jsonio.check_name(name)
        jsonio.check_text([notes, *tags])
        file = Path(file)
        with self.staging() as staged:
            model = staged.file(file)
            blobs.check_file(model.path, shown=file)
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
        at = tables.now()
        with self.staging() as staged:
            owned = [staged.certificate(Path(path), version.model) for path in certificates]
            with self.folder.write(version.name) as connection:
                digests = tables.find_version(connection, version.name, version.version).certificates
                for certificate in owned:
                    if certificate.digest not in digests:
                        tables.attach(connection, self.blobs, version, certificate, at)
                return tables.find_version(connection, version.name, version.version)

    def revoke(self, kind: str, digest: str, reason: str) -> str:
        """Write down that a key, or a certificate (by its statement), counts no longer; every promotion heeds it.

        Nothing is taken away: the log says who revoked what, when and why.
        """
        jsonio.check_text([reason])
        if not reason.strip():
            raise RegistryError("say why: the reason stands in the log")
        with self.folder.index.write() as connection:
            return tables.append(connection, "revoke", None, {kind: digest, "reason": reason}, at=tables.now())

    def revoked(self) -> dict[str, str]:
        """Return why what was revoked counts no longer, by key id and by the digest of a certificate's statement."""
        known: dict[str, str] = {}
        earlier: int | None = None
        with self.folder.index.read() as connection:
            for event in tables.of_model(connection, None):
                if event.action != "revoke":
                    continue
                body = event.body
                earlier = event.seq if "list" in body else None
                if "list" not in body:
                    why = f"{body['reason']} (event {event.seq}, by {body['by']})"
                    known[body.get("key") or body["certificate"]] = why
        if earlier is not None:
            raise RegistryError(
                f"event {earlier} took in a revocation list, which fairkit no longer reads: write down what it revoked "
                "with `fairkit registry revoke KEY-OR-CERTIFICATE --reason TEXT`; the first such event settles it"
            )
        return known

    def lock(self, name: str, raw: bytes, keys: Sequence[PublicKey] = ()) -> PolicyLock:
        """Register a policy lock for a model's name, which need not have a version yet; twice the same is once."""
        jsonio.check_name(name)
        lock = PolicyLock.verify(raw, keys) if keys else PolicyLock.read(raw)
        with self.staging() as staged, self.folder.write(name) as connection:
            locks = [event for event in tables.of_model(connection, name) if event.action == "lock"]
            if not locks or locks[-1].body["statement"] != lock.statement_sha256:
                staged_lock = staged.take(self.blobs.stage([raw]))
                tables.keep(connection, self.blobs, staged_lock, "lock")
                body = {"lock": staged_lock.digest, "statement": lock.statement_sha256, "data": lock.data_sha256}
                tables.append(connection, "lock", name, body, at=tables.now())
        return lock

    def set_alias(self, name: str, alias: str, policy: AliasPolicy) -> Alias:
        """Make an alias, or give it another policy; what it points to stays."""
        jsonio.check_alias(alias)
        with self.folder.write(name) as connection:
            tables.find_version(connection, name)
            return tables.set_alias(connection, name, alias, policy, tables.now())

    def remove_alias(self, name: str, alias: str) -> None:
        """Take an alias away, with its policy; the versions stay."""
        with self.folder.write(name) as connection:
            known = {record.alias for record in tables.find_aliases(connection, name)}
            if alias not in known:
                tables.find_version(connection, name)
                hint = did_you_mean(alias, known, what=f"aliases of {name}")
                raise RegistryError(f"{name} has no alias {alias!r}. {hint}")
            connection.execute("DELETE FROM aliases WHERE name = ? AND alias = ?", (name, alias))
            tables.append(connection, "remove-alias", name, {"alias": alias}, at=tables.now())

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
        at = tables.now()
        with self.folder.write(alias.name) as connection:
            if tables.newest(connection)[1] != head:
                return False
            connection.execute(
                "UPDATE aliases SET version = ?, certificate = ?, changed_at = ? WHERE name = ? AND alias = ?",
                (version, certificate, at, alias.name, alias.alias),
            )
            written = {"alias": alias.alias, "version": version, "certificate": certificate, **body}
            tables.append(connection, action, alias.name, written, at=at)
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
        with self.folder.read(jsonio.check_name(name)) as connection:
            return tables.find_versions(connection, name, limit=limit)

    def version(self, reference: str | Reference) -> Version:
        """Return the version that ``credit@3``, ``credit@production`` or ``credit`` (the newest) means."""
        wanted = jsonio.parse(reference) if isinstance(reference, str) else reference
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

    def log(self, name: str | None = None, *, limit: int | None = None) -> list[tables.Event]:
        """Return the events of a model (or all), the newest first."""
        with self.folder.index.read() as connection:
            if (
                name is not None
                and not connection.execute("SELECT 1 FROM events WHERE name = ? LIMIT 1", (name,)).fetchone()
            ):
                tables.refuse_unknown(connection, name)
            return tables.read(connection, name, limit=limit)

    def head(self) -> str:
        """Return the digest of the newest event."""
        with self.folder.index.read() as connection:
            return tables.newest(connection)[1]

    def certificates(self, *, model: str | None = None) -> tuple[str, ...]:
        """Return the digest of every certificate that versions of all models, or with this file, have or once had."""
        with self.folder.index.read() as connection:
            state = self.folder.confirm(connection)
        pairs = state.owned | state.detached
        pairs_of_model = (pair for pair in pairs if model in (None, state.versions[f"{pair[0]}@{pair[1]}"][0]))
        return tuple(sorted({digest for _, _, digest in pairs_of_model}))

    def model_path(self, version: Version) -> Path:
        """Return the path of a version's ONNX file, after hashing the file again."""
        return self.blobs.intact(version.model)

    def certificate(self, digest: str) -> bytes:
        """Return a certificate file's bytes, after hashing them again."""
        return self.blobs.read(digest, limit=Certificate.LARGEST)


# Names of the registry where other commands expect a file.


VARIABLE = "FAIRKIT_REGISTRY"
DEFAULT = "fairkit-registry"


def locate(
    option: str | Path | None = None,
    *,
    configured: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return the registry's folder: the option, else the environment, else the configuration, else a default."""
    for choice in (option, environment.get(VARIABLE), configured):
        if choice:
            return Path(choice)
    return Path(DEFAULT)


def witnesses(named: str | Sequence[str] | None, *, folder: Path | None = None) -> tuple[str, ...]:
    """Return the witnesses that a configuration names: paths start from the file's folder."""
    listed = [named] if isinstance(named, str) else list(named or ())
    if not all(isinstance(item, str) for item in listed):
        raise RegistryError("[registry] witness in fairkit.toml is a path, or a list of them")
    return tuple(path if "://" in path or folder is None else str(folder / path) for path in listed)


def resolve(name: str, registry_path: str | Path, *, witnesses: Sequence[str | Path] = ()) -> Path:
    """Return the ONNX file that a name of a registry means, after hashing it again."""
    with Registry(registry_path, witnesses=witnesses) as registry:
        return registry.model_path(registry.version(name))


def register(
    name: str,
    file: str | Path,
    registry_path: str | Path,
    *,
    base: str | Path | None = None,
    certificates: Sequence[str | Path] = (),
    tags: Sequence[str] = (),
    notes: str = "",
) -> Version:
    """Add a file that was just made, with the version that it was made from as its parent."""
    with Registry(registry_path, create=True) as registry:
        parent = None if base is None else _parent(registry, name, base)
        return registry.add(name, file, certificates=certificates, parent=parent, tags=tags, notes=notes)


def register_pair(
    name: str,
    before: str | Path,
    after: str | Path,
    registry_path: str | Path,
    *,
    method: str,
    witnesses: Sequence[str | Path] = (),
) -> tuple[Version, Version]:
    """Add a mitigated file with the model that it was made from as its parent."""
    with Registry(registry_path, create=True, witnesses=witnesses) as registry:
        parent = _parent(registry, name, before)
        if parent is not None and parent.startswith(f"{name}@"):
            base = registry.version(parent)
        else:
            base = registry.add(name, before, tags=("before",), notes=f"before {method}")
        made = registry.add(name, after, parent=base.reference, tags=("mitigated",), notes=f"mitigated with {method}")
    return base, made


def _parent(registry: Registry, name: str, base: str | Path) -> str | None:
    if not os.path.lexists(base):
        return str(base)
    with registry.folder.index.read() as connection:
        row = connection.execute(
            "SELECT name, version FROM versions WHERE model = ? ORDER BY name <> ?, version DESC LIMIT 1",
            (hash_file(Path(base)), name),
        ).fetchone()
    return None if row is None else f"{row['name']}@{row['version']}"


# Looking after a registry: is everything as it was written, and what is left over.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `check` looked at and found."""

    problems: tuple[str, ...]  # sentences; empty when all is well
    notes: tuple[str, ...]  # what is harmless: leftovers that `gc` removes
    blobs: int  # how many blobs were hashed again
    size: int  # their bytes
    versions: int  # how many versions were followed
    events: int  # how many events
    head: str  # digest of the newest event. Who keeps it elsewhere can tell later whether the log was rewritten

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "clean": not self.problems,
            "problems": list(self.problems),
            "notes": list(self.notes),
            "blobs": self.blobs,
            "bytes": self.size,
            "versions": self.versions,
            "events": self.events,
            "head": self.head,
        }


def check(registry: Registry, *, head: str | None = None, remembered: bool = True) -> CheckResult:
    """Hash every blob again, follow every reference, walk the chain of events, and replay it.

    The tables must be exactly what the log says was done: a row that was changed behind the
    registry's back is found even where the log itself was left alone.
    """
    problems = [*registry.folder.index.damage(), *registry.folder.index.foreign_schema()]
    with registry.folder.index.read() as connection:
        sizes = {row["digest"]: row["size"] for row in connection.execute("SELECT digest, size FROM blobs")}
        subjects = [tuple(row) for row in connection.execute(_SUBJECTS)]
        versions = connection.execute("SELECT count(*) FROM versions").fetchone()[0]
        log = list(tables.walk(connection))
        chain = [entry for entry in log if isinstance(entry, tables.Event)]
        problems += [entry for entry in log if isinstance(entry, str)]
        try:
            problems += differences(connection, replayed(chain))
        except UNREADABLE as error:
            problems.append(unreadable(error))
    if remembered:
        problems += _forgotten(registry, [event.digest for event in chain])
    if head is not None and head not in {event.digest for event in chain}:
        problems.append(f"the event {head} is no longer in the log: the log was rewritten, or this is another registry")
    damage = {digest: list(_blob_problems(registry, digest, size)) for digest, size in sizes.items()}
    problems += [text for texts in damage.values() for text in texts]
    for reference, certificate, model in subjects:
        if not damage[certificate]:
            problems += _subject_problems(registry, reference, certificate, model)
    return CheckResult(
        problems=tuple(problems),
        notes=tuple(_leftovers(registry)),
        blobs=len(sizes),
        size=sum(sizes.values()),
        versions=versions,
        events=len(chain),
        head=chain[-1].digest if chain else tables.GENESIS,
    )


def _forgotten(registry: Registry, digests: list[str]) -> list[str]:
    """Say which of the remembered heads the log does not continue."""
    problems = []
    try:
        remembered = registry.folder.heads.read()
    except RegistryError as error:
        return [str(error)]
    for witness in remembered:
        try:
            witness.check(digests, registry.path)
        except RegistryError as error:
            problems.append(str(error))
    return problems


_SUBJECTS = (
    "SELECT c.name || '@' || c.version, c.digest, v.model FROM certificates c "
    "JOIN versions v ON v.name = c.name AND v.version = c.version"
)


def _blob_problems(registry: Registry, digest: str, size: int) -> Iterator[str]:
    problem = registry.blobs.problem(digest)
    if problem is not None:
        yield problem
    elif registry.blobs.path(digest).stat().st_size != size:
        yield f"blob {digest} has another size than the index says ({size} bytes)"


def _subject_problems(registry: Registry, reference: str, certificate: str, model: str) -> Iterator[str]:
    try:
        check_subject(registry.certificate(certificate), model, where=f"certificate {certificate[:12]} of {reference}")
    except (CertificateError, RegistryError) as error:
        yield str(error)


def _leftovers(registry: Registry) -> Iterator[str]:
    digests = list(registry.blobs.digests())  # before the rows: others may be adding
    with registry.folder.index.read() as connection:
        referenced = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
    for digest in digests:
        if digest not in referenced:
            yield (
                f"blob {digest} belongs to nothing: an interrupted process left it, or the index is older than the "
                "files. `fairkit registry check --gc` removes it once the head is known to be the newest"
            )
    for path in registry.blobs.abandoned():
        yield f"{path} was left by a process that did not finish; `fairkit registry check --gc` removes it"
    for path in registry.blobs.strays():
        yield f"{path} is no file of the registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What `gc` removed (or would remove): files and bytes."""

    files: tuple[str, ...]
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"files": list(self.files), "bytes": self.size}


def gc(registry: Registry, *, dry_run: bool = False) -> Removed:
    """Remove files that nothing refers to: leftovers of processes that were killed.

    It holds the write lock, so a file that another process has just moved into the store has its row
    already, or is not there yet. Temporary files go when they are a day old.
    """
    removed: list[str] = []
    size = 0
    with registry.folder.index.write() as connection:
        referenced = {row[0] for row in connection.execute("SELECT digest FROM blobs")}
        # what the log refers to stays, whatever was done to the tables
        referenced |= registry.folder.confirm(connection).blobs()
        loose = [registry.blobs.path(digest) for digest in registry.blobs.digests() if digest not in referenced]
        for path in (*loose, *registry.blobs.abandoned()):
            size += _remove(path, removed, dry_run=dry_run)
    return Removed(files=tuple(removed), size=size)


def _remove(path: Path, removed: list[str], *, dry_run: bool) -> int:
    with suppress(OSError):
        size = path.stat().st_size
        if not dry_run:
            path.unlink()
        removed.append(str(path))
        return size
    return 0
