"""Revocation lists that travel with models."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fairkit_registry.errors import VerificationError
from fairkit_registry.evidence.revocations import LARGEST, read
from fairkit_registry.evidence.statement import read_limited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey
    from fairkit_registry.evidence.revocations import RevocationList
    from fairkit_registry.exchange.layout import Arrival
    from fairkit_registry.store.registry import Registry


def carried_lists(found: Sequence[Arrival], trusted: Sequence[PublicKey]) -> list[RevocationList]:
    """Return the revocation lists that came along, and that a trusted key signed; others say nothing here."""
    lists: dict[str, RevocationList] = {}
    for staged in (one for arrival in found for one in arrival.revocations):
        raw = read_limited(staged.path, LARGEST, what="revocation list", too_large="a revocation list")
        with suppress(VerificationError):
            one = read(raw, trusted)
            lists[one.sha256] = one
    return sorted(lists.values(), key=lambda one: one.sequence)


def take_newer(registry: Registry, lists: Sequence[RevocationList], trusted: Sequence[PublicKey]) -> None:
    """Keep the revocation lists that are newer than the registry's; first, so that no version is here before them."""
    issuers = {one.issuer for one in lists}
    known = {issuer: raw for issuer, raw in registry.revocations().items() if issuer in issuers}
    held = {issuer: read(raw, trusted) for issuer, raw in known.items()}
    newer = [one for one in lists if one.issuer not in held or one.sequence > held[one.issuer].sequence]
    if newer:
        registry.revoke([(f"the revocation list of key {one.issuer[:16]}", one.raw) for one in newer], trusted)
