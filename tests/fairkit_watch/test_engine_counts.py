"""A watch that a database counts for: the counts by day are those of its rows, and no row travels."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import fairkit
from fairkit import DataError, Watch
from fairkit.errors import ParameterError, RowsNeededError
from fairkit_sql.engine import SqlEngine
from fairkit_watch.log import StateError

ibis = pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
duckdb = pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")

EOD = ("equal_opportunity_difference:sex=0.1", "max")
ONE_DAY = datetime.date(2024, 2, 1)
SETTINGS = {
    "decisions in groups, and rows in none": {},
    "missing values as a group": {"missing": "group", "groups": {}},
    "bins and intersections": {"sensitive": ["sex", "age:30:50", "sex+age:40", "race"], "groups": {}},
    "a binned column that is a score, too": {"sensitive": ["sex", "age:30"], "groups": {}, "score": "age"},
    "weights": {"weights": "weight"},
    "scores": {"score": "score"},
    "scores and weights": {"weights": "weight", "score": "score"},
    "outcomes": {"label": "outcome", "rules": [EOD]},
    "text that is favorable": {"decision": "word", "favorable": "yes"},
    "times": {"day": "moment"},
    "text that begins with a day": {"day": "text"},
}


def decided(rows: int = 3_000, seed: int = 0) -> pa.Table:
    """Decisions of twenty days, some of people without a group, some without an outcome."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 20, rows)
    date = [datetime.date(2024, 1, 5) + datetime.timedelta(int(day)) for day in days]
    seconds = rng.integers(0, 86_400, rows)
    moment = [
        datetime.datetime.combine(one, datetime.time()) + datetime.timedelta(seconds=int(second))
        for one, second in zip(date, seconds, strict=True)
    ]
    return pa.table(
        {
            "date": pa.array(date, pa.date32()),
            "moment": pa.array(moment, pa.timestamp("us")),
            "text": [one.isoformat() for one in moment],
            "decision": rng.integers(0, 2, rows),
            "word": rng.choice(["yes", "no"], rows).tolist(),
            "sex": pa.array(rng.choice(["f", "m", None], rows, p=[0.4, 0.55, 0.05]).tolist(), pa.string()),
            "race": rng.choice(list("abc"), rows).tolist(),
            "age": rng.integers(18, 80, rows),
            "outcome": pa.array(rng.choice([0, 1, None], rows, p=[0.5, 0.45, 0.05]).tolist(), pa.int64()),
            "weight": rng.gamma(2, 1, rows),
            "score": rng.random(rows),
        }
    )


def placed(kind: str, table: pa.Table, folder) -> str:
    """Write a table where an engine counts it, and return what names it."""
    if kind == "parquet":
        path = folder / "decided.parquet"
        pq.write_table(table, path, row_group_size=700)
        return str(path)
    path = folder / "decided.db"
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.sql("CREATE TABLE decided AS SELECT * FROM given")
    return f"duckdb:{path}?query=SELECT * FROM decided"


@pytest.fixture
def unread(monkeypatch):
    """Let no row be read: neither a snapshot nor a file's pages."""

    def refuse(*_, **__):
        raise AssertionError("a row was read")

    def forbid():
        monkeypatch.setattr("fairkit.data.snapshot.take_snapshot", refuse)
        monkeypatch.setattr("fairkit.data.parts.ParquetPart.read", refuse)

    return forbid


def added_record(watch: Watch) -> dict:
    """Return the newest record of decisions; alarms come after it."""
    return next(one for one in reversed(watch.book.records) if one["kind"] == "add")


def assert_same_counts(read: Watch, counted: Watch) -> None:
    """Compare all counts: whole numbers exactly, sums of doubles within 1e-9."""
    assert read.data.days == counted.data.days
    assert read.data.splits.keys() == counted.data.splits.keys()
    for name, split in read.data.splits.items():
        assert split.groups == counted.data.splits[name].groups
        assert split.parts.keys() == counted.data.splits[name].parts.keys()
        for key, numbers in split.parts.items():
            theirs = counted.data.splits[name].parts[key]
            np.testing.assert_allclose(theirs, numbers, rtol=1e-9, atol=1e-9)
    if read.settings.columns.weights is None and read.settings.columns.score is None:
        assert read.totals() == counted.totals()


@pytest.mark.parametrize("kind", ["duckdb", "parquet"])
@pytest.mark.parametrize("name", SETTINGS)
def test_counts_by_day_are_those_of_the_rows(begun, tmp_path, unread, kind, name):
    settings = dict(SETTINGS[name])
    rules, settings = settings.pop("rules", []), {"day": "date", **settings}
    table = decided()
    data = placed(kind, table, tmp_path)
    with begun("read", *rules, **settings) as read, begun("counted", *rules, **settings) as counted:
        first = read.add(table)
        unread()
        second = counted.add(data, engine=SqlEngine(pulls=False))
        assert (first.rows, first.days, second.notes) == (second.rows, second.days, ())
        assert_same_counts(read, counted)
        mine, theirs = (one.look(ONE_DAY) for one in (read, counted))
        assert mine.odd == theirs.odd
        assert [one.verdict for one in mine.rules] == [one.verdict for one in theirs.rules]
    with Watch.open(tmp_path / "counted") as again:  # its records are what a watch writes
        assert_same_counts(read, again)


def test_one_day_for_all_rows_and_the_day_of_a_file(begun, tmp_path, unread):
    table = decided(500)
    placed("parquet", table, tmp_path)
    file = (tmp_path / "decided.parquet").rename(tmp_path / "decided-2024-01-09.parquet")
    with begun("read") as read, begun("named") as named, begun("told") as told:
        read.add(table, day="2024-01-09")
        unread()
        named.add(file, engine="sql")
        told.add(placed("duckdb", table, tmp_path), day="2024-01-09", engine="sql")
        assert_same_counts(read, named)
        assert_same_counts(read, told)
        assert (
            told.add(
                f"duckdb:{tmp_path / 'decided.db'}?query=FROM decided WHERE age > 200", day="2024-01-10", engine="sql"
            ).rows
            == 0
        )
        assert told.data.days == ("2024-01-09", "2024-01-10")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table")  # which ibis calls
def test_a_table_of_ibis_is_counted(begun, tmp_path):
    placed("duckdb", decided(), tmp_path)
    backend = ibis.duckdb.connect(tmp_path / "decided.db", read_only=True)
    with begun("read", day="date") as read, begun("counted", day="date") as counted:
        read.add(decided())
        assert counted.add(backend.table("decided"), engine=SqlEngine(pulls=False)).notes == ()
        assert_same_counts(read, counted)


def test_what_was_counted_is_written_down_and_not_counted_twice(begun, tmp_path):
    data = placed("duckdb", decided(), tmp_path)
    with begun("watch", day="date") as watch:
        watch.add(data, engine="sql")
        assert added_record(watch)["source"]["query"] == "SELECT * FROM decided"
        for engine in ("sql", None):  # by whichever way they come, the counts are the same
            with pytest.raises(StateError, match="holds the same decisions"):
                watch.add(data, engine=engine)
        watch.add(data, engine="sql", batch="the same people, asked again")


@pytest.mark.parametrize("kind", ["duckdb", "parquet"])
@pytest.mark.parametrize(
    ("settings", "column", "value", "message"),
    [
        ({}, "decision", None, "1 of 600 rows have no decision in 'decision'"),
        ({"weights": "weight"}, "weight", -1.0, "1 of 600 rows have no usable weight in 'weight'"),
        ({"weights": "weight"}, "weight", None, "1 of 600 rows have no usable weight in 'weight'"),
        ({"score": "score"}, "score", float("nan"), "1 of 600 rows have no usable score in 'score'"),
        ({"score": "score"}, "score", float("-inf"), "1 of 600 rows have no usable score in 'score'"),
        ({"score": "race"}, "race", "a", "the score column 'race' holds text"),
        ({"day": "age"}, "age", 7, "the day column 'age' holds numbers"),
        ({"day": "text"}, "text", "soon", "the day column 'text' holds"),
        ({"day": "date"}, "date", None, "1 of 600 rows have no day in 'date'"),
        ({"day": "date"}, "date", datetime.date(2999, 1, 1), "there are decisions of 2999-01-01, but today"),
        ({"decision": "race"}, "race", "b", "say which value is favorable"),
    ],
)
def test_bad_tables_are_refused_and_count_nothing(begun, tmp_path, kind, settings, column, value, message):
    table = decided(600)
    values = table[column].to_pylist()
    values[77] = value
    kept = table.schema.field(column).type
    table = table.set_column(table.column_names.index(column), column, pa.array(values, kept))
    data = placed(kind, table, tmp_path)
    with begun("watch", **{"day": "date", **settings}) as watch:
        before = len(watch.book.records)
        for engine in (None, SqlEngine(pulls=False)):
            with pytest.raises(DataError, match=message):
                watch.add(data, engine=engine)
        assert len(watch.book.records) == before


@pytest.mark.long
def test_what_cannot_be_counted_is_read_and_said_or_refused(begun, tmp_path, monkeypatch):
    table = decided(400).append_column("id", pa.array([str(row) for row in range(400)]))
    zoned = table["moment"].cast(pa.timestamp("us", "UTC"))
    table = table.append_column("zoned", zoned).append_column("fine", zoned.cast(pa.timestamp("ns", "UTC")))
    old = [datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)] * 400
    table = table.append_column("old", pa.array(old, pa.timestamp("us", "Africa/Monrovia")))
    data = placed("duckdb", table, tmp_path)
    late = {"label": "outcome", "id": "id", "horizon": 3, "day": "date"}
    cases = [
        ("late", [EOD], late, data, "outcomes come 3 days after the decisions"),
        ("zoned", [], {"day": "zoned"}, data, "has times with a zone"),
        ("memory", [], {"day": "date"}, table, "no database holds it"),
        ("nanoseconds", [], {"day": "fine"}, placed("parquet", table, tmp_path), "has a type that is not counted"),
        ("old", [], {"day": "old"}, placed("parquet", table, tmp_path), "has times before 1973"),
    ]
    for name, rules, settings, given, message in cases:
        with begun(name, *rules, **settings) as watch:
            with pytest.raises(RowsNeededError, match=message):
                watch.add(given, engine=SqlEngine(pulls=False))
            added = watch.add(given, engine="sql")
            assert added.rows == 400
            assert added.notes[0].startswith("The rows were read: ")
            assert "source" not in added_record(watch)
    monkeypatch.setattr("fairkit_sql.cells.MOST_CELLS", 30)
    with begun("many", day="date") as watch:
        with pytest.raises(RowsNeededError, match="more than 30 distinct rows in the columns date, decision, sex"):
            watch.add(data, engine=SqlEngine(pulls=False))
        with pytest.raises(ParameterError, match="there is no engine 'duck'"):
            watch.add(data, engine="duck")


def test_a_session_in_another_zone_counts_the_same_days(begun, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    data = placed("duckdb", decided(), tmp_path)
    with begun("read", day="moment") as read, begun("counted", day="moment") as counted:
        read.add(decided())
        counted.add(data, engine=SqlEngine(pulls=False))
        assert_same_counts(read, counted)


@pytest.mark.parametrize(
    ("unit", "zone"),
    [("s", None), ("us", None), ("ns", None), ("s", "UTC"), ("us", "Asia/Kathmandu"), ("us", "America/New_York"),
     ("s", "-09:30")],
)  # fmt: skip
def test_times_in_files_are_days_of_their_zone(begun, tmp_path, unread, monkeypatch, unit, zone):
    """Two zones of which one changes its clocks within the days; what DuckDB takes for the zone here is no matter."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    table = decided()
    begin = datetime.datetime(2024, 3, 5)
    moments = [begin + datetime.timedelta(hours=13 * row % 480, microseconds=999_999) for row in range(3_000)]
    times = pa.array(moments, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    table = table.append_column("at", times if zone is None else times.cast(pa.timestamp(unit, zone)))
    data = placed("parquet", table, tmp_path)
    with begun("read", day="at") as read, begun("counted", day="at") as counted:
        read.add(data)
        unread()
        counted.add(data, engine=SqlEngine(pulls=False))
        assert_same_counts(read, counted)


def test_the_command(begun, tmp_path, unread):
    from fairkit_cli.main import app

    data = placed("duckdb", decided(), tmp_path)
    begun("watch", day="date").close()
    begun("other", day="date").close()

    def command(*words):
        return CliRunner().invoke(app, ["watch", "add", *map(str, words)])

    wrong = command(tmp_path / "watch", "--data", data, "--no-pull")
    assert (wrong.exit_code, "--no-pull is about --engine sql" in wrong.stderr) == (2, True)
    wrong = command(tmp_path / "watch", "--data", data, "--engine", "dask")
    assert (wrong.exit_code, "a watch counts in this process, or with --engine sql" in wrong.stderr) == (2, True)
    wrong = command(tmp_path / "watch", "--merge", tmp_path / "other", "--engine", "sql")
    assert (wrong.exit_code, "--engine and --no-pull are about --data" in wrong.stderr) == (2, True)
    csv = tmp_path / "decided.csv"
    csv.write_text("date,decision,sex\n2024-01-01,1,f\n2024-01-01,0,m\n")
    read = command(tmp_path / "other", "--data", csv, "--engine", "sql")
    assert "The rows were read: decided.csv cannot be counted by SQL" in read.stderr
    unread()
    words = ("--data", data, "--engine", "sql", "--no-pull", "--format", "json")
    made = command(tmp_path / "watch", *words)
    assert made.exit_code in (0, 1), made.output
    assert json.loads(made.stdout)["rows"] == 3_000
    assert fairkit.Watch.open(tmp_path / "watch", write=False).look(ONE_DAY).rows == 3_000
