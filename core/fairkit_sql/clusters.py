"""Buckets of clusters, by a keyed hash that the engine computes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fairkit.data.arrow import as_arrow
from fairkit.data.clusters import BUCKETS, buckets_of
from fairkit_sql.relation import ibis

_PRIME = 2**31 - 1


def bucket_of(column: Any, key: int) -> Any:
    """Return the expression of each row's bucket, in [0, `BUCKETS`) for whole numbers, as three digits for others.

    Whole numbers go through a polynomial of degree three with secret coefficients modulo a prime: of any four ids the
    buckets are independent. Others go through MD5 with the key before the text.
    """
    if column.type().is_integer():
        draws = random.Random(key)  # noqa: S311 -- a hash family's coefficients, from the digest of the rows
        number = column.cast("int64") % _PRIME
        number = (number + _PRIME) % _PRIME
        hashed: Any = ibis().literal(draws.randrange(1, _PRIME), "int64")
        for _ in range(3):
            hashed = (hashed * number + draws.randrange(_PRIME)) % _PRIME
        return hashed % BUCKETS
    return (ibis().literal(f"{key:016x}") + column.cast("string")).hexdigest("md5").substr(0, 3)


def standing_for(buckets: Any, key: int) -> Any:
    """Return ids that fall into given buckets when they are read: an int64 column in the place of `bucket_of`'s."""
    import pyarrow as pa

    if pa.types.is_integer(buckets.type):
        places = np.asarray(buckets.combine_chunks(), dtype=np.int64)
    else:
        places = np.array([int(text, 16) >> 2 for text in buckets.to_pylist()], dtype=np.int64)
    return pa.chunked_array([as_arrow(_ids(key)[places])])


def _ids(key: int) -> Any:
    """Return an id for every bucket."""
    found = np.full(BUCKETS, -1, dtype=np.int64)
    start, step = 0, 1 << 15
    while (found < 0).any():
        ids = np.arange(start, start + step, dtype=np.int64)
        places = buckets_of(as_arrow(ids), ids, key)
        found[places[::-1]] = ids[::-1]
        start += step
    return found
