"""Data frames of other libraries go in, and reports come out as data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def test_a_duckdb_relation_is_read() -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        relation = connection.sql("select sex, d from t")
        assert rate(relation) == 0.75


def test_a_polars_frame_is_read() -> None:
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


# Reports and comparisons as data frames of pandas and of others.
@pytest.fixture(scope="module")
def both(loans_model):
    """A report, and a comparison of the model with itself."""
    data = fairkit.load_data(
        loans_model.data, label="decision", favorable="approved", sensitive="sex", reference="sex=@largest"
    )
    return fairkit.audit(loans_model.path, data), fairkit.compare([loans_model.path] * 2, data)


def test_a_report_is_a_frame_with_a_line_for_each_finding(both):
    report, _ = both
    frame = report.to_frame()
    assert len(frame) == len(report.findings)
    line = frame.query("metric == 'demographic_parity_difference' and reference.isna()").iloc[0]
    finding = report.find("demographic_parity_difference", "sex")
    assert (line["value"], line["low"], line["high"]) == (finding.value, *finding.interval)
    assert set(frame["sensitive"].dropna()) == {"sex"}
    groups = report.groups_frame().query("metric == 'demographic_parity_difference' and reference.isna()")
    assert groups["rows"].sum() == report.data.rows
    assert (groups["low"] < groups["value"]).all()


def test_everybody_with_arrow_takes_a_result(both):
    report, comparison = both
    assert pa.table(report).num_rows == len(report.findings)
    polars = pytest.importorskip("polars")
    found = polars.DataFrame(comparison)
    assert found.height == len(comparison.changes[0])
    assert np.abs(found["difference"].drop_nulls()).max() == 0
    assert set(found["outcome"]) <= {"same", "undecided"}


def test_repr_is_a_line(both):
    for one in both:
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300
    assert "findings" in repr(both[0])
