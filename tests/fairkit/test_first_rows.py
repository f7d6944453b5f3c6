"""The first rows that are used are found over the parts of a table; where they are rare, the table is not held."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fairkit
from fairkit.data.dataset import LOOKED_THROUGH


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
