"""Groups that look the same are told of, and NA means the same in every kind of table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import fairkit
from fairkit.data.column_summary import lookalikes


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["female", "female "], "differ in spaces"),
        (["female", "Female"], "upper and lower case"),
        (["female", "f\u0435male"], "U+0435 CYRILLIC SMALL LETTER IE"),
        (["female", "fe\u200bmale"], "U+200B ZERO WIDTH SPACE"),
        (["caf\u00e9", "cafe\u0301"], "U+00E9"),
        (["non  binary", "non binary"], "differ in spaces"),
        (["FEMALE", "female "], "case and spaces"),
    ],
)
def test_pairs_that_look_the_same(names, said):
    (text,) = lookalikes("sex", [*names, "male"])
    assert said in text
    assert text.isascii()  # what looks the same is written so that it does not


def test_values_that_do_not_look_the_same():
    assert lookalikes("sex", ["male", "female", "1", "11", "A", "\u00c4"]) == []
    assert len(lookalikes("code", [case for n in range(20) for case in (f"k{n}", f"K{n}")])) == 6


def rows(word):
    rng = np.random.default_rng(0)
    sex = np.array(["female", word, "male"] * 40, dtype=object)
    return pa.table({"sex": sex, "y": rng.integers(0, 2, 120), "p": rng.random(120)})


def test_the_report_begins_with_them():
    data = fairkit.load_data(rows("female "), label="y", favorable=1, sensitive=["sex"])
    report = fairkit.audit(fairkit.PredictedColumns(score="p"), data)
    assert any(text.startswith("'female' and 'female ' of the column 'sex' look the same") for text in report.warnings)


@pytest.mark.long
@pytest.mark.parametrize("word", ["NA", "", "null", "N/A"])
@pytest.mark.parametrize("missing", ["own", "group"])
def test_missing_text_is_the_same_in_csv_and_parquet(tmp_path, word, missing):
    table = rows(word)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = []
    for name in ("t.csv", "t.parquet"):
        data = fairkit.load_data(
            tmp_path / name,
            label="y",
            favorable=1,
            sensitive=["sex"],
            **({"missing": "group"} if missing == "group" else {}),
        )
        report = fairkit.audit(fairkit.PredictedColumns(score="p"), data)
        found.append(
            (report.data.groups, report.data.missing, report.find("demographic_parity_difference", "sex").value)
        )
    assert found[0] == found[1]
    assert found[0][1] == ({} if missing == "group" else {"sex": 40})
