"""Columns from another table: counted, never silent; the same on one machine, in parts and on Dask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import fairkit

ROWS = 1_200


def log(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"person_id": rng.integers(0, 400, ROWS), "approved": rng.integers(0, 2, ROWS)})


def people(least: int = 0, most: int = 400) -> pa.Table:
    rng = np.random.default_rng(9)
    ids = rng.permutation(np.arange(least, most))
    return pa.table({"person_id": ids, "sex": np.array(["f", "m"])[ids % 2], "age": ids % 60})


def opened(data: Any, join: Any, on: Any = "person_id", **roles: Any) -> fairkit.Dataset:
    given: dict[str, Any] = {"sensitive": ["sex"], "predictions": {"decision": "approved"}}
    return fairkit.load_data(data, **(given | roles), join=join, on=on)


def rates(report: fairkit.Report) -> dict[str, float | None]:
    return {g.group: g.value for g in report.find("demographic_parity_difference", "sex").groups}


def by_hand(table: pa.Table) -> dict[str, float]:
    ids, decided = table.column("person_id").to_numpy(), table.column("approved").to_numpy()
    return {sex: float(decided[ids % 2 == place].mean()) for place, sex in enumerate("fm")}


@pytest.mark.parametrize("kind", ["memory", "parquet", "csv"])
def test_each_row_takes_the_columns_of_its_key(kind: str, tmp_path: Path) -> None:
    here: Any = log()
    there: Any = people()
    if kind != "memory":
        write = pq.write_table if kind == "parquet" else pacsv.write_csv
        write(here, tmp_path / f"log.{kind}")
        write(there, tmp_path / f"people.{kind}")
        here, there = tmp_path / f"log.{kind}", tmp_path / f"people.{kind}"
    report = fairkit.audit(None, opened(here, there))
    assert rates(report) == pytest.approx(by_hand(log()))
    plain = fairkit.load_data(log())
    assert report.data.sha256 == plain.learn().sha256  # the digest of the table itself
    assert report.data.joined["sha256"] == fairkit.load_data(people()).learn().sha256
    assert report.data.joined["matched"] == ROWS
    assert report.data.joined["used"] == len(np.unique(log().column("person_id")))
    assert fairkit.Report.from_dict(report.to_dict()).data == report.data


def test_text_keys_and_other_names_and_two_columns() -> None:
    here, there = log(), people()
    texts = [f"p{i}" for i in here.column("person_id").to_pylist()]
    here = here.set_column(0, "who", pa.array(texts))
    ids = there.column("person_id").to_pylist()
    there = there.set_column(0, "id", pa.array([f"p{i}" for i in ids]))
    report = fairkit.audit(None, opened(here, there, on="who=id"))
    assert rates(report) == pytest.approx(by_hand(log()))
    assert report.data.joined["on"] == ["who=id"]
    two = [table.append_column("site", pa.array(["a"] * len(table))) for table in (here, there)]
    assert rates(fairkit.audit(None, opened(*two, on=["who=id", "site"]))) == pytest.approx(by_hand(log()))


def test_rows_without_a_match_are_counted_and_bounded() -> None:
    report = fairkit.audit(None, opened(log(), people(100)))
    gone = int((log().column("person_id").to_numpy() < 100).sum())
    assert report.data.joined["unmatched"] == gone
    assert report.data.missing == {"sex": gone}
    assert report.warnings[0].startswith(f"{gone:,} of 1,200 rows of data frame have no match")
    assert "missing_bounds" in report.find("demographic_parity_difference", "sex").evidence


def test_a_label_from_another_table() -> None:
    there = people().append_column("repaid", pa.array((people().column("person_id").to_numpy() % 3 == 0).astype(int)))
    report = fairkit.audit(None, opened(log(), there, label="repaid", favorable=1))
    ids, decided = log().column("person_id").to_numpy(), log().column("approved").to_numpy()
    assert report.find("true_positive_rate").value == pytest.approx(decided[ids % 3 == 0].mean())


def test_joined_columns_are_features_only_by_name() -> None:
    assert "age" not in opened(log(), people()).features
    assert "age" in opened(log(), people()).columns


@pytest.mark.parametrize(
    ("there", "on", "said"),
    [
        (pa.concat_tables([people(), people().slice(0, 3)]), "person_id", "3 keys are there more than once"),
        (people(5_000, 5_010), "person_id", "none of the 1,200 rows"),
        (people(), "id", "no key column 'id'"),
        (people(), "person_id=id", "no key column 'id'"),
        (people().select(["person_id"]), "person_id", "no column besides its key"),
        (people(), None, "is given alone"),
        (None, "person_id", "is given alone"),
        (
            people().set_column(0, "person_id", pa.array([f"{i:06}" for i in range(400)])),
            "person_id",
            "none of the 1,200",
        ),
        (people().set_column(0, "person_id", pa.array([None, *range(399)])), "person_id", "1 rows have no value"),
        (people(0, 0), "person_id", "no rows"),
    ],
)
def test_what_cannot_be_joined_is_refused(there: Any, on: Any, said: str) -> None:
    with pytest.raises(fairkit.DataError) as caught:
        opened(log(), there, on).learn()
    assert said in str(caught.value)


def test_a_column_with_a_role_in_both_tables_is_a_question() -> None:
    both = log().append_column("sex", pa.array(["f", "m"] * (ROWS // 2)))
    with pytest.raises(fairkit.DataError, match="'sex' is in data frame and in"):
        opened(both, people())


def test_in_parts_it_is_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for number, start in enumerate((0, 500, 501)):
        stop = (500, 501, ROWS)[number]
        pq.write_table(log().slice(start, stop - start), folder / f"part-{number}.parquet")
    one, many = (fairkit.audit(None, opened(log(), people(100))), fairkit.audit(None, opened(folder, people(100))))
    assert [f.to_dict() for f in one.findings] == [f.to_dict() for f in many.findings]
    assert one.data.joined == many.data.joined
    assert one.data.sha256 == many.data.sha256
