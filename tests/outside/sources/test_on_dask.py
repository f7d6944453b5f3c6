"""Sources on a cluster: workers read the store themselves, with credentials of their own, and see the snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import fairkit

from .shared import SECRETS

LOADED = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


@pytest.fixture
def engine(bucket: Any) -> Iterator[Any]:
    """A cluster of one worker, begun in the environment of the test."""
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    from fairkit.engines import DaskEngine
    from fairkit_dask import connected

    with connected(workers=1) as client:
        yield DaskEngine(client)


def test_every_source_gives_the_same_report_there(
    engine, bucket, loans, loans_model, tmp_path, postgres_server, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", SECRETS["PGPASSWORD"])
    bucket.write("dask/b.parquet", loans.slice(1_000))
    bucket.write("dask/a.parquet", loans.slice(0, 1_000), row_group_size=300)
    query = "SELECT * FROM loans ORDER BY income, amount, age, debt_ratio"
    addresses = ["s3://data/dask", postgres_server.address(query)]
    try:
        import deltalake
    except ImportError:
        pass
    else:
        deltalake.write_deltalake(tmp_path / "d", loans, partition_by=["sex"])
        addresses.append(f"delta:{tmp_path / 'd'}")
    for address in addresses:
        there = fairkit.audit(loans_model.path, fairkit.load_data(address, **LOADED), engine=engine)
        here = fairkit.audit(loans_model.path, fairkit.load_data(address, **LOADED))
        assert there.data.sha256 == here.data.sha256
        assert dict(there.data.source)["kind"] == dict(here.data.source)["kind"]
        assert [f.value for f in there.findings] == pytest.approx([f.value for f in here.findings], nan_ok=True)


def test_an_object_replaced_under_the_workers(engine, bucket, loans, loans_model):
    data = fairkit.load_data(bucket.write("dask-moving.parquet", loans), **LOADED)
    data.learn()
    bucket.write("dask-moving.parquet", loans.slice(1))
    with pytest.raises(fairkit.FairkitError, match="was replaced by another file"):
        fairkit.audit(loans_model.path, data, engine=engine)
