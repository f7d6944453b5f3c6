"""Queries on DuckDB and PostgreSQL: snapshots, types that Arrow does not have, connections that break, secrets."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit_sql.counted import SqlEngine

from .shared import ROLES, SECRETS, no_secret_in

LOADED = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}
ORDERED = "SELECT * FROM loans ORDER BY income, amount, age, debt_ratio"


@pytest.fixture(autouse=True)
def snapshots(tmp_path, monkeypatch):
    """An empty folder for snapshots; nothing is left in it."""
    folder = tmp_path / "snapshots"
    folder.mkdir()
    monkeypatch.setenv("FAIRKIT_SNAPSHOTS", str(folder))
    return folder


@pytest.fixture
def database(tmp_path, loans):
    """A DuckDB file with the loans."""
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    path = tmp_path / "loans.db"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", loans)
        connection.sql("CREATE TABLE loans AS SELECT * FROM given")
    return path


def content(address: str) -> list[dict[str, object]]:
    source = fairkit.load_data(address).source
    return [row for batch in source.batches(source.columns, 100) for row in batch.to_pylist()]


def test_a_query_is_the_table_and_its_snapshot_goes_when_nobody_holds_it(database, loans, snapshots):
    data = fairkit.load_data(f"duckdb:{database}?query=SELECT * FROM loans", **LOADED)
    assert data.learn().sha256 == fairkit.load_data(loans, **LOADED).learn().sha256
    info = data.info()
    assert info.source["query"] == "SELECT * FROM loans"
    assert info.source["server"].startswith("DuckDB ")
    assert "no ORDER BY" in info.notes[0]
    assert len(list(snapshots.iterdir())) == 1
    again = pickle.loads(pickle.dumps(data.source))
    assert sum(batch.num_rows for batch in again.batches(["sex"], 100)) == 3_000
    del again
    assert len(list(snapshots.iterdir())) == 1
    del data
    assert list(snapshots.iterdir()) == []


def test_types_become_plain_ones(database):
    query = (
        "SELECT 1.25::DECIMAL(9,2) AS n, 'a'::ENUM('a', 'b') AS e, 7::HUGEINT AS h, DATE '2024-01-02' AS d, NULL AS m"
    )
    assert content(f"duckdb:{database}?query={query}") == [
        {"n": 1.25, "e": "a", "h": 7.0, "d": "2024-01-02", "m": None}
    ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT ['a'] AS l", "column 'l' has the type list"),
        ("SELECT 1 AS a, 2 AS a", "two columns have the name 'a'"),
        ("SELECT 'x'::BLOB AS b", "column 'b' has the type binary"),
        ("SELECT INTERVAL 1 DAY AS i", "column 'i' has the type"),
        ("SELECT * FROM nobody", "nobody does not exist"),
        ("SELECT error('sesame ' || a::VARCHAR) FROM range(3) t(a)", "sesame 0"),
        ("DROP TABLE loans", "is not one SELECT"),
        ("SELECT 1; SELECT 2", "is not one SELECT"),
        ("COPY loans TO 'x.csv'", "is not one SELECT"),
        ("", "needs a query"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
    ],
)
def test_what_duckdb_cannot_give_is_one_message(database, query, said, snapshots):
    with pytest.raises(fairkit.DataError, match=said) as caught:
        fairkit.load_data(f"duckdb:{database}?query={query}").learn()
    assert "\n" not in str(caught.value)
    assert list(snapshots.iterdir()) == []


def test_a_file_is_open_twice_at_once(database):
    one, other = (fairkit.load_data(f"duckdb:{database}?query=SELECT sex FROM loans") for _ in range(2))
    rows = [sum(batch.num_rows for batch in data.source.batches(["sex"], 100)) for data in (one, other)]
    assert rows == [3_000, 3_000]


def test_a_file_that_is_no_database(tmp_path):
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    (tmp_path / "x.db").write_bytes(b"no database, " * 1_000)
    with pytest.raises(fairkit.DataError, match=r"'x\.db' cannot be opened"):
        fairkit.load_data(f"duckdb:{tmp_path / 'x.db'}?query=SELECT 1")
    with pytest.raises(fairkit.DataError, match="there is no DuckDB file"):
        fairkit.load_data(f"duckdb:{tmp_path / 'y.db'}?query=SELECT 1")
    assert not (tmp_path / "y.db").exists()


def test_a_path_in_the_configuration_is_relative_to_it(database, tmp_path, monkeypatch, loans_model):
    (tmp_path / ".git").mkdir()  # a repository: its file holds in the folders below
    (tmp_path / "fairkit.toml").write_text(
        f"[data]\npath = '''duckdb:{database.name}?query={ORDERED}'''\n"
        'label = "decision"\nfavorable = "approved"\nsensitive = ["sex"]\n'
    )
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    done = checked("audit", loans_model.path, "--format", "json")
    assert json.loads(done.stdout)["data"]["source"]["query"] == ORDERED


def test_a_file_with_a_colon_in_its_name_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "duckdb:x.csv").write_text("a,b\n1,2\n")
    assert fairkit.load_data("duckdb:x.csv").columns == ["a", "b"]
    with pytest.raises(fairkit.DataError, match="there is no data file"):
        fairkit.load_data("loans:2024.csv")


def test_lists_in_a_database_are_columns_of_numbers(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    with duckdb.connect(str(tmp_path / "e.db")) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, [i, i + 0.5]::FLOAT[2] AS emb, [i * 1.5] AS d, CAST(i % 2 AS INTEGER) AS y "
            "FROM range(10) r(i)"
        )
    address = f"duckdb:{tmp_path / 'e.db'}?query="
    data = fairkit.load_data(f"{address}SELECT * FROM t ORDER BY i", label="y")
    data.learn()
    batch = data.read(["emb[1]", "d[0]"])
    assert batch.column("emb[1]").tolist() == [i + 0.5 for i in range(10)]
    assert batch.column("d[0]").tolist() == [i * 1.5 for i in range(10)]
    for lists, said in (
        ("CASE WHEN i = 3 THEN NULL ELSE emb END", "no list in row 3"),
        ("CASE WHEN i = 3 THEN [1.0, NULL] ELSE [1.0, 2.0] END", "an empty cell at place 1 of the list in row 3"),
        ("['a']", "fairkit reads text, numbers, booleans and lists of numbers"),
    ):
        with pytest.raises(fairkit.DataError, match=said):
            fairkit.load_data(f"{address}SELECT i, {lists} AS emb FROM t ORDER BY i").read(["emb"])


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_certify_and_recompute(kind, request, loans_model, tmp_path):
    if kind == "duckdb":
        address = f"duckdb:{request.getfixturevalue('database')}?query={ORDERED}"
    else:
        address = request.getfixturevalue("postgres").address(ORDERED)
    key, certificate = tmp_path / "key", tmp_path / "c.json"
    invoke("key", "new", key)
    done = checked(
        "--timings", "certify", loans_model.path, "--data", address, *ROLES, "--key", key, "--output", certificate
    )
    told = ["verify", certificate, "--key", f"{key}.pub", "--model", loans_model.path, "--data"]
    held = checked(*told, address, "--recompute", "--format", "json")
    source = json.loads(held.stdout)["certificate"]["data"]["source"]
    assert source["kind"] == kind
    assert source["query"] == ORDERED
    assert "fk@" not in source["address"]
    turned = checked(*told, address.replace("ORDER BY income", "ORDER BY income DESC"), code=1)
    assert "rows that were signed in another order" in turned.output
    no_secret_in(done.output, held.output, certificate.read_bytes())


def test_rows_in_another_order_after_an_update_are_seen(postgres, loans):
    postgres.fill("moving", loans.slice(0, 200))
    address = postgres.address("SELECT * FROM moving")
    first = fairkit.load_data(address)
    digest = first.learn().sha256
    postgres.run("UPDATE moving SET age = age WHERE sex = 'female'")
    assert first.read(["age"]).column("age").tolist() == loans.slice(0, 200).column("age").to_pylist()
    second = fairkit.load_data(address).learn()
    assert second.sha256 != digest
    assert second.unordered == first.profile.unordered
    assert "no ORDER BY" in first.info().notes[0]


def test_numeric_and_other_types_of_postgresql(postgres):
    query = (
        "SELECT 1.5::numeric AS n, 'NaN'::numeric AS gap, 'x'::char(3) AS c, true AS b, 2::smallint AS s, "
        "DATE '2024-01-02' AS d"
    )
    (row,) = content(postgres.address(query))
    assert row.pop("gap") != row.get("gap")
    assert row == {"n": 1.5, "c": "x  ", "b": True, "s": 2, "d": "2024-01-02"}
    rows = content(postgres.address("SELECT g::numeric / 4 AS n FROM generate_series(1, 1000) AS g ORDER BY g"))
    assert [row["n"] for row in rows] == [g / 4 for g in range(1, 1001)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT '1e400'::numeric AS big", "column 'big' holds numbers too large"),
        ("SELECT gen_random_uuid() AS u", "column 'u' has the type"),
        ("SELECT ARRAY['a'] AS a", "column 'a' has the type list"),
        ("SELECT INTERVAL '1 day' AS i", "column 'i' has the type"),
        ("SELECT point(1, 2) AS p", "column 'p' has the type point"),
        ("SELECT 1 AS a, 2 AS a", "two columns have the name 'a'"),
        ("SELECT nobody FROM loans", 'column "nobody" does not exist'),
        ("DELETE FROM loans RETURNING 1 AS a", "read-only transaction"),
        ("SELECT 1; DROP TABLE loans", "cannot be read"),
        ("SELECT 1 / (g - 90000) AS x FROM generate_series(1, 100000) AS g", "division by zero"),
    ],
)
def test_what_postgresql_cannot_give_is_one_message(postgres, query, said, snapshots):
    with pytest.raises(fairkit.DataError, match=said) as caught:
        fairkit.load_data(postgres.address(query)).learn()
    assert "\n" not in str(caught.value)
    no_secret_in(caught.value)
    assert list(snapshots.iterdir()) == []
    assert content(postgres.address("SELECT count(*) AS n FROM loans")) == [{"n": 3_000}]


def test_a_connection_that_breaks_in_the_middle(postgres, snapshots):
    """The query ends its own connection after rows were sent, as a server that goes away does."""
    query = (
        "SELECT g AS a, CASE WHEN g = 900000 THEN pg_terminate_backend(pg_backend_pid()) END AS b "
        "FROM generate_series(1, 1000000) AS g"
    )
    with pytest.raises(fairkit.DataError, match="the rows of query on loans stopped coming") as caught:
        fairkit.load_data(postgres.address(query)).learn()
    assert "\n" not in str(caught.value)
    no_secret_in(caught.value)
    assert list(snapshots.iterdir()) == []


def test_who_may_not_come_in(postgres, monkeypatch, tmp_path):
    output = tmp_path / "r.json"
    for address, password, said in (
        (f"postgresql://fk@127.0.0.1:{postgres.port}/loans", "sesame-is-wrong", "password authentication failed"),
        (
            f"postgresql://fk@127.0.0.1:{postgres.port}/nobody",
            SECRETS["PGPASSWORD"],
            'database "nobody" does not exist',
        ),
        ("postgresql://fk@127.0.0.1:1/loans", SECRETS["PGPASSWORD"], "127.0.0.1:1 cannot be reached"),
        ("postgresql://fk@127.0.0.1:x/loans", SECRETS["PGPASSWORD"], "not of the form"),
        ("postgresql:loans", SECRETS["PGPASSWORD"], "are written postgresql://user@host:port/database"),
    ):
        monkeypatch.setenv("PGPASSWORD", password)
        done = checked(
            "audit", "--data", f"{address}?query=SELECT 1 AS d", "--predictions", "decision=d", "--sensitive", "d",
            "--output", output, "--format", "json", code=2
        )  # fmt: skip
        assert said in done.output, address
        assert "sesame" not in done.output
        assert not output.exists()


def test_the_password_in_no_output_of_a_real_command(postgres, loans_model, tmp_path, snapshots):
    """Another process, as people run it: nothing of what it prints or writes has the password."""
    command = [Path(sys.executable).parent / "fairkit", "--timings", "audit", loans_model.path, "--format", "json"]
    done = subprocess.run(
        [*command, "--data", postgres.address(ORDERED), *ROLES],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    no_secret_in(done.stdout, done.stderr)
    assert list(snapshots.iterdir()) == []


def test_no_room_for_a_snapshot(database, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRKIT_SNAPSHOTS", str(tmp_path / "nobody"))
    with pytest.raises(fairkit.DataError, match="no snapshot can be written"):
        fairkit.load_data(f"duckdb:{database}?query=SELECT * FROM loans").learn()


def test_a_snapshot_that_another_machine_does_not_have(database, snapshots):
    source = fairkit.load_data(f"duckdb:{database}?query=SELECT * FROM loans").source
    list(source.batches(["sex"], 100))  # the rows are read when they are asked for
    (file,) = snapshots.iterdir()
    moved = file.rename(file.with_suffix(".moved"))
    with pytest.raises(fairkit.DataError, match="set FAIRKIT_SNAPSHOTS to a folder that all workers see"):
        list(source.batches(["sex"], 100))
    moved.unlink()


def test_more_rows_than_a_row_group(database):
    data = fairkit.load_data(f"duckdb:{database}?query=SELECT range AS a, range % 7 AS b FROM range(600000) ORDER BY a")
    assert data.source.parts[0].rows() == 600_000
    parts = data.source.split(200_000).parts
    assert len(parts) > 1
    assert pa.concat_tables(
        pa.Table.from_batches(part.read(["a"], 1 << 16, data.source.types)) for part in parts
    ).column("a").to_pylist() == list(range(600_000))


@pytest.mark.parametrize(
    ("module", "address", "extra"),
    [
        ("duckdb", "duckdb:{here}?query=SELECT 1", "duckdb"),
        ("adbc_driver_postgresql", "postgresql://127.0.0.1/x?query=SELECT 1", "postgresql"),
        ("deltalake", "delta:{here}", "delta"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(module, address, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(fairkit.PluginError, match=rf"pip install 'fairkit\[{extra}\]'"):
        fairkit.load_data(address.format(here=tmp_path))


# Totals by SQL on a PostgreSQL server: those of the rows, in one transaction, with names that are no SQL.
pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")

HOSTILE = '"; DROP TABLE loans; --\' ""'


def both(address, **roles):
    read = fairkit.audit(None, fairkit.load_data(address, **roles))
    return read, fairkit.audit(None, fairkit.load_data(address, **roles), engine=SqlEngine(pulls=False))


def values(report):
    return [(one.metric, one.sensitive, one.within, one.value, one.interval) for one in report.findings]


def test_the_counts_of_a_server_are_those_of_its_rows(postgres, loans):
    count = loans.num_rows
    table = loans.append_column("id", pa.array([f"person {row % 700}" for row in range(count)]))
    table = table.append_column(HOSTILE, pa.array([("x", "y", None)[row % 3] for row in range(count)]))
    table = table.append_column("said", pa.array([row % 5 < 2 for row in range(count)]))
    postgres.fill("counted", table)
    address = postgres.address("SELECT *, age::numeric(9,2) AS exact FROM counted")
    roles = {"label": "decision", "favorable": "approved", "predictions": {"decision": "said"}}
    read, counted = both(address, **roles, sensitive=["sex", HOSTILE, "exact"], within=["said"])
    assert values(read) == values(counted)
    assert counted.data.source["snapshot"]
    assert counted.data.groups == read.data.groups
    clustered = both(address, **roles, sensitive=["sex"], cluster="id")
    assert [one.value for one in clustered[0].findings] == [one.value for one in clustered[1].findings]
    postgres.run("SELECT 1 FROM loans LIMIT 1")  # it is still there


def test_a_certificate_names_the_counts_and_is_counted_again(postgres, loans, tmp_path):
    postgres.fill("signed", loans.append_column("said", pa.array([row % 5 < 2 for row in range(loans.num_rows)])))
    address = postgres.address("SELECT * FROM signed")
    invoke("key", "new", tmp_path / "a.key", "--no-passphrase")
    output = tmp_path / "c.json"
    roles = ["--label", "decision", "--favorable", "approved", "--sensitive", "sex", "--predictions", "decision=said"]
    signing = ["--key", tmp_path / "a.key", "--insecure-key", "--output", output]
    checked("certify", "--data", address, *roles, "--set", "engine.name=sql", "--set", "engine.no_pull=true", *signing)
    verified = ["verify", output, "--key", tmp_path / "a.key.pub", "--data", address, "--recompute"]
    again = checked(*verified)
    assert "the database counts again" in again.output
    postgres.run("UPDATE signed SET said = NOT said WHERE ctid = (SELECT min(ctid) FROM signed)")
    changed = checked(*verified, code=1)
    assert "about other data" in changed.output


# The commands of docs/how-to/sources.md run as they stand there.
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "sources.md"


def test_the_page_runs_as_typed(bucket, loans, loans_model, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    deltalake = pytest.importorskip("deltalake", reason="needs the extra fairkit[delta]")
    shutil.copy(loans_model.path, tmp_path / "model.onnx")
    bucket.write("loans.parquet", loans)
    with duckdb.connect(str(tmp_path / "loans.db")) as connection:
        connection.register("given", loans.append_column("id", pa.array(range(len(loans)))))
        connection.sql("CREATE TABLE loans AS SELECT * FROM given")
    deltalake.write_deltalake(tmp_path / "loans_delta", loans)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    done = subprocess.run(
        ["bash", "-ec", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.stdout.count("No verdict: no policy was given") >= 3
    assert "findings, computed again" in done.stdout
