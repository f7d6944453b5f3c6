"""Taking an alias back from a version that broke its promise: an event with its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.support.records import record_of
from fairkit_registry import names
from fairkit_registry.errors import RegistryError
from fairkit_registry.promotion.run import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_registry.store.records import Alias
    from fairkit_registry.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """What became of an alias that was to be taken back."""

    name: str  # which
    alias: str  # which
    version: int  # the version that it was taken from
    now: int | None  # what it points to now; None: nothing
    done: bool  # whether anything was changed: False where the alias points elsewhere already
    reason: str  # a sentence

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self)


def demote(registry: Registry, name: str, version: int, alias: str, evidence: Mapping[str, Any]) -> Demotion:
    """Take an alias back from a version.

    It then points to the version that it pointed to last before, and that was not taken back itself, if that one still
    passes the alias's policy; else to nothing.
    """
    names.check_alias(alias)
    while True:
        head = registry.head()
        pointer = registry.alias(name, alias)
        if pointer is None:
            raise RegistryError(f"{name} has no alias {alias!r}: there is nothing to take back")
        if pointer.version != version:
            where = "nothing" if pointer.version is None else f"{name}@{pointer.version}"
            reason = f"{name}@{alias} points to {where}, not to {name}@{version}: nothing was changed"
            return Demotion(name=name, alias=alias, version=version, now=pointer.version, done=False, reason=reason)
        before, certificate, reason = _former(registry, pointer)
        body = {"taken_from": pointer.version, "evidence": {**evidence, "reason": reason}}
        if not registry.point("demote", pointer, before, certificate, body, head=head):
            continue
        return Demotion(name=name, alias=alias, version=version, now=before, done=True, reason=reason)


def _former(registry: Registry, pointer: Alias) -> tuple[int | None, str | None, str]:
    """Return the version to go back to with its certificate, and why."""
    candidates, bad = [], {pointer.version}
    for event in registry.log(pointer.name):  # the newest first
        if event.body.get("alias") != pointer.alias:
            continue
        if event.action == "demote":
            bad.add(event.body["taken_from"])
        elif event.action == "promote":
            candidates.append(event.body["version"])
    previous = next((one for one in candidates if one not in bad), None)
    if previous is None:
        return None, None, "no other version was promoted before: the alias points to nothing"
    decision = evaluate(registry, f"{pointer.name}@{previous}", pointer.alias)
    if decision.verdict != "pass":
        return (
            None,
            None,
            f"{pointer.name}@{previous}, promoted before, does not pass the alias's policy any more: the alias "
            "points to nothing",
        )
    certificate = None if decision.certificate is None else decision.certificate.sha256
    return (
        previous,
        certificate,
        f"back to {pointer.name}@{previous}, which was promoted before and passes the policy",
    )
