"""Parquet files are counted by DuckDB where `--engine sql` is asked for: the findings are those of their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.errors import RowsNeededError
from fairkit_sql.counted import SqlEngine

from .shared import LABELLED, assert_equal, both, people

pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")

DECIDED = {**LABELLED, "sensitive": ["sex", "race"], "predictions": {"decision": "offered"}}


def odd(rows: int = 3_000) -> pa.Table:
    """Columns whose encodings, categories, widths and gaps differ along the table."""
    table, rng = people(rows), np.random.default_rng(1)
    score = np.round(rng.random(rows), 2)
    score[::50] = 0.0
    place = rng.integers(0, 300, rows)
    return table.append_column(
        "kind", table["race"].combine_chunks().dictionary_encode()
    ).append_column(
        "place", pa.array([f"place {number}" for number in place])  # more than 8 bits of codes
    ).append_column(
        "single", pa.array(score.astype(np.float32))
    ).append_column(
        "flag", pa.array(np.where(rng.random(rows) < 0.1, None, rng.random(rows) < 0.5).tolist(), pa.bool_())
    ).append_column(
        "small", pa.array(rng.integers(-3, 3, rows), pa.int8())
    ).append_column(
        "late", pa.array([None] * (rows // 2) + ["a", "b"] * (rows // 4), pa.string())
    )  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "people.parquet"
    with pq.ParquetWriter(path, odd().schema, use_dictionary=["sex", "kind", "place", "small"]) as writer:
        for start in range(0, 3_000, 700):  # other dictionaries in other row groups
            writer.write_table(odd().slice(start, 700).unify_dictionaries())
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    "roles",
    [
        {"sensitive": ["sex", "kind"]},
        {"sensitive": ["small", "flag"], "missing": "group"},
        {"sensitive": ["late"], "within": ["small"], "weights": "weight"},
        {"sensitive": ["place"], "counts_from": 12},
        {"sensitive": ["sex"], "predictions": {"score": "single"}},
    ],
    ids=str,
)
def test_findings_are_those_of_the_rows(file, roles):
    read, counted = both(file, **{**DECIDED, **roles})
    assert_equal(read, counted)
    assert counted.data.source["counts"]["distinct"] < 3_000
    assert counted.data.source["kind"] == "file"  # certificates ask for it


def test_several_files_are_one_table(tmp_path):
    for place, name in enumerate(("first", "second")):
        pq.write_table(people(1_000, seed=place), tmp_path / f"{name}.parquet")
    read, counted = both(tmp_path, **DECIDED)
    assert_equal(read, counted)
    assert counted.data.rows == read.data.rows > 1_900


def test_numbers_that_are_no_numbers_are_refused_as_ever(tmp_path):
    table = people(500)
    score = table["score"].to_numpy().copy()
    score[7] = np.nan
    path = tmp_path / "gap.parquet"
    pq.write_table(table.set_column(table.schema.get_field_index("score"), "score", pa.array(score)), path)
    for engine in (None, SqlEngine(pulls=False)):
        data = fairkit.load_data(path, **{**DECIDED, "predictions": {"score": "score"}})
        with pytest.raises(fairkit.ModelError, match="missing or infinite in 1 of"):
            fairkit.audit(None, data, engine=engine)


@pytest.mark.parametrize("by_ibis", [False, True])
@pytest.mark.filterwarnings("ignore:fetch_arrow_table")  # which ibis calls
def test_no_number_is_in_no_bin(tmp_path, by_ibis):
    """The statistics of a Parquet file leave NaN out, and DuckDB takes them for a proof that no row has it."""
    import ibis

    income = np.where(np.arange(900) % 7 == 0, np.nan, np.arange(900.0) * 100)
    path = tmp_path / "people.parquet"
    pq.write_table(people(900).append_column("income", pa.array(income)), path)
    roles = {**DECIDED, "sensitive": ["income:20000:50000"]}
    read, counted = both(path, **roles)
    if by_ibis:
        backend = ibis.duckdb.connect()
        data = fairkit.load_data(backend.read_parquet(path), **roles)
        counted = fairkit.audit(None, data, engine=SqlEngine(pulls=False))
        assert backend.con.execute("SELECT current_setting('disabled_optimizers')").fetchone() == ("",)
    assert_equal(read, counted)
    assert counted.data.missing == {"income": 129}


@pytest.mark.parametrize("name", ["people[1].parquet", "people*.parquet", "p?.parquet", "{a,b}.parquet"])
def test_a_name_that_is_a_pattern_counts_no_other_file(tmp_path, name):
    pq.write_table(people(800), tmp_path / name)
    pq.write_table(people(900), tmp_path / "people1.parquet")
    data = fairkit.load_data(tmp_path / name, **DECIDED)
    with pytest.raises(RowsNeededError, match="no database holds it"):
        fairkit.audit(None, data, engine=SqlEngine(pulls=False))
    assert fairkit.audit(None, data, engine="sql").data.rows <= 800


def test_hostile_names_of_files_and_columns_are_no_sql(tmp_path):
    path = tmp_path / "a'); DROP VIEW fairkit_files; --.parquet"
    column = 'x"; SELECT 1; --'
    pq.write_table(people(900).append_column(column, people(900)["race"]), path)
    assert_equal(*both(path, **{**DECIDED, "sensitive": [column]}))


@pytest.mark.long
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("when", pa.array(range(400), pa.timestamp("ns"))),
        ("half", pa.array(np.arange(400, dtype=np.float16))),
        ("span", pa.array(range(400), pa.time64("us"))),
    ],
)
def test_a_type_that_duckdb_reads_otherwise_is_not_counted(tmp_path, column, values):
    path = tmp_path / "types.parquet"
    pq.write_table(people(400).append_column(column, values), path)
    assert_equal(*both(path, **DECIDED))  # nobody reads it
    data = fairkit.load_data(path, **{**DECIDED, "within": [column]})
    with pytest.raises(RowsNeededError, match=f"the column '{column}' has a type that is not counted"):
        fairkit.audit(None, data, engine=SqlEngine(pulls=False))


def test_other_files_are_read(tmp_path):
    people(300).to_pandas().to_csv(tmp_path / "people.csv", index=False)
    data = fairkit.load_data(tmp_path / "people.csv", **DECIDED)
    assert fairkit.audit(None, data, engine="sql").warnings[0].startswith("The rows were read: people.csv cannot")


def test_a_certificate_of_counts_does_not_hold_for_a_changed_file(tmp_path):
    path = tmp_path / "people.parquet"
    pq.write_table(people(900), path)
    first = fairkit.audit(None, fairkit.load_data(path, **DECIDED), engine="sql").data
    order = np.random.default_rng(3).permutation(900)
    pq.write_table(people(900).take(order), path)
    assert fairkit.audit(None, fairkit.load_data(path, **DECIDED), engine="sql").data.sha256 == first.sha256
    table = people(900)
    flipped = table["offered"].to_numpy(zero_copy_only=False).copy()
    flipped[5] = not flipped[5]
    pq.write_table(table.set_column(table.schema.get_field_index("offered"), "offered", pa.array(flipped)), path)
    assert fairkit.audit(None, fairkit.load_data(path, **DECIDED), engine="sql").data.sha256 != first.sha256
