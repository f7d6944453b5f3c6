"""A watch that a PostgreSQL server counts for: the counts by day are those of its rows, in one transaction."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from fairkit import DataError, Rule, Watch
from fairkit.errors import RowsNeededError
from fairkit_sql.engine import SqlEngine

pytest.importorskip("ibis", reason="needs the extra fairkit[sql]")

HOSTILE = '"; DROP TABLE decided; --\' ""'


def decided(rows: int = 2_500) -> pa.Table:
    """Decisions of ten days."""
    rng = np.random.default_rng(5)
    first = datetime.datetime(2024, 1, 5, 22)
    moments = [first + datetime.timedelta(seconds=int(one)) for one in rng.integers(0, 800_000, rows)]
    return pa.table(
        {
            "moment": pa.array(moments, pa.timestamp("us")),
            "said": rng.choice([True, False], rows),
            HOSTILE: pa.array(rng.choice(["f", "m", None], rows).tolist(), pa.string()),
            "age": rng.integers(18, 80, rows),
            "weight": rng.gamma(2, 1, rows),
            "score": rng.random(rows),
        }
    )


def watch(folder, **more) -> Watch:
    """Begin a watch of one rule."""
    rule = Rule("selection_rate", min=0.1)
    roles = {"decision": "said", "sensitive": [HOSTILE, "age:30:60"], **more}
    return Watch.create(folder, [rule], **roles)


@pytest.mark.parametrize(
    "settings",
    [
        {"day": "moment"},
        {"day": "day", "weights": "weight", "score": "score"},
        {"day": "text", "score": "exact", "missing": "group"},
        {"day": "day", "score": "said", "weights": "age"},
    ],
    ids=str,
)
def test_counts_by_day_are_those_of_the_rows(postgres, tmp_path, monkeypatch, settings):
    postgres.fill("decided", decided())
    columns = "moment::date AS day, moment::text AS text, age::numeric(9,2) AS exact"
    address = postgres.address(f"SELECT *, {columns} FROM decided")
    with watch(tmp_path / "read", **settings) as read, watch(tmp_path / "counted", **settings) as counted:
        read.add(address)
        monkeypatch.setattr("fairkit.data.snapshot.take_snapshot", None)  # no row travels
        added = counted.add(address, engine=SqlEngine(pulls=False))
        assert (added.rows, added.notes) == (2_500, ())
        assert next(one for one in counted.book.records if one["kind"] == "add")["source"]["snapshot"]
        assert read.data.days == counted.data.days
        for name, split in read.data.splits.items():
            assert split.groups == counted.data.splits[name].groups
            for key, numbers in split.parts.items():
                np.testing.assert_allclose(counted.data.splits[name].parts[key], numbers, rtol=1e-9, atol=1e-9)
        if "score" not in settings:
            assert read.totals() == counted.totals()
    postgres.run("SELECT 1 FROM decided LIMIT 1")  # it is still there


def test_numbers_that_are_none_and_times_with_a_zone(postgres, tmp_path):
    postgres.fill("decided", decided(300))
    for value in ("NaN", "Infinity"):
        bad = f"CASE WHEN age = (SELECT max(age) FROM decided) THEN '{value}'::float8 ELSE 1 END AS odd"
        address = postgres.address(f"SELECT *, moment::date AS day, {bad} FROM decided")
        with watch(tmp_path / value, day="day", score="odd") as counted:
            for engine in (None, SqlEngine(pulls=False)):
                with pytest.raises(DataError, match="of 300 rows have no usable score in 'odd'"):
                    counted.add(address, engine=engine)
    zoned = postgres.address("SELECT *, moment::timestamptz AS zoned FROM decided")
    with watch(tmp_path / "zoned", day="zoned") as counted:
        with pytest.raises(RowsNeededError, match="has times with a zone"):
            counted.add(zoned, engine=SqlEngine(pulls=False))
        assert counted.add(zoned, engine="sql").rows == 300
