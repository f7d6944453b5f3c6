"""Tables with roles: the digest, groups, weights and streams."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairkit
from fairkit.data.arrow_types import plain
from fairkit.data.column_summary import Sheet
from fairkit.data.digest import TableDigest
from fairkit.data.roles import Sensitive, bin_names, same_value, value_text
from fairkit_datasets.catalog import content_digest

PUBLIC = [
    "acs_income",
    "adult",
    "communities_crime",
    "compas",
    "credit_default",
    "german",
    "law_school",
    "law_school_bar_passage",
    "law_school_counterfactual",
    "law_school_fair_regression",
]


def _digest(data: Any) -> str:
    return fairkit.load_data(data).learn().sha256


# the digest


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLIC)
def test_csv_and_parquet_of_a_public_table_have_one_digest(name: str, public_data: Path, tmp_path: Path) -> None:
    table = pq.read_table(public_data / f"{name}.parquet").slice(0, 50_000)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7_000)
    pacsv.write_csv(table, tmp_path / "t.csv")
    whole = _digest(tmp_path / "t.parquet")
    assert _digest(tmp_path / "t.csv") == whole
    assert _digest(table.to_pandas()) == whole
    assert content_digest(table) == whole


def _sample() -> pa.Table:
    return pa.table(
        {
            "name": ["ab", "c", None, "", "d,e", "ü"],
            "whole": pa.array([1, -2, None, 2**53 + 1, 0, 7], pa.int64()),
            "real": [0.5, None, float("nan"), -0.0, 1e300, 3.0],
            "flag": [True, False, None, True, False, True],
            "nothing": pa.array([None] * 6, pa.float64()),
        }
    )


def test_each_cell_counts() -> None:
    """Changing any one cell, type of cell, name, order of rows or columns changes the digest."""
    table = _sample()
    digests = {content_digest(table)}
    changes = {"name": "z", "whole": 5, "real": 9.25, "flag": None, "nothing": 1.0}
    count = 1
    for column, value in changes.items():
        place = table.column_names.index(column)
        for row in range(table.num_rows):
            cells = table[column].to_pylist()
            if cells[row] == value or (value is None and cells[row] is None):
                continue
            cells[row] = value
            digests.add(content_digest(table.set_column(place, column, pa.array(cells, table[column].type))))
            count += 1
    digests.add(content_digest(table.rename_columns(["n", *table.column_names[1:]])))
    digests.add(content_digest(table.select(table.column_names[::-1])))
    digests.add(content_digest(table.take([1, 0, 2, 3, 4, 5])))
    digests.add(content_digest(table.slice(0, 5)))
    assert len(digests) == count + 4


def test_cells_do_not_run_into_each_other() -> None:
    assert _digest({"a": ["ab", "c"]}) != _digest({"a": ["a", "bc"]})
    assert _digest({"a": ["1", "2"]}) != _digest({"a": [1, 2]})
    assert _digest({"a": [True, False]}) != _digest({"a": [1, 0]})
    assert _digest({"a": ["x", ""], "b": ["", "y"]}) != _digest({"a": ["x", "y"], "b": ["", ""]})


def test_what_does_not_count() -> None:
    """Integer or double, missing or NaN or empty, 0.0 or -0.0, dictionary or plain."""
    assert _digest({"a": [1, 2]}) == _digest({"a": [1.0, 2.0]})
    assert _digest(pa.table({"a": ["x", None]})) == _digest({"a": ["x", ""]})
    assert _digest({"a": [0.0, 1.0]}) == _digest({"a": [-0.0, 1.0]})
    assert _digest(pa.table({"a": pa.array([1.5, None])})) == _digest({"a": [1.5, np.nan]})
    text = pa.array(["x", "y", "x"])
    assert _digest(pa.table({"a": text.dictionary_encode()})) == _digest(pa.table({"a": text}))
    assert _digest(pa.table({"a": text.cast(pa.large_string())})) == _digest(pa.table({"a": text}))


@pytest.mark.parametrize("large", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_large_integers_keep_their_digits(large: int) -> None:
    near = large - 1 if large > 0 else large + 1
    one = pa.table({"a": pa.array([large, None, 3], pa.int64())})
    two = pa.table({"a": pa.array([near, None, 3], pa.int64())})
    assert content_digest(one) != content_digest(two)
    assert content_digest(one) == content_digest(pa.concat_tables([one.slice(0, 2), one.slice(2)]))


CELL = st.none() | st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.text(max_size=3), CELL, st.none() | st.floats(width=64)), min_size=1),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_batches_change_no_digest(rows: list[tuple[Any, Any, Any]], cuts: list[int]) -> None:
    names, kinds = ["t", "w", "r"], [pa.string(), pa.int64(), pa.float64()]
    columns = [pa.array(list(cells), kind) for cells, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    whole = pa.RecordBatch.from_arrays(columns, names)
    one, many = TableDigest(names), TableDigest(names)
    one.update(plain(whole, "t"))
    bounds = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    for start, end in itertools.pairwise(bounds):
        many.update(plain(whole.slice(start, end - start), "t"))
    assert one.hexdigest() == many.hexdigest()


# reading


@pytest.mark.long
def test_a_csv_column_may_turn_from_numbers_to_text(tmp_path: Path) -> None:
    """The first block of the file holds whole numbers, empty cells, booleans; later ones do not."""
    rows = 400_000
    late = {"a": ["1"] * rows, "b": ["2"] * rows, "c": [""] * rows, "d": [""] * rows, "e": ["true"] * rows}
    for name, value in {"a": "x7", "b": "2.5", "c": "3", "d": "late", "e": "maybe"}.items():
        late[name][-1] = value
    path = tmp_path / "wide.csv"
    lines = "\n".join(",".join(row) for row in zip(*late.values(), strict=True))
    path.write_text(f"{','.join(late)}\n{lines}\n")
    assert path.stat().st_size > 4 << 20
    data = fairkit.load_data(path)
    typed = {
        "a": late["a"],
        "b": [float(v) for v in late["b"]],
        "c": [v or None for v in late["c"]],
        "d": [v or None for v in late["d"]],
        "e": late["e"],
    }
    assert data.learn().sha256 == _digest(pa.table(typed))
    assert data.read(["c"]).column("c")[-1] == "3"


def test_dates_are_text(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("when,label\n2020-01-31,1\n2021-12-01,0\n")
    assert fairkit.load_data(path).read(["when"]).column("when").tolist() == ["2020-01-31", "2021-12-01"]


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(10), "b": ["x"] * 10})
    (tmp_path / "t").mkdir()
    pq.write_table(table.slice(0, 4), tmp_path / "t" / "part-0.parquet")
    pq.write_table(table.slice(4), tmp_path / "t" / "part-1.parquet")
    assert _digest(tmp_path / "t") == _digest(table)


def _people(n: int = 1_000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m", None], dtype=object)[rng.choice(3, n, p=[0.45, 0.5, 0.05])]
    return {
        "sex": sex,
        "age": np.where(rng.random(n) < 0.05, np.nan, rng.integers(18, 80, n)),
        "code": rng.integers(1, 4, n),
        "score": rng.random(n),
        "label": rng.integers(0, 2, n),
        "w": rng.integers(0, 3, n),
    }


def test_streams_equal_reading_at_once() -> None:
    import pandas as pd

    columns = _people()
    data = fairkit.load_data(
        columns, label="label", favorable=1, sensitive=["sex", "age:30:50", "sex+code"], weights="w"
    )
    whole = data.read(["score"])
    for rows in (1, 7, 64, 1_000):
        parts = list(data.batches(["score"], rows))
        assert np.array_equal(np.concatenate([p.rows for p in parts]), whole.rows)
        assert np.array_equal(np.concatenate([p.column("score") for p in parts]), whole.column("score"))
        assert np.array_equal(np.concatenate([p.weights for p in parts]), whole.weights)
        assert np.array_equal(np.concatenate([p.favorable for p in parts]), whole.favorable)
        for name in data.learn().groups:
            assert np.array_equal(np.concatenate([p.groups[name] for p in parts]), whole.groups[name])
    used = pd.notna(columns["sex"]) & pd.notna(columns["age"])
    assert np.array_equal(whole.rows, np.flatnonzero(used))
    assert data.learn().dropped_rows == 0
    assert data.learn().complete == used.sum()
    assert data.learn().missing["sex"] == pd.isna(columns["sex"]).sum()


def test_groups_are_those_of_pandas() -> None:
    import pandas as pd

    columns = _people()
    data = fairkit.load_data(columns, label="label", favorable=1, sensitive=["sex", "age:30:50", "sex+code"])
    everybody = pd.DataFrame(columns)
    frame = everybody.dropna()
    assert data.learn().groups["sex"] == everybody["sex"].value_counts().sort_index().to_dict()
    bins = pd.cut(everybody["age"], [-np.inf, 30, 50, np.inf], right=False, labels=["< 30", "30 to < 50", ">= 50"])
    assert data.learn().groups["age"] == bins.value_counts().sort_index().to_dict()
    known = everybody[everybody["sex"].notna()]
    both = (known["sex"] + " & " + known["code"].astype(str)).value_counts().to_dict()
    assert data.learn().groups["sex+code"] == both
    batch = data.read([])
    names = np.array(data.group_names("sex+code"), dtype=object)[batch.groups["sex+code"]]
    assert names.tolist() == (frame["sex"] + " & " + frame["code"].astype(str)).tolist()


def test_missing_groups_can_be_a_group() -> None:
    import pandas as pd

    columns = _people()
    data = fairkit.load_data(columns, label="label", favorable=1, sensitive=["sex", "age:40"], missing="group")
    assert data.learn().dropped_rows == 0
    assert data.learn().groups["sex"]["(missing)"] == pd.isna(columns["sex"]).sum()
    assert data.group_names("sex")[-1] == "(missing)"
    assert data.learn().groups["age"]["(missing)"] == np.isnan(columns["age"]).sum()


def test_many_numbers_are_binned_at_the_quartiles() -> None:
    columns = _people()
    data = fairkit.load_data(columns, label="label", favorable=1, sensitive=["age", "code"])
    assert len(data.learn().groups["age"]) == 4
    assert set(data.learn().groups["code"]) == {"1", "2", "3"}
    sizes = list(data.learn().groups["age"].values())
    assert max(sizes) < 1.4 * min(sizes)
    assert "binned at the quartiles" in data.learn().notes[0]


def test_rows_without_a_label_stay_and_are_counted() -> None:
    label = np.array([1.0, np.nan, 0.0, 1.0])
    data = fairkit.load_data({"g": [0, 0, 1, 1], "y": label}, label="y", favorable=1, sensitive=["g"])
    assert data.learn().rows == 4
    assert data.info().unlabelled_rows == 1


def test_what_the_model_gets() -> None:
    data = fairkit.load_data(_people(50), label="label", favorable=1, sensitive=["code"], drop=["score"], weights="w")
    assert data.features == ("sex", "age", "code")
    named = fairkit.load_data(_people(50), label="label", favorable=1, features=["score", "age"])
    assert named.features == ("score", "age")


@pytest.mark.parametrize(
    ("text", "columns", "edges"),
    [
        ("sex", ("sex",), (None,)),
        ("age:25:60", ("age",), ((25.0, 60.0),)),
        ("sex+age:25", ("sex", "age"), (None, (25.0,))),
        ("a+b", ("a+b",), (None,)),
        ("x:y", ("x:y",), (None,)),
    ],
)
def test_sensitive_columns_are_read_and_written(text: str, columns: Any, edges: Any) -> None:
    known = ["sex", "age", "a+b", "x:y"]
    found = Sensitive.parse(text, known)
    assert (found.columns, found.edges) == (columns, edges)
    assert Sensitive.parse(found.text, known) == found


def test_values_that_mean_the_same() -> None:
    assert same_value("1", 1)
    assert same_value(1.0, 1)
    assert same_value(True, "true")
    assert same_value(True, 1)
    assert same_value("yes", "yes")
    assert not same_value("yes", "Yes")
    assert not same_value(0, 1)
    assert value_text(3.0) == "3"
    assert value_text(float("nan")) == "(missing)"
    assert bin_names([25, 60.5]) == ["< 25", "25 to < 60.5", ">= 60.5"]


@pytest.mark.parametrize("favorable", [1, "1", 1.0, True, "true"])
def test_the_favorable_value_in_any_spelling(favorable: Any) -> None:
    for column in (np.array([0, 1, 1]), np.array(["0", "1", "1"], dtype=object), np.array([False, True, True])):
        if favorable == "true" and column.dtype.kind != "b":
            continue
        data = fairkit.load_data({"y": column}, label="y", favorable=favorable)
        assert data.read([]).favorable is not None
        assert data.read([]).favorable.tolist() == [False, True, True]


@pytest.mark.long
@pytest.mark.parametrize("rows", [90, 900])
def test_tables_are_read_without_pandas(tmp_path: Path, rows: int) -> None:
    """Arrow's own conversions import it, which takes longer than most audits."""
    table = pa.table(
        {
            "g": np.arange(rows) % 3,
            "y": [0.0, 1.0, None] * (rows // 3),
            "s": np.arange(rows) / rows,
            "t": ["a", "b", None] * (rows // 3),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    pacsv.write_csv(table, tmp_path / "t.csv")
    code = (
        "import sys, fairkit\n"
        "for path in sys.argv[1:]:\n"
        "    data = fairkit.load_data(path, label='y', favorable=1, sensitive=['g', 't'])\n"
        "    fairkit.audit(fairkit.PredictedColumns(score='s'), data)\n"
        "print('pandas' in sys.modules, 'pyarrow.dataset' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.parquet"), str(tmp_path / "t.csv")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_the_sheet_has_types_missing_cells_and_the_period_of_the_only_dates(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(
        "applied,born,score,s\n2024-03-05,x,1.5,a\n2024-11-30,,,b\n2023-12-01 10:00,2001-01-01,2,a\n,z,3,b\n"
    )
    info = fairkit.load_data(path, sensitive=["s"]).learn().sheet
    assert {c["name"]: (c["type"], c["missing"]) for c in info.listed()} == {
        "applied": ("date", 1),
        "born": ("text", 1),
        "score": ("number", 1),
        "s": ("text", 0),
    }
    assert info.period() == {"column": "applied", "from": "2023-12", "to": "2024-11"}
    two = fairkit.load_data(
        pa.table({"a": ["2024-01-01", "2024-02-01"], "b": ["2020-01-01", "2021-01-01"], "s": ["x", "y"]}),
        sensitive=["s"],
    )
    assert two.info().period == {}
    parts = Sheet()
    for texts in (["2024-01-05", None], [None, None], ["2023-05-01", "2024-02-09"], ["later", "2025-01-01"]):
        one = Sheet()
        one.add(pa.record_batch({"day": pa.array(texts, pa.string())}))
        parts = parts + one
        assert parts.columns["day"].type == ("date" if "later" not in texts else "text")
    wide = Sheet()
    wide.add(pa.record_batch({f"c{i}": [1] for i in range(250)}))
    assert (len(wide.listed()), wide.more) == (200, 50)
