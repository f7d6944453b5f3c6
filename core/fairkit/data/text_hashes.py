"""One 64-bit word for each cell of text: equal texts have equal words, whatever batch they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_GOLDEN, _FIRST, _SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_MASKS = np.array([(1 << (8 * kept)) - 1 for kept in range(9)], dtype=np.uint64)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
PIECE = 8_192
"""So many words are mixed at once: what that needs stays in the processor's cache."""
_SHORT = 64
"""Longer texts are hashed one by one: a single cell of a megabyte must not make everybody's loop long."""


def mixed(words: Words) -> Words:
    """Return the words, shape [n], well mixed: every bit depends on every bit (the finaliser of splitmix64)."""
    found = words + _GOLDEN
    shifted = np.empty(min(len(words), PIECE), dtype=np.uint64)
    for start in range(0, len(words), PIECE):
        z = found[start : start + PIECE]
        moved = shifted[: len(z)]
        z ^= np.right_shift(z, _SHIFTS[0], out=moved)
        z *= _FIRST
        z ^= np.right_shift(z, _SHIFTS[1], out=moved)
        z *= _SECOND
        z ^= np.right_shift(z, _SHIFTS[2], out=moved)
    return found


def text_words(column: pa.Array) -> Words:
    """Return a word for each text, shape [n]: of its bytes, eight at a time, and of its length."""
    import pyarrow as pa

    wide = pa.types.is_large_string(column.type)
    _, offsets_buffer, content = column.buffers()
    if len(column) == 0 or offsets_buffer is None:
        return np.zeros(len(column), dtype=np.uint64)
    kind: Any = np.int64 if wide else np.int32
    offsets = np.frombuffer(offsets_buffer, kind)[column.offset : column.offset + len(column) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes: Words = lengths.astype(np.uint64)
    if content is None or not lengths.any():
        return mixed(mixed(hashes))  # as among other texts
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)  # so that eight bytes can be read at every place
    padded[: last - first] = np.frombuffer(content, np.uint8)[first:last]
    eights: Words = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded, strides=(1,))
    short = lengths <= _SHORT
    at = np.arange(len(column)) if short.all() else np.flatnonzero(short)
    hashes[at] = _short_words(eights, starts[at] - first, lengths[at])
    for place in np.flatnonzero(~short).tolist():
        hashes[place] = _long_word(padded[starts[place] - first :][: lengths[place]])
    return hashes


def _short_words(eights: Words, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Words:
    hashes: Words = mixed(lengths.astype(np.uint64))
    for place in range(0, int(lengths.max(initial=0)), 8):
        at = np.flatnonzero(lengths > place) if place else slice(None)
        left = lengths[at] - place
        part = eights[starts[at] + place] & _MASKS[np.clip(left, 0, 8)]
        hashes[at] = mixed(hashes[at] ^ part)
    return hashes


def _long_word(content: NDArray[np.uint8]) -> np.uint64:
    import hashlib

    return np.uint64(int.from_bytes(hashlib.blake2b(content.tobytes(), digest_size=8).digest(), "little"))
