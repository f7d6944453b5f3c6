"""One local cluster of two worker processes for all tests of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A client of two workers of one thread."""
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    from fairkit_dask import connected

    with connected(workers=2) as client:
        yield client


@pytest.fixture
def engine(cluster: Any) -> Any:
    """The engine on it."""
    from fairkit.engines import DaskEngine

    return DaskEngine(cluster)


@pytest.fixture
def write_parts(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a table as a folder of parts that end at the cuts."""

    def write(name: str, table: pa.Table, cuts: list[int], *, csv: bool = False) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for number, (low, high) in enumerate(itertools.pairwise([0, *cuts, len(table)])):
            part = table.slice(low, high - low)
            if csv:
                pacsv.write_csv(part, folder / f"part-{number:02}.csv")
            else:
                pq.write_table(part, folder / f"part-{number:02}.parquet")
        return folder

    return write
