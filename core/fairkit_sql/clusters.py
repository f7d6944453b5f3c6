"""Buckets of clusters, by a keyed hash that the engine computes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy
from fairkit.data.clusters import BUCKETS, KEY, buckets_of
from fairkit.errors import RowsNeededError
from fairkit_sql.relation import ibis

_PRIME = 2**31 - 1

_DIGITS = {
    "duckdb": ("md5",),
    "postgres": ("md5",),
    "snowflake": ("md5",),
    "pyspark": ("md5",),
    "databricks": ("md5",),
    "bigquery": ("md5", "to_hex"),
    "trino": ("to_utf8", "md5", "to_hex"),
}
"""The functions that lead from a text to the digits of its MD5, by engine."""


def bucket_of(column: Any, key: int, dialect: str) -> Any:
    """Return the expression of each row's bucket, in [0, `BUCKETS`) for whole numbers, as three digits for others.

    Whole numbers go through a polynomial of degree three modulo a prime: of any four ids the
    buckets are independent. Others go through MD5 with the key before the text.
    """
    if column.type().is_integer():
        draws = random.Random(key)  # noqa: S311 -- a hash family's coefficients
        number = column.cast("int64") % _PRIME
        number = (number + _PRIME) % _PRIME
        hashed: Any = ibis().literal(draws.randrange(1, _PRIME), "int64")
        for _ in range(3):
            hashed = (hashed * number + draws.randrange(_PRIME)) % _PRIME
        return hashed % BUCKETS
    if dialect not in _DIGITS:
        raise RowsNeededError(f"clusters are named by text, and {dialect} has no function to hash it")
    text = ibis().literal(f"{key:016x}") + column.cast("string")
    for name in _DIGITS[dialect]:
        text = _function(name)(text)
    return text.substr(0, 3)


def _function(name: str) -> Any:
    """Return a function of the engine, of one text."""

    def function(text: str) -> str:  # type: ignore[empty-body]
        """Stand for it."""

    return ibis().udf.scalar.builtin(function, name=name, signature=(("string",), "string"))


def standing_for(buckets: Any, key: int = KEY) -> Any:
    """Return ids that fall into given buckets when they are read: an int64 column in the place of `bucket_of`'s."""
    import pyarrow as pa

    if pa.types.is_integer(buckets.type):
        places = as_numpy(buckets.combine_chunks()).astype(np.int64)
    else:
        places = np.array([int(text, 16) >> 2 for text in buckets.to_pylist()], dtype=np.int64)
    return pa.chunked_array([as_arrow(_ids(key)[places])])


def _ids(key: int) -> Any:
    """Return an id for every bucket."""
    found = np.full(BUCKETS, -1, dtype=np.int64)
    start, step = 0, 1 << 15
    while (found < 0).any():
        ids = np.arange(start, start + step, dtype=np.int64)
        places = buckets_of(as_arrow(ids), key)
        found[places[::-1]] = ids[::-1]
        start += step
    return found
