"""Rows that occur more than once: they are counted, and copies on both sides of a split are told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.data.duplicate_rows import (
    DIVISORS,
    MOST,
    MOST_DIVISIBLE,
    MOST_FINE,
    Repeats,
    RowCopies,
    copied_rows,
    looks_like_id,
)
from fairkit.data.hashing import column_hashes, mixed, words_of


@pytest.mark.parametrize("different", [1, 50, 20_000, 300_000])
@pytest.mark.parametrize("joined", [False, True])
def test_kept_hashes_have_all_their_copies(different, joined):
    rng = np.random.default_rng(different)
    parts = [mixed(rng.integers(0, different, rows).astype(np.uint64)) for rows in (0, 1, 5_000, 65_536, 30_000)]
    found = Repeats()
    for part in parts:
        if joined:
            other = Repeats()
            other.update(part)
            found += other
        else:
            found.update(part)
    keys, counts = np.unique(np.concatenate(parts), return_counts=True)
    kept = keys >> np.uint64(64 - found.shift) == 0 if found.shift else np.full(len(keys), True)
    assert (found.shift > 0) == (len(keys) > MOST)
    assert found.keys.tolist() == keys[kept].tolist()
    assert found.counts.tolist() == counts[kept].tolist()
    assert found.rows == sum(map(len, parts))


# Each row twenty times shrinks every interval: copies that independent rows do not have are told, and doubted.
def occurrences(rows):
    found = Repeats()
    found.update(mixed(np.asarray(rows, dtype=np.uint64)))
    return found


@pytest.mark.parametrize("divisor", [2, 3, 5, 20, 64])
def test_no_distribution_has_more_counts_that_a_number_divides(divisor):
    """Against the Poisson law of scipy, at rates that the grid does not have; a mixture is between them."""
    from scipy.stats import poisson

    for rate in np.random.default_rng(divisor).uniform(0.01, 3 * divisor, 300):
        counts = np.arange(divisor, 40 * divisor, divisor)
        assert poisson.pmf(counts, rate).sum() / -np.expm1(-rate) <= MOST_DIVISIBLE[divisor]
    assert MOST_DIVISIBLE[2] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("seed", range(40))
def test_independent_rows_are_never_told(seed):
    """Uniform, skewed and lumpy tables, with about as many rows for each value as some divisor."""
    rng = np.random.default_rng(seed)
    values = int(rng.integers(20, 5_000))
    chances = (np.ones(values), 1 / np.arange(1.0, values + 1), rng.integers(1, 4, values) ** 3.0)[seed % 3]
    rows = rng.choice(values, int(values * rng.choice([2, 3, 5, 20])), p=chances / chances.sum())
    assert copied_rows(occurrences(rows).counts, 0.0, {}) is None


@pytest.mark.parametrize("times", [2, 3, 7, 20, 64])
@pytest.mark.parametrize("values", [300, 100_000])
def test_each_row_so_many_times_is_told(times, values):
    rng = np.random.default_rng(times)
    rows = np.repeat(rng.integers(0, values, 3_000), times)
    found = copied_rows(occurrences(rng.permutation(rows)).counts, 0.0, {})
    assert found is not None
    assert found.factor % times == 0
    assert (found.factor == times) or values == 300


def people(rows, seed=0, sex_gap=0.0):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    return pa.table(
        {
            "sex": np.where(sex == 1, "m", "f").tolist(),
            "income": rng.normal(size=rows),
            "decision": (rng.random(rows) < 0.4 + sex_gap * sex).astype(int),
            "y": rng.integers(0, 2, rows),
        }
    )


@pytest.mark.parametrize("cuts", [[], [3_000, 9_000]])
def test_copies_in_random_numbers_are_told_by_a_column_that_decides_all(cuts):
    rng = np.random.default_rng(0)
    table = people(3_000)
    table = table.take(rng.integers(0, 3_000, 15_000))
    parts = []
    for low, high in zip([0, *cuts], [*cuts, len(table)], strict=True):
        parts.append(RowCopies.of(table.schema.names))
        for batch in table.slice(low, high - low).to_batches(1_000):
            parts[-1].update(batch)
    found = sum(parts[1:], parts[0]).copied
    assert "'income'" in found.reason
    assert found.factor == pytest.approx(6, abs=0.3)  # 1 + 5: a Poisson number of copies of each
    honest = RowCopies.of(table.schema.names)
    for batch in people(15_000, 1).to_batches():
        honest.update(batch)
    assert honest.copied is None


def audited(table, limit, **settings):
    rule = fairkit.Rule.parse(f"demographic_parity_difference:sex={limit}", "max")
    data = fairkit.load_data(
        table, label="y", favorable=1, sensitive=["sex"], predictions={"decision": "decision"},
        cluster=settings.pop("cluster", None),
    )  # fmt: skip
    return fairkit.audit(None, data, policy=[rule], **settings)


def test_a_verdict_that_depends_on_copies_is_inconclusive():
    table = people(1_000)
    value = audited(table, 0.5).find("demographic_parity_difference", "sex").value
    limit = round(value + 0.03, 4)  # an interval of 1,000 rows is about 0.06 to each side
    assert audited(table, limit).verdict == "inconclusive"
    copied = pa.concat_tables([table] * 20)
    report = audited(copied, limit)
    assert report.verdict == "inconclusive"
    (result,) = report.policy
    assert "occur 20 times or a multiple of it" in result.reason
    assert "cluster" in result.reason
    assert any("4.5 times too narrow" in text for text in report.warnings)
    assert fairkit.Report.from_dict(report.to_dict()).policy == report.policy
    assert audited(copied, limit, copies="independent").verdict == "pass"
    assert audited(copied, 0.5).verdict == "pass"  # also of the rows counted once
    persons = copied.append_column("person", pa.array(list(range(1_000)) * 20))
    clustered = audited(persons, limit, cluster="person")
    assert clustered.verdict == "inconclusive"
    assert not any("copies of others" in text for text in clustered.warnings)
    with pytest.raises(fairkit.FairkitError, match="copies="):
        audited(copied, limit, copies="all")


@pytest.mark.parametrize("divisor", [2, 3, 17, 64])
def test_the_bounds_are_those_of_all_poisson_rates(divisor):
    rates = np.exp(np.linspace(math.log(1e-3), math.log(4.0 * divisor + 40), 1_200))
    counts = np.arange(1, int(rates[-1] + 12 * math.sqrt(rates[-1])) + 40)
    logs = counts * np.log(rates)[:, None] - rates[:, None] - np.array([math.lgamma(k + 1) for k in counts])
    largest = (np.exp(logs)[:, counts % divisor == 0].sum(axis=1) / -np.expm1(-rates)).max() * 1.001
    assert 0 <= MOST_DIVISIBLE[divisor] - largest < 1.1e-5
    assert [*MOST_DIVISIBLE] == [*DIVISORS]


@pytest.mark.parametrize(("ids", "near"), [(20_000, 0.0), (300_000, 0.02)])
def test_clusters_are_counted_in_whatever_parts_they_come(ids, near):
    column = np.random.default_rng(5).integers(0, ids, 3 * ids)
    truth = len(np.unique(column))
    parts = []
    for piece in np.array_split(column, 5):
        parts.append(Repeats())
        for batch in np.array_split(piece, 3):
            parts[-1].update(words_of(pa.array(batch)))
    forward, backward = sum(parts[1:], parts[0]), sum(parts[-2::-1], parts[-1])
    assert forward.distinct == backward.distinct
    assert abs(forward.distinct - truth) <= near * truth


# Copies of rows and repeated ids: counted exactly while few, from a sample of hashes beyond, in any parts.
def counted(table: pa.Table, cuts: list[int]) -> RowCopies:
    found = None
    for low, high in zip([0, *cuts], [*cuts, len(table)], strict=True):
        part = RowCopies.of(table.schema.names)
        for batch in table.slice(low, high - low).to_batches(97):
            part.update(batch)
        found = part if found is None else found + part
    assert found is not None
    return found


def repeated(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = np.array([f"u{i}" for i in rng.integers(0, rows // 3, rows)])
    gaps = pa.array(names, mask=rng.random(rows) < 0.1)
    return pa.table({"person_id": gaps, "x": rng.normal(size=rows), "k": rng.integers(0, 3, rows)})


@pytest.mark.parametrize("cuts", [[], [1, 500], [333, 333, 900]])
def test_copies_are_exact_in_any_parts(cuts: list[int]) -> None:
    table = repeated(1_000)
    table = pa.concat_tables([table, table.slice(100, 40)])
    found = counted(table, cuts)
    assert found.whole.rows - found.whole.distinct == 40
    known = table.column("person_id").drop_null()
    assert found.ids["person_id"].rows == len(known)
    assert found.ids["person_id"].distinct == len(known.unique())


def test_beyond_the_sample_they_are_estimated(monkeypatch: Any) -> None:
    monkeypatch.setattr("fairkit.data.duplicate_rows.MOST", 2_000)
    table = repeated(30_000, 1)
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
def test_names_of_ids_are_recognised(name: str) -> None:
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
