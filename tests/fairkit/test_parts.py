"""Tables in several files, and totals of the first pass that add up."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairkit
from fairkit.data.arrow_types import plain
from fairkit.data.dataset import LOOKED_THROUGH
from fairkit.data.digest import CHUNK, TableDigest
from fairkit.data.profile import Tally, choose_bins
from fairkit.data.sources import open_source
from fairkit.errors import DataError


def _table(n: int = 3 * CHUNK + 11) -> pa.Table:
    rng = np.random.default_rng(1)
    whole = rng.integers(0, 9, n)
    whole[n // 2] = 2**53 + 1
    return pa.table(
        {
            "t": pa.array(np.where(rng.random(n) < 0.2, None, rng.choice(["a", "", "äö"], n)), pa.string()),
            "w": whole,
            "r": rng.normal(size=n),
            "b": pa.array(rng.random(n) < 0.5),
            "y": rng.integers(0, 2, n),
        }
    )


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 3 * CHUNK + 11), max_size=5), st.integers(900, 3 * CHUNK), st.integers(0, 9))
def test_digests_of_parts_add_up(cuts: list[int], batch: int, seed: int) -> None:
    """Any cut into parts, fed in any batches, merged in any order of neighbours: the digest is the whole's."""
    table = _table()
    bounds = [0, *sorted(cuts), len(table)]
    parts = []
    for start, stop in itertools.pairwise(bounds):
        part = TableDigest(table.schema.names, start)
        for piece in table.slice(start, stop - start).to_batches(batch):
            part.update(plain(piece, "t"))
        parts.append(part)
    rng = np.random.default_rng(seed)
    while len(parts) > 1:
        place = int(rng.integers(len(parts) - 1))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    assert parts[0].hexdigest() == fairkit.load_data(table).learn().sha256


def test_only_neighbours_add_up() -> None:
    with pytest.raises(ValueError, match="do not follow"):
        TableDigest(["a"]) + TableDigest(["a"], 5)


def test_tallies_of_parts_add_up() -> None:
    """A group that is in one part only, and an empty part."""
    table = pa.table({"g": ["a"] * 4 + ["b"] * 3 + ["c"], "y": [0, 1, 1, 0, 1, None, 0, 2]})
    source = open_source(table)
    roles = fairkit.load_data(table, label="y", favorable=1, sensitive="g").roles
    bins, _ = choose_bins(source, roles)
    total = None
    for start, stop in itertools.pairwise([0, 4, 4, 7, 8]):
        tally = Tally(source.columns, roles, bins, table="part", start=start)
        for batch in tally.digested(plain(b, "t") for b in table.slice(start, stop - start).to_batches()):
            tally.add(batch)
        tally.learn_counted()
        total = tally if total is None else total + tally
    assert total is not None
    whole = fairkit.load_data(table, label="y", favorable=1, sensitive="g").learn()
    assert total.profile("t", ()) == whole
    assert whole.groups["g"] == {"a": 4, "b": 3, "c": 1}
    assert whole.unlabelled == 1


def _write(folder: Path, *tables: pa.Table, csv: bool = False) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        if csv:
            pacsv.write_csv(table, folder / f"part-{number}.csv")
        else:
            pq.write_table(table, folder / f"part-{number}.parquet")
    return folder


@pytest.mark.parametrize("csv", [False, True])
def test_a_folder_and_a_glob_are_one_table(tmp_path: Path, csv: bool) -> None:
    table = _table(900).drop_columns(["w"])
    folder = _write(tmp_path / "d", table.slice(0, 100), table.slice(100, 0), table.slice(100), csv=csv)
    whole = fairkit.load_data(table).learn().sha256
    assert fairkit.load_data(folder).learn().sha256 == whole
    assert fairkit.load_data(f"{folder}/part-*.{'csv' if csv else 'parquet'}").learn().sha256 == whole


def test_parts_may_differ_in_the_width_of_numbers(tmp_path: Path) -> None:
    one, two = pa.table({"a": [1, 2], "b": [None, None]}), pa.table({"a": [0.5], "b": ["x"]})
    data = fairkit.load_data(_write(tmp_path / "d", one, two))
    assert data.learn().sha256 == fairkit.load_data({"a": [1, 2, 0.5], "b": [None, None, "x"]}).learn().sha256


def test_csv_parts_widen_together(tmp_path: Path) -> None:
    """The last block of the second part turns a column of numbers into text: that of the first part too."""
    late = ["3"] * 900_000 + ["x"]
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "1.csv").write_text("a,b\n1,2\n")
    (folder / "2.csv").write_text("a,b\n" + "\n".join(f"{a},5" for a in late) + "\n")
    data = fairkit.load_data(folder)
    assert data.learn().sha256 == fairkit.load_data({"a": ["1", *late], "b": [2, *[5] * len(late)]}).learn().sha256


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"a": [1]}, r"part-1\.parquet has no column 'b', unlike part-0\.parquet"),
        ({"a": [1], "b": ["x"], "c": [1]}, "has a column 'c' besides"),
        ({"a": ["x"], "b": ["x"]}, r"column 'a' is int64 in part-0\.parquet and string in part-1\.parquet"),
    ],
)
def test_a_part_with_another_schema(tmp_path: Path, second: dict[str, list[object]], message: str) -> None:
    folder = _write(tmp_path / "d", pa.table({"a": [1], "b": ["x"]}), pa.table(second))
    with pytest.raises(DataError, match=message):
        fairkit.load_data(folder)


def test_a_glob_without_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data file matches"):
        fairkit.load_data(tmp_path / "*.parquet")


def test_a_wide_file_is_read_in_batches_of_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its row groups are cut and read, the rows are those of the table."""
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.normal(size=3_000) for j in range(150)}
    table = pa.table({"t": rng.choice(["a", "b"], 3_000), **columns})
    monkeypatch.setattr("fairkit.data.source.MOST_CELLS", 151 * 1_100)
    for rows, large in ((3_000, 1 << 28), (1_000, 1 << 28), (70, 1 << 28), (1_700, 1)):
        monkeypatch.setattr("fairkit.data.parts._LARGE", large)
        pq.write_table(table, tmp_path / "wide.parquet", row_group_size=rows)
        source = open_source(tmp_path / "wide.parquet")
        batches = list(source.batches(source.columns, 65_536))
        assert max(batch.num_rows for batch in batches) <= 1_100
        assert pa.Table.from_batches(batches).equals(table)
        assert len(next(source.batches(["x3", "t"], 65_536))) == 3_000


# The first rows that are used are found over the parts of a table; where they are rare, the table is not held.
def test_a_short_first_part_is_not_all(tmp_path):
    for name, start, stop in (("a", 0, 7), ("b", 7, 3_000), ("c", 3_000, 9_000)):
        numbers = np.arange(start, stop)
        pq.write_table(pa.table({"x": numbers, "y": numbers % 2}), tmp_path / f"{name}.parquet")
    data = fairkit.load_data(tmp_path, label="y")
    first = data.read(["x"], 4_096)
    assert first.rows.tolist() == first.column("x").tolist() == list(range(4_096))
    assert len(data.read(["x"], 20_000)) == len(data.read(["x"])) == 9_000


def test_rows_without_a_label_are_passed_over_and_not_held():
    rows, far = LOOKED_THROUGH + 100_000, LOOKED_THROUGH + 50_000
    label = np.full(rows, np.nan)
    label[[10_000, 10_001, far]] = 0, 1, 1
    data = fairkit.load_data(pa.table({"x": np.arange(rows), "y": pa.array(label, mask=np.isnan(label))}), label="y")
    first = data.read(["x"], 4_096)
    assert first.rows.tolist() == first.column("x").tolist() == [10_000, 10_001]
    assert data.read(["x"]).rows.tolist() == [10_000, 10_001, far]
