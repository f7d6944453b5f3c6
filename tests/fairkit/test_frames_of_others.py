"""Data in the memory of other libraries: whatever has the Arrow C stream interface."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import fairkit

TABLE = pa.table({"sex": ["f", "m"] * 50, "d": [0, 1, 1, 1] * 25})


class Stream:
    """Only the interface, and what pandas has by the same names."""

    dtypes = ("VARCHAR", "BIGINT")

    def to_parquet(self, path: str) -> None:
        raise AssertionError("nobody writes a file")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


def rate(data: Any) -> float | None:
    loaded = fairkit.load_data(data, sensitive=["sex"], predictions={"decision": "d"})
    return fairkit.audit(None, loaded).find("selection_rate").value


def test_anything_with_the_stream_interface() -> None:
    assert rate(Stream()) == 0.75
    assert rate(pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(30))) == 0.75


def test_a_duckdb_relation() -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        relation = connection.sql("select sex, d from t")
        assert rate(relation) == 0.75


def test_a_polars_frame() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    assert rate(polars.from_arrow(TABLE)) == 0.75


def test_what_is_no_table_is_refused() -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise RuntimeError("the connection is closed")

    with pytest.raises(fairkit.DataError, match="data of type"):
        fairkit.load_data(object())
    with pytest.raises(fairkit.DataError, match="cannot be read: the connection is closed"):
        fairkit.load_data(Broken())
