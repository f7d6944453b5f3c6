"""What counts no longer: the newest revocation lists that are known, and what this user has seen before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError, RevokedError
from fairkit_registry.evidence.predicate import time_text
from fairkit_registry.evidence.revocations import LARGEST, Entry, Kind, RevocationList, read
from fairkit_registry.evidence.statement import read_limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairkit_registry.evidence.keys import PublicKey


@dataclass(frozen=True, slots=True)
class Revocations:
    """The newest list of each issuer, and who may revoke what others signed.

    An issuer's list counts against its own signatures; a revoker's counts against everybody's.
    """

    lists: tuple[RevocationList, ...] = ()
    revokers: frozenset[str] = frozenset()

    def against(self, keyid: str, *targets: tuple[str, str], proven_at: datetime | None = None) -> Entry | None:
        """Return why a key's signature on something counts no longer; None where it counts.

        `proven_at` is since when the signature is proven to exist; None: nobody knows.
        """
        wanted = {*targets, ("key", keyid)}
        for one in self.lists:
            if one.issuer == keyid or one.issuer in self.revokers:
                for entry in one.entries:
                    if entry.target in wanted and not entry.spares(proven_at):
                        return entry
        return None

    @property
    def dated(self) -> bool:
        """Whether any entry counts since a time only, so that proven times matter."""
        return any(entry.invalid_since is not None for one in self.lists for entry in one.entries)

    def listed(self, kind: Kind, sha256: str) -> Entry | None:
        """Return the entry of any of the lists about something; None where there is none."""
        entries = (entry for one in self.lists for entry in one.entries)
        return next((entry for entry in entries if entry.target == (kind, sha256)), None)

    def standing(
        self,
        keyids: Sequence[str],
        *,
        statement_sha256: str,
        model_sha256: str | None,
        proven: Mapping[str, datetime] | None = None,
    ) -> tuple[str, ...]:
        """Return the keys whose signature on a certificate still counts; `proven` says how old each is at least."""
        targets = [("certificate", statement_sha256)]
        targets += [] if model_sha256 is None else [("model", model_sha256)]
        times = proven or {}
        found = {keyid: self.against(keyid, *targets, proven_at=times.get(keyid)) for keyid in keyids}
        left = tuple(keyid for keyid, entry in found.items() if entry is None)
        for entry in found.values():
            if entry is not None and not left:
                raise RevokedError(
                    f"the {entry.kind} {entry.sha256[:16]} was revoked at {time_text(entry.at)}: "
                    f"{entry.reason or 'no reason given'}{_since(entry)}"
                )
        return left

    def overdue(self, now: datetime) -> list[str]:
        """Say which lists their issuers no longer stand by: something may have been revoked since."""
        return [
            f"the newest revocation list of key {one.issuer[:16]} (number {one.sequence}) was due for an update at "
            f"{time_text(one.next_update)}: get a newer one from the issuer"
            for one in self.lists
            if now > one.next_update
        ]

    def take(self, addition: RevocationList, where: str) -> Revocations:
        """Return these with another list; the newest of an issuer counts."""
        for known in self.lists:
            if known.issuer == addition.issuer:
                addition.check_follows(known, where)
        return replace(self, lists=(*(one for one in self.lists if one.issuer != addition.issuer), addition))

    def merge(self, addition: RevocationList, where: str) -> Revocations:
        """Return these with another list, older or newer; only a contradiction is refused."""
        for known in self.lists:
            if known.issuer == addition.issuer and known.sequence > addition.sequence:
                known.check_follows(addition, where)
                return self
        return self.take(addition, where)


def _since(entry: Entry) -> str:
    if entry.invalid_since is None:
        return ""
    return f"; what it signed before {time_text(entry.invalid_since)} counts where a timestamp proves it"


def _remembered_file(keyid: str) -> Path:
    import platformdirs

    return Path(platformdirs.user_state_path("fairkit")) / "revocations" / f"{keyid}.json"


_REMEMBERED = "this user has seen"


def remembered(trusted: Sequence[PublicKey], revokers: Sequence[PublicKey] = ()) -> Revocations:
    """Return the newest lists by these keys that this user has seen, from the state folder."""
    lists = Revocations(revokers=frozenset(key.keyid for key in revokers))
    for key in {key.keyid: key for key in (*trusted, *revokers)}.values():
        path = _remembered_file(key.keyid)
        if path.is_file():
            raw = read_limited(path, LARGEST, what="revocation list", too_large="a revocation list")
            lists = lists.take(read(raw, [key], where=str(path)), _REMEMBERED)
    return lists


def seen(
    raws: Iterable[tuple[str, bytes]], trusted: Sequence[PublicKey], revokers: Sequence[PublicKey] = ()
) -> Revocations:
    """Take lists that the user names, hold them against those seen before, and remember them."""
    from fairkit.support.files import FileError, write_atomic

    lists = remembered(trusted, revokers)
    keys = [*trusted, *revokers]
    read_all = sorted((read(raw, keys, where=name) for name, raw in raws), key=lambda one: one.sequence)
    newest = {one.issuer: one for one in read_all}
    for one in read_all:
        newest[one.issuer].check_follows(one, "was given too")
    for found in newest.values():
        lists = lists.take(found, _REMEMBERED)
        path = _remembered_file(found.issuer)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, found.raw, mode=0o600)
        except (OSError, FileError) as error:
            raise CertificateError(f"the revocation list cannot be remembered in {path}: {error}") from None
    return lists
