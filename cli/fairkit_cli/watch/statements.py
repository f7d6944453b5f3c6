"""The signed daily statements of a watch: what they say, and whether the log is still the one that they were about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairkit_registry.evidence.heartbeats import Heartbeat
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_watch.watch import Watch

HEARTBEATS = "heartbeats.jsonl"
"""The file in a watch's folder."""


def subject_of(watch: Watch) -> tuple[str, str]:
    """Return name and digest of what a statement is about: the model's, or the settings' where there is none."""
    settings = watch.settings
    return settings.model or "decisions", settings.sha256 or settings.digest


def check_statements(watch: Watch, chain: Sequence[Heartbeat]) -> None:
    """Refuse a log that is not the one that its statements were about, continued."""
    from fairkit_registry.errors import VerificationError
    from fairkit_watch.integrity import log_digests

    lengths = [log["records"] for one in chain if isinstance(log := one.body.get("log"), dict) and "records" in log]
    digests = log_digests(watch.book.records, [one for one in lengths if type(one) is int])
    before: tuple[str, int] = ("", 0)
    for number, statement in enumerate(chain, 1):
        where = f"statement {number} of the watch ({statement.day})"
        log = statement.body.get("log")
        length = log.get("records") if isinstance(log, dict) else None
        if not isinstance(log, dict) or type(length) is not int or statement.subject != subject_of(watch):
            raise VerificationError(f"{where} is about another watch, or does not say which records it is about")
        if statement.day <= before[0] or length < before[1]:
            raise VerificationError(f"{where} goes back behind the statement before it")
        if length > len(watch.book.records):
            raise VerificationError(
                f"{where} is about {length:,} records, and the log has {len(watch.book.records):,}: it was cut"
            )
        # the digest of the log decides about its totals; they are computed for the newest statement only
        actual = watch.statement(length) if statement is chain[-1] else {"log": log | {"sha256": digests[length]}}
        different = sorted(key for key, value in actual.items() if statement.body.get(key) != value)
        if different:
            raise VerificationError(
                f"the log is not the one that {where} was about: {', '.join(different)} differ. It was rewritten; "
                "restore the folder from a backup"
            )
        before = (statement.day, length)


def heartbeats(watch: Watch, keys: Sequence[PublicKey] | None) -> dict[str, Any] | None:
    """Return what the signed statements of a watch say; None where there are none and none were asked for.

    Each is held against the log as it is now, also where no key checks its signature.
    """
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.heartbeats import read_heartbeats
    from fairkit_watch.snapshot import missing_days

    path: Path = watch.book.folder / HEARTBEATS
    chain: list[Heartbeat] = []
    failed = None
    if not path.exists():
        if keys is None:
            return None
        failed = f"there are no signed statements: {path} is not there"
    else:
        try:
            found = read_heartbeats(path.read_bytes(), keys)
            check_statements(watch, found)
            chain = found
            if keys is not None and not chain:
                failed = f"there are no signed statements in {path}"
        except CertificateError as error:
            failed = str(error)
    records = len(watch.book.records) - (int(chain[-1].body["log"]["records"]) if chain else 0)
    return {
        "count": len(chain),
        "first": chain[0].day if chain else None,
        "last": chain[-1].day if chain else None,
        "missing_days": [*_before(watch, chain), *missing_days([one.day for one in chain])],
        "unsigned_records": records,
        "keyids": sorted({keyid for one in chain for keyid in one.keyids}) if keys else [],
        "failed": failed,
    }


def _before(watch: Watch, chain: Sequence[Heartbeat]) -> list[str]:
    """Return the days of decisions before the first statement: whoever replaces a folder has none for them."""
    return [day for day in watch.data.days if chain and day < chain[0].day]
