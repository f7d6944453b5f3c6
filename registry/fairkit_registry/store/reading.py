"""What a registry says: models, versions, aliases, events, files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit_registry import names
from fairkit_registry.evidence.certificate import LARGEST_CERTIFICATE
from fairkit_registry.evidence.revocations import LARGEST
from fairkit_registry.store import events, tables
from fairkit_registry.store.probation import probation_of, refuse_fallen, standing
from fairkit_registry.store.records import Alias, Version, read_alias, read_version

if TYPE_CHECKING:
    from fairkit_registry.evidence.probation import Probation
    from fairkit_registry.names import Reference

from fairkit_registry.store.guarded import OpenRegistry


class ReadableRegistry(OpenRegistry):
    """An open registry that answers questions; every answer is held against the log first."""

    def models(self) -> list[dict[str, Any]]:
        """Return each model's name, number of versions, newest version and aliases, with the version that each means.

        Where an alias points to a version that it does not mean any more, `ended` says why.
        """
        with self.index.read() as connection:
            self.confirm(connection)
            rows = connection.execute(
                "SELECT name, count(*) AS versions, max(version) AS newest FROM versions GROUP BY name "
                "ORDER BY name"
            ).fetchall()
            aliases = [standing(connection, self.blobs, one) for one in tables.find_aliases(connection, None)]
        listed = []
        for row in rows:
            own = [one for one in aliases if one.name == row["name"]]
            ended = {one.alias: one.ended for one in own if one.ended}
            record = {"name": row["name"], "versions": row["versions"], "newest": row["newest"]}
            record["aliases"] = {one.alias: one.served for one in own}
            listed.append(record | ({"ended": ended} if ended else {}))
        return listed

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

    def version(self, reference: str | Reference, *, fallen: bool = False) -> Version:
        """Return the version that ``credit@3``, ``credit@production`` or ``credit`` (the newest) means.

        Parameters
        ----------
        reference
            The name.
        fallen
            Whether to return also the version of an alias whose probation has ended without success.

        Raises
        ------
        RegistryError
            There is no such model, version or alias, or the alias points to nothing yet, or to nothing any more.
        """
        wanted = names.parse(reference) if isinstance(reference, str) else reference
        with self.index.read() as connection:
            self.confirm(connection, wanted.name)
            number = wanted.version
            if wanted.alias is not None:
                number = tables.holder(connection, wanted)
                if not fallen:
                    refuse_fallen(connection, self.blobs, wanted)
            return tables.find_version(connection, wanted.name, number)

    def aliases(self, name: str | None = None) -> list[Alias]:
        """Return the aliases of a model, or of all models."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            return [standing(connection, self.blobs, one) for one in tables.find_aliases(connection, name)]

    def alias(self, name: str, alias: str) -> Alias | None:
        """Return one alias; None where it was not made."""
        with self.index.read() as connection:
            self.confirm(connection, name)
            row = connection.execute(
                "SELECT * FROM aliases WHERE name = ? AND alias = ?", (name, alias)
            ).fetchone()
            return None if row is None else standing(connection, self.blobs, read_alias(row))

    def probation(self, alias: Alias, model: str | None = None) -> Probation | None:
        """Return the state of an alias's probation, of its version or of a file that it pointed to; None without one.

        Raises
        ------
        RegistryError
            A file of evidence is missing or was changed.
        CertificateError
            What was revoked cannot be told.
        """
        with self.index.read() as connection:
            return probation_of(connection, self.blobs, alias, model)

    def log(self, name: str | None = None, *, limit: int | None = None) -> list[events.Event]:
        """Return the events of a model (or all), the newest first."""
        with self.index.read() as connection:
            if (
                name is not None
                and not connection.execute("SELECT 1 FROM events WHERE name = ? LIMIT 1", (name,)).fetchone()
            ):
                tables.refuse_unknown(connection, name)
            return events.read(connection, name, limit=limit)

    def head(self) -> str:
        """Return the digest of the newest event."""
        with self.index.read() as connection:
            return events.newest(connection)[1]

    def digests(self) -> list[str]:
        """Return the digest of every event, the oldest first, after hashing the whole chain again.

        Raises
        ------
        TamperedError
            The chain does not hold.
        """
        with self.index.read() as connection:
            return events.digests(connection)

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

    def detached(self, *, model: str | None = None) -> tuple[str, ...]:
        """Return the digests of what was detached, and not attached again, of all models or of versions with a file."""
        with self.index.read() as connection:
            state = self.confirm(connection)
        return tuple(
            sorted(
                {
                    digest
                    for name, version, digest in state.detached
                    if model in (None, state.versions[f"{name}@{version}"][0])
                }
            )
        )

    def revocations(self) -> dict[str, bytes]:
        """Return the newest revocation list of each issuer, by the issuer's key id, after hashing it again.

        Raises
        ------
        RegistryError
            A list's file is missing or was changed.
        """
        with self.index.read() as connection:
            newest = events.revocations(connection)
        return {issuer: self.blobs.read(digest, limit=LARGEST) for issuer, digest in newest.items()}

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
