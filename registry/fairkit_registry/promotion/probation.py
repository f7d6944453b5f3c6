"""Signed evidence about served decisions on its way into a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.probation import judge_probation
from fairkit_registry.store import events, tables
from fairkit_registry.store.probation import LARGEST, evidence_of, present

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairkit_registry.evidence.probation import EvidenceKind, Probation
    from fairkit_registry.store.registry import Registry


def take_evidence(registry: Registry, name: str, alias: str, files: Sequence[tuple[EvidenceKind, Path]]) -> Probation:
    """Take in signed statements about the version that an alias points to, all or none; return the new state."""
    from fairkit_registry.evidence.statement import read_limited

    raws = [(kind, path, read_limited(path, LARGEST, what=kind, too_large=f"a {kind}")) for kind, path in files]
    with registry.staging() as staged, registry.folder.write(name) as connection:
        pointer = next(iter(tables.find_aliases(connection, name, alias)), None)
        evidence = None if pointer is None else evidence_of(connection, registry.blobs, pointer)
        if pointer is None or evidence is None:
            raise RegistryError(
                f"{name}@{alias} is not on probation: `fairkit registry alias {name} {alias} --probation 30d` asks for "
                "it, and a promotion begins it"
            )
        for kind, path, raw in raws:
            arrived = present(connection)
            try:
                evidence.take(kind, raw, arrived)
            except CertificateError as error:
                raise type(error)(f"{path}: {error}") from None
            kept = staged.take(registry.blobs.stage([raw]))
            tables.keep(connection, registry.blobs, kept, kind)
            body = {"kind": kind, "file": kept.digest, "model": evidence.terms.model_sha256, "alias": alias}
            events.append(connection, "served", name, body, at=events.text_of(arrived))
        return judge_probation(evidence, present(connection).date())
