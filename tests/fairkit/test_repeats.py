"""Copies of rows and repeated ids: counted exactly while few, from a sample of hashes beyond, in any parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.data.duplicate_rows import MOST_FINE, RowCopies, looks_like_id
from fairkit.data.hashing import column_hashes


def counted(table: pa.Table, cuts: list[int]) -> RowCopies:
    found = None
    for low, high in zip([0, *cuts], [*cuts, len(table)], strict=True):
        part = RowCopies.of(table.schema.names)
        for batch in table.slice(low, high - low).to_batches(97):
            part.update(batch)
        found = part if found is None else found + part
    assert found is not None
    return found


def people(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = np.array([f"u{i}" for i in rng.integers(0, rows // 3, rows)])
    gaps = pa.array(names, mask=rng.random(rows) < 0.1)
    return pa.table({"person_id": gaps, "x": rng.normal(size=rows), "k": rng.integers(0, 3, rows)})


@pytest.mark.parametrize("cuts", [[], [1, 500], [333, 333, 900]])
def test_copies_are_exact_in_any_parts(cuts: list[int]) -> None:
    table = people(1_000)
    table = pa.concat_tables([table, table.slice(100, 40)])
    found = counted(table, cuts)
    assert found.whole.rows - found.whole.distinct == 40
    known = table.column("person_id").drop_null()
    assert found.ids["person_id"].rows == len(known)
    assert found.ids["person_id"].distinct == len(known.unique())


def test_beyond_the_sample_they_are_estimated(monkeypatch: Any) -> None:
    monkeypatch.setattr("fairkit.data.duplicate_rows.MOST", 2_000)
    table = people(30_000, 1)
    table = pa.concat_tables([table, table.slice(0, 3_000)])
    found = counted(table, [7_000, 20_000])
    assert len(found.whole.keys) <= 2_000
    assert found.whole.copies == pytest.approx(3_000 / 33_000, abs=0.025)
    one, other = counted(table, []), counted(table, [12_345])
    assert np.array_equal(one.whole.keys, other.whole.keys)
    assert np.array_equal(one.whole.counts, other.whole.counts)


def test_equal_cells_have_equal_hashes() -> None:
    texts = column_hashes(pa.array(["a", None, "ab", "", "ba", "a", "\0", "\0\0"]))
    assert texts[0] == texts[5]
    assert texts[1] == texts[3]  # as in the table's digest
    assert len(set(texts.tolist())) == 6
    sliced = pa.array(["zz", "a", "ab"] * 40).slice(1, 100)
    assert np.array_equal(column_hashes(sliced)[:2], texts[[0, 2]])
    numbers = column_hashes(pa.array([0.0, -0.0, None, np.nan, 1.0]))
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[3]
    assert np.array_equal(column_hashes(pa.array([1, 2])), column_hashes(pa.array([1.0, 2.0])))


@pytest.mark.parametrize("name", ["id", "person_id", "PersonID", "customerId", "ssn", "email", "applicant.id", "user"])
def test_names_of_ids(name: str) -> None:
    assert looks_like_id(name)


@pytest.mark.parametrize("name", ["paid", "income", "identity_verified", "user_age", "idle", "humid"])
def test_names_that_only_look_alike(name: str) -> None:
    assert not looks_like_id(name)


def test_the_report_begins_with_them() -> None:
    rows = 900
    rng = np.random.default_rng(2)
    columns = {
        "person_id": rng.integers(0, 300, rows),
        "x": rng.random(rows),
        "sex": np.array(["f", "m"])[np.arange(rows) % 2],
        "w": rng.random(rows) + 0.5,
    }
    columns = {name: np.concatenate([values, values[:9]]) for name, values in columns.items()}
    data = fairkit.load_data(columns, sensitive=["sex"], weights="w", predictions={"score": "x"})
    report = fairkit.audit(None, data)
    assert report.warnings[0].startswith("9 of 909 rows are exact copies")
    assert "'person_id' has" in report.warnings[1]
    assert report.data.weights == "w"
    from fairkit_cli.formats import screen as table

    first = table(report, terminal=False).split("Largest disparities")[0]
    assert "9 of 909 rows are exact copies" in first
    assert "weighted by 'w'" in first


def test_a_table_of_few_categories_repeats_by_its_nature() -> None:
    rng = np.random.default_rng(3)
    columns = {"sex": np.array(["f", "m"])[rng.integers(0, 2, 500)], "d": rng.integers(0, 2, 500)}
    data = fairkit.load_data(columns, sensitive=["sex"], predictions={"decision": "d"})
    assert not fairkit.audit(None, data).warnings


@pytest.mark.parametrize("kind", ["few values", "dictionaries", "many values"])
def test_cells_that_change_rows_are_not_another_order_of_the_same_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    sexes, outcomes = rng.integers(0, 2, (2, 2_000))
    columns = {"sex": pa.array(np.array(["f", "m"])[sexes]), "outcome": pa.array(outcomes)}
    if kind == "dictionaries":
        columns["sex"] = columns["sex"].dictionary_encode()
    if kind == "many values":
        columns["score"] = pa.array(rng.random(2_000))

    def unordered(table: pa.Table) -> str:
        return fairkit.load_data(table, sensitive=[]).learn().unordered

    table, order = pa.table(columns), rng.permutation(2_000)
    assert unordered(table.take(order)) == unordered(table)
    moved = table.set_column(0, "sex", table.column("sex").take(order))
    assert unordered(moved) != unordered(table)


def test_of_very_many_columns_some_tell_copies() -> None:
    values = np.random.default_rng(0).normal(size=(6_000, 40))
    table = pa.table({f"x{j}": np.round(values[:, j], 3 if j < 20 else 12) for j in range(40)})
    table = pa.concat_tables([table, table.slice(0, 300)])
    found = counted(table, [2_700, 2_701])
    assert sorted(found.fine, key=lambda name: int(name[1:])) == [f"x{j}" for j in range(20, 20 + MOST_FINE)]
    assert found.copied is not None
    assert "'x20'" in found.copied.reason
