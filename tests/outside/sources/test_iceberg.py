"""Iceberg tables at a snapshot: its files and no others; a hostile table loads no class and leaves no folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_sql.counted import SqlEngine

from .shared import ROLES

pytest.importorskip("pyiceberg", reason="needs the extra fairkit[iceberg]")
pytest.importorskip("sqlalchemy", reason="the tests' catalog needs it")

LOADED = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.utils.config import Config

    address = {"uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": f"file://{tmp_path}"}
    for key, value in address.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key.upper()}", value)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read when the library was imported
    found = SqlCatalog("prod", **address)
    found.create_namespace("db")
    yield found
    found.engine.dispose()


@pytest.fixture
def table(tmp_path, loans, catalog):
    """A first snapshot of 1,000 loans, a second of 500 more, a third without men."""
    made = catalog.create_table("db.loans", loans.schema, location=f"file://{tmp_path / 'loans'}")
    for start, count in ((0, 1_000), (1_000, 500)):
        made.append(loans.slice(start, count))
    made.delete("sex = 'male'")
    return made


def ids(table):
    return [entry.snapshot_id for entry in table.history()]


def rows(address):
    source = fairkit.load_data(address).source
    return [row for batch in source.batches(source.columns, 300) for row in batch.to_pylist()]


def in_any_order(records):
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def metadata_of(folder: Path) -> Path:
    return max((folder / "metadata").glob("*.metadata.json"))


def test_each_snapshot_has_its_rows(table, tmp_path, loans):
    folder, (first, second) = tmp_path / "loans", ids(table)[:2]
    assert in_any_order(rows(f"iceberg:{folder}?snapshot={first}")) == in_any_order(loans.slice(0, 1_000).to_pylist())
    both = loans.slice(0, 1_500).to_pylist()
    assert in_any_order(rows(f"iceberg:{folder}?snapshot={second}")) == in_any_order(both)
    women = [row for row in both if row["sex"] == "female"]
    assert in_any_order(rows(f"iceberg:{folder}")) == in_any_order(women)
    assert in_any_order(rows("iceberg:db.loans?catalog=prod")) == in_any_order(women)
    assert rows(f"iceberg:{folder}?snapshot={second}") == rows(f"iceberg:{folder}?snapshot={second}")


def test_its_files_are_counted_by_duckdb(table, tmp_path):
    """Columns that files lack, or that stand in their paths only, are counted as they are read."""
    pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
    address = f"iceberg:{tmp_path / 'loans'}?snapshot={ids(table)[1]}"
    roles = {"sensitive": ["sex"], "predictions": {"decision": "decision", "favorable": "approved"}}
    read, counted = (
        fairkit.audit(None, fairkit.load_data(address, **roles), engine=engine)
        for engine in (None, SqlEngine(pulls=False))
    )
    assert read.findings == counted.findings
    assert counted.data.source["counts"]["distinct"] == 4
    name, value = ("snapshot", ids(table)[1])
    assert counted.data.source[name] == read.data.source[name] == value


def test_the_id_and_the_snapshot_are_signed(table, tmp_path, loans_model):
    address = f"iceberg:{tmp_path / 'loans'}?snapshot={ids(table)[1]}"
    key, certificate = tmp_path / "key", tmp_path / "c.json"
    invoke("key", "new", key)
    checked("certify", loans_model.path, "--data", address, *ROLES, "--key", key, "--output", certificate)
    told = ["verify", certificate, "--key", f"{key}.pub", "--model", loans_model.path, "--format", "json"]
    checked(*told, "--data", address, "--recompute")
    source = fairkit.load_data(address, **LOADED).info().source
    assert (source["kind"], source["snapshot"]) == ("iceberg", ids(table)[1])
    assert source["id"] == str(table.metadata.table_uuid)
    newer = invoke(*told, "--data", f"iceberg:{tmp_path / 'loans'}")
    assert newer.exit_code != 0


def test_a_table_in_s3_has_its_rows(bucket, tmp_path, loans):
    """The files lie in S3: a snapshot has its rows, and DuckDB counts them as they are read."""
    pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
    from pyiceberg.catalog.sql import SqlCatalog

    made = SqlCatalog("away", uri=f"sqlite:///{tmp_path / 'away.db'}", **{"s3.endpoint": bucket.url})
    try:
        made.create_namespace("db")
        away = made.create_table("db.loans", loans.schema, location="s3://data/lake/loans")
        for start, count in ((0, 1_000), (1_000, 500)):
            away.append(loans.slice(start, count))
        first, second = ids(away)
    finally:
        made.engine.dispose()
    address = "iceberg:s3://data/lake/loans"
    assert in_any_order(rows(f"{address}?snapshot={first}")) == in_any_order(loans.slice(0, 1_000).to_pylist())
    assert in_any_order(rows(address)) == in_any_order(loans.slice(0, 1_500).to_pylist())
    roles = {"sensitive": ["sex"], "predictions": {"decision": "decision", "favorable": "approved"}}
    read, counted = (
        fairkit.audit(None, fairkit.load_data(address, **roles), engine=engine)
        for engine in (None, SqlEngine(pulls=False))
    )
    assert read.findings == counted.findings
    assert counted.data.source["snapshot"] == read.data.source["snapshot"] == second
    with pytest.raises(fairkit.DataError, match="there is no Iceberg table at s3://data/lake/nobody"):
        fairkit.load_data("iceberg:s3://data/lake/nobody")


def test_changed_columns_are_read_once_and_said(catalog, tmp_path, loans):
    made = catalog.create_table("db.changed", loans.schema, location=f"file://{tmp_path / 'changed'}")
    made.append(loans.slice(0, 300))
    with made.update_schema() as change:
        change.rename_column("sex", "gender")
    data = fairkit.load_data(f"iceberg:{tmp_path / 'changed'}", **{**LOADED, "sensitive": ["gender"]})
    assert data.learn().rows == 300
    assert any("columns of an older form" in note for note in data.info().notes)


def test_a_table_without_rows_is_told(catalog, tmp_path, loans):
    catalog.create_table("db.none", loans.schema, location=f"file://{tmp_path / 'none'}")
    with pytest.raises(fairkit.DataError):
        fairkit.load_data(f"iceberg:{tmp_path / 'none'}", **LOADED).learn()


def test_a_folder_that_is_an_iceberg_table_is_not_read_as_files(table, tmp_path):
    with pytest.raises(fairkit.DataError, match=r"is an Iceberg table.* name it as iceberg:"):
        fairkit.load_data(tmp_path / "loans", **LOADED)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{folder}?snapshot=7", "has no snapshot 7; its current one is"),
        ("{folder}?snapshot=-1", "is no whole number"),
        ("{folder}?at=2", "has an option that iceberg: sources do not have"),
        ("{folder}/data", "there is no Iceberg table at"),
        ("ftp://host/table", "not at ftp:"),
        ("db.nobody?catalog=prod", "the catalog 'prod' has no table"),
        ("db.loans?catalog=nowhere", "there is no catalog 'nowhere'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(table, tmp_path, address, message):
    with pytest.raises(fairkit.DataError, match=message):
        fairkit.load_data("iceberg:" + address.format(folder=tmp_path / "loans"))


def test_two_metadata_files_of_one_version_need_the_catalog(table, tmp_path):
    newest = metadata_of(tmp_path / "loans")
    number = newest.name.partition("-")[0]
    shutil.copy(newest, newest.with_name(f"{number}-00000000-0000-4000-8000-000000000000.metadata.json"))
    with pytest.raises(fairkit.DataError, match=r"2 metadata files of the same version.*catalog=NAME"):
        fairkit.load_data(f"iceberg:{tmp_path / 'loans'}")
    (newest.parent / "version-hint.text").write_text(newest.name.removesuffix(".metadata.json"))
    assert rows(f"iceberg:{tmp_path / 'loans'}")


def test_a_tables_properties_load_no_class_and_name_no_server(table, tmp_path, monkeypatch):
    (tmp_path / "hostile_io.py").write_text("open('/dev/null')\nraise SystemExit('loaded')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    newest = metadata_of(tmp_path / "loans")
    record = json.loads(newest.read_text())
    record["properties"] |= {"py-io-impl": "hostile_io.Evil", "s3.endpoint": "http://127.0.0.1:9"}
    newest.write_text(json.dumps(record))
    assert rows(f"iceberg:{tmp_path / 'loans'}")


def test_a_table_names_no_file_outside_its_folder(table, tmp_path):
    newest = metadata_of(tmp_path / "loans")
    outside = tmp_path / "elsewhere.avro"
    record = json.loads(newest.read_text())
    current = next(one for one in record["snapshots"] if one["snapshot-id"] == record["current-snapshot-id"])
    shutil.copy(current["manifest-list"].removeprefix("file://"), outside)
    for text in (f"file://{outside}", f"file://{tmp_path}/loans/../elsewhere.avro"):
        current["manifest-list"] = text
        newest.write_text(json.dumps(record))
        with pytest.raises(fairkit.DataError, match="names a file outside its folder"):
            fairkit.load_data(f"iceberg:{tmp_path / 'loans'}")


def test_a_configuration_in_the_working_folder_names_no_catalog(table, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / ".pyiceberg.yaml").write_text("catalog:\n  prod:\n    uri: http://127.0.0.1:9\n")
    monkeypatch.chdir(folder)
    with pytest.raises(fairkit.DataError, match="in the working folder is not followed"):
        fairkit.load_data("iceberg:db.loans?catalog=prod")
    monkeypatch.setenv("PYICEBERG_HOME", str(folder))  # the user's own
    assert rows("iceberg:db.loans?catalog=prod")


def test_what_is_no_metadata_is_one_sentence(table, tmp_path):
    metadata_of(tmp_path / "loans").write_text('{"format-version": 2}')
    with pytest.raises(fairkit.DataError, match="is no metadata of an Iceberg table"):
        fairkit.load_data(f"iceberg:{tmp_path / 'loans'}")


def test_an_expired_file_is_told(table, tmp_path):
    for file in (tmp_path / "loans").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(fairkit.DataError, match="it was expired"):
        fairkit.load_data(f"iceberg:{tmp_path / 'loans'}?snapshot={ids(table)[0]}")
