"""Fixtures for all tests: where the public data sets are, and small tables made by formula."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def data_folder() -> Path | None:
    """The folder with the public data sets: FAIRKIT_DATA, else shared/data beside the repository."""
    named = os.environ.get("FAIRKIT_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if (folder / "adult.parquet").is_file() else None


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder with the public data sets; the test is skipped where there is none."""
    folder = data_folder()
    if folder is None:
        pytest.skip("set FAIRKIT_DATA to a folder with the public data sets as Parquet files")
    return folder
