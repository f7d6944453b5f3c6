"""What the registry keeps about versions and aliases, as frozen values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.support.records import record_of
from fairkit_registry.policies import AliasPolicy

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a model."""

    name: str  # which; versions count from 1 without gaps and are never changed
    version: int  # which; versions count from 1 without gaps and are never changed
    model: str  # SHA-256 and bytes of the ONNX file
    size: int  # SHA-256 and bytes of the ONNX file
    filename: str  # what the file was called when it was added
    parent: str | None  # the version it was made from, as `name@version`; None where nobody said
    tags: tuple[str, ...]  # what the user wanted to remember
    notes: str  # what the user wanted to remember
    origin: str | None  # the version in another registry that this one was imported from, else None
    added_at: str  # when, UTC
    certificates: tuple[str, ...] = ()  # the SHA-256 of each certificate file, in the order they were attached

    @property
    def reference(self) -> str:
        """The version as the user writes it: ``credit@3``."""
        return f"{self.name}@{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"sha256" if name == "model" else name: value for name, value in record_of(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """A name that points to a version, and the policy a version must meet to be pointed to.

    `version` and `certificate` are None until something was promoted.
    """

    name: str
    alias: str
    policy: AliasPolicy
    version: int | None
    certificate: str | None
    changed_at: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "alias": self.alias,
            "version": self.version,
            "certificate": self.certificate,
            "policy": self.policy.to_dict(),
            "changed_at": self.changed_at,
        }


def read_version(row: sqlite3.Row, certificates: tuple[str, ...] = ()) -> Version:
    """Make a version of a row of `versions` joined with its blob's size."""
    parent = None if row["parent_name"] is None else f"{row['parent_name']}@{row['parent_version']}"
    same = ("name", "version", "model", "size", "filename", "notes", "origin", "added_at")
    return Version(
        **{key: row[key] for key in same}, parent=parent, tags=tuple(json.loads(row["tags"])), certificates=certificates
    )


def read_alias(row: sqlite3.Row) -> Alias:
    """Make an alias of a row of `aliases`."""
    return Alias(
        name=row["name"],
        alias=row["alias"],
        policy=AliasPolicy.from_dict(json.loads(row["policy"])),
        version=row["version"],
        certificate=row["certificate"],
        changed_at=row["changed_at"],
    )
