"""Text as dictionaries and codes: whatever the file's pages are, the findings and the digest are the same."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.data.arrow_types import codes_of, equal_cells
from fairkit.data.digest import TableDigest
from fairkit.data.hashing import column_hashes
from fairkit.data.parts import ParquetPart
from fairkit.support import timings as threads_ahead
from fairkit.support.timings import ahead
from fairkit.totals.rows import Rows
from fairkit.totals.scores import Scores, places_of

ROWS = 90_000
COLUMNS = {
    "text": pa.array(["b", None, "a", "NA", "b", ""]),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 2, 1], pa.int8()), ["x", "unused", "z"]),
    "whole": pa.array([3, -2, 3, 900]),
    "gaps": pa.array([3, None, 3]),
    "far": pa.array([2**62, -(2**62), 5]),
    "fractions": pa.array([0.5, float("nan"), 0.5, None]),
    "flags": pa.array([True, None, False]),
    "nothing": pa.array([], pa.int64()),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_codes_are_the_cells(name: str):
    column = COLUMNS[name]
    codes, cells = codes_of(column), column.to_pylist()
    assert [repr(codes.cells[place]) for place in codes.places.tolist()] == list(map(repr, cells))
    places, counts = codes.counted()
    assert [repr(codes.cells[place]) for place in places] == list(dict.fromkeys(map(repr, cells)))
    assert counts == list(Counter(map(repr, cells)).values())
    for value in dict.fromkeys(cells):
        if value is not None:
            assert equal_cells(column, value).tolist() == [cell == value for cell in cells]


def test_values_count_in_the_order_of_rows_also_beyond_the_head():
    cells = ["b"] * 5_000 + ["z", "a"] * 10
    codes = codes_of(pa.array(cells).dictionary_encode())
    assert [codes.cells[place] for place in codes.counted()[0]] == ["b", "z", "a"]


def test_hashes_and_digests_do_not_know_dictionaries():
    texts = pa.array(["long text of a category", None, "", "b"] * 100 + [""] * 9_000 + [None] * 9_000)
    coded = texts.dictionary_encode()
    assert column_hashes(coded).tolist() == column_hashes(texts).tolist()
    digests = [TableDigest(["a"]) for _ in range(2)]
    for digest, column in zip(digests, (texts, coded), strict=True):
        digest.update(pa.record_batch({"a": column}))
    assert digests[0].hexdigest() == digests[1].hexdigest()


def _table() -> pa.Table:
    """Return a table whose groups' order changes, with more categories than int8 has, gaps and single precision."""
    rng = np.random.default_rng(4)
    score = rng.random(ROWS)
    group = np.array(["b", "a", "NA", "d"])[(rng.integers(0, 4, ROWS) + np.arange(ROWS) // 30_000) % 4]
    return pa.table({
        "group": pa.array(np.where(rng.random(ROWS) < 0.01, None, group).tolist(), pa.string()),
        "many": pa.array([f"category {number}" for number in rng.integers(0, 300, ROWS)]),
        "unique": pa.array([f"text {number}" for number in range(ROWS)]),
        "label": pa.array(np.where(score + rng.normal(0, 0.3, ROWS) > 0.5, "good", "bad")),
        "decision": pa.array(np.where(score > 0.5, "yes", "no")),
        "score": pa.array(score.astype(np.float32)),
    })  # fmt: skip


def _findings(data: Any) -> dict[str, Any]:
    roles = {"label": "label", "favorable": "good", "sensitive": ["group"], "within": "label"}
    dataset = fairkit.load_data(data, **roles, name="t") if isinstance(data, pa.Table) else None
    dataset = dataset or fairkit.load_data(data, **roles)
    model = fairkit.PredictedColumns(decision="decision", score="score", favorable="yes")
    report = fairkit.audit(model, dataset).to_dict()
    return {"findings": report["findings"], "digest": dataset.sha256, "rows": dataset.profile.unordered}


@pytest.mark.long
def test_findings_do_not_depend_on_the_pages_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = _table()
    expected = _findings(table)
    forms: dict[str, dict[str, Any]] = {
        "one": {},
        "groups": {"row_group_size": 37_000},
        "plain": {"use_dictionary": False, "row_group_size": 40_000},
        "mixed": {"use_dictionary": ["many", "label"], "row_group_size": 50_000},
    }
    for name, options in forms.items():
        pq.write_table(table, tmp_path / f"{name}.parquet", **options)
        assert _findings(tmp_path / f"{name}.parquet") == expected, name
    monkeypatch.setattr(threads_ahead, "_processors", lambda: 1)
    assert _findings(tmp_path / "groups.parquet") == expected


def test_short_dictionaries_are_read_as_such_in_whole_batches(tmp_path: Path):
    pq.write_table(_table(), tmp_path / "t.parquet", row_group_size=37_000)
    batches = list(ParquetPart(tmp_path / "t.parquet").read(["group", "unique"], 65_536, {}))
    assert [batch.num_rows for batch in batches] == [65_536, ROWS - 65_536]
    assert [pa.types.is_dictionary(field.type) for field in batches[0].schema] == [True, False]


@pytest.mark.parametrize("processors", [1, 2])
def test_every_item_comes_once_and_in_order(processors: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads_ahead, "_processors", lambda: processors)
    assert list(ahead("read", iter(range(7)))) == list(range(7))

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("here")

    items = ahead("read", broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="here"):
        next(items)


def test_rows_in_known_cells_count_as_sorted_rows_do():
    """The same cells, extremes and masses as those of all rows at once, in whatever pieces they come."""
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.random(40_000) ** 4, [0.0, -0.0, 1.0], rng.random(3_000) * 1e-9])
    outcome, groups = rng.integers(0, 2, len(score)).astype(float), rng.integers(0, 3, len(score))
    statistic = Scores(limit=50)

    def total(cuts: list[int]) -> Any:
        joined = None
        for low, high in itertools.pairwise(cuts):
            part = slice(low, high)
            rows = Rows(outcome=outcome[part], score=score[part])
            piece = statistic.collect(rows, groups[part], 3)
            piece.values  # noqa: B018 -- counts the rows that wait
            joined = piece if joined is None else joined + statistic.collect(rows, groups[part], 3)
            joined.values  # noqa: B018 -- counts the rows that wait
        return joined

    whole, pieces = total([0, len(score)]), total([0, 10_000, 10_001, 30_000, 41_000, len(score)])
    assert not whole.exact
    for name in ("values", "middles", "mass", "squares"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name


def test_keys_without_a_cell_get_none():
    cells = np.array([4, 5, 9])
    keys = np.array([3, 4, 6, 9, 10, 5]) << 11
    assert places_of(keys, 11, cells).tolist() == [3, 0, 3, 2, 3, 1]
    far = np.array([0, 1 << 40])
    assert places_of(np.array([0, 7, 1 << 40, 1 << 41]), 0, far).tolist() == [0, 2, 1, 2]
