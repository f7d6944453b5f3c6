"""Hashes of cells and ids: the same wherever, and in whatever pieces, a table is read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_numpy, codes_of, empty_text
from fairkit.data.digest import plain_doubles
from fairkit.data.roles import value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]


_GOLDEN, _FIRST, _SECOND = (np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_MASKS = np.array([(1 << (8 * index)) - 1 for index in range(9)], dtype=np.uint64)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
PIECE = 8_192
"""So many words are mixed at once: what that needs stays in the processor's cache."""
_SHORT = 64
"""Longer texts are hashed one by one: a single cell of a megabyte must not make everybody's loop long."""


def mixed(words: Words) -> Words:
    """Return the words, shape [n], well mixed: every bit depends on every bit (the finaliser of splitmix64)."""
    result = words + _GOLDEN
    shifted = np.empty(min(len(words), PIECE), dtype=np.uint64)
    for start in range(0, len(words), PIECE):
        z = result[start : start + PIECE]
        moved = shifted[: len(z)]
        z ^= np.right_shift(z, _SHIFTS[0], out=moved)
        z *= _FIRST
        z ^= np.right_shift(z, _SHIFTS[1], out=moved)
        z *= _SECOND
        z ^= np.right_shift(z, _SHIFTS[2], out=moved)
    return result


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
    for index in np.flatnonzero(~short).tolist():
        hashes[index] = _long_word(padded[starts[index] - first :][: lengths[index]])
    return hashes


def _short_words(eights: Words, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Words:
    hashes: Words = mixed(lengths.astype(np.uint64))
    for index in range(0, int(lengths.max(initial=0)), 8):
        at = np.flatnonzero(lengths > index) if index else slice(None)
        left = lengths[at] - index
        part = eights[starts[at] + index] & _MASKS[np.clip(left, 0, 8)]
        hashes[at] = mixed(hashes[at] ^ part)
    return hashes


def _long_word(content: NDArray[np.uint8]) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(content.tobytes(), digest_size=8).digest(), "little"))


def column_hashes(column: pa.Array) -> Words:
    """Return a 64-bit number for every cell, the same for the same value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        codes = codes_of(column)
        return codes.mapped(column_hashes(pa.concat_arrays([codes.values, pa.nulls(1, codes.values.type)])))
    if pa.types.is_string(column.type):
        texts = pc.fill_null(column, empty_text()) if column.null_count else column
        pieces = [text_words(texts.slice(start, PIECE)) for start in range(0, len(texts), PIECE)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.uint64)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return plain_doubles(column).view(np.uint64)


BUCKETS = 1_024
"""Rows of one cluster share a bucket; so do those of other clusters, which are independent of them."""

_SHIFT = np.uint64(54)


KEY = 0x9E3779B97F4A7C15
"""Of the hash: the same for every table, so that neither the order of rows nor other columns choose the buckets."""


def buckets_of(column: pa.Array, key: int = KEY) -> NDArray[np.int64]:
    """Return the bucket of each row's cluster, shape [n], in [0, `BUCKETS`)."""
    return (mixed(words_of(column) ^ np.uint64(key)) >> _SHIFT).astype(np.int64)


def query_numbers(column: pa.Array, name: str, table: str) -> Words:
    """Return a number for each row's query, shape [n]: rows have the same number where they have the same query.

    It is a digest of 8 bytes of the query as text, so that pieces of a table agree on it; 1 and 1.0 are one query.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    absent = int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0)
    if absent:
        raise DataError(f"{table}: {absent:,} rows have no value in the `query` column {name!r}; leave these rows out")
    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    digests = [
        hashlib.blake2b(value_text(value).encode(), digest_size=8).digest() for value in coded.dictionary.to_pylist()
    ]
    numbers = np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
    return np.asarray(numbers[as_numpy(coded.indices).astype(np.int64)])


def words_of(column: pa.Array) -> Words:
    """Return a well mixed word for each id, shape [n]: equal ids have equal words; 1 and 1.0 do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return text_words(pc.cast(column, pa.large_string()))
    return mixed(_id_numbers(as_numpy(column if pa.types.is_integer(kind) else pc.cast(column, pa.float64()))))


def _id_numbers(values: NDArray[Any]) -> Words:
    """Whole numbers as they are; others, and those beyond 2^53, by the bits of their floats."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64).view(np.uint64)
    numbers = values.astype(np.float64) + 0.0
    whole = (np.abs(numbers) < 2**53) & (numbers == np.round(numbers))
    as_whole = np.where(whole, numbers, 0.0).astype(np.int64).view(np.uint64)
    return np.where(whole, as_whole, numbers.view(np.uint64))
