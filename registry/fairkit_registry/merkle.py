"""Merkle trees over a log (RFC 6962, RFC 9162): roots, proofs that an entry is in it, that it was only added to."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = hashlib.sha256(b"").digest()
"""The root of a log without entries."""


def leaf(entry: bytes) -> bytes:
    """Return the hash of an entry (RFC 6962, 2.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Return the largest power of two below a size of at least 2."""
    return 1 << (size - 1).bit_length() - 1


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of entries, level by level."""
    if not leaves:
        return EMPTY
    level = list(leaves)
    while len(level) > 1:
        paired = [_node(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = paired + level[len(level) & ~1 :]
    return level[0]


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the proof that the entry with this index (from 0) is in the log (RFC 6962, 2.1.1)."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"no entry {index} among {len(leaves)}")
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    if index < middle:
        return [*inclusion(leaves[:middle], index), root(leaves[middle:])]
    return [*inclusion(leaves[middle:], index - middle), root(leaves[:middle])]


def consistency(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """Return the proof that the log's first `size` entries are what it was when it had so many (RFC 6962, 2.1.2)."""
    if not 0 <= size <= len(leaves):
        raise ValueError(f"no {size} entries among {len(leaves)}")
    return [] if size in (0, len(leaves)) else _subproof(leaves, size, whole=True)


def _subproof(leaves: Sequence[bytes], size: int, *, whole: bool) -> list[bytes]:
    if size == len(leaves):
        return [] if whole else [root(leaves)]
    middle = _split(len(leaves))
    if size <= middle:
        return [*_subproof(leaves[:middle], size, whole=whole), root(leaves[middle:])]
    return [*_subproof(leaves[middle:], size - middle, whole=False), root(leaves[:middle])]


def included(entry: bytes, index: int, size: int, proof: Sequence[bytes], top: bytes) -> bool:
    """Tell whether a proof shows that the log of this size and root has the entry at the index (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    at, last, seen = index, size - 1, entry
    for sibling in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            seen = _node(sibling, seen)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            seen = _node(seen, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and seen == top


def consistent(old: int, new: int, before: bytes, after: bytes, proof: Sequence[bytes]) -> bool:
    """Tell whether a proof shows that a log went on from one size and root to another (RFC 9162, 2.1.4.2)."""
    if not 0 <= old <= new:
        return False
    if old == new:
        return not proof and before == after
    if old == 0:
        return not proof and before == EMPTY
    path = [before, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            first, second = _node(sibling, first), _node(sibling, second)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            second = _node(second, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and first == before and second == after
