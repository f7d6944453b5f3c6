"""What the registry keeps about versions and aliases, as frozen values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from fairkit.support.records import record_of

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasPolicy:
    """The conditions of an alias; by default a certificate by a trusted key, and no key is trusted.

    `fairkit_registry.promotion.conditions` makes of each that is asked for an object that judges.
    """

    keys: tuple[str, ...] = ()  # PEM of the public keys whose certificates count
    data: tuple[str, ...] = ()  # SHA-256 of the tables that the audit may have been made on; empty: any
    data_keys: tuple[str, ...] = ()  # PEM of keys of which one must have signed the table
    rules: tuple[Mapping[str, Any], ...] = ()
    confidence: float = 0.95  # the least confidence of the intervals that rules are judged by
    max_age_days: float | None = None  # how old (by the signed `auditedAt`) the certificate may be; None: any age
    min_rows: int | None = None  # the least number of audited rows in every group; None: any
    settings: Mapping[str, Any] = field(default_factory=dict)  # what the audit must have been told, by name
    plain: bool = False  # rows of a batch are shown to stay apart; every output is audited, every input fed
    locked: bool = False  # policy, table and settings were locked before the model came
    unseen: bool = False  # the rows were sealed by a key of `data_keys` before the model came
    no_worse: tuple[str, ...] = ()  # metrics not significantly worse than the current version's
    checks: tuple[str, ...] = ()  # names of promotion checks (from plugins) that must be installed and agree
    open: bool = False  # true asks for nothing: a place for work in progress
    gone: tuple[str, ...] = ()  # conditions of an earlier version that no check is left for: nothing passes

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self, without=() if self.gone else ("gone",))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote, also what an earlier version wrote: what it asked for and is gone, refuses."""
        absent = [name for name in _ALWAYS if name not in record]
        if absent:
            raise TypeError(f"the policy of an alias does not say {', '.join(absent)}")
        known = {each.name for each in dataclasses.fields(cls)}
        given = {_FORMER.get(key, key): tuple(one) if isinstance(one, list) else one for key, one in record.items()}
        empty: tuple[Any, ...] = (None, False, (), {})
        asked = {key for key, value in given.items() if not (key in known or value in empty or (key, value) == _ONE)}
        kept: dict[str, Any] = {key: given[key] for key in given if key in known}
        return cls(**kept | {"gone": tuple(sorted({*kept.get("gone", ()), *asked}))})


_ALWAYS = ("rules", "keys", "max_age_days", "data", "no_worse", "confidence", "checks", "open")
"""Conditions that every version wrote: without one it is no policy."""
_ONE = ("machines", 1)
_FORMER = {"pre_registered": "locked"}
"""Conditions that have another name since."""


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
