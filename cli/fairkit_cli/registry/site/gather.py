"""Everything that the pages are made from, read from the registry once; every file is hashed again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairkit.reading import headlines
from fairkit_cli.fields import as_options
from fairkit_cli.registry.site.evidence import Evidence, look
from fairkit_registry.jsonio import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

    from fairkit.reading import Headlines
    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revoked import Revocations
    from fairkit_registry.store.events import Event
    from fairkit_registry.store.records import Alias, Version
    from fairkit_registry.store.registry import Registry

Remembered = dict[str, list[Any]]
"""What certificates said in the last build, by what it was decided from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVersion:
    """A version, its evidence with the newest that holds first, its aliases, and the versions that were made of it."""

    version: Version
    evidence: tuple[Evidence, ...]
    aliases: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    damage: str | None = None

    @property
    def deciding(self) -> Evidence | None:
        """The evidence that the version's numbers come from: the newest that holds, else the newest that is there."""
        return self.evidence[0] if self.evidence else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAlias:
    """An alias, and what its policy comes to for the version that it points to now."""

    alias: Alias
    verdict: str | None
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenModel:
    """A model: versions, the newest first, aliases, and events, the newest first."""

    name: str
    versions: tuple[SeenVersion, ...]
    aliases: tuple[SeenAlias, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A registry: its models, its events, the newest first, and the digests of the certificates that are whole."""

    models: tuple[SeenModel, ...]
    events: tuple[Event, ...]
    certificates: tuple[str, ...]


def gather(registry: Registry, remembered: MutableMapping[str, list[Any]]) -> Seen:
    """Read a registry."""
    children: dict[str, list[str]] = {}
    listed = {one["name"]: registry.versions(one["name"]) for one in registry.models()}
    for version in (one for versions in listed.values() for one in versions):
        if version.parent is not None:
            children.setdefault(version.parent, []).append(version.reference)
    whole: dict[str, None] = {}
    fresh: Remembered = {}
    events, declared = registry.log(), headlines()
    models = [
        _model(
            registry,
            name,
            versions,
            events,
            children,
            whole=whole,
            remembered=remembered,
            fresh=fresh,
            declared=declared,
        )
        for name, versions in listed.items()
    ]
    remembered.clear()
    remembered.update(fresh)
    return Seen(models=tuple(models), events=tuple(events), certificates=tuple(whole))


def _model(
    registry: Registry,
    name: str,
    versions: Sequence[Version],
    events: Sequence[Event],
    children: Mapping[str, Sequence[str]],
    **state: Any,
) -> SeenModel:
    from fairkit_registry.evidence.keys import parse_public
    from fairkit_registry.promotion.valid import of_registry

    aliases = registry.aliases(name)
    trusted = [parse_public(pem) for pem in sorted({pem for one in aliases for pem in one.policy.keys})]
    revokers = [parse_public(pem) for pem in sorted({pem for one in aliases for pem in one.policy.revokers})]
    revocations = of_registry(registry, trusted, revokers)
    basis = fingerprint(
        [[key.keyid for key in trusted], sorted(one.sha256 for one in revocations.lists), sorted(revocations.revokers)]
    )
    names_at: dict[int | None, list[str]] = {}
    for alias in aliases:
        names_at.setdefault(alias.served, []).append(alias.alias)
    return SeenModel(
        name=name,
        versions=tuple(
            SeenVersion(
                version=version,
                evidence=_evidence(registry, version, trusted, revocations, basis, **state),
                aliases=tuple(names_at.get(version.version, ())),
                children=tuple(children.get(version.reference, ())),
                damage=registry.blobs.problem(version.model),
            )
            for version in versions
        ),
        aliases=tuple(_alias(registry, one) for one in aliases),
        events=tuple(one for one in events if one.name == name),
    )


def _evidence(
    registry: Registry,
    version: Version,
    trusted: Sequence[PublicKey],
    revocations: Revocations,
    basis: str,
    *,
    whole: dict[str, None],
    remembered: Mapping[str, list[Any]],
    fresh: Remembered,
    declared: Headlines,
) -> tuple[Evidence, ...]:
    from fairkit_registry.errors import RegistryError

    evidence = []
    for digest in version.certificates:
        try:
            raw = registry.certificate(digest)
        except RegistryError as error:
            evidence.append(Evidence(digest=digest, holds=False, why=str(error), told={}))
            continue
        whole[digest] = None
        key = f"{digest} {version.model} {basis}"
        said = remembered.get(key)
        piece = (
            look(raw, digest, version.model, trusted, revocations, declared)
            if said is None
            else Evidence(digest=said[0], holds=said[1], why=said[2], told=said[3])
        )
        fresh[key] = [piece.digest, piece.holds, piece.why, dict(piece.told)]
        evidence.append(piece)
    return distinct(sorted(evidence, key=lambda one: (one.holds is True, one.audited), reverse=True))


def distinct(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return each statement once: its first file, which names those that come after it as copies."""
    files: dict[str, list[Evidence]] = {}
    for one in evidence:
        files.setdefault(str(one.told.get("statement", one.digest)), []).append(one)
    return tuple(
        replace(first, told={**first.told, "copies": [one.digest for one in copies]}) if copies else first
        for first, *copies in files.values()
    )


def _alias(registry: Registry, alias: Alias) -> SeenAlias:
    from fairkit_registry.promotion.run import evaluate

    if alias.version is None:
        return SeenAlias(alias=alias, verdict=None, reasons=())
    decision = evaluate(registry, f"{alias.name}@{alias.version}", alias.alias)
    told = tuple((reason.kind, as_options(reason.text)) for reason in decision.reasons)
    return SeenAlias(alias=alias, verdict=decision.verdict, reasons=told)
