"""Rows that are counted as they are read: every number is that of the rows themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fairkit_sql.shared import LABELLED, assert_equal, people

import fairkit
from fairkit.auditing import measure as measuring
from fairkit.data import duplicate_rows as duplicates
from fairkit.data.arrow_types import codes_of
from fairkit.data.duplicate_rows import DistinctRows, equal_rows

SETTINGS: dict[str, dict[str, Any]] = {
    "decisions in groups, and rows in none": {"sensitive": ["sex", "race"], "predictions": {"decision": "offered"}},
    "missing values as a group": {"sensitive": ["sex"], "missing": "group", "predictions": {"decision": "offered"}},
    "small groups": {"sensitive": ["sex+race"], "counts_from": 450, "predictions": {"decision": "offered"}},
    "bins, strata, a reference and weights": {
        "sensitive": ["age", "sex+age:30:50"],
        "within": ["office"],
        "reference": ["age=@largest"],
        "weights": "weight",
        "predictions": {"decision": "offered"},
    },
    "scores with weights": {"sensitive": ["race"], "weights": "weight", "predictions": {"score": "score"}},
    "scores of many values": {"sensitive": ["sex"], "predictions": {"score": "fine", "decision": "offered"}},
    "chances of decisions": {"sensitive": ["sex"], "predictions": {"probability": "chance"}},
    "probabilities of groups": {
        "sensitive": [],
        "sensitive_probability": ["race=p_white,p_black"],
        "predictions": {"decision": "offered"},
    },
    "classes": {"label": "level", "favorable": None, "sensitive": ["sex"], "predictions": {"class": "guess"}},
    "numbers": {"label": "paid", "favorable": None, "sensitive": ["sex"], "predictions": {"prediction": "expected"}},
    "no label": {"label": None, "favorable": None, "sensitive": ["sex"], "predictions": {"decision": "offered"}},
    "clusters": {"sensitive": ["sex"], "cluster": "crew", "predictions": {"score": "score"}},
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the numbers of rows that will be measured, of tables of any size."""
    for name, value in (("FEWEST_ROWS_COUNTED", 0), ("EQUAL_ROWS", 1)):
        monkeypatch.setattr(duplicates, name, value)
    rows: list[int] = []
    known = measuring.measure

    def measure(source: Any, start: int, job: Any) -> list[Any]:
        rows.append(sum(batch.num_rows for batch in source.batches(source.columns[:1], 1 << 16)))
        return known(source, start, job)

    monkeypatch.setattr(measuring, "measure", measure)
    return rows


def audits(data: Any, rows: list[int], **roles: Any) -> tuple[Any, Any, bool]:
    """Audit the rows, and their counts; return whether these were counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistinctRows, "add", lambda self, batch, codes: False)
        read = fairkit.audit(None, fairkit.load_data(data, **roles))
    rows.clear()
    counted = fairkit.audit(None, fairkit.load_data(data, **roles))
    assert read.data.sha256 == counted.data.sha256
    assert read.data.to_dict() == counted.data.to_dict()
    assert read.warnings == counted.warnings
    return read, counted, len(rows) > 1


@pytest.mark.parametrize("name", SETTINGS)
def test_findings_are_those_of_the_rows(name: str, measured: list[int], tmp_path: Any):
    pq.write_table(people(), tmp_path / "t.parquet", row_group_size=900)
    roles = {**LABELLED, **SETTINGS[name]}
    read, counted, few = audits(tmp_path / "t.parquet", measured, **roles)
    assert_equal(read, counted)
    assert few == (name != "scores of many values")


@pytest.mark.long
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), rows=st.integers(40, 400), values=st.integers(2, 5))
def test_tables_at_random(measured: list[int], data: Any, rows: int, values: int):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    groups = [None, "", *(f"g{number}" for number in range(values))]
    group = rng.choice(len(groups), rows)
    table = pa.table({
        "group": pa.array([groups[place] for place in group], pa.string()),
        "hired": pa.array(np.where(rng.random(rows) < 0.05, np.nan, rng.integers(0, 2, rows)), pa.float64()),
        "offered": pa.array((rng.integers(0, 2, rows)).astype(bool)),
        "score": pa.array(np.round(rng.random(rows), data.draw(st.integers(1, 3))).astype(np.float32)),
        "weight": pa.array(rng.choice([0.0, 1.0, 2.5, np.nan], rows, p=[0.1, 0.4, 0.4, 0.1]), from_pandas=True),
        "team": pa.array(rng.integers(0, 30, rows)),
    })  # fmt: skip
    roles: dict[str, Any] = {"label": "hired", "favorable": 1, "sensitive": ["group"]}
    roles |= data.draw(st.sampled_from([{}, {"weights": "weight"}, {"cluster": "team"}, {"missing": "group"}]))
    predicted = data.draw(st.sampled_from([{"decision": "offered"}, {"score": "score", "decision": "offered"}]))
    step = data.draw(st.sampled_from([17, 64, 1_000]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairkit.data.profile.BATCH_ROWS", step)
        read, counted, _ = audits(table, measured, **roles, predictions=predicted)
    assert_equal(read, counted)


def test_rows_are_counted_in_the_order_in_which_they_first_occur():
    columns = [pa.array(["b", None, "a", "b", "b", None]), pa.array([1.5, np.nan, None, 1.5, np.nan, np.nan])]
    first, counts = equal_rows([codes_of(column) for column in columns])
    assert (first.tolist(), counts.tolist()) == ([0, 1, 2, 4], [2, 2, 1, 1])


@pytest.mark.parametrize("cells", [1 << 18, 40])
def test_parts_add_up_to_the_table(cells: int, monkeypatch: pytest.MonkeyPatch):
    """Whatever the batches and the parts are, and whether keys are numbered anew."""
    monkeypatch.setattr(duplicates, "_CELLS", cells)
    rng = np.random.default_rng(0)
    table = pa.table({
        "a": pa.array(rng.choice(["x", "y", None], 9_000).tolist(), pa.string()),
        "b": pa.array(rng.integers(0, 5, 9_000) * 300),
        "c": pa.array(np.where(rng.random(9_000) < 0.1, np.nan, rng.integers(0, 3, 9_000))),
    })  # fmt: skip
    parts = []
    for low, high in ((0, 4_000), (4_000, 9_000)):
        part = DistinctRows(["c", "a", "b"])
        for batch in table.slice(low, high - low).to_batches(1_500):
            if not part.add(batch, {}):
                assert cells == 40
                return
        parts.append(part)
    rows, counts = (parts[0] + parts[1]).table()
    expected = Counter(
        repr(row) for row in zip(*(column.to_pylist() for column in table.select(["c", "a", "b"]).columns), strict=True)
    )
    found = [repr(row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]
    assert dict(zip(found, counts.tolist(), strict=True)) == expected
    assert found == list(expected)


def test_too_many_rows_are_learnt_and_then_read(measured: list[int], monkeypatch: pytest.MonkeyPatch):
    """Where later rows are all different, those that were counted are learnt, and all are measured."""
    monkeypatch.setattr(duplicates, "MOST_DISTINCT", 100)
    monkeypatch.setattr("fairkit.data.profile.BATCH_ROWS", 500)
    rng = np.random.default_rng(3)
    score = np.concatenate([rng.choice([0.25, 0.75], 1_000), rng.random(2_000)])
    table = pa.table({
        "sex": pa.array(rng.choice(["f", "m"], 3_000).tolist()),
        "hired": pa.array(rng.integers(0, 2, 3_000)),
        "score": pa.array(score),
    })  # fmt: skip
    roles = {"label": "hired", "favorable": 1, "sensitive": ["sex"], "predictions": {"score": "score"}}
    read, counted, few = audits(table, measured, **roles)
    assert not few
    assert_equal(read, counted)


def test_what_is_too_much_is_dropped_where_parts_meet(monkeypatch: pytest.MonkeyPatch):
    """Parts of many machines are small enough each, and together too many."""
    monkeypatch.setattr(duplicates, "MOST_DISTINCT", 40)
    monkeypatch.setattr(duplicates, "FEWEST_ROWS_COUNTED", 0)
    parts = []
    for start in (0, 60):
        parts.append(DistinctRows(["a"]))
        assert parts[-1].add(pa.record_batch({"a": np.arange(start, start + 60).repeat(20)}), {})
    assert all(part.serves(["a"]) for part in parts)
    assert not (parts[0] + parts[1]).serves(["a"])


@pytest.mark.parametrize("first", [10, 8_000])
def test_the_head_of_a_table_tells_whether_its_rows_repeat(first: int):
    """Small batches at the beginning, as of a folder's small files, close nothing."""
    rng = np.random.default_rng(1)
    few, many = DistinctRows(["a"]), DistinctRows(["a"])
    for rows in (first, 10_000, 10_000):
        assert few.add(pa.record_batch({"a": rng.integers(0, 9, rows)}), {})
        added = many.add(pa.record_batch({"a": rng.integers(0, 9_000, rows)}), {})
    assert not added
    assert few.rows == first + 20_000
    assert many.rows == first + 10_000


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("weight", -1.0, "6 weights in column 'weight' are negative"), ("hired", np.inf, "6 infinite numbers"),
     ("p_a", 2.0, "6 rows have a value of p_a, p_b outside")],
)  # fmt: skip
def test_what_is_wrong_is_counted_in_rows(measured: list[int], column: str, value: float, message: str):
    columns = {"hired": np.arange(60) % 2.0, "weight": np.ones(60), "p_a": np.full(60, 0.5), "p_b": np.full(60, 0.5)}
    columns[column] = np.where(np.arange(60) % 10 == 3, value, columns[column])
    table = pa.table({**columns, "offered": np.arange(60) // 3 % 2})
    data = fairkit.load_data(
        table,
        label="hired",
        favorable=1,
        weights="weight",
        sensitive_probability=["race=p_a,p_b"],
        predictions={"decision": "offered"},
    )
    with pytest.raises(fairkit.DataError, match=message):
        fairkit.audit(None, data)
