"""Group audits on two worker processes: the numbers of one machine, whatever the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.errors import DataError
from fairkit.models.columns import PredictedColumns

SETTINGS: dict[str, Any] = {"label": "decision", "favorable": "approved", "sensitive": ["sex", "age"]}


def same(one: Any, other: Any, path: str = "", within: float = 1e-12) -> None:
    """Compare reports: text and counts exactly, numbers to 1e-12."""
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            same(one[key], other[key], f"{path}.{key}", within)
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{path}[{place}]", within)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=within, abs=within, nan_ok=True), path
    else:
        assert one == other, path


@pytest.mark.parametrize(("cuts", "csv"), [([7, 7, 1_300, 3_999], False), ([1_000], True)])
def test_a_folder_gives_the_numbers_of_one_machine(
    engine: Any, loans_model: Any, write_parts: Any, cuts: list[int], csv: bool
) -> None:
    """With an empty part too; group and consistency, whose flips take the values of all parts."""
    folder = write_parts("loans", pq.read_table(loans_model.data), cuts, csv=csv)
    asked: dict[str, Any] = {
        "auditors": ["group", "consistency"],
        "parameters": {"consistency": {"sensitive": ["sex"]}},
    }
    here = fairkit.audit(loans_model.path, fairkit.load_data(folder, **SETTINGS), **asked)
    there = fairkit.audit(loans_model.path, fairkit.load_data(folder, **SETTINGS), engine=engine, **asked)
    same(there.to_dict(), here.to_dict())
    whole = fairkit.audit(loans_model.path, fairkit.load_data(loans_model.data, **SETTINGS), **asked).to_dict()
    whole["data"]["name"] = "loans"
    # onnxruntime's products in single precision may differ in the last bit between batches of 7 and of 4,000 rows
    same(there.to_dict(), whole, within=1e-9)


def test_missing_groups_are_those_of_one_machine(engine: Any, loans_model: Any, write_parts: Any) -> None:
    """All rows without a group are in one part."""
    table = pq.read_table(loans_model.data)
    recorded = [None if i < 300 else sex for i, sex in enumerate(table["sex"].to_pylist())]
    table = table.append_column("recorded_sex", pa.array(recorded))
    roles = SETTINGS | {"sensitive": ["recorded_sex", "ethnicity"]}
    folder = write_parts("missing", table, [500])
    here = fairkit.audit(loans_model.path, fairkit.load_data(folder, **roles))
    there = fairkit.audit(loans_model.path, fairkit.load_data(folder, **roles), engine=engine)
    assert here.data.missing == {"recorded_sex": 300}
    same(there.to_dict(), here.to_dict())


def test_row_groups_are_parts(engine: Any, loans_model: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pq.write_table(pq.read_table(loans_model.data), tmp_path / "loans.parquet", row_group_size=700)
    monkeypatch.setattr("fairkit_dask.PART_ROWS", 1_500)
    data = fairkit.load_data(tmp_path / "loans.parquet", **SETTINGS)
    there = fairkit.audit(loans_model.path, data, engine=engine)
    assert len(data.source.parts) == 3
    here = fairkit.audit(loans_model.path, fairkit.load_data(loans_model.data, **SETTINGS))
    same(there.to_dict(), here.to_dict())


def test_a_dask_data_frame(engine: Any, loans_model: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = pq.read_table(loans_model.data).to_pandas()
    data = fairkit.load_data(dd.from_pandas(frame, npartitions=3), **SETTINGS, name="loans.parquet")
    there = fairkit.audit(loans_model.path, data, engine=engine)
    here = fairkit.audit(loans_model.path, fairkit.load_data(loans_model.data, **SETTINGS))
    same(there.to_dict(), here.to_dict())
    again = fairkit.load_data(dd.from_pandas(frame, npartitions=3), **SETTINGS, name="loans.parquet")
    same(fairkit.audit(loans_model.path, again).to_dict(), here.to_dict())


def test_a_group_in_one_part_only(engine: Any, write_parts: Any) -> None:
    n = 600
    rng = np.random.default_rng(0)
    score = rng.random(n)
    group = np.where(np.arange(n) < 400, rng.choice(["a", "b"], n), "c")
    table = pa.table({"g": group, "y": rng.integers(0, 2, n), "s": score, "w": rng.random(n)})
    folder = write_parts("d", table, [200, 400])
    roles: dict[str, Any] = {"label": "y", "favorable": 1, "sensitive": "g", "weights": "w"}
    model = fairkit.PredictedColumns(score="s")
    there = fairkit.audit(model, fairkit.load_data(folder, **roles), engine=engine)
    here = fairkit.audit(model, fairkit.load_data(table, **roles, name="d"))
    assert there.data.groups["g"]["c"] == 200
    same(there.to_dict(), here.to_dict())


def test_a_part_that_cannot_be_read(engine: Any, loans_model: Any, write_parts: Any) -> None:
    folder = write_parts("loans", pq.read_table(loans_model.data), [1_000, 2_000])
    path = folder / "part-01.parquet"
    content = bytearray(path.read_bytes())
    content[200:2_000] = bytes(1_800)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"part-01\.parquet"):
        fairkit.audit(loans_model.path, fairkit.load_data(folder, **SETTINGS), engine=engine)


@pytest.mark.parametrize("frame", [False, True])
def test_columns_of_another_table(engine, write_parts, tmp_path, frame):
    """A join on the workers: each reads the other table once; a data frame's partitions are joined there."""
    ids = np.arange(600) % 150
    log = pa.table({"who": ids, "d": (ids * 7 % 5 > 1).astype(int)})
    people = pa.table({"who": np.arange(20, 150), "sex": np.array(["f", "m"])[np.arange(20, 150) % 2]})
    pq.write_table(people, tmp_path / "people.parquet")
    roles = {"sensitive": ["sex"], "predictions": {"decision": "d"}, "on": "who", "join": tmp_path / "people.parquet"}
    here = fairkit.audit(None, fairkit.load_data(log, **roles))
    if frame:
        import dask.dataframe as dd

        source = dd.from_pandas(log.to_pandas(), npartitions=3)
    else:
        source = write_parts("log", log, [100, 350])
    there = fairkit.audit(None, fairkit.load_data(source, **roles), engine=engine)
    assert [f.to_dict() for f in there.findings] == [f.to_dict() for f in here.findings]
    assert there.data.joined == here.data.joined
    assert there.data.sha256 == here.data.sha256


# The search over groups finds the same on a cluster: its totals are sums of whole numbers.
@pytest.mark.parametrize("weights", [None, "w"])
def test_a_cluster_finds_the_same_groups_with_the_same_bytes(engine, write_parts, weights):
    rng = np.random.default_rng(3)
    n = 3000
    age, job = rng.integers(18, 66, n), rng.choice(["a", "b", None], n)
    score = np.round(rng.random(n), 6)
    decision = np.where((age > 50) & (rng.random(n) < 0.5), 0, (score > 0.4).astype(int))
    table = pa.table(
        {
            "age": age,
            "job": pa.array(job),
            "score": score,
            "decision": decision,
            "outcome": (rng.random(n) < score).astype(int),
            "w": rng.uniform(0.1, 3, n),
        }
    )
    folder = write_parts("people", table, [700, 1900])
    roles = {"label": "outcome", "favorable": 1, "sensitive": ["age"], "weights": weights, "name": "people"}
    settings = {"columns": ["age", "job"], "metrics": ["selection_rate", "calibration_residual", "mean_loss"]}
    model = PredictedColumns(score="score", decision="decision")

    def audit(source, **more):
        data = fairkit.load_data(source, **roles)
        return fairkit.audit(model, data, auditors=["subgroups"], parameters={"subgroups": settings}, **more)

    spread, here = audit(str(folder), engine=engine), audit(table)
    assert [one.to_dict() for one in spread.findings] == [one.to_dict() for one in here.findings]
    assert any(one.metric == "subgroup_gap" for one in here.findings)
