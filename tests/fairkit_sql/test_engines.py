"""Engines of SQL, and the commands that count by them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.errors import DataError, ParameterError, RowsNeededError
from fairkit_sql.counted import SqlEngine

from .shared import LABELLED, assert_equal, both, database, people

ibis = pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")

GOLDEN = Path(__file__).parent / "golden"
DIALECTS = ("bigquery", "databricks", "duckdb", "postgres", "pyspark", "snowflake", "sqlite", "trino")
HOSTILE = "a\"; DROP TABLE people; --`'[x]"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    """Compile for Spark without its library, which brings the one option that is looked at."""
    from ibis.backends.sql.compilers import pyspark

    monkeypatch.setattr(pyspark, "options", SimpleNamespace(pyspark=SimpleNamespace(treat_nan_as_null=False)))


def asked(dialect: str) -> str:
    """Return what an engine is asked: plain keys, a binned number, a score in bins, buckets of clusters."""
    from fairkit_sql.cells import Bins, Coding, bucket_of, compiled, expression_of

    kinds = {
        "sex": "string",
        "age": "int64",
        "income": "float64",
        "score": "float64",
        "team": "int64",
        HOSTILE: "string",
    }
    table = ibis.table(kinds, name="fairkit_rows")
    coding = Coding(
        {"age": (30.0, 50.0), "income": (1_000.0,)},
        {"score": Bins(0.0, 1.0, (0.5,))},
        {"team": bucket_of(table["team"], 2**40 + 1, dialect)},
        dialect != "sqlite",
    )
    return compiled(expression_of(table, list(kinds), coding), dialect) + "\n"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_sql_of_an_engine(dialect):
    """The texts were read once; delete one, and a run writes it anew and fails."""
    file = GOLDEN / f"{dialect}.sql"
    if not file.exists():
        file.write_text(asked(dialect), "utf-8")
        pytest.fail(f"{file.name} was written; read it")
    assert asked(dialect) == file.read_text("utf-8")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hostile_name_is_one_quoted_name(dialect):
    """Another parser reads the SQL: one SELECT, and the name stands in it as a column's; BigQuery has no such names."""
    sqlglot = pytest.importorskip("sqlglot")
    read = {"pyspark": "spark"}.get(dialect, dialect)
    (statement,) = sqlglot.parse(asked(dialect), read=read)
    assert type(statement).__name__ == "Select"
    names = {column.name for column in statement.find_all(sqlglot.exp.Column)}
    assert (HOSTILE in names) == (dialect != "bigquery")
    assert len(names) == 6
    assert not list(statement.find_all(sqlglot.exp.Drop))


def test_hostile_names_are_counted(tmp_path):
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    table = people(2_000)
    names = {"sex": HOSTILE, "race": "n", "office": "k0", "hired": "select", "offered": "fairkit_rows"}
    renamed = table.rename_columns([names.get(name, name) for name in table.column_names])
    roles = {"label": "select", "favorable": "yes", "sensitive": [HOSTILE, "n"], "within": ["k0"]}
    address = database(tmp_path, renamed)
    assert_equal(*both(address, **roles, predictions={"decision": "fairkit_rows"}))


def test_bins_of_few_whole_numbers_are_made_of_counts(tmp_path, monkeypatch):
    """Two GROUP BYs give the counts, and so the digest, that one gives; hostile names and missing ages too."""
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    from fairkit_sql import cells

    table = people(3_000)
    age = [None if row % 50 == 0 else one for row, one in enumerate(table.column("age").to_pylist())]
    table = table.set_column(2, "n", pa.array(age, pa.int8()))
    table = table.rename_columns(["k0" if name == "office" else name for name in table.column_names])
    address = database(tmp_path, table)
    roles = {**LABELLED, "sensitive": ["sex", "n:30:50"], "within": ["k0"]}
    roles |= {"predictions": {"decision": "offered"}, "missing": "group"}
    made, asked = cells.expression_of, []
    monkeypatch.setattr(cells, "expression_of", lambda *given: asked.append(made(*given)) or asked[-1])
    found = []
    for few, times in ((256, 2), (63, 2), (62, 1)):
        monkeypatch.setattr("fairkit_sql.counted.FEW", few)
        read, counted = both(address, **roles)
        assert_equal(read, counted)
        assert ibis.to_sql(asked[-1], dialect="duckdb").count("GROUP BY") == times
        found.append(counted.data.sha256)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("kind", "times"), [(pa.int8(), 2), (pa.int16(), 2), (pa.int32(), 1), (pa.int64(), 1)])
def test_first_rows_do_not_hide_many_whole_numbers(tmp_path, monkeypatch, kind, times):
    """A table is sorted by a binned column: counting each of its values would take memory that grows with the rows."""
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    from fairkit_sql.counted import Counts, counted_part

    path = tmp_path / "sorted.db"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", pa.table({"age": pa.array([row // 1_000 for row in range(70_000)], kind)}))
        connection.sql("CREATE TABLE sorted AS SELECT * FROM given")
    data = fairkit.load_data(f"duckdb:{path}?query=SELECT * FROM sorted", sensitive=["age:30:50"])
    counts, asked = Counts(counted_part(data.source)), []
    fetch = counts.part.relation.fetch
    monkeypatch.setattr(type(counts.part.relation), "fetch", lambda self, one: asked.append(one) or fetch(one))
    counts.learn(data.roles, data.roles.sensitive, ["age"], {})
    assert ibis.to_sql(asked[-1], dialect="duckdb").count("GROUP BY") == times
    assert counts.total == 70_000


def test_polars_counts_a_table_of_ibis():
    polars = pytest.importorskip("polars")
    table = people(2_000)
    backend = ibis.polars.connect({"people": polars.from_arrow(table)})
    roles = {**LABELLED, "sensitive": ["sex", "age:30:50"], "predictions": {"decision": "offered"}}
    read = fairkit.audit(None, fairkit.load_data(table, **roles))
    data = fairkit.load_data(backend.table("people"), **roles)
    counted = fairkit.audit(None, data, engine=SqlEngine(pulls=False))
    assert_equal(read, counted)
    assert counted.data.source["server"] == "polars"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # pandas warns of what ibis asks of it
def test_sqlite_counts_a_table_of_ibis(tmp_path):
    import sqlite3

    table = people(2_000).select(["sex", "race", "hired", "score", "weight"])
    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute("CREATE TABLE people (sex TEXT, race TEXT, hired TEXT, score REAL, weight REAL)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?, ?)", list(zip(*table.to_pydict().values(), strict=True))
        )
    connection.close()
    roles = {**LABELLED, "sensitive": ["sex", "race"], "weights": "weight", "predictions": {"score": "score"}}
    read = fairkit.audit(None, fairkit.load_data(table, **roles))
    backend = ibis.sqlite.connect(tmp_path / "people.db")
    data = fairkit.load_data(backend.table("people"), **roles)
    assert_equal(read, fairkit.audit(None, data, engine=SqlEngine(pulls=False)))


ROLES = {**LABELLED, "sensitive": ["sex"], "predictions": {"decision": "offered"}}


def test_what_cannot_be_counted_is_read_and_said_or_refused(tmp_path, monkeypatch):
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    address = database(tmp_path, people(2_000))
    numbers = {"label": "fine", "sensitive": ["sex"], "predictions": {"prediction": "fine"}}
    monkeypatch.setattr("fairkit_sql.counted.counted.__defaults__", (100,))
    with pytest.raises(RowsNeededError, match="more than 100 distinct rows in the columns sex, fine"):
        fairkit.audit(None, fairkit.load_data(address, **numbers), engine=SqlEngine(pulls=False))
    found = fairkit.audit(None, fairkit.load_data(address, **numbers), engine="sql")
    assert found.warnings[0].startswith("The rows were read: query on people.db has more than 100 distinct rows")
    assert found.data.sha256 == fairkit.load_data(address, **numbers).learn().sha256
    assert "counts" not in found.data.source
    functions = {"mine": lambda y_true, y_pred: float(np.mean(y_true == y_pred))}
    with pytest.raises(RowsNeededError, match="the metric 'mine' is computed from single rows"):
        fairkit.audit(None, fairkit.load_data(address, **ROLES), engine=SqlEngine(pulls=False), metrics=functions)
    report = fairkit.audit(None, fairkit.load_data(address, **ROLES), engine="sql", metrics=functions)
    assert report.warnings[0] == "The rows were read: the metric 'mine' is computed from single rows."
    with pytest.raises(RowsNeededError, match="no database holds it"):
        fairkit.audit(None, fairkit.load_data(people(), **ROLES), engine=SqlEngine(pulls=False))
    with pytest.raises(RowsNeededError, match="draws rows"):
        fairkit.audit(
            None,
            fairkit.load_data(address, **ROLES),
            engine=SqlEngine(pulls=False),
            auditors=["subgroups"],
            parameters={"subgroups": {"validate": "half"}},
        )
    with pytest.raises(ParameterError, match="is for `engine=dask`"):
        fairkit.audit(None, fairkit.load_data(address, **ROLES), engine="sql", scheduler="tcp://x:1")


def test_rows_without_an_id_are_refused(tmp_path):
    table = people(1_000)
    team = pa.array([None if row == 5 else row % 90 for row in range(1_000)])
    address = database(tmp_path, table.set_column(table.column_names.index("team"), "team", team))
    with pytest.raises(DataError, match="1 rows have no value in the `cluster` column 'team'"):
        fairkit.audit(None, fairkit.load_data(address, **ROLES, cluster="team"), engine=SqlEngine(pulls=False))


def test_scores_of_too_many_values_are_in_bins_and_decide_nothing(tmp_path):
    """Decisions by the threshold are exact; areas and distances are near the rows', and no verdict is made of them."""
    pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    address = database(tmp_path, people(20_000))
    roles = {**LABELLED, "sensitive": ["sex"], "predictions": {"score": "fine"}}
    read, counted = both(address, **roles)
    for name in ("selection_rate_difference", "equalized_odds_difference"):
        assert read.find(name, "sex").value == counted.find(name, "sex").value
        assert counted.find(name, "sex").inconclusive is None
    for name in ("statistical_parity_ks", "roc_auc_difference", "log_loss_difference"):
        assert read.find(name, "sex").value == pytest.approx(counted.find(name, "sex").value, abs=2e-3)
        assert "in bins" in counted.find(name, "sex").inconclusive
    assert any("counted in bins" in note for note in counted.data.notes)


@pytest.mark.parametrize("engine", ["counted", "read"])
def test_a_failed_audit_leaves_no_connection_open(tmp_path, engine):
    """Whoever holds the error holds the table; DuckDB refuses to write to a file that is open for reading."""
    duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")
    data = fairkit.load_data(database(tmp_path, people(400)), **{**ROLES, "favorable": "perhaps"})
    with pytest.raises(duckdb.Error), duckdb.connect(str(tmp_path / "people.db")):
        pass
    with pytest.raises(fairkit.DataError, match="never has the favorable value") as held:
        fairkit.audit(None, data, engine=SqlEngine() if engine == "counted" else None)
    with duckdb.connect(str(tmp_path / "people.db")) as connection:
        connection.sql("CREATE TABLE others AS SELECT 1")
    assert held.value is not None
    if engine == "counted":
        with pytest.raises(fairkit.DataError, match="was closed; open the table again"):
            data.learn()


def test_what_needs_rows_is_said_before_a_database_is_asked(tmp_path, monkeypatch):
    pq.write_table(people(400), tmp_path / "people.parquet")
    monkeypatch.setattr("fairkit_sql.counted.counted_part", lambda source: pytest.fail("asked"))
    data = fairkit.load_data(tmp_path / "people.parquet", **ROLES)
    with pytest.raises(RowsNeededError, match="looks at single rows"):
        fairkit.audit(None, data, auditors=["correspondence"], engine=SqlEngine(pulls=False))


# Commands with `--engine sql`: what is refused, and certificates of counted files that are counted again.
pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")

HIRED = ("--label", "hired", "--favorable", "yes", "--sensitive", "sex")
DECIDED = (*HIRED, "--predictions", "decision=offered")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", *DECIDED, "--predictions", "decision=hired"),
        ("frontier", *HIRED, "--plugin", "reweigh", "--output", "frontier.html"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("kind", ["file", "database"])
def test_what_compares_or_trains_is_refused_in_one_sentence(run, tmp_path, words, kind):
    if kind == "file":
        pq.write_table(people(400), tmp_path / "people.parquet")
    data = "people.parquet" if kind == "file" else database(tmp_path, people(400))
    before = sorted(tmp_path.iterdir())
    result = run(*words, "--data", data, "--engine", "sql")
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("fairkit: ")
    assert "a database counts for audits and certificates of one table's predictions" in line
    assert "leave out --engine" in line
    assert result.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


def changed(table: pa.Table, column: str) -> pa.Table:
    """Return a table in which one row has another value in one column."""
    values = table[column].to_pylist()
    values[5] = not values[5] if column == "offered" else values[5] + 1
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.long
@pytest.mark.parametrize("pulls", [True, False], ids=["may read rows", "no row is read"])
@pytest.mark.parametrize("kind", ["file", "database"])
def test_a_certificate_of_a_counted_file_is_counted_again(run, tmp_path, pulls, kind):
    """A DuckDB file has no name for its state: the digest of the counts alone says which one it was."""
    table, numbers = people(900), itertools.count()

    def written(table):
        name = f"people-{next(numbers)}"
        if kind == "database":
            return database(tmp_path, table, f"{name}.db")
        pq.write_table(table, tmp_path / f"{name}.parquet")
        return tmp_path / f"{name}.parquet"

    path = written(table)
    run("key", "new", "a.key", "--no-passphrase")
    signing = ("--key", "a.key", "--insecure-key", "--output", "c.json")
    refusing = () if pulls else ("--set", "engine.no_pull=true")
    made = run("certify", "--data", path, *DECIDED, "--set", "engine.name=sql", *refusing, *signing)
    assert made.exit_code == 0, made.output

    def checked(data, *more):
        return run("verify", "c.json", "--key", "a.key.pub", "--data", data, *more)

    again = checked(path, "--recompute")
    assert again.exit_code == 0, again.output
    assert "the database counts again" in again.output
    assert "findings, computed again" in again.output

    # the order of rows and columns that the audit does not read are not part of what was signed
    reversed_rows = changed(table, "age").take(list(reversed(range(900))))
    assert checked(written(reversed_rows), "--recompute").exit_code == 0
    for other in (changed(table, "offered"), table.slice(1), pa.concat_tables([table, table.slice(0, 1)])):
        path = written(other)
        for more in ((), ("--recompute",)):
            refused = checked(path, *more)
            assert refused.exit_code == 1, refused.output
            assert "about other data" in refused.output
    assert checked(tmp_path / "absent.parquet", "--recompute").exit_code == 2
