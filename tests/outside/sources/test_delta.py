"""Delta tables at a version: the files of that version and no others, here and in a store, whose id is signed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_sql.counted import SqlEngine

from .shared import ROLES

deltalake = pytest.importorskip("deltalake", reason="needs the extra fairkit[delta]")

LOADED = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


@pytest.fixture
def table(tmp_path, loans):
    """Version 0: a third of the loans; 1: half of those more, with a new column; 2: those of men deleted."""
    path = tmp_path / "loans"
    deltalake.write_deltalake(path, loans.slice(0, 1_000), partition_by=["sex"])
    more = loans.slice(1_000, 500).append_column("bonus", pa.array([1.5] * 500))
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    deltalake.DeltaTable(path).delete("sex = 'male'")
    return path


def rows(address):
    source = fairkit.load_data(address).source
    return [row for batch in source.batches(source.columns, 300) for row in batch.to_pylist()]


def in_any_order(records):
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def test_each_version_has_its_rows(table, loans):
    first = loans.slice(0, 1_000).to_pylist()
    assert in_any_order(rows(f"delta:{table}?version=0")) == in_any_order(first)
    second = [{**row, "bonus": None} for row in first]
    second += [{**row, "bonus": 1.5} for row in loans.slice(1_000, 500).to_pylist()]
    assert in_any_order(rows(f"delta:{table}?version=1")) == in_any_order(second)
    women = [row for row in second if row["sex"] == "female"]
    assert in_any_order(rows(f"delta:{table}")) == in_any_order(women)
    assert rows(f"delta:{table}?version=1") == rows(f"delta:{table}?version=1")


def test_its_files_are_counted_by_duckdb(table):
    """Columns that files lack, or that stand in their paths only, are counted as they are read."""
    pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
    address = f"delta:{table}?version=1"
    roles = {"sensitive": ["sex"], "predictions": {"decision": "decision", "favorable": "approved"}}
    read, counted = (
        fairkit.audit(None, fairkit.load_data(address, **roles), engine=engine)
        for engine in (None, SqlEngine(pulls=False))
    )
    assert read.findings == counted.findings
    assert counted.data.source["counts"]["distinct"] == 4
    name, value = ("version", 1)
    assert counted.data.source[name] == read.data.source[name] == value


def test_the_id_and_the_version_are_signed(table, loans_model, tmp_path):
    key, certificate = tmp_path / "key", tmp_path / "c.json"
    invoke("key", "new", key)
    checked(
        "certify", loans_model.path, "--data", f"delta:{table}?version=1", *ROLES, "--drop", "bonus",
        "--key", key, "--output", certificate,
    )  # fmt: skip
    told = ["verify", certificate, "--key", f"{key}.pub", "--model", loans_model.path, "--format", "json"]
    held = checked(*told, "--data", f"delta:{table}?version=1", "--recompute")
    source = json.loads(held.stdout)["certificate"]["data"]["source"]
    assert source["id"] == str(deltalake.DeltaTable(table).metadata().id)
    assert (source["kind"], source["version"]) == ("delta", 1)
    checked(*told, "--data", f"delta:{table}", code=1)


def test_a_folder_that_is_a_delta_table_is_not_read_as_files(table, bucket, loans):
    with pytest.raises(fairkit.DataError, match=f"is a Delta table.* name it as delta:{table}"):
        fairkit.load_data(table)


def test_a_table_in_s3_has_its_rows(bucket, loans):
    how = {"aws_endpoint": bucket.url, "aws_allow_http": "true", "aws_region": "us-east-1"}
    for part in (loans.slice(0, 2_000), loans.slice(2_000)):
        deltalake.write_deltalake("s3://data/delta", part, mode="append", storage_options=how, partition_by=["sex"])
    found = fairkit.load_data("delta:s3://data/delta?version=1", **LOADED)
    assert found.learn().unordered == fairkit.load_data(loans.select(found.columns), **LOADED).learn().unordered
    assert found.info().source["version"] == 1
    assert fairkit.load_data("delta:s3://data/delta?version=0").learn().rows == 2_000
    roles = {"sensitive": ["sex"], "predictions": {"decision": "decision", "favorable": "approved"}}
    read, counted = (
        fairkit.audit(None, fairkit.load_data("delta:s3://data/delta?version=1", **roles), engine=engine)
        for engine in (None, SqlEngine(pulls=False))
    )
    assert read.findings == counted.findings
    with pytest.raises(fairkit.DataError, match="is a Delta table"):
        fairkit.load_data("s3://data/delta")
    with pytest.raises(fairkit.DataError, match="there is no Delta table at s3://data/nobody"):
        fairkit.load_data("delta:s3://data/nobody")


def test_a_table_with_renamed_columns_is_read_once(tmp_path, loans):
    """Its files have other names for the columns, so that its rows come from the library."""
    path = tmp_path / "mapped"
    deltalake.write_deltalake(
        path, loans.slice(0, 300), configuration={"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2"}
    )
    data = fairkit.load_data(f"delta:{path}", **LOADED)
    mapped = deltalake.DeltaTable(path).metadata().configuration.get("delta.columnMapping.mode")
    assert data.learn().unordered == fairkit.load_data(loans.slice(0, 300), **LOADED).learn().unordered
    assert (mapped == "name") == any("read once" in note for note in data.info().notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("?version=7", "has no version 7; its newest is 2"),
        ("?version=-1", "no whole number"),
        ("?version=new", "no whole number"),
        ("?at=2", "has an option that delta: sources do not have"),
    ],
)
def test_a_version_that_is_not_there(table, options, said):
    with pytest.raises(fairkit.DataError, match=said):
        fairkit.load_data(f"delta:{table}{options}")


def test_what_is_no_delta_table(tmp_path, table):
    with pytest.raises(fairkit.DataError, match="there is no Delta table at"):
        fairkit.load_data(f"delta:{tmp_path}")
    with pytest.raises(fairkit.DataError, match="there is no folder"):
        fairkit.load_data(f"delta:{tmp_path / 'nobody'}")
    with pytest.raises(fairkit.DataError, match="not at ftp:"):
        fairkit.load_data("delta:ftp://host/table")


def test_a_file_that_was_vacuumed_or_replaced(table):
    data = fairkit.load_data(f"delta:{table}?version=0", **LOADED)
    data.learn()
    file = next(iter(sorted(table.glob("sex=female/*.parquet"))))
    before = file.read_bytes()
    names = {entry.path.rpartition("/")[2] for entry in (part.inner.path for part in data.source.parts)}
    file = next(path for path in table.glob("sex=female/*.parquet") if path.name in names)
    before = file.read_bytes()
    file.write_bytes(before + b"more")
    with pytest.raises(fairkit.DataError, match="was replaced by another file"):
        data.read()
    file.unlink()
    with pytest.raises(fairkit.DataError, match="it was vacuumed"):
        fairkit.load_data(f"delta:{table}?version=0")


def test_an_empty_table_is_refused(tmp_path, loans):
    deltalake.write_deltalake(tmp_path / "none", loans.slice(0, 0))
    with pytest.raises(fairkit.DataError, match="rows"):
        fairkit.load_data(f"delta:{tmp_path / 'none'}").learn()


@pytest.mark.parametrize("name", ["../elsewhere.parquet", "..%2Felsewhere.parquet", "a/../../elsewhere.parquet"])
def test_a_log_names_no_file_outside_the_folder(tmp_path, loans, name):
    path = tmp_path / "hostile"
    deltalake.write_deltalake(path, loans.slice(0, 200))
    (file,) = path.glob("*.parquet")
    file.rename(tmp_path / "elsewhere.parquet")
    (log,) = (path / "_delta_log").glob("*.json")
    log.write_text(log.read_text().replace(file.name, name))
    with pytest.raises(fairkit.DataError, match="names a file outside its folder"):
        fairkit.load_data(f"delta:{path}", **LOADED).learn()
