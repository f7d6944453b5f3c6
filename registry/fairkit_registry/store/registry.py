"""The registry: versions of models, the files they consist of, and the aliases that point to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import did_you_mean
from fairkit.support.escaping import visible
from fairkit_registry import names, onnxfile
from fairkit_registry.errors import RegistryError
from fairkit_registry.evidence import locks, revocations
from fairkit_registry.jsonio import canonical
from fairkit_registry.store import events, tables
from fairkit_registry.store.records import Alias, Version, read_alias
from fairkit_registry.store.staging import Staging, staging_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.locks import PolicyLock
    from fairkit_registry.evidence.revocations import RevocationList
    from fairkit_registry.policies import AliasPolicy

from fairkit_registry.store.guarded import INDEX_FILE
from fairkit_registry.store.reading import ReadableRegistry

__all__ = ["INDEX_FILE", "Registry"]

_SHORTEST = 8
"""Characters of a digest that name a certificate."""


class Registry(ReadableRegistry):
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

    def detach(self, reference: str, certificate: str, reason: str) -> tuple[Version, str]:
        """Take a certificate off a version, with a line in the log; its file stays in the store.

        Whatever a key that an alias trusts has signed goes on counting at promotions: only its signer can revoke it.

        Parameters
        ----------
        reference
            The version.
        certificate
            Its digest, or the first characters of it: at least eight.
        reason
            Why, for those who read the log.

        Returns
        -------
        Version, str
            The version as it is now, and the digest of what was taken off.

        Raises
        ------
        RegistryError
            There is no such version or certificate, there is no reason, or the registry cannot be written.
        """
        names.check_text([reason])
        if not reason.strip():
            raise RegistryError("say why: the reason stands in the log")
        version = self.version(reference)
        with self.index.write() as connection:
            self.confirm(connection, version.name)
            own = tables.find_version(connection, version.name, version.version).certificates
            matches = (
                [one for one in own if one.startswith(certificate)] if len(certificate) >= _SHORTEST else []
            )
            if len(matches) != 1:
                listed = ", ".join(one[:12] for one in own) or "none"
                raise RegistryError(
                    f"{version.reference} has {len(matches) or 'no'} certificates {certificate!r}; it has {listed}"
                )
            tables.detach(connection, version, matches[0], reason, events.now())
            return tables.find_version(connection, version.name, version.version), matches[0]

    def revoke(self, raws: Sequence[tuple[str, bytes]], keys: Sequence[PublicKey]) -> list[RevocationList]:
        """Take in revocation lists, all or none; a promotion heeds those by keys and revokers of its alias.

        Parameters
        ----------
        raws
            Name and bytes of each.
        keys
            Of which one must have signed each.

        Raises
        ------
        VerificationError
            One is not signed by any of the keys, is older than what is here, or takes a revocation back.
        RegistryError
            The registry cannot be written.
        """
        lists = [revocations.read(raw, keys, where=name) for name, raw in raws]
        with self.staging() as staged, self.index.write() as connection:
            newest = {
                issuer: revocations.read(raw, keys)
                for issuer, raw in self.revocations().items()
                if issuer in {one.issuer for one in lists}
            }
            for addition in sorted(lists, key=lambda one: one.sequence):
                known = newest.get(addition.issuer)
                if known is not None:
                    addition.check_follows(known, "is in the registry")
                if known is None or known.sha256 != addition.sha256:
                    tables.keep(
                        connection, self.blobs, staged.take(self.blobs.stage([addition.raw])), "revocations"
                    )
                    body = {"list": addition.sha256, "issuer": addition.issuer, "sequence": addition.sequence}
                    events.append(connection, "revoke", None, body, at=events.now())
                newest[addition.issuer] = addition
        return lists

    def lock(self, name: str, raw: bytes, keys: Sequence[PublicKey] = ()) -> PolicyLock:
        """Register a policy lock for a model's name, which need not have a version yet; twice the same is once.

        Parameters
        ----------
        name
            The model's.
        raw
            The lock's file.
        keys
            Of which one must have signed it; without any nobody's signature is asked for, until a promotion does.

        Raises
        ------
        VerificationError
            None of the keys has signed it.
        CertificateError
            It is no lock.
        """
        names.check_name(name)
        lock = locks.verify_lock(raw, keys) if keys else locks.read_lock(raw)
        with self.staging() as staged, self.index.write() as connection:
            self.confirm(connection, name)
            known = [one for one in events.of_model(connection, name) if one.action == "lock"]
            if not known or known[-1].body["statement"] != lock.statement_sha256:
                kept = staged.take(self.blobs.stage([raw]))
                tables.keep(connection, self.blobs, kept, "lock")
                body = {"lock": kept.digest, "statement": lock.statement_sha256, "data": lock.data_sha256}
                events.append(connection, "lock", name, body, at=events.now())
        return lock

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
        self, version: Version, alias: Alias, certificate: str | None, reasons: Sequence[str], *, head: str
    ) -> bool:
        """Point an alias to a version, unless the log has gone on; `promotion` decides whether, and notes why.

        Parameters
        ----------
        version, alias, certificate, reasons
            What was decided, and from which certificate.
        head
            The newest event when deciding began (see `ReadableRegistry.head`): a decision counts only for what it was
            made about.

        Returns
        -------
        bool
            False where something was written since; nothing is changed then.
        """
        body = {"previous": alias.version, "model": version.model, "reasons": list(reasons)}
        return self._move("promote", alias, version.version, certificate, body, head)

    def take_back(
        self,
        alias: Alias,
        version: int | None,
        certificate: str | None,
        evidence: Mapping[str, Any],
        *,
        head: str,
    ) -> bool:
        """Point an alias to a former version or to nothing; `promotion` decides which. See `point`."""
        body = {"taken_from": alias.version, "evidence": dict(evidence)}
        return self._move("demote", alias, version, certificate, body, head)

    def _move(
        self,
        action: str,
        alias: Alias,
        version: int | None,
        certificate: str | None,
        body: Mapping[str, Any],
        head: str,
    ) -> bool:
        at = events.now()
        with self.index.write() as connection:
            self.confirm(connection, alias.name)
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
