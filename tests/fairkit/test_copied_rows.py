"""Each row twenty times shrinks every interval: copies that independent rows do not have are told, and doubted."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.data.duplicate_rows import DIVISORS, MOST_DIVISIBLE, Repeats, RowCopies, copied_rows
from fairkit.data.hashing import mixed, words_of


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
