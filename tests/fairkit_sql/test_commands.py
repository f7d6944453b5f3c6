"""Commands with `--engine sql`: what is refused, and certificates of counted files that are counted again."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .shared import database, people

pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")
pytest.importorskip("duckdb", reason="needs the extra fairkit[duckdb]")

ROLES = ("--label", "hired", "--favorable", "yes", "--sensitive", "sex")
DECIDED = (*ROLES, "--predictions", "decision=offered")


@pytest.mark.parametrize(
    "words",
    [
        ("compare", *DECIDED, "--predictions", "decision=hired"),
        ("frontier", *ROLES, "--plugin", "reweigh", "--output", "frontier.html"),
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
