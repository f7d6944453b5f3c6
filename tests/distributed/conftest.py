"""One local cluster of two worker processes for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A client of two workers of one thread."""
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    from fairkit.distributed.cluster import connected

    with connected(workers=2) as client:
        yield client


@pytest.fixture
def engine(cluster: Any) -> Any:
    """The engine on it."""
    from fairkit.distributed import DaskEngine

    return DaskEngine(cluster)
