"""What the tables must hold if the log is true: the events are done again, and every row is compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairkit_registry.policies import AliasPolicy
from fairkit_registry.store import tables
from fairkit_registry.store.records import read_version

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from fairkit_registry.store.events import Event


@dataclass(slots=True)
class Replayed:
    """Versions, certificates and aliases as the log tells them."""

    versions: dict[str, Any] = field(default_factory=dict)
    owned: set[tuple[str, int, str]] = field(default_factory=set)
    aliases: dict[str, Any] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    detached: set[tuple[str, int, str]] = field(default_factory=set)

    def add(self, event: Event) -> None:
        """Do an event again."""
        body, name = event.body, str(event.name)
        if event.action in ("add", "import"):
            self.versions[f"{name}@{body['version']}"] = (
                *(body["model"], body["filename"], body["parent"], body["notes"], tuple(body["tags"])),
                *(body["origin"], event.at),
            )
            self.owned |= {(name, body["version"], digest) for digest in body["certificates"]}
        elif event.action == "certify":
            self.owned.add((name, body["version"], body["certificate"]))
            self.detached.discard((name, body["version"], body["certificate"]))
        elif event.action == "detach":
            self.owned.discard((name, body["version"], body["certificate"]))
            self.detached.add((name, body["version"], body["certificate"]))
        elif event.action == "alias":
            held = self.aliases.get(f"{name}@{body['alias']}", (None, None, None, None))
            # an older version of the program wrote fewer conditions, each of which has a default
            policy = AliasPolicy.from_dict(body["policy"]).to_dict()
            self.aliases[f"{name}@{body['alias']}"] = (policy, *held[1:3], event.at)
        elif event.action in ("revoke", "lock", "served"):  # earlier versions kept lists and statements of watches
            self.lists |= {body[key] for key in ("list", "lock", "file") if key in body}
        elif event.action == "remove-alias":
            self.aliases.pop(f"{name}@{body['alias']}", None)
        elif event.action in ("promote", "demote"):
            policy = self.aliases.get(f"{name}@{body['alias']}", (None,))[0]
            self.aliases[f"{name}@{body['alias']}"] = (policy, body["version"], body["certificate"], event.at)

    def blobs(self) -> set[str]:
        """Return the digests of all files that the log refers to."""
        return (
            {version[0] for version in self.versions.values()}
            | {digest for _, _, digest in self.owned | self.detached}
            | self.lists
        )


def replayed(chain: Iterable[Event]) -> Replayed:
    """Do events again, the oldest first."""
    state = Replayed()
    for event in chain:
        state.add(event)
    return state


def differences(connection: sqlite3.Connection, state: Replayed, name: str | None = None) -> Iterator[str]:
    """Yield a sentence for each row that is not as the log says."""
    yield from _different("version", state.versions, _versions(connection, name))
    yield from _different("alias", state.aliases, _aliases(connection, name))
    rows = connection.execute(
        "SELECT name, version, digest FROM certificates WHERE ? IS NULL OR name = ?", (name, name)
    )
    stored = {tuple(row) for row in rows}
    for owner, version, digest in sorted(state.owned ^ stored):
        known = (owner, version, digest) in state.owned
        where = "the log but not in the tables" if known else "the tables but not in the log"
        yield f"certificate {digest[:12]} of {owner}@{version} is in {where}"


UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What a row or an event raises that does not have the form that this program writes."""


def unreadable(error: Exception) -> str:
    """Say that something in the database has no form that this program writes."""
    return f"an event or a row does not have the form that it should have ({error!r})"


def _versions(connection: sqlite3.Connection, name: str | None) -> dict[str, Any]:
    versions = {}
    for row in connection.execute(tables.VERSION_ROWS + "WHERE ? IS NULL OR v.name = ?", (name, name)):
        one = read_version(row)
        versions[one.reference] = (
            *(one.model, one.filename, one.parent, one.notes, one.tags),
            *(one.origin, one.added_at),
        )
    return versions


def _aliases(connection: sqlite3.Connection, name: str | None) -> dict[str, Any]:
    return {
        f"{one.name}@{one.alias}": (one.policy.to_dict(), one.version, one.certificate, one.changed_at)
        for one in tables.find_aliases(connection, name)
    }


def _different(what: str, logged: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    for key in sorted(set(logged) | set(stored)):
        if key not in stored:
            yield f"{what} {key} is in the log but not in the tables"
        elif key not in logged:
            yield f"{what} {key} is in the tables but not in the log"
        elif logged[key] != stored[key]:
            yield f"{what} {key} was changed: the tables do not say what the log says"
