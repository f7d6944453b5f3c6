"""From the ids of clusters to buckets: a hash, the same wherever and in whatever pieces a table is read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.duplicates import mixed, text_words
from fairkit.data.roles import value_text
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

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

    from fairkit.data.arrow import as_numpy

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

    from fairkit.data.arrow import as_numpy

    kind = column.type
    if pa.types.is_integer(kind):
        return mixed(_numbers(as_numpy(column)))
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return mixed(_numbers(as_numpy(pc.cast(column, pa.float64()))))
    return text_words(pc.cast(column, pa.large_string()))


def _numbers(values: NDArray[Any]) -> Words:
    """Whole numbers as they are; others, and those beyond 2^53, by the bits of their floats."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64).view(np.uint64)
    numbers = values.astype(np.float64) + 0.0
    whole = (np.abs(numbers) < 2**53) & (numbers == np.round(numbers))
    as_whole = np.where(whole, numbers, 0.0).astype(np.int64).view(np.uint64)
    return np.where(whole, as_whole, numbers.view(np.uint64))
